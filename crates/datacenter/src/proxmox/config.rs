//! The configuration of a guest: read, and changed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::api::Version;
use super::disks::{self, Plan, Workbench};
use super::drive::{Drive, is_drive};
use super::{Done, Outcome, Refusal, Request, options, pending, rights};
use crate::world::World;
use crate::world::guest::{Guest, Pending};
use crate::world::locks::LockName;
use crate::world::tasks::Script;

pub(super) fn get(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let config = match request.text("snapshot") {
        Some(name) => {
            let snapshot = guest.snapshots.get(name).ok_or_else(|| format!("snapshot '{name}' does not exist"))?;
            snapshot.config.clone()
        }
        None if request.flag("current") => guest.config.clone(),
        None => guest.wanted(),
    };
    let told = config.iter().map(|(key, value)| {
        let value = options::told(world.version, key, &pending::hidden(key, value));
        (key.clone(), value)
    });
    let mut told: Map<String, Value> = told.collect();
    told.insert("digest".to_owned(), json!(guest.digest()));
    Ok(Value::from(told).into())
}

/// A change that may be made.
struct Change {
    host: String,
    vmid: u32,
    delete: Vec<String>,
    revert: Vec<String>,
    set: BTreeMap<String, String>,
    plans: Vec<Plan>,
    digest: Option<String>,
    /// Whether a lock in the configuration is looked past.
    skips_lock: bool,
    /// Whether volumes that are taken out are freed, and not kept as unused.
    force: bool,
}

fn names(list: Option<&str>) -> Vec<String> {
    let words = list.unwrap_or_default().split([',', ';', ' ', '\0']).filter(|word| !word.is_empty());
    words.map(|word| if word == "cdrom" { "ide2".to_owned() } else { word.to_owned() }).collect()
}

