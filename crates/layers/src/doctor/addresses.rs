//! Whether somebody has the addresses already that new nodes will have.

use std::net::IpAddr;
use std::time::Duration;

use castle_proxmox::steps::Guests;
use castle_seams::{Clock, Dial, DialErrorKind, Target};
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use super::{Case, Finding};

/// The API of Talos, that of Kubernetes, and what most other machines answer on.
const PORTS: [u16; 3] = [50_000, 6443, 22];
/// How long to wait for an answer; a neighbour needs a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many dials at once.
const AT_ONCE: usize = 64;

/// Dials the addresses of all nodes that are not made yet, and the one of the Kubernetes API if no node is.
pub(super) async fn probe(case: Case<'_>, guests: &Guests) -> Vec<Finding> {
    let Case { client, castle, nodes, dial, .. } = case;
    let absent = nodes.iter().filter(|node| !guests.contains_key(&node.vmid.0));
    let mut addresses: Vec<(IpAddr, &str)> =
        absent.map(|node| (node.address.value, node.name.value.as_str())).collect();
    // Where a node stands, the castle itself may answer there.
    if let (Some(vip), true) = (&castle.network.vip, addresses.len() == nodes.len()) {
        addresses.push((vip.value, "network.vip"));
    }
    if addresses.is_empty() {
        return vec![Finding::well("addresses", "", "every node stands already")];
    }
    let dials = addresses.iter().flat_map(|(address, _)| PORTS.map(|port| Target::new(&address.to_string(), port)));
    let answers = futures_util::stream::iter(dials).map(|target| answer(dial, client.clock(), target));
    let answers: Vec<Option<String>> = answers.buffered(AT_ONCE).collect().await;
    let taken = addresses.iter().zip(answers.chunks(PORTS.len())).filter_map(|((address, name), answers)| {
        let evidence = answers.iter().flatten().next()?;
        Some(
            Finding::wrong("addresses", format!("{address} ({name})"), format!("somebody is there: {evidence}"))
                .next("give the castle free addresses in castle.yaml, or switch that machine off"),
        )
    });
    let findings: Vec<Finding> = taken.collect();
    if findings.is_empty() {
        return vec![Finding::well("addresses", "", format!("nobody answers at any of {}", addresses.len()))];
    }
    findings
}

/// What tells that somebody is there, if anything does.
async fn answer(dial: &dyn Dial, clock: &dyn Clock, target: Target) -> Option<String> {
    let port = target.port;
    match select(dial.dial(&target), clock.sleep(PATIENCE)).await {
        Either::Left((Ok(_), _)) => Some(format!("port {port} answers")),
        Either::Left((Err(error), _)) if error.kind == DialErrorKind::Refused => {
            Some(format!("port {port} is refused"))
        }
        _ => None,
    }
}
