//! Snapshots of guests: taken, listed, rolled back to, deleted. Each is one task that holds a lock in the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::drive::Drive;
use super::{Outcome, Refusal, Request, config, guests, options, pending, power, rights};
use crate::blueprint::Span;
use crate::talos::node::Disk;
use crate::world::World;
use crate::world::guest::{Guest, Snapshot};
use crate::world::locks::LockName;
use crate::world::tasks::Script;

/// Taking, deleting or going back to a snapshot of all volumes.
const TAKES: Span = Span { mean: 1.0, p95: 3.0 };

fn absent(name: &str) -> String {
    format!("snapshot '{name}' does not exist")
}

fn locked(vmid: u32) -> Script {
    let lock = LockName::Guest(vmid);
    let patience = lock.patience();
    Script::new().lock(lock, false, patience)
}

fn begin(world: &mut World, request: &Request, kind: &str, script: Script) -> Outcome {
    let vmid = request.vmid().to_string();
    Ok(world.begin(&request.host, kind, &vmid, &request.who.name(), script).into())
}

/// The guest of a task of this kind, which has this lock.
fn holding<'a>(world: &'a mut World, host: &str, vmid: u32, lock: &str) -> Result<&'a mut Guest, String> {
    let guest = world.guest_mut(host, vmid)?;
    if guest.lock() == Some(lock) { Ok(guest) } else { Err(format!("missing {lock} lock")) }
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let mut rows: Vec<Value> = Vec::new();
    for (name, snapshot) in &guest.snapshots {
        let mut row = Map::new();
        row.insert("name".into(), json!(name));
        row.insert("snaptime".into(), json!(snapshot.time));
        row.insert("vmstate".into(), json!(0));
        row.insert("description".into(), json!(snapshot.description));
        if let Some(parent) = &snapshot.parent {
            row.insert("parent".into(), json!(parent));
        }
        if let Some(state) = snapshot.state {
            row.insert("snapstate".into(), json!(state));
        }
        rows.push(row.into());
    }
    let mut current = Map::new();
    current.insert("name".into(), json!("current"));
    current.insert("digest".into(), json!(guest.digest()));
    current.insert("running".into(), json!(u8::from(guest.is_running())));
    current.insert("description".into(), json!("You are here!"));
    if let Some(parent) = guest.get("parent") {
        current.insert("parent".into(), json!(parent));
    }
    rows.push(current.into());
    Ok(rows.into())
}

pub(super) fn index() -> super::Done {
    json!([{ "cmd": "rollback" }, { "cmd": "config" }]).into()
}

/// The configuration that a snapshot holds.
pub(super) fn read(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let name = request.text("snapname").unwrap_or_default();
    let snapshot = guest.snapshots.get(name).ok_or_else(|| absent(name))?;
    let mut told: Map<String, Value> = (snapshot.config.iter())
        .map(|(key, value)| (key.clone(), options::told(world.version, key, &pending::hidden(key, value))))
        .collect();
    told.insert("snaptime".into(), json!(snapshot.time));
    if !snapshot.description.is_empty() {
        told.insert("description".into(), json!(snapshot.description));
    }
    Ok(Value::from(told).into())
}

pub(super) fn describe(world: &mut World, request: &Request) -> Outcome {
    let Some(description) = request.text("description").map(str::to_owned) else { return Ok(Value::Null.into()) };
    let name = request.text("snapname").unwrap_or_default();
    let guest = world.guest_mut(&request.host, request.vmid())?;
    guest.check_lock()?;
    guest.snapshots.get_mut(name).ok_or_else(|| absent(name))?.description = description;
    Ok(Value::Null.into())
}

