//! What a node tells of its network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use crate::talos::node::Node;
use crate::world::World;

/// The address at which names of the cluster resolve on the machine itself.
const HOST_DNS: &str = "169.254.116.108";

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

pub(super) fn node_addresses(world: &World, node: &Node) -> Vec<(String, Value)> {
    let say = |addresses: &[(IpAddr, u8)]| {
        let texts: Vec<String> = addresses.iter().map(|(address, length)| format!("{address}/{length}")).collect();
        json!({ "addresses": texts, "sortAlgorithm": "v1" })
    };
    let current = current_addresses(world, node);
    let (own, of_kubernetes) = apart(node, &current);
    let default: Vec<(IpAddr, u8)> = current.first().copied().into_iter().collect();
    let mut all = vec![("default".to_owned(), say(&default))];
    for id in ["accumulative", "current", "routed"] {
        all.push((id.to_owned(), say(&current)));
        if node.config().is_some() {
            all.push((format!("{id}-no-k8s"), say(&own)));
            all.push((format!("{id}-only-k8s"), say(&of_kubernetes)));
        }
    }
    all
}

/// An address with the length of its network's prefix.
type Address = (IpAddr, u8);

/// Addresses apart from those that lie where Pods and Services have theirs.
fn apart(node: &Node, addresses: &[Address]) -> (Vec<Address>, Vec<Address>) {
    let ranges = node.config().map(|config| config.kubernetes_ranges());
    let is_own = |address: &&Address| match address.0 {
        IpAddr::V4(ip) => !ranges.iter().flatten().any(|range| holds(*range, ip)),
        IpAddr::V6(_) => true,
    };
    addresses.iter().partition(is_own)
}

fn holds((first, length): (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
    u32::from(address) & mask == u32::from(first)
}

/// What the node warns of: that all of its addresses lie where Pods or Services have theirs.
pub(crate) fn overlap(world: &World, node: &Node) -> Vec<(String, Value)> {
    let all = current_addresses(world, node);
    let Some(config) = node.config().filter(|_| !all.is_empty() && apart(node, &all).0.is_empty()) else {
        return Vec::new();
    };
    let routed: Vec<String> = all.iter().map(|(address, length)| format!("\"{address}/{length}\"")).collect();
    let [pods, services] = config.kubernetes_ranges().map(|(first, length)| format!("[\"{first}/{length}\"]"));
    let details = [
        format!("host routed addresses: [{}]", routed.join(" ")),
        format!("Kubernetes pod CIDRs: {pods}"),
        format!("Kubernetes service CIDRs: {services}"),
    ];
    let message = "host and Kubernetes pod/service CIDR addresses overlap";
    vec![("address-overlap".to_owned(), json!({ "message": message, "details": details }))]
}

/// The hardware addresses of a machine's network devices, by the names that the kernel gives them.
fn devices(world: &World, vmid: u32) -> Vec<(String, String)> {
    let macs = world.machines.get(vmid).map(|machine| machine.macs.clone()).unwrap_or_default();
    macs.into_values().enumerate().map(|(number, mac)| (format!("eth{number}"), mac.to_lowercase())).collect()
}

/// The network devices of the machine, and the one that leads nowhere.
pub(super) fn links(world: &World, node: &Node) -> Vec<(String, Value)> {
    let lo = json!({
        "index": 1,
        "type": "loopback",
        "linkIndex": 0,
        "flags": "UP,LOOPBACK,RUNNING,LOWER_UP",
        "hardwareAddr": "00:00:00:00:00:00",
        "permanentAddr": "",
        "broadcastAddr": "00:00:00:00:00:00",
        "mtu": 65_536,
        "queueDisc": "noqueue",
        "operationalState": "unknown",
        "kind": "",
        "slaveKind": "",
        "linkState": true,
        "speedMbit": 0,
        "port": "Other",
        "duplex": "Unknown",
    });
    let aliases = |mac: &str| {
        let documents = node.config().into_iter().flat_map(|config| config.documents_of("LinkAliasConfig"));
        let mut named = documents.filter(|document| {
            document.value.text_at("selector.match").is_some_and(|text| text.to_lowercase().contains(mac))
        });
        named.next().map(|document| document.name.clone())
    };
    let device = |(number, (name, mac)): (usize, (String, String))| {
        let mut said = Map::new();
        if let Some(alias) = aliases(&mac) {
            said.insert("alias".to_owned(), json!(alias));
        }
        let rest = json!({
            "index": number + 2,
            "type": "ether",
            "linkIndex": 0,
            "flags": "UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP",
            "hardwareAddr": mac,
            "permanentAddr": mac,
            "broadcastAddr": "ff:ff:ff:ff:ff:ff",
            "mtu": 1500,
            "queueDisc": "pfifo_fast",
            "operationalState": "up",
            "kind": "",
            "slaveKind": "",
            "busPath": format!("0000:00:{:02x}.0", number + 0x12),
            "pciID": "1AF4:1000",
            "driver": "virtio_net",
            "driverVersion": "1.0.0",
            "linkState": true,
            "speedMbit": 4_294_967_295_u32,
            "port": "Other",
            "duplex": "Unknown",
        });
        said.extend(rest.as_object().cloned().unwrap_or_default());
        (name, Value::Object(said))
    };
    let devices = devices(world, node.vmid).into_iter().enumerate().map(device);
    std::iter::once(("lo".to_owned(), lo)).chain(devices).collect()
}

/// The first device, as what identifies the machine on its network.
pub(super) fn first_hardware(world: &World, vmid: u32) -> Vec<(String, Value)> {
    let first = devices(world, vmid).into_iter().next();
    first.map(|(name, mac)| ("first".to_owned(), json!({ "name": name, "hardwareAddr": mac }))).into_iter().collect()
}

/// The address that a device gives itself.
fn link_local(mac: &str) -> Option<Ipv6Addr> {
    let parts: Vec<u8> = mac.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let [a, b, c, d, e, f] = parts.try_into().ok()?;
    let word = |high: u8, low: u8| u16::from(high) << 8 | u16::from(low);
    Some(Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)))
}

