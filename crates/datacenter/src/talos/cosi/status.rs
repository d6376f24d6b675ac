//! What a node tells of itself: how far it has come, what it runs, what it is made of, whom it knows.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::kubernetes;
use crate::talos::config::Role;
use crate::talos::disks::BlockDevice;
use crate::talos::node::{Boot, Node, Stage};
use crate::world::World;

/// What a node must run to be ready.
const NEEDED: [&str; 6] = ["apid", "machined", "kubelet", "cri", "etcd", "trustd"];

/// What keeps a node from being ready: name and reason.
pub(crate) fn unmet(world: &World, node: &Node, boot: &Boot) -> Vec<(&'static str, String)> {
    if !matches!(boot.stage, Stage::Booting | Stage::Running) {
        return Vec::new();
    }
    let mut unmet = Vec::new();
    if !boot.is_synced {
        unmet.push(("time", "time is not synced".to_owned()));
    }
    let unhealthy = boot.services.iter().filter(|(_, it)| it.state == "Running" && it.is_healthy == Some(false));
    let mut idle: Vec<String> = unhealthy.map(|(id, _)| format!("{id} not healthy")).collect();
    let needed = if node.is_control_plane() { &NEEDED[..] } else { &NEEDED[..4] };
    let runs = |id: &str| boot.services.get(id).is_some_and(|service| service.state == "Running");
    idle.extend(needed.iter().filter(|id| !runs(id)).map(|id| format!("{id} not running")));
    if !idle.is_empty() {
        unmet.push(("services", idle.join(", ")));
    }
    let pods = kubernetes::static_pod_names(world, node).into_iter().filter(|(_, is_ready)| *is_ready != Some(true));
    let pods = pods.map(|(id, is_ready)| format!("{id} {}", if is_ready.is_none() { "pending" } else { "not ready" }));
    let pods: Vec<String> = pods.collect();
    if !pods.is_empty() {
        unmet.push(("staticPods", pods.join(", ")));
    }
    let name = node.hostname();
    let cluster = node.config().and_then(|config| world.talos.clusters.get(&config.key));
    match cluster.and_then(|cluster| cluster.nodes.get(&name)) {
        None => unmet.push(("nodeReady", format!("node {name:?} status is not available yet"))),
        Some(known) if !known.is_ready => unmet.push(("nodeReady", format!("node {name:?} is not ready"))),
        Some(_) => {}
    }
    unmet
}

pub(super) fn machine(world: &World, node: &Node, boot: &Boot) -> Value {
    let unmet: Vec<Value> =
        unmet(world, node, boot).into_iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
    json!({ "stage": boot.stage.word(), "status": { "ready": unmet.is_empty(), "unmetConditions": unmet } })
}

pub(super) fn services(boot: &Boot) -> Vec<(String, Value)> {
    let running = boot.services.iter().filter(|(_, service)| service.state == "Running");
    let say = |is_healthy: Option<bool>| json!({ "running": true, "healthy": is_healthy == Some(true), "unknown": is_healthy.is_none() });
    running.map(|(id, service)| ((*id).to_owned(), say(service.is_healthy))).collect()
}

pub(super) fn disks(world: &World, vmid: u32) -> Vec<(String, Value)> {
    let say = |device: BlockDevice| {
        let mut said = json!({
            "dev_path": format!("/dev/{}", device.name),
            "size": device.size,
            "pretty_size": pretty(device.size),
            "io_size": 512,
            "sector_size": 512,
            "readonly": device.is_cdrom,
            "cdrom": device.is_cdrom,
            "model": device.model,
        });
        if let Some(parts) = said.as_object_mut() {
            let texts = [("serial", device.serial.clone()), ("wwid", device.wwid), ("bus_path", device.bus_path)];
            for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                parts.insert(key.to_owned(), json!(text));
            }
            parts.insert("sub_system".to_owned(), json!("/sys/class/block"));
            parts.insert("transport".to_owned(), json!(device.transport));
            parts.insert("rotational".to_owned(), json!(!device.is_cdrom));
            let label = if device.serial.is_empty() { format!("drive-{}", device.name) } else { device.serial };
            let link = format!("/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_{label}");
            parts.insert("symlinks".to_owned(), if device.is_cdrom { json!([]) } else { json!([link]) });
        }
        (device.name, said)
    };
    world.block_devices(vmid).into_iter().map(say).collect()
}

/// Bytes as people read them: `34 GB`.
pub(crate) fn pretty(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut left = bytes as f64;
    let mut unit = 0;
    while left >= 1_000.0 && unit + 1 < units.len() {
        left /= 1_000.0;
        unit += 1;
    }
    if left < 10.0 && unit > 0 { format!("{left:.1} {}", units[unit]) } else { format!("{left:.0} {}", units[unit]) }
}

/// How often a node counts what its processors did.
const COUNTED: Duration = Duration::from_secs(30);

