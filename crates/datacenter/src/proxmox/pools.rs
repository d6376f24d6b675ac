//! Pools.

use serde_json::{Map, Value, json};

use super::{Outcome, Refusal, Request};
use crate::world::{Pool, World};

fn row(name: &str, pool: &Pool) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("poolid".into(), json!(name));
    if !pool.comment.is_empty() {
        row.insert("comment".into(), json!(pool.comment));
    }
    row
}

fn members(world: &World, request: &Request, pool: &Pool) -> Vec<Value> {
    let guests = pool.guests.iter().filter_map(|vmid| world.guests.get(vmid));
    let visible = guests.filter(|guest| world.may(&request.who, &format!("/vms/{}", guest.vmid), &["VM.Audit"]));
    let mut members: Vec<Value> = visible
        .map(|guest| {
            json!({
                "id": format!("qemu/{}", guest.vmid), "type": "qemu", "vmid": guest.vmid, "node": guest.host,
                "name": guest.get("name"), "status": if guest.is_running() { "running" } else { "stopped" },
            })
        })
        .collect();
    for storage in &pool.storages {
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

pub(super) fn set(world: &mut World, request: &Request) -> Outcome {
    let name = request.text("poolid").unwrap_or_default().to_owned();
    let list = |key: &str| -> Vec<String> {
        let words = request.text(key).unwrap_or_default().split([',', ';', ' ', '\0']);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    if !world.has_quorum {
        return Err("cfs-lock 'file-user_cfg' error: no quorum!".to_owned().into());
    }
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
