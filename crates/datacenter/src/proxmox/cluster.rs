//! The cluster as a whole.

use serde_json::{Map, Value, json};

use super::{Outcome, Refusal, Request};
use crate::world::World;
use crate::world::guest::Guest;

/// The numbers that are given away when nobody says otherwise.
const LOWEST: u32 = 100;

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let mut rows = Vec::new();
    if world.hosts.len() > 1 {
        rows.push(json!({
            "type": "cluster", "id": "cluster", "name": world.cluster, "nodes": world.hosts.len(),
            "quorate": u8::from(world.has_quorum), "version": world.hosts.len(),
        }));
    }
    for (at, host) in world.hosts.values().enumerate() {
        rows.push(json!({
            "type": "node", "id": format!("node/{}", host.name), "name": host.name,
            "nodeid": if world.hosts.len() > 1 { at + 1 } else { 0 },
            "online": u8::from(world.is_up(&host.name)), "local": u8::from(host.name == request.host), "level": "",
            "ip": format!("192.168.1.{}", at + 2),
        }));
    }
    Ok(rows.into())
}

pub(super) fn next_id(world: &World, request: &Request) -> Outcome {
    if let Some(vmid) = request.params.number("vmid") {
        let is_taken = u32::try_from(vmid).is_ok_and(|vmid| world.guests.contains_key(&vmid));
        return if is_taken {
            Err(Refusal::parameter("vmid", format!("VM {vmid} already exists")))
        } else {
            Ok(vmid.to_string().into())
        };
    }
    let free = (LOWEST..1_000_000).find(|vmid| !world.guests.contains_key(vmid));
    let free = free.ok_or_else(|| "unable to get any free VMID in range [100, 1000000]".to_owned())?;
    Ok(free.into())
}

pub(super) fn resources(world: &World, request: &Request) -> Outcome {
    let kind = request.text("type");
    let wants = |name: &str| kind.is_none_or(|kind| kind == name);
    let mut rows = Vec::new();
    if kind.is_none() {
        rows.extend(
            world
                .pools
                .keys()
                .filter(|pool| world.may(&request.who, &format!("/pool/{pool}"), &["Pool.Audit"]))
                .map(|pool| json!({ "id": format!("/pool/{pool}"), "type": "pool", "pool": pool })),
        );
    }
    if wants("vm") {
        let visible = |guest: &&Guest| world.may(&request.who, &format!("/vms/{}", guest.vmid), &["VM.Audit"]);
        rows.extend(world.guests.values().filter(visible).map(|guest| guest_row(world, guest)));
    }
    if wants("node") {
        rows.extend(world.hosts.values().map(|host| {
            let is_up = world.is_up(&host.name);
            let mut row = Map::new();
            row.insert("id".into(), json!(format!("node/{}", host.name)));
            row.insert("type".into(), json!("node"));
            row.insert("node".into(), json!(host.name));
            row.insert("status".into(), json!(if is_up { "online" } else { "offline" }));
            if is_up && world.may(&request.who, &format!("/nodes/{}", host.name), &["Sys.Audit"]) {
                row.insert("level".into(), json!(""));
                row.insert("cpu".into(), json!(0.02));
                row.insert("maxcpu".into(), json!(host.cores));
                row.insert("mem".into(), json!(world.memory_used(&host.name)));
                row.insert("maxmem".into(), json!(host.memory));
                row.insert("disk".into(), json!(8_u64 << 30));
                row.insert("maxdisk".into(), json!(96_u64 << 30));
                row.insert("uptime".into(), json!(world.host_uptime()));
                row.insert("cgroup-mode".into(), json!(2));
            }
            Value::from(row)
        }));
    }
    if wants("storage") {
        for host in world.hosts.keys() {
            rows.extend(storage_rows(world, request, host));
        }
    }
    if wants("sdn") {
        for host in
            world.hosts.keys().filter(|_| world.may(&request.who, "/sdn/zones/localnetwork", &["SDN.Audit", "SDN.Use"]))
        {
            rows.push(json!({
                "id": format!("sdn/{host}/localnetwork"), "type": "sdn", "node": host, "sdn": "localnetwork",
                "status": if world.is_up(host) { "ok" } else { "unknown" },
            }));
        }
    }
    Ok(rows.into())
}

fn storage_rows(world: &World, request: &Request, host: &str) -> Vec<Value> {
    let available = world.stores.specs().filter_map(|spec| Some((spec, world.stores.place(host, &spec.name).ok()?)));
    let visible = available.filter(|(spec, _)| {
        world.may(&request.who, &format!("/storage/{}", spec.name), &["Datastore.Audit", "Datastore.AllocateSpace"])
    });
    visible
        .map(|(spec, place)| {
            let mut row = Map::new();
            row.insert("id".into(), json!(format!("storage/{host}/{}", spec.name)));
            row.insert("type".into(), json!("storage"));
            row.insert("node".into(), json!(host));
            row.insert("storage".into(), json!(spec.name));
            row.insert("content".into(), json!(spec.content.join(",")));
            row.insert("plugintype".into(), json!(spec.kind.word()));
            row.insert("shared".into(), json!(u8::from(spec.shared)));
            row.insert("status".into(), json!(if world.is_up(host) { "available" } else { "unknown" }));
            if world.is_up(host) {
                row.insert("disk".into(), json!(world.stores.used(&place)));
                row.insert("maxdisk".into(), json!(spec.total));
            }
            row.into()
        })
        .collect()
}

/// A guest in the list: what was told last, and live what its file says.
fn guest_row(world: &World, guest: &Guest) -> Value {
    let mut row = told_row(world, guest);
    let live = [
        ("tags", guest.get("tags")),
        ("lock", guest.lock()),
        ("pool", world.pool_of(guest.vmid)),
        ("hastate", world.ha_state(guest.vmid)),
    ];
    for (key, value) in live {
        if let Some(value) = value {
            row.insert(key.into(), json!(value));
        }
    }
    row.into()
}

/// Number and host of a guest as they are, the rest as it was told last.
pub(super) fn told_row(world: &World, guest: &Guest) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("id".into(), json!(format!("qemu/{}", guest.vmid)));
    row.insert("type".into(), json!("qemu"));
    row.insert("vmid".into(), json!(guest.vmid));
    row.insert("node".into(), json!(guest.host));
    let Some(seen) = world.known(guest) else {
        row.insert("status".into(), json!("unknown"));
        return row;
    };
    row.insert("status".into(), json!(seen.status));
    row.insert("name".into(), json!(seen.name));
    row.insert("template".into(), json!(u8::from(seen.template)));
    row.insert("maxcpu".into(), json!(seen.cores));
    row.insert("maxmem".into(), json!(seen.memory));
    row.insert("maxdisk".into(), json!(seen.disk));
    row.insert("uptime".into(), json!(seen.uptime));
    row.insert("cpu".into(), json!(if seen.running { 0.01 } else { 0.0 }));
    row.insert("mem".into(), json!(if seen.running { seen.memory / 2 } else { 0 }));
    for key in ["disk", "diskread", "diskwrite", "netin", "netout"] {
        row.insert(key.into(), json!(0));
    }
    row
}
