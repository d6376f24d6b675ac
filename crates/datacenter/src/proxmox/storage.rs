//! Storages and their volumes.

use serde_json::{Map, Value, json};

use super::{Outcome, Refusal, Request};
use crate::access::Identity;
use crate::blueprint::{Storage, StorageKind};
use crate::world::World;
use crate::world::stores::name::{CEPH_POOL, DATASET, FOLDER, GROUP, VolumeName};
use crate::world::stores::{Volume, split};
use crate::world::tasks::Script;

const SEEN_BY: [&str; 2] = ["Datastore.Audit", "Datastore.AllocateSpace"];

fn is_visible(world: &World, who: &Identity, storage: &str) -> bool {
    world.may(who, &format!("/storage/{storage}"), &SEEN_BY)
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let wanted = request.text("type");
    let rows = world.stores.specs().filter(|spec| {
        wanted.is_none_or(|kind| kind == spec.kind.word()) && is_visible(world, &request.who, &spec.name)
    });
    Ok(rows.map(definition).collect::<Vec<_>>().into())
}

pub(super) fn read(world: &World, request: &Request) -> Outcome {
    let spec = world.stores.spec(request.text("storage").unwrap_or_default())?;
    Ok(definition(spec).into())
}

/// A storage as it is defined, for all hosts.
fn definition(spec: &Storage) -> Value {
    let mut row = Map::new();
    row.insert("storage".into(), json!(spec.name));
    row.insert("type".into(), json!(spec.kind.word()));
    row.insert("content".into(), json!(spec.content.join(",")));
    row.insert("digest".into(), json!("0000000000000000000000000000000000000000"));
    let built_on: &[(&str, &str)] = match spec.kind {
        StorageKind::Dir => &[("path", FOLDER)],
        StorageKind::LvmThin => &[("vgname", GROUP), ("thinpool", "data")],
        StorageKind::Lvm => &[("vgname", GROUP)],
        StorageKind::ZfsPool => &[("pool", DATASET)],
        StorageKind::Rbd => &[("pool", CEPH_POOL)],
    };
    row.extend(built_on.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    if spec.shared {
        row.insert("shared".into(), json!(1));
    }
    if !spec.hosts.is_empty() {
        row.insert("nodes".into(), json!(spec.hosts.join(",")));
    }
    row.into()
}

fn status_row(world: &World, spec: &Storage, host: &str) -> Result<Map<String, Value>, String> {
    let place = world.stores.place(host, &spec.name)?;
    let used = world.stores.used(&place);
    let mut row = Map::new();
    row.insert("type".into(), json!(spec.kind.word()));
    row.insert("content".into(), json!(spec.content.join(",")));
    row.insert("shared".into(), json!(u8::from(spec.shared)));
    row.insert("enabled".into(), json!(1));
    // A host that is too busy to look says that there is nothing, rather than that it does not know.
    let is_active = world.stores.is_active(&place);
    let (total, used) = if is_active { (spec.total, used) } else { (0, 0) };
    row.insert("active".into(), json!(u8::from(is_active)));
    row.insert("total".into(), json!(total));
    row.insert("used".into(), json!(used));
    row.insert("avail".into(), json!(total.saturating_sub(used)));
    Ok(row)
}

pub(super) fn of_node(world: &World, request: &Request) -> Outcome {
    let contents: Vec<&str> =
        request.text("content").map_or_else(Vec::new, |list| list.split([',', ' ', ';']).collect());
    let rows = world.stores.specs().filter(|spec| {
        request.text("storage").is_none_or(|name| name == spec.name)
            && (contents.is_empty() || spec.content.iter().any(|content| contents.contains(&content.as_str())))
            && is_visible(world, &request.who, &spec.name)
    });
    let rows = rows.filter_map(|spec| {
        let mut row = status_row(world, spec, &request.host).ok()?;
        row.insert("storage".into(), json!(spec.name));
        let number = |key: &str| row.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        let (used, total) = (number("used"), number("total"));
        if total > 0.0 {
            row.insert("used_fraction".into(), json!(used / total));
        }
        Some(Value::from(row))
    });
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let spec = world.stores.spec(request.text("storage").unwrap_or_default())?;
    Ok(Value::from(status_row(world, spec, &request.host)?).into())
}

fn volume_row(kind: StorageKind, storage: &str, name: &str, volume: &Volume) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("volid".into(), json!(format!("{storage}:{name}")));
    row.insert("content".into(), json!(volume.content));
    row.insert("format".into(), json!(volume.format));
    // A file is as large as it is, a disk as large as it seems.
    let size = if volume.content == "images" { volume.size } else { volume.written };
    row.insert("size".into(), json!(size));
    row.insert("ctime".into(), json!(volume.created));
    if let Some(vmid) = volume.vmid {
        row.insert("vmid".into(), json!(vmid));
    }
    let is_file = kind == StorageKind::Dir;
    if is_file && volume.content == "images" {
        let parent = volume.parent.as_ref().map(|parent| format!("../{parent}"));
        row.insert("parent".into(), json!(parent));
        row.insert("used".into(), json!(volume.written));
    } else if let Some(parent) = &volume.parent {
        row.insert("parent".into(), json!(parent));
    }
    row
}

