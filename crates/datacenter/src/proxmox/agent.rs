//! What the agent inside of a guest tells.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Outcome, Refusal, Request};
use crate::machines::Machine;
use crate::world::World;

/// How long an agent is waited for that does not answer.
const PING: Duration = Duration::from_secs(3);

/// The machine whose agent answers.
fn answering<'a>(world: &'a World, request: &Request) -> Result<&'a Machine, Refusal> {
    let vmid = request.vmid();
    let guest = world.guest(&request.host, vmid)?;
    // The vendor looks whether there is such an option, not what it says.
    if guest.get("agent").is_none() {
        return Err("No QEMU guest agent configured".to_owned().into());
    }
    if !guest.is_running() {
        return Err(format!("VM {vmid} is not running").into());
    }
    // The device of the agent comes with the power-on: one that was enabled later answers nothing.
    let machine = world.machines.get(vmid).filter(|machine| machine.is_up && machine.agent && !guest.is_paused);
    machine.ok_or_else(|| Refusal::from("QEMU guest agent is not running".to_owned()).after(PING))
}

pub(super) fn ping(world: &World, request: &Request) -> Outcome {
    answering(world, request)?;
    Ok(json!({ "result": {} }).into())
}

/// What the agent is, and what it can be asked.
pub(super) fn info(world: &World, request: &Request) -> Outcome {
    answering(world, request)?;
    let can = ["guest-info", "guest-network-get-interfaces", "guest-ping", "guest-shutdown"];
    let can = can.map(|name| json!({ "name": name, "enabled": true, "success-response": name != "guest-shutdown" }));
    Ok(json!({ "result": { "version": "10.1.2", "supported_commands": can } }).into())
}

pub(super) fn interfaces(world: &World, request: &Request) -> Outcome {
    let machine = answering(world, request)?;
    let mut interfaces = vec![json!({
        "name": "lo",
        "hardware-address": "00:00:00:00:00:00",
        "ip-addresses": [
            { "ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8 },
            { "ip-address": "::1", "ip-address-type": "ipv6", "prefix": 128 },
        ],
    })];
    for (device, mac) in &machine.macs {
        let address = machine.cloud_init.as_ref().and_then(|told| told.address(device));
        let addresses: Vec<Value> = address
            .map(|(ip, prefix)| {
                let kind = if ip.contains(':') { "ipv6" } else { "ipv4" };
                json!({ "ip-address": ip, "ip-address-type": kind, "prefix": prefix })
            })
            .into_iter()
            .collect();
        interfaces.push(json!({
            "name": device.replacen("net", "eth", 1),
            "hardware-address": mac.to_lowercase(),
            "ip-addresses": addresses,
        }));
    }
    Ok(json!({ "result": interfaces }).into())
}
