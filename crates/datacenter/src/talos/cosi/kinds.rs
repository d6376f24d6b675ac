//! What kinds of resources there are, and what they say now.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::talos::config::Role;
use crate::talos::disks::BlockDevice;
use crate::talos::node::{Boot, Node, Stage};
use crate::talos::volumes;
use crate::world::World;

/// A kind of resource.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
    /// Whether only administrators see it.
    pub(crate) is_secret: bool,
    /// The first version that has it.
    pub(super) since: u32,
    pub(super) aliases: &'static [&'static str],
    /// What tables show of it: title and path.
    pub(super) columns: &'static [(&'static str, &'static str)],
    pub(super) say: fn(&World, &Node, &Boot) -> Vec<(String, Value)>,
}

const fn kind(
    name: &'static str,
    namespace: &'static str,
    aliases: &'static [&'static str],
    columns: &'static [(&'static str, &'static str)],
    say: fn(&World, &Node, &Boot) -> Vec<(String, Value)>,
) -> Kind {
    Kind { name, namespace, is_secret: false, since: 0, aliases, columns, say }
}

/// All kinds, except the one that tells them.
pub(crate) static KINDS: &[Kind] = &[
    kind(
        "MachineStatuses.runtime.talos.dev",
        "runtime",
        &["machinestatus", "ms"],
        &[("Stage", "{.stage}"), ("Ready", "{.status.ready}")],
        |world, node, boot| one("machine", machine_status(world, node, boot)),
    ),
    kind(
        "Services.v1alpha1.talos.dev",
        "runtime",
        &["svc", "service"],
        &[("Running", "{.running}"), ("Healthy", "{.healthy}"), ("Health Unknown", "{.unknown}")],
        |_, _, boot| services(boot),
    ),
    kind(
        "Disks.block.talos.dev",
        "runtime",
        &["disk"],
        &[
            ("Size", "{.pretty_size}"),
            ("Read Only", "{.readonly}"),
            ("Transport", "{.transport}"),
            ("Rotational", "{.rotational}"),
            ("WWID", "{.wwid}"),
            ("Model", "{.model}"),
            ("Serial", "{.serial}"),
        ],
        |world, node, _| disks(world, node.vmid),
    ),
    kind(
        "SystemDisks.block.talos.dev",
        "runtime",
        &["systemdisk", "sd", "sds"],
        &[("Disk", "{.diskID}")],
        |world, node, _| {
            let found = world.block_devices(node.vmid).into_iter().find(|device| device.is_system);
            let say = |name: String| json!({ "diskID": name, "devPath": format!("/dev/{name}") });
            found.map(|device| ("system-disk".to_owned(), say(device.name))).into_iter().collect()
        },
    ),
    kind(
        "VolumeStatuses.block.talos.dev",
        "runtime",
        &["volumestatus", "vs"],
        &[("Type", "{.type}"), ("Phase", "{.phase}"), ("Location", "{.location}"), ("Size", "{.size}")],
        |world, node, boot| {
            let disks = world.block_devices(node.vmid);
            boot.config.as_ref().map(|config| volumes::statuses(config, &disks)).unwrap_or_default()
        },
    ),
    kind(
        "NodeAddresses.net.talos.dev",
        "network",
        &["nodeaddress", "na", "nas"],
        &[("Addresses", "{.addresses}"), ("SortAlgorithm", "{.sortAlgorithm}")],
        |world, node, _| node_addresses(world, node),
    ),
    kind(
        "LinkStatuses.net.talos.dev",
        "network",
        &["link", "links"],
        &[("Type", "{.type}"), ("Hw Addr", "{.hardwareAddr}"), ("Oper State", "{.operationalState}")],
        |world, node, _| links(world, node.vmid),
    ),
    kind(
        "HostnameStatuses.net.talos.dev",
        "network",
        &["hostname", "hostnamestatus", "hs"],
        &[("Hostname", "{.hostname}"), ("Domainname", "{.domainname}")],
        |_, node, _| one("hostname", json!({ "hostname": node.hostname(), "domainname": "" })),
    ),
    kind(
        "TimeStatuses.v1alpha1.talos.dev",
        "runtime",
        &["timestatus", "ts"],
        &[("Synced", "{.synced}")],
        |_, _, boot| one("node", json!({ "synced": boot.is_synced, "epoch": 1, "syncDisabled": false })),
    ),
    kind(
        "Diagnostics.runtime.talos.dev",
        "runtime",
        &["diagnostic"],
        &[("Message", "{.message}")],
        |world, node, _| diagnostics(world, node),
    ),
    kind(
        "ExtensionStatuses.runtime.talos.dev",
        "runtime",
        &["extensions", "extensionstatus", "es"],
        &[("Name", "{.metadata.name}"), ("Version", "{.metadata.version}")],
        |_, node, _| extensions(node),
    ),
    kind(
        "Members.cluster.talos.dev",
        "cluster",
        &["member"],
        &[
            ("Hostname", "{.hostname}"),
            ("Machine Type", "{.machineType}"),
            ("OS", "{.operatingSystem}"),
            ("Addresses", "{.addresses}"),
        ],
        |world, node, _| members(world, node),
    ),
    kind("MachineTypes.config.talos.dev", "config", &["machinetype", "mt", "mts"], &[("Type", "{@}")], |_, _, boot| {
        let role = boot.config.as_ref().map(|config| config.role.word());
        role.map(|role| ("machine-type".to_owned(), json!(role))).into_iter().collect()
    }),
    kind(
        "EtcdMembers.etcd.talos.dev",
        "etcd",
        &["etcdmember", "em", "ems"],
        &[("Member ID", "{.memberID}")],
        |world, node, _| {
            let member = world.membership(node.vmid).filter(|_| world.is_member_up(node.vmid));
            member
                .map(|(_, id)| ("local".to_owned(), json!({ "memberID": format!("{id:016x}") })))
                .into_iter()
                .collect()
        },
    ),
    kind(
        "NodeStatuses.kubernetes.talos.dev",
        "k8s",
        &["nodestatus", "ns", "nss"],
        &[("Ready", "{.nodeReady}"), ("Unschedulable", "{.unschedulable}")],
        |world, node, _| node_status(world, node),
    ),
    Kind {
        since: 14,
        ..kind(
            "UnattendedInstallStatuses.runtime.talos.dev",
            "runtime",
            &["unattendedinstallstatus", "uis"],
            &[("Phase", "{.phase}"), ("Error", "{.error}")],
            |_, _, boot| {
                let is_wanted =
                    boot.config.as_ref().is_some_and(|it| it.documents_of("UnattendedInstallConfig").next().is_some());
                // The image is installed already, so there is nothing to do.
                is_wanted
                    .then(|| ("unattended-install".to_owned(), json!({ "phase": "installed" })))
                    .into_iter()
                    .collect()
            },
        )
    },
    Kind {
        since: 14,
        ..kind("BootIDs.runtime.talos.dev", "runtime", &["bootid", "bid"], &[("Boot ID", "{.bootID}")], |_, _, boot| {
            one("boot-id", json!({ "bootID": boot.boot_id }))
        })
    },
    Kind {
        is_secret: true,
        ..kind("MachineConfigs.config.talos.dev", "config", &["machineconfig", "mc", "mcs"], &[], |_, node, boot| {
            let held = boot.config.as_ref().map(|config| ("v1alpha1".to_owned(), json!(config.text)));
            let kept = node.disk.config.as_ref().map(|config| ("persistent".to_owned(), json!(config.text)));
            kept.into_iter().chain(held).collect()
        })
    },
];

