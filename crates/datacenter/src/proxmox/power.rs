//! Switching guests on and off.

use std::time::Duration;

use super::{Outcome, Refusal, Request, drive::Drive, rights};
use crate::world::World;
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
    let script = start_script(world, &request.host, request.vmid(), request.flag("skiplock"));
    begin(world, request, "qmstart", script)
}

/// The steps that start a guest.
pub(super) fn start_script(world: &World, host: &str, vmid: u32, skips_lock: bool) -> Script {
    let (host, span) = (host.to_owned(), world.latencies.start);
    locked(vmid).then(move |world, _| {
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
        Ok(Script::new().takes(format!("start {vmid}"), span).act(move |world| {
            world.guest(&host, vmid)?;
            world.power_on(vmid);
            world.effect("start", vmid);
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
    let (host, vmid, span) = (request.host.clone(), request.vmid(), world.latencies.stop);
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
    let skips_lock = request.flag("skiplock");
    let script = locked(vmid).then(move |world, _| {
        let guest = world.guest(&host, vmid)?;
        if !skips_lock {
            guest.check_lock()?;
        }
        if !guest.is_running() {
            return Ok(Script::new());
        }
        Ok(Script::new().takes(format!("stop {vmid}"), span).act(move |world| {
            world.power_off(vmid);
            world.effect("stop", vmid);
            Ok(())
        }))
    });
    begin(world, request, "qmstop", script)
}

pub(super) fn shutdown(world: &mut World, request: &Request) -> Outcome {
    check_skiplock(request)?;
    let timeout = request.params.number("timeout").and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = timeout.map_or(SHUTDOWN, Duration::from_secs);
    let (host, vmid, is_forced) = (request.host.clone(), request.vmid(), request.flag("forceStop"));
    let skips_lock = request.flag("skiplock");
    let script = locked(vmid).then(move |world, _| {
        let guest = world.guest(&host, vmid)?;
        if !skips_lock {
            guest.check_lock()?;
        }
        if !guest.is_running() {
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
    let listens = world.machines.get(vmid).is_some_and(|machine| machine.is_up);
    let takes = world.draw(&format!("shutdown {vmid}"), world.latencies.shutdown);
    if listens && takes <= timeout {
        return Script::new().waits(takes);
    }
    Script::new()
        .waits(timeout)
        .act(move |_| if is_forced { Ok(()) } else { Err("VM quit/powerdown failed - got timeout".to_owned()) })
}

pub(super) fn reboot(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    if !world.guest(&host, vmid)?.is_running() {
        return Err(format!("VM {vmid} not running").into());
    }
    let timeout = request.params.number("timeout").and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = timeout.map_or(SHUTDOWN, Duration::from_secs);
    let span = world.latencies.start;
    let script = locked(vmid).then(move |world, _| {
        world.guest(&host, vmid)?.check_lock()?;
        let down = going_down(world, vmid, timeout, false);
        let up = Script::new().takes(format!("start {vmid}"), span).act(move |world| {
            world.power_on(vmid);
            world.effect("reboot", vmid);
            Ok(())
        });
        let off = Script::new().act(move |world| {
            world.power_off(vmid);
            Ok(())
        });
        Ok(down.and(off).and(up))
    });
    begin(world, request, "qmreboot", script)
}
