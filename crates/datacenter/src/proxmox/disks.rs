//! Disks: what a drive asks for, and how it is made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::api::Version;
use super::drive::{self, Drive};
use super::{Refusal, rights};
use crate::access::Identity;
use crate::blueprint::StorageKind;
use crate::world::World;
use crate::world::stores::name::VolumeName;
use crate::world::stores::{CLOUD_INIT_SIZE, Purpose, split};
use crate::world::tasks::{Script, TaskId};

mod alter;

pub(super) use alter::{move_disk, resize};

/// Where the content of a drive comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It is there, or there is none.
    Existing,
    /// A new volume of this size.
    Empty(u64),
    /// A new volume for cloud-init.
    CloudInit,
    /// A new volume with what is in this one.
    Copy(String),
}

/// A drive that is to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) key: String,
    pub(super) drive: Drive,
    /// Where the new volume goes.
    pub(super) storage: String,
    pub(super) format: Option<String>,
    pub(super) source: Source,
    /// Whether it is a clone of a guest's drive, which tells its size even if it is for cloud-init.
    pub(super) is_clone: bool,
    /// The guest that runs on the drive while it is copied.
    pub(super) runs: Option<u32>,
}

/// What has been made so far: drives as they are printed, and the volumes behind them.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) options: BTreeMap<String, String>,
    pub(super) volumes: Vec<String>,
}

/// What the steps of a task share.
#[derive(Clone, Debug, Default)]
pub(super) struct Workbench(Arc<Mutex<Made>>);

impl Workbench {
    pub(super) fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees what has been made.
    pub(super) fn undo(&self, world: &mut World, host: &str) {
        let volumes = std::mem::take(&mut self.made().volumes);
        for volid in volumes {
            // What cannot be freed stays behind, as it does at the vendor's.
            let _ = world.stores.free(host, &volid);
        }
    }
}

/// A number of gibibytes, as in `local-lvm:32`.
fn gibibytes(name: &str) -> Option<u64> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !name.is_empty();
    is_number.then(|| drive::parse_size(&format!("{name}G"))).flatten()
}

/// What a drive asks for, if whoever asks may have it.
pub(super) fn plan(
    world: &World,
    who: &Identity,
    (host, vmid): (&str, u32),
    (key, value): (&str, &str),
) -> Result<Plan, Refusal> {
    let mut drive = Drive::parse(world.version, key, value)?;
    let import = drive.options.remove("import-from");
    let format = drive.options.remove("format");
    let none = Plan {
        key: key.to_owned(),
        drive: drive.clone(),
        storage: String::new(),
        format,
        source: Source::Existing,
        is_clone: false,
        runs: None,
    };
    if drive.file == "none" {
        return Ok(none);
    }
    if drive.file == "cdrom" {
        world.require(who, "/", &["Sys.Console"])?;
        return Ok(none);
    }
    let (storage, name) = managed(who, &drive.file)?;
    let storage = storage.to_owned();
    if let Some(from) = import {
        if gibibytes(name) != Some(0) {
            let complaint = "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>";
            return Err(Refusal::parameter(key, complaint));
        }
        check_target(world, who, host, &storage)?;
        check_import(world, who, host, (key, vmid), &from)?;
        return Ok(Plan { storage, source: Source::Copy(from), ..none });
    }
    if name == "cloudinit" {
        // Nobody needs a right for the few megabytes of it.
        return Ok(Plan { storage, source: Source::CloudInit, ..none });
    }
    if let Some(size) = gibibytes(name) {
        check_target(world, who, host, &storage)?;
        let small = drive.options.get("efitype").is_none_or(|kind| kind == "2m");
        let size = match key {
            "efidisk0" if small => 528 << 10,
            "efidisk0" | "tpmstate0" => 4 << 20,
            _ => size,
        };
        return Ok(Plan { storage, source: Source::Empty(size), ..none });
    }
    world.stores.place(host, &storage)?;
    VolumeName::parse(world.stores.spec(&storage)?.kind, name)?;
    check_volume(world, who, host, vmid, &drive.file)?;
    Ok(Plan { storage, ..none })
}

