//! New guests.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::Version;
use super::disks::{self, Workbench};
use super::drive::{Drive, is_drive};
use super::{Outcome, Refusal, Request, guests, ha, options, power, rights};
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::tasks::Script;

/// Adds a guest to a pool, as the last thing of its making.
pub(super) fn join_pool(world: &mut World, vmid: u32, pool: Option<&str>) {
    if let Some(pool) = pool.and_then(|pool| world.pools.get_mut(pool)) {
        pool.guests.insert(vmid);
    }
}

/// Refuses a pool that is none.
pub(super) fn check_pool(world: &World, pool: Option<&str>) -> Result<(), Refusal> {
    match pool {
        Some(pool) if !world.pools.contains_key(pool) => {
            Err(Refusal::new(403, format!("Permission check failed (pool '{pool}' does not exist)")))
        }
        _ => Ok(()),
    }
}

pub(super) fn create(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid, who) = (request.host.clone(), request.vmid(), &request.who);
    let pool = request.text("pool").map(str::to_owned);
    world.check_quorum()?;
    check_pool(world, pool.as_deref())?;
    let by_pool = pool.as_ref().is_some_and(|pool| world.may(who, &format!("/pool/{pool}"), &["VM.Allocate"]));
    if !by_pool && !world.may(who, &format!("/vms/{vmid}"), &["VM.Allocate"]) {
        return Err(Refusal::new(403, "Permission check failed"));
    }
    if let Some(archive) = request.text("archive") {
        if world.stores.get(&host, archive).is_some() {
            return Err(Refusal::simulated("restores no backups"));
        }
        return Err(format!("unable to restore VM {vmid} - volume '{archive}' does not exist").into());
    }
    if request.flag("ha-managed") {
        world.require(who, "/", &["Sys.Console"])?;
    }
    if request.flag("start") {
        rights::require_on_guest(world, who, vmid, pool.as_deref(), &["VM.PowerMgmt"])?;
    }
    let given: BTreeMap<String, String> = request
        .params
        .iter()
        .filter(|(key, _)| !options::NOT_OPTIONS.contains(key))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    // Since 9.2 the right to set tags is a matter of the guest alone, and of the task.
    let is_eight = world.version == Version::Eight;
    let is_judged = |key: &&str| is_eight || *key != "tags";
    rights::check_options(world, who, (vmid, pool.as_deref()), given.keys().map(String::as_str).filter(is_judged))?;
    let mut plans = Vec::new();
    let mut config = BTreeMap::new();
    for (key, value) in &given {
        rights::check_device(world, who, (vmid, pool.as_deref()), (key, Some(value)), "set")?;
        if is_drive(key) {
            let value = with_storage(value, request.text("storage"));
            plans.push(disks::plan(world, who, (&host, vmid), (key, &value))?);
            continue;
        }
        if is_eight && key == "tags" {
            // It takes 9.1.17 to put the tags of a new guest in order.
            config.insert(key.clone(), value.clone());
            continue;
        }
        let stored = options::stored(world, vmid, key, value).map_err(|error| Refusal::parameter(key, error))?;
        if rights::is_numbered(key, "net") {
            rights::check_bridge(world, who, &stored)?;
        }
        config.insert(key.clone(), stored);
    }
    if let Some(other) = world.guests.get(&vmid) {
        return Err(format!("unable to create VM {vmid} - VM {vmid} already exists on node '{}'", other.host).into());
    }
    world.guests.insert(vmid, Guest::placeholder(vmid, &host, "create"));

    let bench = Workbench::default();
    let (undo, undo_host) = (bench.clone(), host.clone());
    let mut script = Script::new()
        .on_failure(move |world| {
            undo.undo(world, &undo_host);
            world.guests.remove(&vmid);
        })
        .lock(LockName::Guest(vmid), false, Duration::from_secs(1))
        .fails_as(format!("unable to create VM {vmid} - "));
    if !is_eight && config.contains_key("tags") {
        let (who, path) = (who.clone(), format!("/vms/{vmid}"));
        script =
            script.act(move |world| world.require(&who, &path, &["VM.Config.Options"]).map_err(Refusal::into_text));
    }
    for plan in plans {
        script = script.and(plan.script(world, &host, vmid, &bench).inspect_err(|_| {
            world.guests.remove(&vmid);
        })?);
    }
    let (is_started, is_managed) = (request.flag("start"), request.flag("ha-managed"));
    let user = who.name();
    let script = script.then(move |world, task| {
        config.extend(bench.made().options.clone());
        complete(world, vmid, &mut config);
        let guest = world.guest_mut(&host, vmid)?;
        guest.config = config;
        world.effect("create", vmid);
        join_pool(world, vmid, pool.as_deref());
        if is_started {
            world.say(task, "Execute autostart");
            let script = power::start_script(world, &host, vmid, false);
            world.begin(&host, "qmstart", &vmid.to_string(), &user, script);
        }
        if is_managed {
            world.say(task, "Add as HA resource");
            ha::look_after(world, vmid);
        }
        Ok(Script::new())
    });
    Ok(world.begin(&request.host, "qmcreate", &vmid.to_string(), &request.who.name(), script).into())
}

/// A drive that names no storage is on the default one.
fn with_storage(value: &str, default: Option<&str>) -> String {
    match default {
        Some(storage) if value.split(',').next().is_some_and(|file| file.parse::<f64>().is_ok()) => {
            format!("{storage}:{value}")
        }
        _ => value.to_owned(),
    }
}

/// What a new guest has without being told.
fn complete(world: &mut World, vmid: u32, config: &mut BTreeMap<String, String>) {
    if !config.contains_key("boot") {
        let drives = Drive::all(config);
        let first = |is_cdrom: bool| {
            let fits = |key: &str, drive: &Drive| {
                drive.is_cdrom() == is_cdrom && !key.starts_with("efidisk") && !key.starts_with("tpm")
            };
            drives.iter().find(|(key, drive)| fits(key, drive)).map(|(key, _)| key.clone())
        };
        let network = config.keys().find(|key| rights::is_numbered(key, "net")).cloned();
        let order: Vec<String> = [first(false), first(true), network].into_iter().flatten().collect();
        let boot = if order.is_empty() { " ".to_owned() } else { format!("order={}", order.join(";")) };
        config.insert("boot".to_owned(), boot);
    }
    if !config.contains_key("smbios1") {
        let uuid = options::new_uuid(world, vmid);
        config.insert("smbios1".to_owned(), format!("uuid={uuid}"));
    }
    if config.get("vmgenid").is_none_or(|id| id == "1") {
        let uuid = options::new_uuid(world, vmid);
        config.insert("vmgenid".to_owned(), uuid);
    }
    config.insert("meta".to_owned(), format!("creation-qemu={},ctime={}", guests::qemu(world.version), world.epoch()));
}