fn one(id: &str, value: Value) -> Vec<(String, Value)> {
    vec![(id.to_owned(), value)]
}

/// What keeps a node from being ready: name and reason.
pub(crate) fn unmet(world: &World, node: &Node, boot: &Boot) -> Vec<(&'static str, String)> {
    if !matches!(boot.stage, Stage::Booting | Stage::Running) {
        return Vec::new();
    }
    let mut unmet = Vec::new();
    if !boot.is_synced {
        unmet.push(("time", "time is not synced".to_owned()));
    }
    let idle = boot.services.iter().filter_map(|(id, service)| match (service.state, service.is_healthy) {
        ("Running", Some(false)) => Some(format!("{id} not healthy")),
        ("Running", _) => None,
        _ => Some(format!("{id} not running")),
    });
    let idle: Vec<String> = idle.collect();
    if !idle.is_empty() {
        unmet.push(("services", idle.join(", ")));
    }
    if node.is_control_plane() && !world.is_api_ready(node.vmid) {
        unmet.push(("staticPods", format!("kube-system/kube-apiserver-{} not ready", node.hostname())));
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

fn machine_status(world: &World, node: &Node, boot: &Boot) -> Value {
    let unmet: Vec<Value> =
        unmet(world, node, boot).into_iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
    json!({ "stage": boot.stage.word(), "status": { "ready": unmet.is_empty(), "unmetConditions": unmet } })
}

fn services(boot: &Boot) -> Vec<(String, Value)> {
    let running = boot.services.iter().filter(|(_, service)| service.state == "Running");
    let say = |is_healthy: Option<bool>| json!({ "running": true, "healthy": is_healthy == Some(true), "unknown": is_healthy.is_none() });
    running.map(|(id, service)| ((*id).to_owned(), say(service.is_healthy))).collect()
}

fn disks(world: &World, vmid: u32) -> Vec<(String, Value)> {
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
fn pretty(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut left = bytes as f64;
    let mut unit = 0;
    while left >= 1_000.0 && unit + 1 < units.len() {
        left /= 1_000.0;
        unit += 1;
    }
    if left < 10.0 && unit > 0 { format!("{left:.1} {}", units[unit]) } else { format!("{left:.0} {}", units[unit]) }
}

/// The addresses that a node has now, shared ones included.
pub(crate) fn current_addresses(world: &World, node: &Node) -> Vec<(IpAddr, u8)> {
    let mut addresses = node.addresses();
    let cluster = node.config().and_then(|config| world.talos.clusters.get(&config.key));
    for (address, vip) in cluster.iter().flat_map(|cluster| &cluster.vips) {
        if vip.holder == Some(node.vmid) {
            addresses.push((*address, if address.is_ipv4() { 32 } else { 128 }));
        }
    }
    addresses
}

fn node_addresses(world: &World, node: &Node) -> Vec<(String, Value)> {
    let say = |addresses: &[(IpAddr, u8)]| {
        let texts: Vec<String> = addresses.iter().map(|(address, length)| format!("{address}/{length}")).collect();
        json!({ "addresses": texts, "sortAlgorithm": "v1" })
    };
    let current = current_addresses(world, node);
    let default: Vec<(IpAddr, u8)> = current.first().copied().into_iter().collect();
    vec![
        ("current".to_owned(), say(&current)),
        ("default".to_owned(), say(&default)),
        ("routed".to_owned(), say(&current)),
    ]
}

/// The network devices of the machine, and the one that leads nowhere.
fn links(world: &World, vmid: u32) -> Vec<(String, Value)> {
    let say = |index: usize, mac: &str, kind: &str| json!({ "index": index, "type": kind, "hardwareAddr": mac, "permanentAddr": mac, "operationalState": "up", "mtu": 1500 });
    let mut all = vec![("lo".to_owned(), say(1, "00:00:00:00:00:00", "loopback"))];
    let macs = world.machines.get(vmid).map(|machine| machine.macs.clone()).unwrap_or_default();
    let device =
        |(number, mac): (usize, String)| (format!("eth{number}"), say(number + 2, &mac.to_lowercase(), "ether"));
    all.extend(macs.into_values().enumerate().map(device));
    all
}

fn diagnostics(world: &World, node: &Node) -> Vec<(String, Value)> {
    let is_worried = world.talos.is_time_lost && node.boot.as_ref().is_some_and(|boot| !boot.is_synced);
    let said = json!({ "message": "time is not in sync: time servers do not answer", "details": [] });
    is_worried.then(|| ("time-not-in-sync".to_owned(), said)).into_iter().collect()
}

fn extensions(node: &Node) -> Vec<(String, Value)> {
    let said = json!({
        "image": "0.sqsh",
        "metadata": {
            "name": "schematic",
            "version": node.image.schematic,
            "author": "Image Factory",
            "description": "Virtual extension which specifies the schematic of the image built with Image Factory.",
            "compatibility": { "talos": { "version": ">= 1.0.0" } },
            "extraInfo": "customization: {}\n",
        },
    });
    one("0", said)
}

/// The machines of the cluster that discovery knows.
fn members(world: &World, node: &Node) -> Vec<(String, Value)> {
    let Some(config) = node.config() else { return Vec::new() };
    let is_alone = !config.is_discovered() || world.talos.is_discovery_lost;
    let all = world.nodes_of(&config.key).into_iter().filter_map(|vmid| world.talos.nodes.get(&vmid));
    let known = all.filter(|other| other.vmid == node.vmid || !is_alone);
    let say = |other: &Node| {
        let role = other.config().map_or(Role::Worker, |config| config.role);
        let addresses: Vec<String> = other.addresses().iter().map(|(address, _)| address.to_string()).collect();
        let mut said = json!({
            "nodeId": format!("node{:08}", other.vmid),
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

fn node_status(world: &World, node: &Node) -> Vec<(String, Value)> {
    let cluster = node.config().and_then(|config| world.talos.clusters.get(&config.key));
    let name = node.hostname();
    let Some(known) = cluster.and_then(|cluster| cluster.nodes.get(&name)) else { return Vec::new() };
    let key = node.config().map(|config| config.key.as_str()).unwrap_or_default();
    let object = world.kubernetes.get(key).and_then(|kube| kube.get("nodes", "", &name));
    let part = |path: &str| object.as_ref().and_then(|object| object.pointer(path).cloned());
    let said = json!({
        "nodename": name,
        "nodeReady": known.is_ready,
        "unschedulable": part("/spec/unschedulable") == Some(json!(true)),
        "labels": part("/metadata/labels").unwrap_or_else(|| json!({})),
        "annotations": part("/metadata/annotations").unwrap_or_else(|| json!({})),
        "podCIDRs": part("/spec/podCIDRs").unwrap_or_else(|| json!([])),
    });
    vec![(name, said)]
}
