//! Disks of a guest that grow or move.

use std::collections::BTreeMap;

use super::{Plan, Source, Workbench, check_target, drive};
use crate::proxmox::api::Version;
use crate::proxmox::drive::Drive;
use crate::proxmox::{Outcome, Refusal, Request, config};
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::{Script, TaskId};

/// Refuses where the configuration is not the one that the client has read.
fn check_digest(guest: &Guest, digest: Option<&str>) -> Result<(), String> {
    match digest {
        Some(digest) if digest != guest.digest() => Err("checksum mismatch (file change by other user?)".to_owned()),
        _ => Ok(()),
    }
}

/// The disk of a guest that can be resized or moved, as `verb` says.
fn disk_of(guest: &Guest, key: &str, verb: &str) -> Result<Drive, String> {
    let drive = Drive::of(&guest.config, key).ok_or_else(|| format!("disk '{key}' does not exist"))?;
    if drive.is_cdrom() { Err(format!("you can't {verb} a cdrom")) } else { Ok(drive) }
}

pub(in crate::proxmox) fn resize(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    if request.flag("skiplock") && !request.who.is_root() {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    let key = request.text("disk").unwrap_or_default().to_owned();
    let size = request.text("size").unwrap_or_default().to_owned();
    let digest = request.text("digest").map(str::to_owned);
    let (lock, span) = (LockName::Guest(vmid), world.latencies.resize);
    let patience = lock.patience();
    let script = Script::new().lock(lock, false, patience).then(move |world, task| {
        let guest = world.guest(&host, vmid)?;
        check_digest(guest, digest.as_deref())?;
        guest.check_lock()?;
        world.check_writable(&host, vmid)?;
        let disk = disk_of(guest, &key, "resize")?;
        let volume =
            world.stores.get(&host, &disk.file).ok_or_else(|| format!("volume '{}' does not exist", disk.file))?;
        let number = drive::parse_size(size.trim_start_matches('+')).ok_or_else(|| format!("invalid size '{size}'"))?;
        let wanted = if size.starts_with('+') { volume.size + number } else { number };
        if wanted < volume.size {
            return Err("shrinking disks is not supported".to_owned());
        }
        if wanted == volume.size {
            return Ok(Script::new());
        }
        let (is_running, file) = (guest.is_running(), super::path(world, &disk.file));
        if let Some(file) = file.as_ref().filter(|_| world.stores.can_link(&host, &disk.file)) {
            return Err(immutable(world, task, file, wanted));
        }
        Ok(Script::new().takes(format!("resize {vmid}"), span).then(move |world, task| {
            grow(world, &host, vmid, &key, wanted)?;
            if file.is_some() && !is_running {
                world.say(task, "Image resized.");
            }
            world.effect("resize", vmid);
            Ok(Script::new())
        }))
    });
    Ok(world.begin(&request.host, "resize", &vmid.to_string(), &request.who.name(), script).into())
}

/// The file that others are linked to cannot be written.
fn immutable(world: &mut World, task: TaskId, file: &str, size: u64) -> String {
    let format = file.rsplit('.').next().unwrap_or("raw");
    let ahead = if world.version == Version::Nine { "'--preallocation=metadata' " } else { "" };
    world.say(task, format!("qemu-img: Could not open '{file}': Could not open '{file}': Operation not permitted"));
    format!("command '/usr/bin/qemu-img resize {ahead}-f {format} {file} {size}' failed: exit code 1")
}

fn grow(world: &mut World, host: &str, vmid: u32, key: &str, size: u64) -> Result<(), String> {
    let disk = disk_of(world.guest(host, vmid)?, key, "resize")?;
    world.stores.fault(&disk.file)?;
    let (storage, _) = split(&disk.file).ok_or_else(|| format!("unable to parse volume ID '{}'", disk.file))?;
    let place = world.stores.place(host, storage)?;
    let is_thick = world.stores.spec(storage)?.kind == crate::blueprint::StorageKind::Lvm;
    let free = world.stores.free_bytes(&place);
    if let Some(volume) = world.stores.get_mut(host, &disk.file) {
        let more = size.saturating_sub(volume.size);
        if is_thick && more > free {
            return Err(format!("error resizing volume '{}': Insufficient free space", disk.file));
        }
        volume.written += if is_thick { more } else { 0 };
        volume.size = size;
    }
    let mut resized = disk;
    resized.options.insert("size".to_owned(), drive::print_size(size));
    let printed = resized.print(world.version, key)?;
    world.guest_mut(host, vmid)?.config.insert(key.to_owned(), printed);
    Ok(())
}

pub(in crate::proxmox) fn move_disk(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    if request.text("target-vmid").is_some() {
        return Err(Refusal::simulated("reassigns no disks to other guests"));
    }
    let Some(storage) = request.text("storage") else {
        return Err(Refusal::parameter("storage", "Parameter 'storage' is required"));
    };
    check_target(world, &request.who, &host, storage)?;
    let guest = world.guest(&host, vmid)?;
    guest.check_lock()?;
    check_digest(guest, request.text("digest"))?;
    let key = request.text("disk").unwrap_or_default().to_owned();
    let old = disk_of(guest, &key, "move")?;
    let from = split(&old.file).map_or("", |(storage, _)| storage);
    if from == storage && request.text("format").is_none() {
        return Err(Refusal::parameter("storage", "you can't move to the same storage with same format"));
    }
    let plan = Plan {
        key: key.clone(),
        drive: old.clone(),
        storage: storage.to_owned(),
        format: request.text("format").map(str::to_owned),
        source: Source::Copy(old.file.clone()),
        is_clone: true,
        runs: None,
    };
    let is_deleted = request.flag("delete");
    let (lock, bench) = (LockName::Guest(vmid), Workbench::default());
    let patience = lock.patience();
    let (undo, undo_host) = (bench.clone(), host.clone());
    let making = plan.script(world, &host, vmid, &bench)?;
    let script = Script::new()
        .lock(lock, false, patience)
        .fails_as("storage migration failed: ")
        .on_failure(move |world| undo.undo(world, &undo_host))
        .and(making)
        .then(move |world, task| {
            let made: BTreeMap<String, String> = bench.made().options.clone();
            world.guest_mut(&host, vmid)?.config.extend(made);
            if !is_deleted {
                config::keep_unused(world.guest_mut(&host, vmid)?, &old.file);
            } else if let Err(error) = world.stores.free(&host, &old.file) {
                world.warn(task, &error);
            }
            world.effect("move", vmid);
            Ok(Script::new())
        });
    Ok(world.begin(&request.host, "qmmove", &vmid.to_string(), &request.who.name(), script).into())
}