pub(super) fn volumes(world: &World, request: &Request) -> Outcome {
    let storage = request.text("storage").unwrap_or_default();
    let place = world.stores.place(&request.host, storage)?;
    let (content, vmid) = (request.text("content"), request.params.number("vmid"));
    let rows = world.stores.volumes(&place).filter(|(_, volume)| {
        content.is_none_or(|content| content == volume.content)
            && vmid.is_none_or(|vmid| volume.vmid.is_none_or(|owner| i64::from(owner) == vmid))
    });
    let kind = world.stores.spec(storage)?.kind;
    Ok(rows.map(|(name, volume)| Value::from(volume_row(kind, storage, name, volume))).collect::<Vec<_>>().into())
}

/// The name, within its storage, of the volume that a path names: in full, or not.
fn volume_name(request: &Request) -> Result<&str, Refusal> {
    let storage = request.text("storage").unwrap_or_default();
    let volume = request.text("volume").unwrap_or_default();
    if !volume.contains(':') {
        return Ok(volume);
    }
    match split(volume) {
        Some((other, name)) if other == storage => Ok(name),
        Some((other, _)) => Err(Refusal::parameter("volume", format!("storage ID mismatch ({other} != {storage})\n"))),
        None => Err(Refusal::parameter("volume", format!("unable to parse volume ID '{volume}'\n"))),
    }
}

pub(super) fn volume(world: &World, request: &Request) -> Outcome {
    let (storage, name) = (request.text("storage").unwrap_or_default(), volume_name(request)?);
    let volid = format!("{storage}:{name}");
    let kind = world.stores.spec(storage)?.kind;
    let path = VolumeName::parse(kind, name)?.path(kind, storage);
    world.require_any(&request.who, &format!("/storage/{storage}"), &SEEN_BY)?;
    world.stores.place(&request.host, storage)?;
    let volume = world.stores.get(&request.host, &volid);
    let volume = volume.ok_or_else(|| format!("volume_size_info on '{volid}' failed - no such volume"))?;
    let mut row = volume_row(kind, storage, name, volume);
    for key in ["volid", "content", "ctime", "vmid"] {
        row.remove(key);
    }
    row.insert("path".into(), json!(path));
    row.insert("used".into(), json!(volume.written));
    Ok(Value::from(row).into())
}

pub(super) fn delete(world: &mut World, request: &Request) -> Outcome {
    let (storage, name) = (request.text("storage").unwrap_or_default(), volume_name(request)?);
    let (host, volid) = (request.host.clone(), format!("{storage}:{name}"));
    let kind = world.stores.spec(storage)?.kind;
    let parsed = VolumeName::parse(kind, name)?;
    let (owner, path) = (parsed.owner, parsed.path(kind, storage));
    world.require(&request.who, &format!("/storage/{storage}"), &["Datastore.Allocate"])?;
    world.stores.place(&host, storage)?;
    let lock = world.stores.lock_name(&host, storage)?;
    let (patience, span) = (lock.patience(), world.latencies.destroy);
    let id = owner.map_or_else(|| storage.to_owned(), |owner| format!("{owner}@{storage}"));
    let purpose = format!("free {volid}");
    let script = Script::new().lock(lock, false, patience).takes(purpose, span).then(move |world, task| {
        if kind == StorageKind::Dir && world.stores.get(&host, &volid).is_none() {
            world.say(task, format!("disk image '{path}' does not exist"));
        } else {
            world.stores.free(&host, &volid)?;
            world.effect("delete", &volid);
        }
        world.say(task, format!("Removed volume '{volid}'"));
        Ok(Script::new())
    });
    Ok(world.begin(&request.host, "imgdel", &id, &request.who.name(), script).into())
}
