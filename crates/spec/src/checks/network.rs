//! Addresses: inside the network, free, unique.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::ByCause;
use crate::inventory::{Node, Role};
use crate::model::{Castle, Network};
use crate::problem::{Code, Problem, Problems};
use crate::span::{Origin, Sourced};
use crate::values::{AddressRange, step, steps_between};

pub(super) fn check(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let network = &castle.network;
    gateway(network, problems);
    vip(castle, nodes, problems);
    load_balancers(network, problems);
    node_addresses(network, nodes, problems);
    subnets(castle, problems);
    clocks(network, problems);
}

/// Talos asks servers or devices, and refuses to be told both.
fn clocks(network: &Network, problems: &mut Problems) {
    let device = network.time_servers.iter().find(|server| server.is_device());
    let server = network.time_servers.iter().find(|server| !server.is_device());
    let (Some(device), Some(server)) = (device, server) else { return };
    problems.report(
        Problem::new(Code::TimeServersMixed, "time would come from servers and from a clock of the host")
            .at(server.origin, "a server")
            .at(device.origin, "a device")
            .hint("name servers, or devices, not both: Talos takes its time from one kind"),
    );
}

fn same_family(cidr: &IpNet, address: IpAddr) -> bool {
    cidr.addr().is_ipv4() == address.is_ipv4()
}

fn family(cidr: &IpNet) -> &'static str {
    if cidr.addr().is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Whether an address is of the network's family and inside of it; if not, the problem.
fn outside(network: &Network, what: &str, address: &Sourced<IpAddr>) -> Option<Problem> {
    let cidr = &network.cidr;
    let problem = if !same_family(cidr, address.value) {
        Problem::new(Code::AddressFamily, format!("{what} is of another family than the network"))
            .at(address.origin, "another family")
            .hint(format!("give it an {} address", family(cidr)))
    } else if !cidr.contains(&address.value) {
        Problem::new(Code::AddressOutsideCidr, format!("{what} is outside of the network"))
            .at(address.origin, "outside")
            .hint(format!("choose one of {}", usable(cidr)))
    } else {
        return None;
    };
    Some(problem.at(cidr.origin, "the network"))
}

/// The addresses of a network that can be given out.
fn usable(cidr: &IpNet) -> AddressRange {
    let (first, last) = (cidr.network(), cidr.broadcast());
    let inner = |address, steps| step(address, steps).filter(|address| cidr.contains(address));
    match steps_between(first, last) {
        Some(size) if size > 2 && cidr.addr().is_ipv4() => {
            AddressRange { first: inner(first, 1).unwrap_or(first), last: inner(first, size - 1).unwrap_or(last) }
        }
        Some(size) if size > 2 => AddressRange { first: inner(first, 1).unwrap_or(first), last },
        _ => AddressRange { first, last },
    }
}

/// Why an address of the network itself cannot be given to anyone.
fn unusable(cidr: &IpNet, address: IpAddr) -> Option<&'static str> {
    let host_bits = cidr.max_prefix_len() - cidr.prefix_len();
    if host_bits < 2 {
        None
    } else if address == cidr.network() {
        Some(if cidr.addr().is_ipv4() { "the address of the network itself" } else { "the routers' anycast address" })
    } else if address == cidr.broadcast() && cidr.addr().is_ipv4() {
        Some("the broadcast address")
    } else {
        None
    }
}

fn gateway(network: &Network, problems: &mut Problems) {
    let link_local = matches!(network.gateway.value, IpAddr::V6(address) if address.is_unicast_link_local());
    if !(link_local && network.cidr.addr().is_ipv6()) {
        problems_extend(problems, outside(network, "the gateway", &network.gateway));
    }
    if let Some(why) = unusable(&network.cidr, network.gateway.value) {
        problems.report(
            Problem::new(Code::AddressReserved, format!("the gateway is {why}"))
                .at(network.gateway.origin, "")
                .given(network.cidr.origin)
                .hint("give the address of your router"),
        );
    }
}

fn problems_extend(problems: &mut Problems, found: Option<Problem>) {
    if let Some(problem) = found {
        problems.report(problem);
    }
}

/// Who has an address already: the network itself, the gateway or a nameserver.
fn holder(network: &Network, address: IpAddr) -> Option<(String, Origin)> {
    if let Some(why) = unusable(&network.cidr, address) {
        return Some((why.to_owned(), network.cidr.origin));
    }
    if address == network.gateway.value {
        return Some(("the gateway's".to_owned(), network.gateway.origin));
    }
    let nameserver = network.nameservers.iter().find(|nameserver| nameserver.value == address)?;
    Some(("a nameserver's".to_owned(), nameserver.origin))
}

fn vip(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let network = &castle.network;
    let control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane).count();
    let Some(vip) = &network.vip else {
        if control_planes > 1 {
            problems.report(
                Problem::new(Code::VipMissing, "several control planes, but no address they share")
                    .at(castle.network.origin, "no `vip`")
                    .hint("add `vip:` with a free address; without it the API is gone when the first control plane is"),
            );
        }
        return;
    };
    if let Some(problem) = outside(network, "the VIP", vip) {
        return problems.report(problem);
    }
    if let Some((whose, origin)) = holder(network, vip.value) {
        problems.report(
            Problem::new(Code::AddressReserved, format!("the VIP is {whose}"))
                .at(vip.origin, "taken")
                .at(origin, "by this")
                .hint("choose an address that nothing else has"),
        );
    }
    if let Some(pool) = network.load_balancers.as_ref().filter(|pool| pool.contains(vip.value)) {
        problems.report(
            Problem::new(Code::VipInPool, "the VIP is among the load balancers' addresses")
                .at(vip.origin, "a service could be given this address")
                .at(pool.origin, "the addresses given to services")
                .hint("choose a VIP outside of the pool: two holders of one address answer in turns"),
        );
    }
}