/// How long it is since it last did.
pub(super) fn since_counted(now: Duration, boot: &Boot) -> Duration {
    let nanos = now.saturating_sub(boot.since).as_nanos() % COUNTED.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// What the processors did since the boot, roughly: only that it grows matters.
pub(super) fn processors(world: &World, boot: &Boot) -> Value {
    let seconds = (world.now - since_counted(world.now, boot)).saturating_sub(boot.since).as_secs();
    json!({
        "cpu": [],
        "cpuTotal": { "user": seconds as f64 / 8.0, "system": seconds as f64 / 16.0, "idle": seconds as f64 },
        "irqTotal": 1000 + 250 * seconds,
        "contextSwitches": 2000 + 500 * seconds,
        "processCreated": 300 + seconds,
        "processRunning": 1,
        "processBlocked": 0,
        "softIrqTotal": 1000 + 200 * seconds,
    })
}

pub(super) fn time(boot: &Boot) -> Value {
    let is_disabled = boot.config.as_ref().is_some_and(|config| !config.syncs_time());
    json!({ "synced": boot.is_synced, "epoch": boot.epoch, "syncDisabled": is_disabled })
}

pub(super) fn extensions(node: &Node) -> Vec<(String, Value)> {
    let said = |number: usize, metadata: Value| {
        (number.to_string(), json!({ "image": format!("{number}.sqsh"), "metadata": metadata }))
    };
    let factory = node.image.schematic.as_ref().map(|schematic| {
        json!({
            "name": "schematic",
            "version": schematic,
            "author": "Image Factory",
            "description": "Virtual extension which specifies the schematic of the image built with Image Factory.",
            "compatibility": { "talos": { "version": ">= 1.0.0" } },
            "extraInfo": "customization: {}\n",
        })
    });
    let own = node.image.extensions.iter().map(|name| {
        json!({
            "name": name,
            "version": "v1.0.0",
            "author": "Sidero Labs",
            "description": name,
            "compatibility": { "talos": { "version": ">= 1.0.0" } },
        })
    });
    factory.into_iter().chain(own).enumerate().map(|(number, metadata)| said(number, metadata)).collect()
}

/// The machines of the cluster that discovery knows.
pub(super) fn members(world: &World, node: &Node) -> Vec<(String, Value)> {
    let Some(config) = node.config() else { return Vec::new() };
    let is_alone = !config.is_discovered() || world.talos.is_discovery_lost;
    let all = world.nodes_of(&config.key).into_iter().filter_map(|vmid| world.talos.nodes.get(&vmid));
    let known = all.filter(|other| other.vmid == node.vmid || !is_alone);
    let say = |other: &Node| {
        let role = other.config().map_or(Role::Worker, |config| config.role);
        let addresses: Vec<String> = other.addresses().iter().map(|(address, _)| address.to_string()).collect();
        let mut said = json!({
            "nodeId": node_id(other.vmid),
            "addresses": addresses,
            "hostname": other.hostname(),
            "machineType": role.word(),
            "operatingSystem": format!("Talos ({})", other.image.version),
        });
        if let Some(parts) = said.as_object_mut().filter(|_| role == Role::ControlPlane) {
            parts.insert("controlPlane".to_owned(), json!({ "port": 6443 }));
        }
        (other.hostname(), said)
    };
    known.map(say).collect()
}

/// What identifies a machine to the others: forty-four letters.
fn node_id(vmid: u32) -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut state = u64::from(vmid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut letter = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        char::from(LETTERS[usize::try_from(state >> 33).unwrap_or(0) % LETTERS.len()])
    };
    (0..44).map(&mut letter).collect()
}

/// What the firmware says of the machine: it is the hypervisor that writes it.
pub(super) fn system_information(world: &World, vmid: u32) -> Vec<(String, Value)> {
    let Some(guest) = world.guests.get(&vmid) else { return Vec::new() };
    let written = guest.get("smbios1").unwrap_or_default();
    let is_encoded = written.split(',').any(|part| part == "base64=1");
    let part = |key: &str| {
        let text = written.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='))?;
        let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if is_encoded && key != "uuid" { decoded } else { Some(text.to_owned()) }
    };
    let is_q35 = guest.get("machine").is_some_and(|machine| machine.contains("q35"));
    let product = if is_q35 { "Standard PC (Q35 + ICH9, 2009)" } else { "Standard PC (i440FX + PIIX, 1996)" };
    let mut said = json!({
        "manufacturer": part("manufacturer").unwrap_or_else(|| "QEMU".to_owned()),
        "productName": part("product").unwrap_or_else(|| product.to_owned()),
    });
    let texts = [("version", part("version")), ("serialnumber", part("serial")), ("uuid", part("uuid"))];
    let wake = [("wakeUpType", Some("Power Switch".to_owned())), ("skuNumber", part("sku"))];
    for (key, text) in texts.into_iter().chain(wake) {
        if let Some(text) = text {
            said[key] = json!(text);
        }
    }
    vec![("systeminformation".to_owned(), said)]
}

/// How etcd is to be run.
pub(super) fn etcd_spec(node: &Node) -> Vec<(String, Value)> {
    if !node.is_control_plane() {
        return Vec::new();
    }
    let own: Vec<String> = node.address().map(|address| address.to_string()).into_iter().collect();
    let said = json!({
        "name": node.hostname(),
        "advertisedAddresses": own,
        "listenPeerAddresses": ["::"],
        "listenClientAddresses": ["::"],
        "image": "registry.k8s.io/etcd:v3.6.12",
        "extraArgs": {},
    });
    vec![("etcd".to_owned(), said)]
}

/// Who issues certificates of the Talos API.
pub(super) fn os_root(boot: &Boot) -> Vec<(String, Value)> {
    let Some(config) = &boot.config else { return Vec::new() };
    let wrapped = |text: &str| STANDARD.encode(text);
    let machine = config.machine();
    let token = machine.and_then(|machine| machine.text_at("machine.token")).unwrap_or_default();
    let said = json!({
        "issuingCA": { "crt": wrapped(&config.os.pem), "key": wrapped(&config.os.key) },
        "acceptedCAs": [{ "crt": wrapped(&config.os.pem) }],
        "certSANIPs": [],
        "certSANDNSNames": config.talos_sans(),
        "token": token,
    });
    vec![("os".to_owned(), said)]
}