fn resolves_itself(node: &Node) -> bool {
    let Some(config) = node.config() else { return false };
    let new =
        config.documents_of("ResolverConfig").any(|it| it.value.bool_at("hostDNS.forwardKubeDNSToHost") == Some(true));
    let old = config.machine().and_then(|machine| machine.bool_at("machine.features.hostDNS.forwardKubeDNSToHost"));
    new || old == Some(true)
}

/// Every address of every device: its device, and how far it reaches.
fn all_addresses(world: &World, node: &Node) -> Vec<(String, u32, IpAddr, u8, &'static str)> {
    let devices = devices(world, node.vmid);
    let first = devices.first().map_or_else(|| "eth0".to_owned(), |(name, _)| name.clone());
    let mut all: Vec<_> = (current_addresses(world, node).into_iter())
        .map(|(address, length)| (first.clone(), 2, address, length, "global"))
        .collect();
    let own = devices.iter().enumerate().filter_map(|(number, (name, mac))| {
        let index = u32::try_from(number).ok()? + 2;
        Some((name.clone(), index, IpAddr::V6(link_local(mac)?), 64, "link"))
    });
    all.extend(own);
    let lo = |address: IpAddr, length: u8| ("lo".to_owned(), 1, address, length, "host");
    all.push(lo(Ipv4Addr::LOCALHOST.into(), 8));
    all.push(lo(Ipv6Addr::LOCALHOST.into(), 128));
    if let Some(address) = HOST_DNS.parse().ok().filter(|_| resolves_itself(node)) {
        all.push(lo(address, 32));
    }
    all
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

pub(super) fn addresses(world: &World, node: &Node) -> Vec<(String, Value)> {
    let say = |(link, index, address, length, scope): (String, u32, IpAddr, u8, &'static str)| {
        let said = json!({
            "address": format!("{address}/{length}"),
            "linkIndex": index,
            "linkName": link,
            "family": family(address),
            "scope": scope,
            "flags": "permanent",
            "priority": 0,
        });
        (format!("{link}/{address}/{length}"), said)
    };
    all_addresses(world, node).into_iter().map(say).collect()
}

/// The network that an address is in, and its last address.
fn network(address: Ipv4Addr, length: u8) -> (Ipv4Addr, Ipv4Addr) {
    let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
    let first = u32::from(address) & mask;
    (first.into(), (first | !mask).into())
}

/// The gateway that the platform gives a machine.
fn gateway(world: &World, vmid: u32) -> Option<String> {
    let told = world.machines.get(vmid)?.cloud_init.as_ref()?;
    told.interfaces
        .values()
        .find_map(|text| text.split(',').find_map(|part| part.strip_prefix("gw=")))
        .map(str::to_owned)
}

pub(super) fn routes(world: &World, node: &Node) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut route = |table: &str, link: (&str, u32), dst: &str, via: &str, metric: u32, kind: &str, scope: &str| {
        let inet = if dst.contains(':') || via.contains(':') { "inet6" } else { "inet4" };
        let device = if inet == "inet6" { format!("{}/", link.0) } else { String::new() };
        let table_id = if table == "main" { String::new() } else { format!("{table}/") };
        let id = format!("{table_id}{device}{inet}/{via}/{dst}/{metric}");
        let said = json!({
            "family": inet,
            "dst": dst,
            "src": "",
            "gateway": via,
            "outLinkIndex": link.1,
            "outLinkName": link.0,
            "table": table,
            "priority": metric,
            "scope": scope,
            "type": kind,
            "flags": "",
            "protocol": "kernel",
        });
        // One that two devices have is told once.
        if !all.iter().any(|(known, _): &(String, Value)| *known == id) {
            all.push((id, said));
        }
    };
    for (link, index, address, length, _) in all_addresses(world, node) {
        let link = (link.as_str(), index);
        match address {
            IpAddr::V6(address) if address.is_loopback() => {
                route("local", link, "::1/128", "", 0, "local", "global");
            }
            IpAddr::V6(address) => {
                let prefix = address.segments()[0];
                route("main", link, &format!("{prefix:x}::/{length}"), "", 256, "unicast", "global");
                route("local", link, &format!("{address}/128"), "", 0, "local", "global");
                route("local", link, "ff00::/8", "", 256, "multicast", "global");
            }
            IpAddr::V4(address) => {
                let (first, last) = network(address, length);
                if address.is_loopback() {
                    route("local", link, &format!("{first}/{length}"), "", 0, "local", "host");
                } else if length < 32 {
                    route("main", link, &format!("{first}/{length}"), "", 0, "unicast", "link");
                }
                route("local", link, &format!("{address}/32"), "", 0, "local", "host");
                if length < 32 {
                    route("local", link, &format!("{last}/32"), "", 0, "broadcast", "link");
                }
            }
        }
    }
    if let Some(via) = gateway(world, node.vmid) {
        route("main", ("eth0", 2), "", &via, 0, "unicast", "global");
    }
    all
}

/// The servers that a node asks for names: those it is told, or the vendor's choice.
pub(super) fn resolvers(world: &World, node: &Node) -> Value {
    let config = node.config();
    let new = config.iter().flat_map(|config| config.documents_of("ResolverConfig")).flat_map(|document| {
        let listed = document.value.at("nameservers").and_then(|value| value.list()).unwrap_or_default();
        listed.iter().filter_map(|item| item.text_at("address")).map(str::to_owned).collect::<Vec<_>>()
    });
    let old = config.and_then(|config| config.machine()).map(|machine| machine.texts_at("machine.network.nameservers"));
    let mut servers: Vec<String> = new.chain(old.into_iter().flatten().map(str::to_owned)).collect();
    if servers.is_empty() {
        let told = world.machines.get(node.vmid).and_then(|machine| machine.cloud_init.as_ref());
        servers = told.map(|told| told.nameservers.clone()).unwrap_or_default();
    }
    if servers.is_empty() {
        servers = ["1.1.1.1", "8.8.8.8"].map(str::to_owned).to_vec();
    }
    json!({ "dnsServers": servers, "searchDomains": [] })
}
