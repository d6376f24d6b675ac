//! Templates.

use super::drive::Drive;
use super::{Outcome, Request};
use crate::world::World;
use crate::world::locks::LockName;
use crate::world::tasks::Script;

fn check(world: &World, host: &str, vmid: u32) -> Result<(), String> {
    let guest = world.guest(host, vmid)?;
    guest.check_lock()?;
    world.check_writable(host, vmid)?;
    if guest.is_template() {
        return Err("you can't convert a template to a template".to_owned());
    }
    if guest.is_running() {
        return Err("you can't convert a VM to template if VM is running".to_owned());
    }
    Ok(())
}

pub(super) fn template(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid, span) = (request.host.clone(), request.vmid(), world.latencies.template);
    check(world, &host, vmid)?;
    if let Some(disk) = request.text("disk")
        && Drive::of(&world.guest(&host, vmid)?.config, disk).is_none()
    {
        return Err(format!("disk '{disk}' does not exist").into());
    }
    let only = request.text("disk").map(str::to_owned);
    let lock = LockName::Guest(vmid);
    let patience = lock.patience();
    let script = Script::new().lock(lock, false, patience).takes(format!("template {vmid}"), span).act(move |world| {
        check(world, &host, vmid)?;
        let drives = Drive::all(&world.guest(&host, vmid)?.config);
        let disks = drives.into_iter().filter(|(_, drive)| !drive.is_cdrom());
        for (key, mut drive) in disks.filter(|(key, _)| only.as_ref().is_none_or(|only| only == key)) {
            drive.file = world.stores.make_base(&host, &drive.file)?;
            let printed = drive.print(world.version, &key)?;
            world.guest_mut(&host, vmid)?.config.insert(key, printed);
        }
        world.guest_mut(&host, vmid)?.config.insert("template".to_owned(), "1".to_owned());
        world.effect("template", vmid);
        Ok(())
    });
    Ok(world.begin(&request.host, "qmtemplate", &vmid.to_string(), &request.who.name(), script).into())
}
