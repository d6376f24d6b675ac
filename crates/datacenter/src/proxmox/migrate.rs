//! Guests that move to another host.

use super::drive::Drive;
use super::{Outcome, Refusal, Request};
use crate::world::World;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::Script;

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
    let (lock, span) = (LockName::Guest(vmid), world.latencies.full_copy);
    let patience = lock.patience();
    let script = Script::new().lock(lock, false, patience).then(move |world, _| {
        let guest = world.guest(&host, vmid)?;
        guest.check_lock()?;
        let drives = Drive::all(&guest.config);
        let local = drives
            .values()
            .filter_map(|drive| split(&drive.file))
            .find(|(storage, _)| world.stores.spec(storage).is_ok_and(|spec| !spec.shared));
        if let Some((storage, name)) = local {
            return Err(format!("can't migrate local disk '{storage}:{name}': local disks stay on their host here"));
        }
        Ok(Script::new().takes(format!("migrate {vmid}"), span).act(move |world| {
            world.guest_mut(&host, vmid)?.host.clone_from(&target);
            world.machines.moved(vmid, &target);
            world.effect("migrate", vmid);
            Ok(())
        }))
    });
    Ok(world.begin(&request.host, "qmigrate", &vmid.to_string(), &request.who.name(), script).into())
}
