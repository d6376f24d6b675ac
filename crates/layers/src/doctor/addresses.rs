//! Whether somebody has the addresses already that new nodes will have.

use std::net::IpAddr;
use std::time::Duration;

use castle_proxmox::steps::Guests;
use castle_seams::{Clock, Dial, DialErrorKind, Target};
use castle_spec::{Castle, Node};
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::{Case, Finding};

/// The API of Talos, that of Kubernetes, and what most other machines answer on.
const PORTS: [u16; 3] = [50_000, 6443, 22];
/// What only a node of a cluster answers on.
const CLUSTER: [u16; 2] = [50_000, 6443];
/// How long to wait for an answer; a neighbour needs a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many dials at once.
const AT_ONCE: usize = 64;

/// The addresses of all nodes that are not made yet, and the one of the Kubernetes API if no node is.
fn unmade<'a>(castle: &'a Castle, nodes: &'a [Node], guests: &Guests) -> Vec<(IpAddr, &'a str)> {
    let absent = nodes.iter().filter(|node| !guests.contains_key(&node.vmid.0));
    let mut addresses: Vec<(IpAddr, &str)> =
        absent.map(|node| (node.address.value, node.name.value.as_str())).collect();
    // Where a node stands, the castle itself may answer there.
    if let (Some(vip), true) = (&castle.network.vip, addresses.len() == nodes.len()) {
        addresses.push((vip.value, "network.vip"));
    }
    addresses
}

fn taken(address: IpAddr, name: &str, evidence: String) -> Finding {
    Finding::wrong("addresses", format!("{address} ({name})"), evidence)
        .next("give the castle free addresses in castle.yaml, or switch that machine off")
}

/// The addresses of nodes that are not made yet at which another cluster answers: two of one address would hurt both.
pub async fn occupied(
    dial: &dyn Dial,
    clock: &dyn Clock,
    castle: &Castle,
    nodes: &[Node],
    guests: &Guests,
) -> Vec<Finding> {
    let addresses = unmade(castle, nodes, guests);
    let dials = addresses.iter().flat_map(|spot| CLUSTER.map(|port| (*spot, port)));
    let asked = futures_util::stream::iter(dials).map(async |((address, name), port)| {
        let answer = answer(dial, clock, Target::new(&address.to_string(), port)).await;
        matches!(answer, Some(Answer::Connected(_))).then(|| (address, name, port))
    });
    let mut found: Vec<(IpAddr, &str, u16)> = asked.buffered(AT_ONCE).filter_map(std::future::ready).collect().await;
    found.dedup_by_key(|(address, ..)| *address);
    let finding = |(address, name, port)| taken(address, name, format!("somebody is there: port {port} answers"));
    found.into_iter().map(finding).collect()
}

/// Dials the addresses of all nodes that are not made yet.
pub(super) async fn probe(case: Case<'_>, guests: &Guests) -> Vec<Finding> {
    let Case { client, castle, nodes, dial, .. } = case;
    let addresses = unmade(castle, nodes, guests);
    if addresses.is_empty() {
        return vec![Finding::well("addresses", "", "every node stands already")];
    }
    let dials = addresses.iter().flat_map(|(address, _)| PORTS.map(|port| Target::new(&address.to_string(), port)));
    let answers = futures_util::stream::iter(dials).map(|target| answer(dial, client.clock(), target));
    let answers: Vec<Option<Answer>> = answers.buffered(AT_ONCE).collect().await;
    if addresses.len() > 1 && answers.iter().all(|answer| matches!(answer, Some(Answer::Refused(_)))) {
        let evidence =
            "every port of every address is refused alike, as by a firewall in between: nobody can tell from here";
        return vec![Finding::unknown("addresses", "", evidence)];
    }
    let found = addresses.iter().zip(answers.chunks(PORTS.len())).filter_map(|((address, name), answers)| {
        let evidence = match answers.iter().flatten().min()? {
            Answer::Connected(port) => format!("somebody is there: port {port} answers"),
            Answer::Refused(port) => format!("somebody is there: port {port} is refused"),
        };
        Some(taken(*address, name, evidence))
    });
    let findings: Vec<Finding> = found.collect();
    if findings.is_empty() {
        return vec![Finding::well("addresses", "", format!("nobody answers at any of {}", addresses.len()))];
    }
    findings
}

/// What tells that somebody is there, and at which port; the more telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Connected(u16),
    Refused(u16),
}

async fn answer(dial: &dyn Dial, clock: &dyn Clock, target: Target) -> Option<Answer> {
    match select(dial.dial(&target), clock.sleep(PATIENCE)).await {
        Either::Left((Ok(_), _)) => Some(Answer::Connected(target.port)),
        Either::Left((Err(error), _)) if error.kind == DialErrorKind::Refused => Some(Answer::Refused(target.port)),
        _ => None,
    }
}