pub(super) fn take(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    let name = request.text("snapname").unwrap_or_default().to_owned();
    if name == "current" || name.to_lowercase() == "pending" {
        return Err(format!("unable to use snapshot name '{name}' (reserved name)").into());
    }
    let guest = world.guest(&host, vmid)?;
    if request.flag("vmstate") && guest.is_running() {
        return Err(Refusal::simulated("keeps no state of memory in snapshots"));
    }
    let description = request.text("description").unwrap_or_default().to_owned();
    let script = locked(vmid).then(move |world, _| {
        prepare(world, (&host, vmid), &name, description)?;
        let (undo_host, undo_name) = (host.clone(), name.clone());
        let script = Script::new().on_failure(move |world| {
            if let Ok(guest) = world.guest_mut(&undo_host, vmid) {
                guest.snapshots.remove(&undo_name);
                guest.config.remove("lock");
            }
        });
        Ok(script.takes(format!("snapshot {vmid}"), TAKES).act(move |world| {
            let volumes = volumes(world, &host, vmid)?;
            let disk = disk(world, vmid);
            let guest = holding(world, &host, vmid, "snapshot")?;
            let snapshot = guest.snapshots.get_mut(&name).ok_or_else(|| absent(&name))?;
            (snapshot.volumes, snapshot.disk, snapshot.state) = (volumes, disk, None);
            guest.config.remove("lock");
            guest.config.insert("parent".to_owned(), name);
            world.effect("snapshot", vmid);
            Ok(())
        }))
    });
    begin(world, request, "qmsnapshot", script)
}

/// Writes down that a snapshot is being taken.
fn prepare(world: &mut World, (host, vmid): (&str, u32), name: &str, description: String) -> Result<(), String> {
    let guest = world.guest(host, vmid)?;
    if guest.is_template() {
        return Err("you can't take a snapshot if it's a template".to_owned());
    }
    guest.check_lock()?;
    if guest.snapshots.contains_key(name) {
        return Err(format!("snapshot name '{name}' already used"));
    }
    if !guests::has_feature(world, guest, "snapshot")? {
        return Err("snapshot feature is not available".to_owned());
    }
    let (time, mut kept) = (world.epoch(), guest.config.clone());
    kept.retain(|key, _| {
        !["lock", "description", "parent"].contains(&key.as_str()) && !rights::is_numbered(key, "unused")
    });
    let guest = world.guest_mut(host, vmid)?;
    let snapshot = Snapshot {
        config: kept,
        description,
        time,
        parent: guest.get("parent").map(str::to_owned),
        state: Some("prepare"),
        volumes: BTreeMap::new(),
        disk: None,
    };
    guest.snapshots.insert(name.to_owned(), snapshot);
    guest.config.insert("lock".to_owned(), "snapshot".to_owned());
    Ok(())
}

/// The volumes of a guest as they are now.
fn volumes(world: &World, host: &str, vmid: u32) -> Result<BTreeMap<String, crate::world::stores::Volume>, String> {
    let drives = Drive::all(&world.guest(host, vmid)?.config);
    let owned = drives.into_values().filter(|drive| drive.is_owned() && !drive.is_cdrom());
    let found = owned.filter_map(|drive| Some((drive.file.clone(), world.stores.get(host, &drive.file)?.clone())));
    Ok(found.collect())
}

/// What a Talos node has on its disk.
fn disk(world: &World, vmid: u32) -> Option<Arc<Disk>> {
    let disk = &world.talos.nodes.get(&vmid)?.disk;
    Some(Arc::new(Disk { config: disk.config.clone(), etcd: disk.etcd.clone(), meta: disk.meta.clone() }))
}

pub(super) fn delete(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    let name = request.text("snapname").unwrap_or_default().to_owned();
    let script = locked(vmid).then(move |world, _| {
        let guest = world.guest_mut(&host, vmid)?;
        if !guest.snapshots.contains_key(&name) {
            return Err(absent(&name));
        }
        guest.check_lock()?;
        if guest.is_template() {
            return Err("you can't delete a snapshot if vm is a template".to_owned());
        }
        guest.config.insert("lock".to_owned(), "snapshot-delete".to_owned());
        if let Some(snapshot) = guest.snapshots.get_mut(&name) {
            snapshot.state = Some("delete");
        }
        Ok(Script::new().takes(format!("snapshot {vmid}"), TAKES).act(move |world| {
            let guest = holding(world, &host, vmid, "snapshot-delete")?;
            let gone = guest.snapshots.remove(&name).ok_or_else(|| absent(&name))?;
            let is_child = |parent: Option<&str>| parent == Some(name.as_str());
            for other in guest.snapshots.values_mut().filter(|other| is_child(other.parent.as_deref())) {
                other.parent.clone_from(&gone.parent);
            }
            if is_child(guest.get("parent")) {
                match gone.parent {
                    Some(parent) => drop(guest.config.insert("parent".to_owned(), parent)),
                    None => drop(guest.config.remove("parent")),
                }
            }
            guest.config.remove("lock");
            world.effect("delete snapshot", vmid);
            Ok(())
        }))
    });
    begin(world, request, "qmdelsnapshot", script)
}

