//! Guests that go, with what is theirs.

use super::api::Version;
use super::drive::Drive;
use super::{Outcome, Refusal, Request, rights};
use crate::blueprint::Span;
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::Script;

/// What is looked at before the task begins, and once more inside of it.
fn check(world: &World, host: &str, vmid: u32, purges: bool) -> Result<(), String> {
    let guest = world.guest(host, vmid)?;
    if guest.is_protected() {
        return Err(format!("can't remove VM {vmid} - protection mode enabled"));
    }
    if !purges && world.ha.contains_key(&vmid) {
        return Err(format!("unable to remove VM {vmid} - used in HA resources and purge parameter not set."));
    }
    if guest.is_running() {
        return Err(format!("VM {vmid} is running - destroy failed"));
    }
    Ok(())
}

pub(super) fn destroy(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    if request.flag("skiplock") && !request.who.is_root() {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    let purges = request.flag("purge");
    check(world, &host, vmid, purges)?;
    let skips_lock = request.flag("skiplock");
    let takes_unreferenced = request.flag("destroy-unreferenced-disks");
    let lock = LockName::Guest(vmid);
    let patience = lock.patience();
    let script = Script::new().lock(lock, false, patience).then(move |world, _| {
        check(world, &host, vmid, purges)?;
        let guest = world.guest(&host, vmid)?;
        if !skips_lock {
            guest.check_lock()?;
        }
        world.check_writable(&host, vmid)?;
        check_bases(world, guest)?;
        let mut volumes = own_volumes(world, guest);
        if takes_unreferenced {
            volumes.extend(unreferenced(world, &host, vmid));
            volumes.sort();
            volumes.dedup();
        }
        let share = volumes.len().max(1) as f64;
        let span = world.latencies.destroy;
        let span = Span::new(span.mean / share, span.p95 / share);
        let mut script = Script::new();
        if volumes.is_empty() {
            script = script.takes(format!("destroy {vmid}"), span);
        }
        for volid in volumes {
            script = script.and(freeing(world, &host, vmid, volid, span)?);
        }
        // Backup jobs, replication, HA and firewall are asked whether they know it.
        let end = Span::new(0.4, 0.9);
        Ok(script
            .act(move |world| {
                // Nobody may take the number while something of the guest is left.
                let host = world.guest(&host, vmid)?.host.clone();
                world.guests.insert(vmid, Guest::placeholder(vmid, &host, "destroyed"));
                Ok(())
            })
            .takes(format!("destroyed {vmid}"), end)
            .then(move |world, task| {
                world.access.forget(&format!("/vms/{vmid}"));
                for pool in world.pools.values_mut() {
                    pool.guests.remove(&vmid);
                }
                if purges {
                    world.say(task, format!("purging VM {vmid} from related configurations.."));
                    if world.ha.remove(&vmid).is_some() {
                        world.say(task, format!("NOTE: removed VM {vmid} from HA resource configuration."));
                    }
                }
                world.guests.remove(&vmid);
                world.effect("destroy", vmid);
                Ok(Script::new())
            }))
    });
    Ok(world.begin(&request.host, "qmdestroy", &vmid.to_string(), &request.who.name(), script).into())
}

/// Refuses to take away what others are linked to.
fn check_bases(world: &World, guest: &Guest) -> Result<(), String> {
    let drives = Drive::all(&guest.config);
    let mut disks = drives.values().filter(|drive| guest.is_template() && !drive.is_cdrom());
    match disks.find(|drive| world.stores.is_base_in_use(&guest.host, &drive.file)) {
        Some(drive) => Err(format!("base volume '{}' is still in use by linked cloned", drive.file)),
        None => Ok(()),
    }
}

/// The volumes that the configuration names and that belong to the guest.
fn own_volumes(world: &World, guest: &Guest) -> Vec<String> {
    let wanted = guest.wanted();
    let drives = Drive::all(&guest.config).into_values().chain(Drive::all(&wanted).into_values());
    let mut volumes: Vec<String> = drives.filter(Drive::is_owned).map(|drive| drive.file).collect();
    let unused = guest.config.iter().filter(|(key, _)| rights::is_numbered(key, "unused"));
    volumes.extend(unused.map(|(_, value)| value.clone()));
    volumes.sort();
    volumes.dedup();
    let is_own =
        |volid: &String| world.stores.get(&guest.host, volid).is_some_and(|volume| volume.vmid == Some(guest.vmid));
    volumes.retain(is_own);
    volumes
}

/// The volumes that belong to the guest by their name alone.
fn unreferenced(world: &World, host: &str, vmid: u32) -> Vec<String> {
    let shelves = world.stores.all().filter(|((_, place), _)| place.as_deref().is_none_or(|place| place == host));
    let volumes = shelves.flat_map(|((storage, _), shelf)| shelf.iter().map(move |volume| (storage, volume)));
    let owned = volumes.filter(|(_, (_, volume))| volume.vmid == Some(vmid) && volume.content == "images");
    owned.map(|(storage, (name, _))| format!("{storage}:{name}")).collect()
}

/// Frees one volume. One that cannot be freed is warned of, and stays.
fn freeing(world: &World, host: &str, vmid: u32, volid: String, span: Span) -> Result<Script, String> {
    let storage = split(&volid).map_or("", |(storage, _)| storage);
    let lock = world.stores.lock_name(host, storage)?;
    let patience = lock.patience();
    let host = host.to_owned();
    Ok(Script::new()
        .lock(lock.clone(), false, patience)
        .takes(format!("free {vmid}"), span)
        .then(move |world, task| {
            if let Err(error) = world.stores.free(&host, &volid) {
                let line = format!("Could not remove disk '{volid}', check manually: {error}");
                // Before 9.1.19 such a task ended as if nothing had happened.
                if world.version == Version::Nine { world.warn(task, &line) } else { world.say(task, line) }
            }
            Ok(Script::new())
        })
        .unlock(lock))
}
