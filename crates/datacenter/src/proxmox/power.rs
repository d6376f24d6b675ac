//! Switching guests on and off.

use std::time::Duration;

use super::{Outcome, Refusal, Request, drive::Drive, ha, rights};
use crate::blueprint::Span;
use crate::world::World;
use crate::world::events::Event;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::Script;

/// How long a guest is given to go down by itself, unless told otherwise.
const SHUTDOWN: Duration = Duration::from_secs(60);

fn locked(vmid: u32) -> Script {
    let lock = LockName::Guest(vmid);
    let patience = lock.patience();
    Script::new().lock(lock, false, patience)
}

/// Refuses to look past locks to everybody but the administrator.
fn check_skiplock(request: &Request) -> Result<(), Refusal> {
    if request.flag("skiplock") && !request.who.is_root() {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    Ok(())
}

fn begin(world: &mut World, request: &Request, kind: &str, script: Script) -> Outcome {
    let vmid = request.vmid().to_string();
    Ok(world.begin(&request.host, kind, &vmid, &request.who.name(), script).into())
}

pub(super) fn start(world: &mut World, request: &Request) -> Outcome {
    check_skiplock(request)?;
    world.check_quorum()?;
    if world.is_managed(request.vmid()) {
        return ha::ask_for(world, request, "hastart", "start", "started");
    }
    let script = start_script(world, &request.host, request.vmid(), request.flag("skiplock"));
    begin(world, request, "qmstart", script)
}

/// The steps that start a guest.
pub(super) fn start_script(world: &World, host: &str, vmid: u32, skips_lock: bool) -> Script {
    starting(world, host, vmid, skips_lock, true)
}

/// As [`start_script`]; what is no more than the end of something else does not count as a start.
fn starting(world: &World, host: &str, vmid: u32, skips_lock: bool, counts: bool) -> Script {
    let (host, span) = (host.to_owned(), world.latencies.start);
    locked(vmid).then(move |world, task| {
        let guest = world.guest(&host, vmid)?;
        if !skips_lock {
            guest.check_lock()?;
        }
        if guest.is_template() {
            return Err("you can't start a vm if it's a template".to_owned());
        }
        if guest.is_running() {
            return Err(format!("VM {vmid} already running"));
        }
        check_parts(world, &host, vmid)?;
        let has_disc = Drive::all(&guest.wanted()).values().any(Drive::is_cloud_init);
        if has_disc {
            world.say(task, "generating cloud-init ISO");
        }
        Ok(Script::new().takes(format!("start {vmid}"), span).act(move |world| {
            world.guest(&host, vmid)?;
            world.power_on(vmid);
            if counts {
                world.effect("start", vmid);
            }
            Ok(())
        }))
    })
}

/// Refuses to start a guest that lacks a volume or a bridge.
fn check_parts(world: &World, host: &str, vmid: u32) -> Result<(), String> {
    let config = world.guest(host, vmid)?.wanted();
    for drive in Drive::all(&config).values().filter(|drive| split(&drive.file).is_some()) {
        let is_made_at_start = drive.is_cloud_init();
        if world.stores.get(host, &drive.file).is_none() && !is_made_at_start {
            return Err(format!("volume '{}' does not exist", drive.file));
        }
    }
    for (_, value) in config.iter().filter(|(key, _)| rights::is_numbered(key, "net")) {
        let bridge = value.split(',').find_map(|part| part.strip_prefix("bridge="));
        if let Some(bridge) = bridge.filter(|bridge| !world.bridges.iter().any(|known| known == bridge)) {
            return Err(format!("bridge '{bridge}' does not exist"));
        }
    }
    Ok(())
}

pub(super) fn stop(world: &mut World, request: &Request) -> Outcome {
    check_skiplock(request)?;
    let (host, vmid) = (request.host.clone(), request.vmid());
    if world.is_managed(vmid) {
        if request.flag("overrule-shutdown") {
            return Err(Refusal::parameter("overrule-shutdown", "Not applicable for HA resources."));
        }
        return ha::ask_for(world, request, "hastop", "stop", "stopped");
    }
    if request.flag("overrule-shutdown") {
        let waiting: Vec<String> = (world.tasks.records())
            .filter(|record| record.kind == "qmshutdown" && record.id == vmid.to_string() && record.exit.is_none())
            .map(|record| record.upid.clone())
            .collect();
        for upid in waiting {
            if let Some((task, _)) = world.tasks.find(&upid) {
                world.fail(task, "received interrupt");
            }
        }
    }
    let script = stop_script(world, &host, vmid, request.flag("skiplock"));
    begin(world, request, "qmstop", script)
}

/// The guest of a task that switches it off; nothing if it is off. A lock is in the way only of one that runs.
fn running<'a>(world: &'a World, host: &str, vmid: u32, skips_lock: bool) -> Result<Option<&'a Guest>, String> {
    let guest = world.guest_to_run(host, vmid)?;
    if !guest.is_running() {
        return Ok(None);
    }
    if !skips_lock {
        guest.check_lock()?;
    }
    Ok(Some(guest))
}

/// The steps that switch a guest off.
pub(super) fn stop_script(world: &World, host: &str, vmid: u32, skips_lock: bool) -> Script {
    let (host, span) = (host.to_owned(), world.latencies.stop);
    locked(vmid).then(move |world, _| {
        if running(world, &host, vmid, skips_lock)?.is_none() {
            return Ok(Script::new());
        }
        Ok(Script::new().takes(format!("stop {vmid}"), span).act(move |world| {
            world.power_off(vmid);
            world.effect("stop", vmid);
            Ok(())
        }))
    })
}

