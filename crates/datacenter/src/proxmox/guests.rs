//! Guests, as lists and one by one.

use serde_json::{Map, Value, json};

use super::api::Version;
use super::drive::Drive;
use super::{Outcome, Request};
use crate::blueprint::StorageKind;
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::stores::name::VolumeName;
use crate::world::stores::split;

fn row(world: &World, guest: &Guest) -> Map<String, Value> {
    let seen = world.observe(guest);
    let mut row = Map::new();
    row.insert("vmid".into(), json!(guest.vmid));
    row.insert("name".into(), json!(seen.name));
    row.insert("status".into(), json!(if seen.running { "running" } else { "stopped" }));
    row.insert("cpus".into(), json!(seen.cores));
    row.insert("maxmem".into(), json!(seen.memory));
    row.insert("maxdisk".into(), json!(seen.disk));
    row.insert("uptime".into(), json!(seen.uptime));
    row.insert("cpu".into(), json!(if seen.running { 0.01 } else { 0.0 }));
    row.insert("mem".into(), json!(if seen.running { seen.memory / 2 } else { 0 }));
    for key in ["disk", "diskread", "diskwrite", "netin", "netout"] {
        row.insert(key.into(), json!(0));
    }
    if seen.running {
        row.insert("pid".into(), json!(100_000 + guest.vmid));
    }
    if seen.template {
        row.insert("template".into(), json!(1));
    }
    for key in ["lock", "tags"] {
        if let Some(value) = guest.get(key) {
            row.insert(key.into(), json!(value));
        }
    }
    row
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let of_host = world.guests.values().filter(|guest| guest.host == request.host);
    let visible = of_host.filter(|guest| world.may(&request.who, &format!("/vms/{}", guest.vmid), &["VM.Audit"]));
    Ok(visible.map(|guest| Value::from(row(world, guest))).collect::<Vec<_>>().into())
}

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let mut row = row(world, guest);
    row.insert("qmpstatus".into(), json!(if guest.is_running() { "running" } else { "stopped" }));
    row.insert("ha".into(), json!({ "managed": 0 }));
    if let Some(machine) = world.machines.get(guest.vmid) {
        if machine.agent {
            row.insert("agent".into(), json!(1));
        }
        row.insert("running-qemu".into(), json!("10.1.2"));
        row.insert("running-machine".into(), json!("pc-i440fx-10.1+pve0"));
    }
    Ok(Value::from(row).into())
}

/// The snapshots of a guest. None can be taken here, so there is only what it is now.
pub(super) fn snapshots(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    Ok(json!([{
        "name": "current", "digest": guest.digest(), "running": u8::from(guest.is_running()),
        "description": "You are here!",
    }])
    .into())
}

/// Whether the storages of a guest's disks can do something, and on which hosts all of its volumes are.
pub(super) fn feature(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    if let Some(name) = request.text("snapname") {
        return Err(format!("snapshot '{name}' does not exist").into());
    }
    let feature = request.text("feature").unwrap_or_default();
    let mut has_feature = true;
    let mut hosts: Vec<&String> = world.hosts.keys().collect();
    for drive in Drive::all(&guest.config).values() {
        let volume = split(&drive.file).filter(|_| !drive.file.starts_with('/'));
        if let Some((storage, name)) = volume {
            let spec = world.stores.spec(storage)?;
            if !spec.hosts.is_empty() {
                hosts.retain(|host| spec.hosts.contains(host));
            } else if !spec.shared {
                hosts.retain(|host| **host == request.host);
            }
            if !drive.is_cdrom() {
                has_feature &= can(world.version, spec.kind, feature, &VolumeName::parse(spec.kind, name)?);
            }
        } else if !drive.is_cdrom() {
            has_feature = false;
        }
    }
    Ok(json!({ "hasFeature": u8::from(has_feature), "nodes": hosts }).into())
}

/// Whether a storage can do this to a volume.
fn can(version: Version, kind: StorageKind, feature: &str, volume: &VolumeName<'_>) -> bool {
    match feature {
        "copy" => true,
        "clone" => volume.is_base,
        "snapshot" if volume.is_base => false,
        "snapshot" => match kind {
            StorageKind::LvmThin | StorageKind::ZfsPool | StorageKind::Rbd => true,
            StorageKind::Dir => volume.format == "qcow2",
            StorageKind::Lvm => version == Version::Nine && volume.format == "qcow2",
        },
        _ => false,
    }
}
