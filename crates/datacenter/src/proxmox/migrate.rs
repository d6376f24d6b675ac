//! Guests that move to another host.

use super::drive::Drive;
use super::{Outcome, Refusal, Request};
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::Script;

/// The volumes that the other host does not see.
fn local_volumes(world: &World, guest: &Guest) -> Vec<String> {
    let drives = Drive::all(&guest.config).into_values().map(|drive| drive.file);
    let is_local = |volid: &String| {
        split(volid).is_some_and(|(storage, _)| world.stores.spec(storage).is_ok_and(|spec| !spec.shared))
    };
    drives.filter(is_local).collect()
}

pub(super) fn migrate(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    let target = request.text("target").unwrap_or_default().to_owned();
    let guest = world.guest(&host, vmid)?;
    guest.check_lock()?;
    if target == host {
        return Err(Refusal::parameter("target", "target is local node."));
    }
    if !world.is_up(&target) {
        return Err(Refusal::parameter("target", format!("target node '{target}' is not online")));
    }
    if guest.is_running() && !request.flag("online") {
        return Err("can't migrate running VM without --online".to_owned().into());
    }
    let takes_disks = !guest.is_running() || request.flag("with-local-disks");
    let (lock, span) = (LockName::Guest(vmid), world.latencies.full_copy);
    let patience = lock.patience();
    let script = Script::new().lock(lock, false, patience).fails_as("migration aborted: ").then(move |world, _| {
        let guest = world.guest(&host, vmid)?;
        guest.check_lock()?;
        let volumes = local_volumes(world, guest);
        if !volumes.is_empty() && !takes_disks {
            return Err("can't live migrate attached local disks without with-local-disks option".to_owned());
        }
        for volid in &volumes {
            let (storage, _) = split(volid).unwrap_or_default();
            world.stores.place(&target, storage)?;
            if world.stores.get(&target, volid).is_some() {
                return Err(format!("volume '{volid}' already exists on node '{target}'"));
            }
            if world.stores.is_base_in_use(&host, volid) {
                return Err(format!("can't migrate '{volid}': it is the base of linked clones"));
            }
        }
        world.guest_mut(&host, vmid)?.config.insert("lock".to_owned(), "migrate".to_owned());
        let unlock_host = host.clone();
        let script = Script::new().on_failure(move |world| {
            if let Ok(guest) = world.guest_mut(&unlock_host, vmid) {
                guest.config.remove("lock");
            }
        });
        Ok(script.takes(format!("migrate {vmid}"), span).act(move |world| {
            for volid in &volumes {
                // What belongs to nobody else, such as a disc, stays where it is.
                let is_own = world.stores.get(&host, volid).is_some_and(|volume| volume.vmid == Some(vmid));
                if is_own {
                    let volume = world.stores.free(&host, volid)?;
                    world.stores.put(&target, volid, volume)?;
                }
            }
            let guest = world.guest_mut(&host, vmid)?;
            guest.config.remove("lock");
            guest.host.clone_from(&target);
            world.machines.moved(vmid, &target);
            world.effect("migrate", vmid);
            Ok(())
        }))
    });
    Ok(world.begin(&request.host, "qmigrate", &vmid.to_string(), &request.who.name(), script).into())
}