/// How long a guest is given to go down by itself.
fn patience(request: &Request) -> Duration {
    let timeout = request.params.number("timeout").and_then(|seconds| u64::try_from(seconds).ok());
    timeout.map_or(SHUTDOWN, Duration::from_secs)
}

pub(super) fn shutdown(world: &mut World, request: &Request) -> Outcome {
    check_skiplock(request)?;
    let timeout = patience(request);
    let (host, vmid, is_forced) = (request.host.clone(), request.vmid(), request.flag("forceStop"));
    if world.is_managed(vmid) {
        return ha::ask_for(world, request, "hastop", "stop", "stopped");
    }
    if !is_forced && world.guests.get(&vmid).is_some_and(|guest| guest.is_paused) {
        return Err("VM is paused - cannot shutdown".to_owned().into());
    }
    let skips_lock = request.flag("skiplock");
    let script = locked(vmid).then(move |world, _| {
        if running(world, &host, vmid, skips_lock)?.is_none() {
            return Ok(Script::new());
        }
        Ok(going_down(world, vmid, timeout, is_forced).act(move |world| {
            world.power_off(vmid);
            world.effect("shutdown", vmid);
            Ok(())
        }))
    });
    begin(world, request, "qmshutdown", script)
}

/// The time it takes a guest to go down by itself. One that is not up yet hears nothing.
fn going_down(world: &mut World, vmid: u32, timeout: Duration, is_forced: bool) -> Script {
    let is_paused = world.guests.get(&vmid).is_some_and(|guest| guest.is_paused);
    let listens = world.machines.get(vmid).is_some_and(|machine| machine.is_up) && !is_paused;
    let takes = world.draw(&format!("shutdown {vmid}"), world.latencies.shutdown);
    if listens && takes <= timeout {
        return Script::new().waits(takes);
    }
    Script::new()
        .waits(timeout)
        .act(move |_| if is_forced { Ok(()) } else { Err("VM quit/powerdown failed - got timeout".to_owned()) })
}

/// From the end of a guest until the daemon that saw it starts it again.
const RESTART: Span = Span { mean: 1.0, p95: 3.0 };

/// Reboots a guest. The task ends once the guest is off: it is another daemon that starts it again, by a task of its own.
pub(super) fn reboot(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    let guest = world.guest_to_run(&host, vmid)?;
    if guest.is_paused {
        return Err("VM is paused - cannot shutdown".to_owned().into());
    }
    if !guest.is_running() {
        return Err(format!("VM {vmid} not running").into());
    }
    let timeout = patience(request);
    let script = locked(vmid).then(move |world, _| {
        if running(world, &host, vmid, false)?.is_none() {
            return Ok(Script::new());
        }
        Ok(going_down(world, vmid, timeout, false).act(move |world| {
            world.power_off(vmid);
            world.effect("reboot", vmid);
            let wait = world.draw(&format!("restart {vmid}"), RESTART);
            world.events.plan(world.now + wait, Event::Restart(vmid));
            Ok(())
        }))
    });
    begin(world, request, "qmreboot", script)
}

impl World {
    /// Starts a guest that went down to be rebooted.
    pub(crate) fn restart(&mut self, vmid: u32) {
        let Some(host) = self.guests.get(&vmid).map(|guest| guest.host.clone()) else { return };
        let script = starting(self, &host, vmid, false, false);
        self.begin(&host, "qmstart", &vmid.to_string(), "root@pam", script);
    }
}

/// The guest that runs, or the vendor's words for one that does not.
fn check_running(world: &World, request: &Request) -> Result<(), Refusal> {
    check_skiplock(request)?;
    let vmid = request.vmid();
    let runs = world.guest_to_run(&request.host, vmid)?.is_running();
    if runs { Ok(()) } else { Err(format!("VM {vmid} not running").into()) }
}

/// Restarts what runs inside, as the button of a machine does: the guest stays on, and nothing pending holds.
pub(super) fn reset(world: &mut World, request: &Request) -> Outcome {
    check_running(world, request)?;
    let (host, vmid, skips_lock) = (request.host.clone(), request.vmid(), request.flag("skiplock"));
    let script = locked(vmid).act(move |world| {
        let Some(guest) = running(world, &host, vmid, skips_lock)? else {
            return Err(format!("VM {vmid} not running"));
        };
        let power = guest.power;
        world.power_on(vmid);
        world.guest_mut(&host, vmid)?.power = power;
        world.effect("reset", vmid);
        Ok(())
    });
    begin(world, request, "qmreset", script)
}

/// Lets the processors of a guest stand still.
pub(super) fn suspend(world: &mut World, request: &Request) -> Outcome {
    check_running(world, request)?;
    let (host, vmid, skips_lock) = (request.host.clone(), request.vmid(), request.flag("skiplock"));
    if request.flag("todisk") {
        return Err(Refusal::simulated("keeps no guest's memory on a disk"));
    }
    if world.talos.nodes.get(&vmid).is_some_and(|node| node.boot.is_some()) {
        return Err(Refusal::simulated("pauses no Talos node"));
    }
    let script = locked(vmid).act(move |world| {
        running(world, &host, vmid, skips_lock)?;
        world.guest_mut(&host, vmid)?.is_paused = true;
        world.effect("suspend", vmid);
        Ok(())
    });
    begin(world, request, "qmpause", script)
}

pub(super) fn resume(world: &mut World, request: &Request) -> Outcome {
    check_running(world, request)?;
    let (host, vmid, skips_lock) = (request.host.clone(), request.vmid(), request.flag("skiplock"));
    let script = locked(vmid).act(move |world| {
        running(world, &host, vmid, skips_lock)?;
        world.guest_mut(&host, vmid)?.is_paused = false;
        world.effect("resume", vmid);
        Ok(())
    });
    begin(world, request, "qmresume", script)
}
