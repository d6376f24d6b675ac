//! High availability: the guests that are looked after, and what is to become of them.
//!
//! Guests are started and stopped as their resource says. No host takes over the guests of another here.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Outcome, Request, power};
use crate::blueprint::Span;
use crate::world::World;
use crate::world::events::Event;
use crate::world::guest::hex;
use crate::world::tasks::Script;

/// A guest that is looked after: what was said of it, and in which state it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Managed {
    pub(crate) state: String,
    options: Map<String, Value>,
}

/// From a wish to those who fulfil it: both managers look every ten seconds.
const ROUND: Span = Span { mean: 8.0, p95: 15.0 };

const OPTIONS: &[&str] = &["comment", "failback", "auto-rebalance", "max_restart", "max_relocate"];

impl Managed {
    /// The state that is asked for; an older word means the newer one.
    fn wanted(&self) -> &str {
        match self.state.as_str() {
            "enabled" => "started",
            "disabled" => "stopped",
            state => state,
        }
    }

    fn set(&mut self, request: &Request) {
        if let Some(state) = request.text("state") {
            state.clone_into(&mut self.state);
        }
        for key in OPTIONS {
            if let Some(value) = request.text(key) {
                let told = if *key == "comment" { json!(value) } else { json!(request.number(key)) };
                self.options.insert((*key).to_owned(), told);
            }
        }
    }
}

impl World {
    /// Whether somebody else than those who ask starts and stops this guest.
    pub(crate) fn is_managed(&self, vmid: u32) -> bool {
        self.ha.get(&vmid).is_some_and(|managed| managed.wanted() != "ignored")
    }

    /// The word for a guest that is looked after, in lists.
    pub(crate) fn ha_state(&self, vmid: u32) -> Option<&str> {
        self.ha.get(&vmid).map(Managed::wanted)
    }

    /// Brings a guest into the state that is asked for.
    pub(crate) fn manage(&mut self, vmid: u32) {
        let Some(wanted) = self.ha_state(vmid).map(str::to_owned) else { return };
        let Some(guest) = self.guests.get(&vmid) else { return };
        let (host, runs, vmid_text) = (guest.host.clone(), guest.is_running(), vmid.to_string());
        match wanted.as_str() {
            "started" if !runs => {
                let script = power::start_script(self, &host, vmid, false);
                self.begin(&host, "qmstart", &vmid_text, "root@pam", script);
            }
            "stopped" if runs => {
                let script = power::stop_script(self, &host, vmid, false);
                self.begin(&host, "qmstop", &vmid_text, "root@pam", script);
            }
            _ => {}
        }
    }

    fn plan_round(&mut self, vmid: u32) {
        let wait: Duration = self.draw(&format!("ha {vmid}"), ROUND);
        self.events.plan(self.now + wait, Event::Managed(vmid));
    }
}

/// Asks those who look after a guest to start or to stop it: the task ends once they know.
pub(super) fn ask_for(world: &mut World, request: &Request, kind: &str, verb: &'static str, state: &str) -> Outcome {
    let (vmid, state) = (request.vmid(), state.to_owned());
    let script = Script::new().then(move |world, task| {
        world.say(task, format!("Requesting HA {verb} for VM {vmid}"));
        if let Some(managed) = world.ha.get_mut(&vmid) {
            managed.state = state;
        }
        world.plan_round(vmid);
        Ok(Script::new())
    });
    Ok(world.begin(&request.host, kind, &vmid.to_string(), &request.who.name(), script).into())
}

/// The guest that is meant by a resource's name, and the name in full.
fn parse(world: &World, sid: &str) -> Result<(u32, String), String> {
    if let Ok(vmid) = sid.parse::<u32>() {
        let is_there = world.guests.contains_key(&vmid);
        let absent = format!("unable to detect SID from VMID - VM/CT {sid} does not exist");
        return if is_there { Ok((vmid, format!("vm:{vmid}"))) } else { Err(absent) };
    }
    match sid.split_once(':') {
        Some(("vm", name)) => Ok((name.parse().map_err(|_| "invalid VMID".to_owned())?, sid.to_owned())),
        Some(("ct", name)) => Err(format!("resource 'ct:{name}' does not exist in cluster")),
        _ => Err(format!("unable to parse service id '{sid}'")),
    }
}

fn digest(world: &World) -> String {
    hex(&Sha256::digest(format!("{:?}", world.ha))[..20])
}

fn row(world: &World, vmid: u32, managed: &Managed) -> Value {
    let mut row = managed.options.clone();
    row.insert("sid".into(), json!(format!("vm:{vmid}")));
    row.insert("type".into(), json!("vm"));
    row.insert("state".into(), json!(managed.state));
    row.insert("digest".into(), json!(digest(world)));
    row.into()
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let is_wanted = request.text("type").is_none_or(|kind| kind == "vm");
    let rows = world.ha.iter().filter(|_| is_wanted).map(|(vmid, managed)| row(world, *vmid, managed));
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn read(world: &World, request: &Request) -> Outcome {
    let (vmid, sid) = parse(world, request.text("sid").unwrap_or_default())?;
    let managed = world.ha.get(&vmid).ok_or_else(|| format!("no such resource '{sid}'"))?;
    Ok(row(world, vmid, managed).into())
}

pub(super) fn create(world: &mut World, request: &Request) -> Outcome {
    world.check_quorum()?;
    let (vmid, sid) = parse(world, request.text("sid").unwrap_or_default())?;
    check_group(request)?;
    if !world.guests.contains_key(&vmid) {
        return Err(format!("resource '{sid}' does not exist in cluster").into());
    }
    if world.ha.contains_key(&vmid) {
        return Err(format!("create resource failed: resource ID '{sid}' already defined").into());
    }
    let mut managed = Managed { state: "started".to_owned(), options: Map::new() };
    managed.set(request);
    world.ha.insert(vmid, managed);
    world.plan_round(vmid);
    world.effect("manage", vmid);
    Ok(Value::Null.into())
}

/// Has a new guest looked after, as its making asked for.
pub(super) fn look_after(world: &mut World, vmid: u32) {
    world.ha.insert(vmid, Managed { state: "started".to_owned(), options: Map::new() });
    world.plan_round(vmid);
    world.effect("manage", vmid);
}

pub(super) fn update(world: &mut World, request: &Request) -> Outcome {
    let (vmid, sid) = parse(world, request.text("sid").unwrap_or_default())?;
    check_group(request)?;
    if request.text("digest").is_some_and(|given| given != digest(world)) {
        return Err("detected modified configuration - file changed by other user? Try again.".to_owned().into());
    }
    let managed = world.ha.get_mut(&vmid).ok_or_else(|| format!("no such resource '{sid}'"))?;
    for key in request.text("delete").unwrap_or_default().split([',', ';', ' ']) {
        managed.options.remove(key);
    }
    managed.set(request);
    world.plan_round(vmid);
    Ok(Value::Null.into())
}

pub(super) fn delete(world: &mut World, request: &Request) -> Outcome {
    let (vmid, sid) = parse(world, request.text("sid").unwrap_or_default())?;
    match world.ha.remove(&vmid) {
        Some(_) => Ok(Value::Null.into()),
        None => Err(format!("cannot delete service '{sid}', not HA managed!").into()),
    }
}

/// There are no groups here.
fn check_group(request: &Request) -> Result<(), String> {
    request.text("group").map_or(Ok(()), |group| Err(format!("HA group '{group}' does not exist")))
}