/// The storage and the name of a volume, which only the administrator may leave out.
fn managed<'a>(who: &Identity, file: &'a str) -> Result<(&'a str, &'a str), Refusal> {
    split(file).filter(|_| !file.starts_with('/')).ok_or_else(|| {
        let why = if who.is_root() {
            format!("unable to find '{file}'")
        } else {
            "Only root can pass arbitrary filesystem paths.".to_owned()
        };
        why.into()
    })
}

/// Refuses a volume that somebody may not use.
fn check_volume(world: &World, who: &Identity, host: &str, vmid: u32, volid: &str) -> Result<(), Refusal> {
    let storage = format!("/storage/{}", split(volid).map_or("", |(storage, _)| storage));
    if world.may(who, &storage, &["Datastore.Allocate"]) {
        return Ok(());
    }
    match world.stores.get(host, volid).and_then(|volume| volume.vmid) {
        Some(owner) if owner == vmid => Ok(()),
        Some(owner) => {
            world.require(who, &storage, &["Datastore.Audit"])?;
            world.require(who, &format!("/vms/{owner}"), &["VM.Config.Disk"])
        }
        None => world.require_any(who, &storage, &["Datastore.AllocateSpace", "Datastore.Audit"]),
    }
}

/// Refuses a new volume where none can be, or where somebody may not have one.
pub(super) fn check_target(world: &World, who: &Identity, host: &str, storage: &str) -> Result<(), Refusal> {
    world.require(who, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    world.stores.place(host, storage)?;
    let takes_images = world.stores.spec(storage)?.content.iter().any(|content| content == "images");
    if takes_images {
        Ok(())
    } else {
        Err(Refusal::parameter("storage", format!("storage '{storage}' does not support vm images")))
    }
}

/// Refuses to read a volume that somebody may not see, or that is no disk.
fn check_import(
    world: &World,
    who: &Identity,
    host: &str,
    (key, vmid): (&str, u32),
    from: &str,
) -> Result<(), Refusal> {
    let (storage, name) = managed(who, from)?;
    world.stores.place(host, storage)?;
    if let Some(kind) =
        ["iso", "vztmpl", "backup", "snippets"].iter().find(|kind| name.starts_with(&format!("{kind}/")))
    {
        let complaint = format!("{from} has wrong type '{kind}' - needs to be 'images' or 'import'");
        return Err(Refusal::parameter(key, complaint));
    }
    match world.stores.get(host, from).and_then(|volume| volume.vmid) {
        Some(owner) => rights::require_on_guest(world, who, owner, None, &["VM.Clone"]),
        None => check_volume(world, who, host, vmid, from),
    }
}

/// The file that a volume is, if its storage is a folder.
fn path(world: &World, volid: &str) -> Option<String> {
    let (storage, name) = split(volid)?;
    let kind = world.stores.spec(storage).ok()?.kind;
    let name = VolumeName::parse(kind, name).ok().filter(|_| kind == StorageKind::Dir)?;
    Some(name.path(kind, storage))
}

/// What is said of a new file for a disk.
fn formatted(world: &World, host: &str, volid: &str) -> Option<String> {
    let (path, volume) = (path(world, volid)?, world.stores.get(host, volid)?);
    let size = volume.size;
    Some(match volume.format.as_str() {
        "qcow2" => format!(
            "Formatting '{path}', fmt=qcow2 cluster_size=65536 extended_l2=off preallocation=metadata \
             compression_type=zlib size={size} lazy_refcounts=off refcount_bits=16"
        ),
        format => format!("Formatting '{path}', fmt={format} size={size} preallocation=off"),
    })
}

/// What is said of a new file that holds only what differs from another. `base` is that other's place, seen from the new one.
pub(super) fn formatted_link(world: &World, host: &str, volid: &str, base: &str) -> Option<String> {
    let (path, volume) = (path(world, volid)?, world.stores.get(host, volid)?);
    let clusters = match world.version {
        Version::Eight => "cluster_size=65536 extended_l2=off",
        Version::Nine => "cluster_size=131072 extended_l2=on preallocation=metadata",
    };
    let format = base.rsplit('.').next().unwrap_or("raw");
    Some(format!(
        "Formatting '{path}', fmt=qcow2 {clusters} compression_type=zlib size={} backing_file={base} \
         backing_fmt={format} lazy_refcounts=off refcount_bits=16",
        volume.size
    ))
}

/// How far a copy has come.
fn transferred(size: u64, percent: u64) -> String {
    let shown = |bytes: u64| {
        let mut left = bytes as f64;
        let mut unit = "B";
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if left < 1024.0 {
                break;
            }
            left /= 1024.0;
            unit = next;
        }
        format!("{left:.1} {unit}")
    };
    format!(
        "transferred {} of {} ({percent}.00%)",
        shown(size / 100 * percent + size % 100 * percent / 100),
        shown(size)
    )
}