pub(super) fn roll_back(world: &mut World, request: &Request) -> Outcome {
    let (host, vmid) = (request.host.clone(), request.vmid());
    let name = request.text("snapname").unwrap_or_default().to_owned();
    let starts = request.flag("start");
    if starts {
        world.require(&request.who, &format!("/vms/{vmid}"), &["VM.PowerMgmt"])?;
    }
    let script = locked(vmid).then(move |world, _| {
        let guest = world.guest(&host, vmid)?;
        if guest.is_template() {
            return Err("you can't rollback if vm is a template".to_owned());
        }
        let snapshot = guest.snapshots.get(&name).ok_or_else(|| absent(&name))?;
        if let Some(state) = snapshot.state {
            return Err(format!("unable to rollback to incomplete snapshot (snapstate = {state})"));
        }
        guest.check_lock()?;
        let has_data = |disk: Option<&Disk>| disk.is_some_and(|disk| disk.etcd.is_some());
        let now = world.talos.nodes.get(&vmid).map(|node| &node.disk);
        if has_data(snapshot.disk.as_deref()) || has_data(now) {
            // What a member has of an etcd is kept with the others here, and does not go back alone.
            return Err("this hypervisor is simulated and rolls no member of an etcd back".to_owned());
        }
        if guest.is_running() {
            world.power_off(vmid);
        }
        world.guest_mut(&host, vmid)?.config.insert("lock".to_owned(), "rollback".to_owned());
        Ok(Script::new().takes(format!("snapshot {vmid}"), TAKES).then(move |world, _| {
            restore(world, &host, vmid, &name)?;
            world.effect("rollback", vmid);
            if starts {
                let start = power::start_script(world, &host, vmid, false);
                world.begin(&host, "qmstart", &vmid.to_string(), "root@pam", start);
            }
            Ok(Script::new())
        }))
    });
    begin(world, request, "qmrollback", script)
}

/// Puts back what was kept.
fn restore(world: &mut World, host: &str, vmid: u32, name: &str) -> Result<(), String> {
    let guest = holding(world, host, vmid, "rollback")?;
    let snapshot = guest.snapshots.get(name).cloned().ok_or_else(|| absent(name))?;
    let old = std::mem::replace(&mut guest.config, snapshot.config.clone());
    guest.pending.clear();
    guest.config.insert("parent".to_owned(), name.to_owned());
    if let Some(description) = old.get("description") {
        guest.config.insert("description".to_owned(), description.clone());
    }
    let unused = old.iter().filter(|(key, _)| rights::is_numbered(key, "unused")).map(|(_, volid)| volid.clone());
    let drives = Drive::all(&old).into_values().filter(|drive| drive.is_owned() && !drive.is_cloud_init());
    for volid in unused.chain(drives.map(|drive| drive.file)) {
        if !Drive::all(&guest.config).values().any(|drive| drive.file == volid) {
            config::keep_unused(guest, &volid);
        }
    }
    for (volid, volume) in snapshot.volumes {
        world.stores.put(host, &volid, volume)?;
    }
    if let (Some(node), Some(disk)) = (world.talos.nodes.get_mut(&vmid), snapshot.disk) {
        node.disk = Disk { config: disk.config.clone(), etcd: disk.etcd.clone(), meta: disk.meta.clone() };
    }
    Ok(())
}