/// Judges a change before any lock is taken.
fn judge(world: &mut World, request: &Request) -> Result<Change, Refusal> {
    let (who, vmid, host) = (&request.who, request.vmid(), &request.host);
    if request.flag("skiplock") && !who.is_root() {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    let delete = names(request.text("delete").or_else(|| request.text("idlist")));
    let revert = names(request.text("revert"));
    let is_option = |key: &str| !options::NOT_OPTIONS.contains(&key);
    let given: BTreeMap<String, String> = (request.params.iter())
        .filter(|(key, _)| is_option(key))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if delete.is_empty() && revert.is_empty() && given.is_empty() {
        return Err("no options specified".to_owned().into());
    }
    for key in &delete {
        if given.contains_key(key) {
            let complaint = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(Refusal::parameter("delete", complaint));
        }
        if revert.contains(key) {
            let complaint = format!("you can't use '-delete {key}' and -revert {key}' at the same time");
            return Err(Refusal::parameter("revert", complaint));
        }
        if !is_known(world, key) {
            return Err(Refusal::parameter("delete", format!("unknown option '{key}'")));
        }
    }
    let all = delete.iter().chain(&revert).map(String::as_str);
    rights::check_options(world, who, (vmid, None), all.chain(given.keys().map(String::as_str)))?;
    for key in &delete {
        let value = world.guest(host, vmid).ok().and_then(|guest| guest.get(key).map(str::to_owned));
        rights::check_device(world, who, (vmid, None), (key, value.as_deref()), "delete")?;
    }
    let mut change = Change {
        host: host.clone(),
        vmid,
        delete,
        revert,
        set: BTreeMap::new(),
        plans: Vec::new(),
        digest: request.text("digest").map(str::to_owned),
        skips_lock: request.flag("skiplock"),
        force: request.flag("force"),
    };
    for (key, value) in given {
        rights::check_device(world, who, (vmid, None), (&key, Some(&value)), "modify")?;
        if is_drive(&key) {
            let plan = disks::plan(world, who, (host, vmid), (&key, &value))?;
            let is_cloud_init = plan.source == disks::Source::CloudInit || plan.drive.is_cloud_init();
            let privileges: &[&str] = match (is_cloud_init, plan.drive.is_cdrom()) {
                (true, _) => &["VM.Config.Cloudinit", "VM.Config.CDROM"],
                (false, true) => &["VM.Config.CDROM"],
                (false, false) => &["VM.Config.Disk"],
            };
            world.require(who, &format!("/vms/{vmid}"), privileges)?;
            change.plans.push(plan);
            continue;
        }
        let stored = options::stored(world, vmid, &key, &value).map_err(|error| Refusal::parameter(&key, error))?;
        if rights::is_numbered(&key, "net") {
            rights::check_bridge(world, who, &stored)?;
        }
        change.set.insert(key, stored);
    }
    check_drives_leaving(world, request, &change)?;
    Ok(change)
}

/// Refuses to let drives go that somebody may not touch.
fn check_drives_leaving(world: &World, request: &Request, change: &Change) -> Result<(), Refusal> {
    let Ok(guest) = world.guest(&change.host, change.vmid) else { return Ok(()) };
    let touched = change.delete.iter().chain(change.set.keys()).filter(|key| rights::is_numbered(key, "net"));
    for value in touched.filter_map(|key| guest.get(key)) {
        rights::check_bridge(world, &request.who, value)?;
    }
    for key in &change.delete {
        let drive = Drive::of(&guest.config, key);
        let privilege = match &drive {
            Some(drive) if drive.is_cdrom() => "VM.Config.CDROM",
            Some(_) => "VM.Config.Disk",
            None if rights::is_numbered(key, "unused") => "VM.Config.Disk",
            None => continue,
        };
        world.require(&request.who, &format!("/vms/{}", change.vmid), &[privilege])?;
    }
    Ok(())
}

/// Whether there is an option of this name.
fn is_known(world: &World, key: &str) -> bool {
    if rights::is_numbered(key, "unused") || ["lock", "meta", "vmgenid"].contains(&key) {
        return true;
    }
    !options::NOT_OPTIONS.contains(&key) && options::field(world.version, key).is_some()
}

pub(super) fn set(world: &mut World, request: &Request) -> Outcome {
    let change = judge(world, request)?;
    check_early(world, &change)?;
    check_under_lock(world, &change)?;
    let bench = Workbench::default();
    let mut takes = world.draw(&format!("config {}", change.vmid), world.latencies.config);
    for plan in &change.plans {
        match plan.make_now(world, &change.host, change.vmid, &bench) {
            Ok(time) => takes += time,
            Err(error) => {
                bench.undo(world, &change.host);
                return Err(Refusal::from(error).after(takes));
            }
        }
    }
    commit(world, &change, bench.made().options.clone())?;
    Ok(Done::from(Value::Null).after(takes))
}

/// Takes drives out: a change that deletes nothing but them.
pub(super) fn unlink(world: &mut World, request: &Request) -> Outcome {
    set(world, request)
}

/// The first line of the task: what was asked for.
fn headline(request: &Request) -> String {
    const UNSAID: &[&str] = &["background_delay", "digest", "import-working-storage", "node", "vmid"];
    let said = request.params.iter().filter(|(key, _)| !UNSAID.contains(key));
    let said = said.map(|(key, value)| format!("-{key} {}", if key == "cipassword" { "<hidden>" } else { value }));
    format!("update VM {}: {}", request.vmid(), said.collect::<Vec<_>>().join(" "))
}

pub(super) fn set_as_task(world: &mut World, request: &Request) -> Outcome {
    let change = judge(world, request)?;
    let (host, vmid) = (change.host.clone(), change.vmid);
    check_early(world, &change)?;
    let headline = headline(request);
    let lock = LockName::Guest(vmid);
    let patience = lock.patience();
    let span = world.latencies.config;
    let script = Script::new().lock(lock, false, patience).takes(format!("config {vmid}"), span);
    let script = script.then(move |world, task| {
        check_early(world, &change)?;
        world.say(task, headline);
        let guest = world.guest(&change.host, change.vmid)?;
        let is_set = |key: &String| guest.config.contains_key(key) || guest.pending.contains_key(key);
        let unset: Vec<String> = change.delete.iter().filter(|key| !is_set(key)).cloned().collect();
        for key in unset {
            world.say(task, format!("cannot delete '{key}' - not set in current configuration!"));
        }
        check_under_lock(world, &change)?;
        let bench = Workbench::default();
        let (undo, undo_host) = (bench.clone(), change.host.clone());
        let mut script = Script::new().on_failure(move |world| undo.undo(world, &undo_host));
        for plan in change.plans.clone() {
            script = script.and(plan.script(world, &change.host, change.vmid, &bench)?);
        }
        Ok(script.then(move |world, task| {
            let made = bench.made().options.clone();
            let has_new_disc = Drive::all(&made).values().any(Drive::is_cloud_init);
            if has_new_disc && !world.guest(&change.host, change.vmid)?.is_running() {
                world.say(task, "generating cloud-init ISO");
            }
            commit(world, &change, made).map_err(Refusal::into_text)?;
            Ok(Script::new())
        }))
    });
    Ok(world.begin(&host, "qmconfig", &vmid.to_string(), &request.who.name(), script).into())
}

/// What is checked at once, and again while the lock is held.
fn check_early(world: &World, change: &Change) -> Result<(), String> {
    let guest = world.guest(&change.host, change.vmid)?;
    if change.digest.as_ref().is_some_and(|digest| *digest != guest.digest()) {
        return Err("checksum mismatch (file change by other user?)".to_owned());
    }
    if !change.skips_lock {
        guest.check_lock()?;
    }
    let wanted = guest.wanted();
    let number = |key: &str| {
        let text = change.set.get(key).or_else(|| wanted.get(key))?;
        text.trim_start_matches("current=").parse::<u64>().ok()
    };
    let is_asked = change.set.contains_key("memory") || change.set.contains_key("balloon");
    if is_asked && number("balloon").is_some_and(|balloon| balloon > number("memory").unwrap_or(512)) {
        return Err("balloon value too large (must be smaller than assigned memory)".to_owned());
    }
    Ok(())
}

/// What is checked only while the lock is held.
fn check_under_lock(world: &World, change: &Change) -> Result<(), String> {
    let guest = world.guest(&change.host, change.vmid)?;
    world.check_writable(&change.host, change.vmid)?;
    let wanted = guest.wanted();
    let is_there = |key: &str| {
        (wanted.contains_key(key) || change.set.contains_key(key) || change.plans.iter().any(|plan| plan.key == key))
            && !change.delete.iter().any(|deleted| deleted == key)
    };
    let order = change.set.get("boot").and_then(|boot| boot.strip_prefix("order=")).unwrap_or_default();
    if let Some(missing) = order.split(';').find(|key| !key.is_empty() && !is_there(key)) {
        return Err(format!("invalid bootorder: device '{missing}' does not exist'"));
    }
    let has_cloud_init = |key: &str| {
        let attached = Drive::all(&wanted).into_iter().find(|(other, drive)| other != key && drive.is_cloud_init());
        attached.map(|(other, _)| other)
    };
    for plan in change.plans.iter().filter(|plan| plan.source == disks::Source::CloudInit) {
        if let Some(other) = has_cloud_init(&plan.key) {
            return Err(format!("{} - cloud-init drive is already attached at '{other}'", plan.key));
        }
    }
    if guest.is_protected() {
        for key in &change.delete {
            if rights::is_numbered(key, "unused")
                && let Some(volid) = guest.get(key)
            {
                return Err(format!("can't remove unused disk '{volid}' - protection mode enabled"));
            }
            if Drive::of(&wanted, key).is_some() {
                return Err(format!("can't remove drive '{key}' - protection mode enabled"));
            }
        }
    }
    Ok(())
}

/// Makes the change. What cannot be had while the guest runs waits until it is switched off.
fn commit(world: &mut World, change: &Change, made: BTreeMap<String, String>) -> Result<(), Refusal> {
    let guest = world.guest_mut(&change.host, change.vmid)?;
    for key in &change.revert {
        guest.pending.remove(key);
    }
    let mut set = change.set.clone();
    keep_boot_order(guest, &change.delete, &made, &mut set);
    for key in &change.delete {
        guest.pending.remove(key);
        if guest.config.contains_key(key) {
            guest.pending.insert(key.clone(), Pending::Delete);
        }
    }
    set.extend(made);
    for (key, value) in set {
        guest.pending.insert(key, Pending::Set(value));
    }
    let errors = apply(world, change.vmid, change.force);
    world.effect("config", change.vmid);
    if errors.is_empty() { Ok(()) } else { Err(Refusal::parameters(errors)) }
}

/// What goes is booted from no more; a disc that is put into a new drive is booted from, after everything else.
fn keep_boot_order(
    guest: &Guest,
    delete: &[String],
    made: &BTreeMap<String, String>,
    set: &mut BTreeMap<String, String>,
) {
    let current = set.get("boot").cloned().or_else(|| guest.wanted().get("boot").cloned()).unwrap_or_default();
    let Some(order) = current.strip_prefix("order=") else { return };
    if delete.iter().any(|key| key == "boot") {
        return;
    }
    let mut kept: Vec<&str> = order.split(';').filter(|key| !delete.iter().any(|gone| gone == key)).collect();
    let drives = Drive::all(made);
    for (key, drive) in &drives {
        if drive.is_cdrom() && !drive.is_cloud_init() && !kept.contains(&key.as_str()) {
            kept.push(key);
        }
    }
    let boot = format!("order={}", kept.join(";"));
    if boot != current {
        set.insert("boot".to_owned(), boot);
    }
}

/// Lets pending changes hold: all of them if the guest is off, those that can be had if it runs. What the guest itself would have
/// had to let go stays pending if nothing runs inside that could; that is told by option.
pub(crate) fn apply(world: &mut World, vmid: u32, force: bool) -> BTreeMap<String, String> {
    let mut errors = BTreeMap::new();
    let lets_go = world.machines.get(vmid).is_some_and(|machine| machine.is_up);
    let busy = if world.version == Version::Eight { "" } else { " - still busy in guest?" };
    let Some(guest) = world.guests.get_mut(&vmid) else { return errors };
    let host = guest.host.clone();
    let mut freed = Vec::new();
    for (key, change) in std::mem::take(&mut guest.pending) {
        let will = match &change {
            Pending::Set(value) => Some(value.as_str()),
            Pending::Delete => None,
        };
        if guest.is_running() && !pending::holds_at_once(guest, &key, guest.get(&key), will) {
            // What is set to what it is already needs no waiting.
            if guest.get(&key) != will {
                guest.pending.insert(key, change);
            }
            continue;
        }
        if guest.is_running() && !lets_go && pending::is_let_go(&key, guest.get(&key), will) {
            let problem = format!("hotplug problem - error on hot-unplugging device '{key}'{busy}\n");
            errors.insert(key.clone(), problem);
            guest.pending.insert(key, change);
            continue;
        }
        let old = Drive::of(&guest.config, &key).filter(Drive::is_owned);
        if rights::is_numbered(&key, "unused") {
            freed.extend(guest.config.get(&key).cloned());
        }
        match change {
            Pending::Set(value) => drop(guest.config.insert(key.clone(), value)),
            Pending::Delete => drop(guest.config.remove(&key)),
        }
        let Some(old) = old else { continue };
        if Drive::of(&guest.config, &key).is_some_and(|new| new.file == old.file) {
            continue;
        }
        if old.is_cloud_init() || force {
            freed.push(old.file);
        } else {
            keep_unused(guest, &old.file);
        }
    }
    for volid in freed {
        // A volume that cannot be freed stays behind; the vendor only warns.
        let _ = world.stores.free(&host, &volid);
    }
    errors
}

/// Keeps a volume that no drive has any more.
pub(super) fn keep_unused(guest: &mut Guest, volid: &str) {
    let is_known = guest.config.iter().any(|(key, value)| rights::is_numbered(key, "unused") && value == volid);
    let free = (0..256).map(|number| format!("unused{number}")).find(|key| !guest.config.contains_key(key));
    if let Some(key) = free.filter(|_| !is_known) {
        guest.config.insert(key, volid.to_owned());
    }
}

pub(super) fn regenerate_cloud_init(world: &mut World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    guest.check_lock()?;
    let takes: Duration = world.draw(&format!("cloudinit {}", request.vmid()), world.latencies.config);
    world.effect("cloudinit", request.vmid());
    Ok(Done::from(Value::Null).after(takes))
}
