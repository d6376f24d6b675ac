//! Pools.

use serde_json::{Map, Value, json};

use super::api::Version;
use super::{Outcome, Refusal, Request, cluster};
use crate::world::{Pool, World};

fn row(name: &str, pool: &Pool) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("poolid".into(), json!(name));
    if !pool.comment.is_empty() {
        row.insert("comment".into(), json!(pool.comment));
    }
    row
}

/// The members of a pool, guests as they were told last. Who may see the pool sees all of them.
fn members(world: &World, request: &Request, pool: &Pool) -> Vec<Value> {
    let wants = |kind: &str| request.text("type").is_none_or(|wanted| wanted == kind);
    let guests = pool.guests.iter().filter_map(|vmid| world.guests.get(vmid)).filter(|_| wants("qemu"));
    let mut members: Vec<Value> = guests.map(|guest| Value::from(cluster::told_row(world, guest))).collect();
    for storage in pool.storages.iter().filter(|_| wants("storage")) {
        let hosts = world.hosts.keys().filter(|host| world.stores.place(host, storage).is_ok());
        members.extend(hosts.map(|host| {
            json!({ "id": format!("storage/{host}/{storage}"), "type": "storage", "storage": storage, "node": host })
        }));
    }
    members
}

fn absent(name: &str) -> Refusal {
    format!("pool '{name}' does not exist").into()
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    if let Some(name) = request.text("poolid") {
        world.require(&request.who, &format!("/pool/{name}"), &["Pool.Audit"])?;
        let pool = world.pools.get(name).ok_or_else(|| absent(name))?;
        let mut row = row(name, pool);
        row.insert("members".into(), members(world, request, pool).into());
        return Ok(Value::from(vec![Value::from(row)]).into());
    }
    let visible =
        world.pools.iter().filter(|(name, _)| world.may(&request.who, &format!("/pool/{name}"), &["Pool.Audit"]));
    Ok(visible.map(|(name, pool)| Value::from(row(name, pool))).collect::<Vec<_>>().into())
}

pub(super) fn get(world: &World, request: &Request) -> Outcome {
    let name = request.text("poolid").unwrap_or_default();
    let pool = world.pools.get(name).ok_or_else(|| absent(name))?;
    let mut row = Map::new();
    row.insert("members".into(), members(world, request, pool).into());
    if !pool.comment.is_empty() {
        row.insert("comment".into(), json!(pool.comment));
    }
    Ok(Value::from(row).into())
}

/// Refuses while the file of users, rights and pools cannot be locked.
fn check_lockable(world: &World) -> Result<(), String> {
    if world.has_quorum { Ok(()) } else { Err("cfs-lock 'file-user_cfg' error: no quorum!".to_owned()) }
}

fn check_new(world: &World, name: &str) -> Result<(), String> {
    check_lockable(world)?;
    if world.pools.contains_key(name) {
        return Err(format!("pool '{name}' already exists"));
    }
    let (parent, leaf) = name.rsplit_once('/').map_or((None, name), |(parent, leaf)| (Some(parent), leaf));
    if let Some(parent) = parent.filter(|parent| !world.pools.contains_key(*parent)) {
        return Err(format!("parent '{parent}' of pool '{name}' does not exist"));
    }
    if world.version == Version::Nine && !leaf.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        return Err("pool name must start with a letter".to_owned());
    }
    Ok(())
}

pub(super) fn create(world: &mut World, request: &Request) -> Outcome {
    let name = request.text("poolid").unwrap_or_default().to_owned();
    check_new(world, &name).map_err(|error| format!("create pool failed: {error}"))?;
    let comment = request.text("comment").unwrap_or_default().to_owned();
    world.effect("create pool", &name);
    world.pools.insert(name, Pool { comment, ..Pool::default() });
    Ok(Value::Null.into())
}

fn check_empty(world: &World, name: &str) -> Result<(), String> {
    check_lockable(world)?;
    let pool = world.pools.get(name).ok_or_else(|| format!("pool '{name}' does not exist"))?;
    let full = |what: String| Err(format!("pool '{name}' is not empty (contains {what})"));
    let is_inside = |other: &&String| other.rsplit_once('/').is_some_and(|(parent, _)| parent == name);
    if let Some(inner) = world.pools.keys().find(is_inside) {
        return full(format!("pool '{inner}'"));
    }
    // Numbers are sorted as texts there. Who is no more does not count.
    let guests = pool.guests.iter().filter(|vmid| world.guests.contains_key(vmid));
    if let Some(vmid) = guests.map(ToString::to_string).min() {
        return full(format!("VM {vmid}"));
    }
    if let Some(storage) = pool.storages.iter().find(|storage| world.stores.spec(storage).is_ok()) {
        return full(format!("storage '{storage}'"));
    }
    Ok(())
}

pub(super) fn delete(world: &mut World, request: &Request) -> Outcome {
    let name = request.text("poolid").unwrap_or_default();
    check_empty(world, name).map_err(|error| format!("delete pool failed: {error}"))?;
    world.pools.remove(name);
    // The vendor looks for the rights of a nested pool in the wrong place, and leaves them.
    if !name.contains('/') {
        world.access.forget(&format!("/pool/{name}"));
    }
    world.effect("delete pool", name);
    Ok(Value::Null.into())
}

pub(super) fn set(world: &mut World, request: &Request) -> Outcome {
    let name = request.text("poolid").unwrap_or_default().to_owned();
    let list = |key: &str| -> Vec<String> {
        let words = request.text(key).unwrap_or_default().split([',', ';', ' ', '\0']);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    check_lockable(world)?;
    let is_removed = request.flag("delete");
    let guests: Vec<u32> = list("vms").iter().filter_map(|vmid| vmid.parse().ok()).collect();
    let storages = list("storage");
    let pool = world.pools.get(&name).ok_or_else(|| absent(&name))?;
    for vmid in &guests {
        world.require(&request.who, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        let current = world.pool_of(*vmid);
        if is_removed && !pool.guests.contains(vmid) {
            return Err(format!("VM {vmid} is not a pool member").into());
        }
        if !is_removed && current == Some(name.as_str()) {
            return Err(format!("VM {vmid} is already a pool member").into());
        }
        if !is_removed && current.is_some() && !request.flag("allow-move") {
            let other = current.unwrap_or_default();
            return Err(format!("VM {vmid} belongs already to pool '{other}' and 'allow-move' is not set").into());
        }
        if !is_removed && !world.guests.contains_key(vmid) {
            return Err(format!("VM {vmid} does not exist").into());
        }
    }
    for storage in &storages {
        world.require(&request.who, &format!("/storage/{storage}"), &["Datastore.Allocate"])?;
        world.stores.spec(storage)?;
    }
    if !is_removed {
        for other in world.pools.values_mut() {
            other.guests.retain(|vmid| !guests.contains(vmid));
        }
    }
    if let Some(pool) = world.pools.get_mut(&name) {
        if let Some(comment) = request.text("comment") {
            comment.clone_into(&mut pool.comment);
        }
        for vmid in guests {
            if is_removed {
                pool.guests.remove(&vmid)
            } else {
                pool.guests.insert(vmid)
            };
        }
        for storage in storages {
            if is_removed {
                pool.storages.remove(&storage)
            } else {
                pool.storages.insert(storage)
            };
        }
    }
    world.effect("pool", &name);
    Ok(Value::Null.into())
}