/// Copies the drive of a guest that runs: its QEMU does that, where it can.
fn mirror(world: &mut World, task: TaskId, (host, guest): (&str, u32), key: &str) -> Result<(), String> {
    let fault = world.mirror_faults.get(host).cloned();
    for line in [
        format!("drive mirror is starting for drive-{key}"),
        format!("drive-{key}: Cancelling block job"),
        format!("drive-{key}: Done."),
    ] {
        world.say(task, line);
    }
    fault.map_or(Ok(()), |why| Err(format!("mirroring error: VM {guest} qmp command 'drive-mirror' failed - {why}")))
}

impl Plan {
    /// What the new volume will hold at most.
    fn size(&self, world: &World, host: &str) -> Result<u64, String> {
        match &self.source {
            Source::Existing => Ok(0),
            Source::Empty(size) => Ok(*size),
            Source::CloudInit => Ok(CLOUD_INIT_SIZE),
            Source::Copy(from) => {
                let source = world.stores.get(host, from).map(|source| source.size);
                source.ok_or_else(|| match path(world, from) {
                    Some(path) => format!("failed to stat '{path}'"),
                    None => format!("cannot import from '{from}' - could not get size of {from}"),
                })
            }
        }
    }

    /// The format of the new volume: the one that is asked for, or that of what is copied into files.
    fn format(&self, world: &World, host: &str) -> Option<String> {
        let Source::Copy(from) = &self.source else { return self.format.clone() };
        let is_file = world.stores.spec(&self.storage).is_ok_and(|spec| spec.kind == StorageKind::Dir);
        let format = world.stores.get(host, from).filter(|_| is_file).map(|volume| volume.format.clone());
        let is_disk = |format: &String| ["raw", "qcow2", "vmdk"].contains(&format.as_str());
        self.format.clone().or_else(|| format.filter(is_disk))
    }

    fn allocate(&self, world: &mut World, host: &str, vmid: u32, bench: &Workbench) -> Result<String, String> {
        let size = self.size(world, host)?;
        let purpose = if self.source == Source::CloudInit { Purpose::CloudInit } else { Purpose::Disk };
        let epoch = world.epoch();
        let target = (vmid, purpose);
        let format = self.format(world, host);
        let volid = world.stores.allocate(host, &self.storage, target, format.as_deref(), (size, epoch))?;
        bench.made().volumes.push(volid.clone());
        if !matches!(self.source, Source::Copy(_)) {
            world.stores.fault(&volid)?;
        }
        Ok(volid)
    }

    /// Fills the volume, if there is something to fill it with, and prints the drive.
    fn finish(&self, world: &mut World, host: &str, volid: &str, bench: &Workbench) -> Result<(), String> {
        if let Source::Copy(from) = &self.source {
            world.stores.copy((host, from), (host, volid))?;
        }
        let mut drive = self.drive.clone();
        volid.clone_into(&mut drive.file);
        let size = world.stores.get(host, volid).map_or(0, |volume| volume.size);
        if self.source == Source::CloudInit {
            drive.options.insert("media".to_owned(), "cdrom".to_owned());
        }
        if self.source != Source::CloudInit || self.is_clone {
            drive.options.insert("size".to_owned(), drive::print_size(size));
        }
        let printed = drive.print(world.version, &self.key)?;
        bench.made().options.insert(self.key.clone(), printed);
        Ok(())
    }

