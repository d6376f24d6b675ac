//! Guests, as lists and one by one.

use serde_json::{Map, Value, json};

use super::api::{self, Version};
use super::drive::Drive;
use super::{Outcome, Request, rights};
use crate::blueprint::StorageKind;
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::stores::name::VolumeName;
use crate::world::stores::split;

/// A guest in the list of its host; `is_full` with what its own monitor tells.
fn row(world: &World, guest: &Guest, is_full: bool) -> Map<String, Value> {
    let seen = world.observe(guest);
    let is_nine = world.version == Version::Nine;
    let used = if seen.running { seen.memory / 2 } else { 0 };
    let mut row = Map::new();
    row.insert("vmid".into(), json!(guest.vmid));
    row.insert("name".into(), json!(seen.name));
    row.insert("status".into(), json!(if seen.running { "running" } else { "stopped" }));
    row.insert("cpus".into(), json!(seen.cores));
    row.insert("maxmem".into(), json!(seen.memory));
    row.insert("maxdisk".into(), json!(seen.disk));
    row.insert("uptime".into(), json!(seen.uptime));
    row.insert("cpu".into(), json!(if seen.running { 0.01 } else { 0.0 }));
    row.insert("mem".into(), json!(used));
    for key in ["disk", "netin", "netout"] {
        row.insert(key.into(), json!(0));
    }
    if is_nine {
        row.insert("memhost".into(), json!(used));
    }
    if guest.config.keys().any(|key| rights::is_numbered(key, "serial")) {
        row.insert("serial".into(), json!(1));
    }
    if let Some(balloon) =
        guest.get("balloon").and_then(|balloon| balloon.parse::<u64>().ok()).filter(|least| *least > 0)
    {
        row.insert("balloon_min".into(), json!(balloon << 20));
        row.insert("shares".into(), json!(guest.get("shares").and_then(|it| it.parse().ok()).unwrap_or(1000_u64)));
    }
    if seen.template {
        row.insert("template".into(), json!(1));
    }
    for key in ["lock", "tags"] {
        if let Some(value) = guest.get(key) {
            row.insert(key.into(), json!(value));
        }
    }
    if seen.running {
        row.insert("pid".into(), json!(100_000 + guest.vmid));
        if is_nine {
            for what in ["cpu", "io", "memory"] {
                row.insert(format!("pressure{what}some"), json!(0));
                row.insert(format!("pressure{what}full"), json!(0));
            }
        }
    }
    if is_full {
        row.insert("qmpstatus".into(), json!(seen.status));
        if seen.running {
            row.extend(monitored(world, guest));
        }
    }
    row
}

/// The QEMU that a release brings.
pub(super) fn qemu(version: Version) -> &'static str {
    match version {
        Version::Eight => "9.2.0",
        Version::Nine => "10.1.2",
    }
}

/// The machine that a guest runs as: the latest of its type, unless it is told which. Every type comes in revisions of the vendor's.
fn running_machine(version: Version, wanted: Option<&str>) -> String {
    let wanted = wanted.and_then(|wanted| api::properties(version, "machine", wanted).ok());
    let kind = wanted.as_ref().and_then(|wanted| wanted.get("type")).map_or("pc", String::as_str);
    let (release, _) = qemu(version).rsplit_once('.').unwrap_or_default();
    let named = match kind {
        "pc" => format!("pc-i440fx-{release}"),
        "q35" => format!("pc-q35-{release}"),
        named => named.to_owned(),
    };
    if named.contains("+pve") { named } else { format!("{named}+pve0") }
}

/// What the monitor of a guest that runs tells, and its network devices.
fn monitored(world: &World, guest: &Guest) -> Map<String, Value> {
    let mut told = Map::new();
    let nics: Map<String, Value> = (guest.config.keys())
        .filter_map(|key| key.strip_prefix("net").filter(|_| rights::is_numbered(key, "net")))
        .map(|number| (format!("tap{}i{number}", guest.vmid), json!({ "netin": 0, "netout": 0 })))
        .collect();
    if !nics.is_empty() {
        told.insert("nics".into(), nics.into());
    }
    told.insert("diskread".into(), json!(0));
    told.insert("diskwrite".into(), json!(0));
    told.insert("running-qemu".into(), json!(qemu(world.version)));
    told.insert("running-machine".into(), json!(running_machine(world.version, guest.get("machine"))));
    if let Some(machine) = world.machines.get(guest.vmid).filter(|_| guest.get("balloon") != Some("0")) {
        let memory = world.observe(guest).memory;
        told.insert("balloon".into(), json!(memory));
        if machine.is_up {
            told.insert("freemem".into(), json!(memory / 2));
        }
    }
    told
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let of_host = world.guests.values().filter(|guest| guest.host == request.host);
    let visible = of_host.filter(|guest| world.may(&request.who, &format!("/vms/{}", guest.vmid), &["VM.Audit"]));
    let is_full = request.flag("full");
    Ok(visible.map(|guest| Value::from(row(world, guest, is_full))).collect::<Vec<_>>().into())
}

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let mut row = row(world, guest, true);
    let managed = world.is_managed(guest.vmid);
    let mut ha = Map::from_iter([("managed".to_owned(), json!(u8::from(managed)))]);
    if managed {
        ha.insert("state".into(), json!(world.ha_state(guest.vmid)));
    }
    row.insert("ha".into(), ha.into());
    let agent = guest.get("agent").and_then(|agent| api::properties(world.version, "agent", agent).ok());
    if agent.is_some_and(|agent| agent.get("enabled").is_some_and(|flag| flag == "1")) {
        row.insert("agent".into(), json!(1));
    }
    Ok(Value::from(row).into())
}

/// Whether all volumes of a guest can do this.
pub(super) fn has_feature(world: &World, guest: &Guest, feature: &str) -> Result<bool, String> {
    let mut has_feature = true;
    for drive in Drive::all(&guest.config).values().filter(|drive| !drive.is_cdrom()) {
        let Some((storage, name)) = split(&drive.file).filter(|_| !drive.file.starts_with('/')) else {
            return Ok(false);
        };
        let kind = world.stores.spec(storage)?.kind;
        has_feature &= can(world.version, kind, feature, &VolumeName::parse(kind, name)?);
    }
    Ok(has_feature)
}

/// Whether the storages of a guest's disks can do something, and on which hosts all of its volumes are.
pub(super) fn feature(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    if let Some(name) = request.text("snapname").filter(|name| !guest.snapshots.contains_key(*name)) {
        return Err(format!("snapshot '{name}' does not exist").into());
    }
    let has_feature = has_feature(world, guest, request.text("feature").unwrap_or_default())?;
    let mut hosts: Vec<&String> = world.hosts.keys().collect();
    for drive in Drive::all(&guest.config).values() {
        let volume = split(&drive.file).filter(|_| !drive.file.starts_with('/'));
        if let Some((storage, _)) = volume {
            let spec = world.stores.spec(storage)?;
            if !spec.hosts.is_empty() {
                hosts.retain(|host| spec.hosts.contains(host));
            } else if !spec.shared {
                hosts.retain(|host| **host == request.host);
            }
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