fn load_balancers(network: &Network, problems: &mut Problems) {
    let (cidr, Some(pool)) = (&network.cidr, &network.load_balancers) else { return };
    if !same_family(cidr, pool.first) {
        return problems.report(
            Problem::new(Code::AddressFamily, "the load balancers' addresses are of another family than the network")
                .at(pool.origin, "")
                .at(cidr.origin, "the network")
                .hint(format!("give a range of {} addresses", family(cidr))),
        );
    }
    if !cidr.contains(&pool.first) || !cidr.contains(&pool.last) {
        problems.report(
            Problem::new(Code::PoolOutsideCidr, "the load balancers' addresses are not all in the nodes' network")
                .at(pool.origin, "announced on the nodes' network only")
                .at(cidr.origin, "the network")
                .hint("MetalLB answers ARP for them: without a route of your own, nobody outside of that network asks"),
        );
    }
    let taken = std::iter::once((network.gateway.value, "the gateway", network.gateway.origin))
        .chain(network.nameservers.iter().map(|server| (server.value, "a nameserver", server.origin)));
    for (address, whose, origin) in taken {
        if pool.contains(address) {
            return problems.report(
                Problem::new(Code::AddressReserved, format!("{whose} is among the load balancers' addresses"))
                    .at(pool.origin, "a service could be given its address")
                    .at(origin, "taken")
                    .hint("choose a range in which every address is free"),
            );
        }
    }
    for address in [cidr.network(), cidr.broadcast()] {
        if let Some(why) = unusable(cidr, address).filter(|_| pool.contains(address)) {
            problems.report(
                Problem::new(Code::AddressReserved, format!("the load balancers' addresses include {why}"))
                    .at(pool.origin, format!("{address}"))
                    .at(cidr.origin, "")
                    .hint("leave it out of the range"),
            );
        }
    }
}

fn node_addresses(network: &Network, nodes: &[Node], problems: &mut Problems) {
    let mut found = ByCause::default();
    let mut seen: BTreeMap<IpAddr, &Node> = BTreeMap::new();
    for node in nodes {
        let (address, span) = (&node.address, node.address.origin.span());
        let name = &node.name.value;
        if address.is_broken() {
            continue;
        }
        let what = format!("`{name}` at {}", address.value);
        if let Some(problem) = outside(network, &what, address) {
            found.add(span, problem.code.text(), || problem);
            continue;
        }
        if let Some((whose, origin)) = taken(network, address.value) {
            found.add(span, &whose, || {
                Problem::new(Code::AddressReserved, format!("the address of `{name}`, {}, is {whose}", address.value))
                    .at(address.origin, "taken")
                    .at(origin, "by this")
                    .hint("choose addresses that nothing else has")
            });
        }
        if let Some(before) = seen.insert(address.value, node) {
            let cause = format!("{:?}", before.address.origin.span());
            found.add(span, &cause, || {
                Problem::new(
                    Code::AddressDuplicate,
                    format!("`{}` and `{name}` have the same address, {}", before.name.value, address.value),
                )
                .at(address.origin, "it follows from this")
                .at(before.address.origin, "and from this")
                .hint("a pool takes `count` addresses from `firstAddress` on: begin one of them elsewhere")
            });
        }
    }
    found.report(problems);
}

/// Who has an address already, the VIP and the pool included.
fn taken(network: &Network, address: IpAddr) -> Option<(String, Origin)> {
    holder(network, address)
        .or_else(|| {
            let vip = network.vip.as_ref().filter(|vip| vip.value == address)?;
            Some(("the VIP".to_owned(), vip.origin))
        })
        .or_else(|| {
            let pool = network.load_balancers.as_ref().filter(|pool| pool.contains(address))?;
            Some(("a load balancer's".to_owned(), pool.origin))
        })
}

fn subnets(castle: &Castle, problems: &mut Problems) {
    let cidr = &castle.network.cidr;
    let pods = &castle.kubernetes.pod_subnets;
    let services = &castle.kubernetes.service_subnets;
    let subnet = |what, list: &[Sourced<IpNet>]| list.iter().map(|net| (what, net.clone())).collect::<Vec<_>>();
    let mut all = vec![("the nodes' network", cidr.clone())];
    all.extend(subnet("a pod subnet", pods));
    all.extend(subnet("a service subnet", services));
    for (index, (what, net)) in all.iter().enumerate() {
        for (other_what, other) in &all[..index] {
            let overlap = net.contains(&other.value) || other.contains(&net.value);
            if overlap && !net.is_broken() && !other.is_broken() {
                problems.report(
                    Problem::new(
                        Code::SubnetOverlap,
                        format!("{what}, {}, overlaps {other_what}, {}", net.value, other.value),
                    )
                    .at(net.origin, "")
                    .at(other.origin, "")
                    .given(castle.kubernetes.origin)
                    .hint("choose `kubernetes.podSubnets` and `serviceSubnets` that are used nowhere else"),
                );
            }
        }
    }
    for (key, list) in [("podSubnets", pods), ("serviceSubnets", services)] {
        if !list.iter().any(|net| same_family(cidr, net.addr())) {
            problems.report(
                Problem::new(Code::SubnetFamily, format!("no `{key}` of the nodes' address family"))
                    .at(if list.origin == Origin::Default { castle.kubernetes.origin } else { list.origin }, key)
                    .at(cidr.origin, family(cidr))
                    .hint(format!("add an {} network to `kubernetes.{key}`", family(cidr))),
            );
        }
    }
}