    /// Prints a drive whose volume is there.
    fn keep(&self, world: &World, host: &str, bench: &Workbench) -> Result<(), String> {
        let mut drive = self.drive.clone();
        if split(&drive.file).is_some() {
            let volume = world.stores.get(host, &drive.file);
            let volume = volume.ok_or_else(|| format!("volume '{}' does not exist", drive.file))?;
            drive.options.insert("size".to_owned(), drive::print_size(volume.size));
        }
        let printed = drive.print(world.version, &self.key)?;
        bench.made().options.insert(self.key.clone(), printed);
        Ok(())
    }

    /// Makes the drive at once, and says how long that takes.
    pub(super) fn make_now(
        &self,
        world: &mut World,
        host: &str,
        vmid: u32,
        bench: &Workbench,
    ) -> Result<Duration, String> {
        if self.source == Source::Existing {
            return self.keep(world, host, bench).map(|()| Duration::ZERO);
        }
        let mut takes = world.draw(&format!("allocate {vmid}"), world.latencies.allocate);
        let volid = self.allocate(world, host, vmid, bench)?;
        if matches!(self.source, Source::Copy(_)) {
            takes += world.draw(&format!("copy {vmid}"), world.latencies.full_copy);
        }
        self.finish(world, host, &volid, bench)?;
        Ok(takes)
    }

    /// The steps that make the drive.
    pub(super) fn script(self, world: &World, host: &str, vmid: u32, bench: &Workbench) -> Result<Script, String> {
        let (host, bench) = (host.to_owned(), bench.clone());
        if self.source == Source::Existing {
            return Ok(Script::new().act(move |world| self.keep(world, &host, &bench)));
        }
        let lock = world.stores.lock_name(&host, &self.storage)?;
        let (allocate, copy) = (world.latencies.allocate, world.latencies.full_copy);
        let patience = lock.patience();
        let script = Script::new().lock(lock.clone(), false, patience).takes(format!("allocate {vmid}"), allocate);
        Ok(script.then(move |world, task| {
            self.size(world, &host)?;
            match &self.source {
                Source::Copy(from) if !self.is_clone => {
                    world.say(task, format!("create full clone of drive ({from})"));
                }
                _ if self.is_clone => {
                    world.say(task, format!("create full clone of drive {} ({})", self.key, self.drive.file));
                }
                _ => {}
            }
            let volid = self.allocate(world, &host, vmid, &bench)?;
            if let Some(line) = formatted(world, &host, &volid) {
                world.say(task, line);
            }
            let is_copy = matches!(self.source, Source::Copy(_));
            if world.version == Version::Nine && (is_copy || self.is_clone) {
                world.say(task, format!("allocated target volume '{volid}'"));
            }
            let script = Script::new().unlock(lock);
            let script = if is_copy { script.takes(format!("copy {vmid} {}", self.key), copy) } else { script };
            Ok(script.then(move |world, task| {
                if let (true, Some(guest)) = (is_copy, self.runs) {
                    mirror(world, task, (&host, guest), &self.key)?;
                }
                let finished = self.finish(world, &host, &volid, &bench);
                if finished.as_ref().is_err_and(|error| error.starts_with("copy failed")) {
                    world.say(task, "qemu-img: error while writing: No space left on device");
                }
                finished?;
                if is_copy && self.runs.is_none() {
                    let size = world.stores.get(&host, &volid).map_or(0, |volume| volume.size);
                    for percent in [0, 50, 100, 100] {
                        world.say(task, transferred(size, percent));
                    }
                }
                if !self.is_clone {
                    let printed = bench.made().options.get(&self.key).cloned().unwrap_or_default();
                    world.say(task, format!("{}: successfully created disk '{printed}'", self.key));
                }
                Ok(Script::new())
            }))
        }))
    }
}
