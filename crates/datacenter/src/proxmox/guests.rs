//! Guests, as lists and one by one.

use serde_json::{Map, Value, json};

use super::{Outcome, Request};
use crate::world::World;
use crate::world::guest::Guest;

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
