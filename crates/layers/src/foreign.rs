//! A castle that somebody else has raised: its machines are looked at, held to be of the cluster whose secrets are given, and marked.

use std::sync::Arc;

use castle_engine::{Fault, GraphBuilder, Place, StepId};
use castle_proxmox::steps::{Candidate, Ground, MarkGuest, candidate};
use castle_spec::{Castle, Node};
use castle_talos::client::{Contact, Presence, Refusal};
use castle_talos::steps::{Keys, Whom, Wire};
use futures_util::future::join_all;

use crate::platform;
use crate::site::Site;

/// How the secrets of a cluster are had that `talosctl` or a script has made.
pub const SECRETS: &str = "talosctl gen secrets --from-controlplane-config controlplane.yaml -o secrets.yaml; castle secrets encrypt \
                           --in-place secrets.yaml; and in castle.yaml talos.bundle: 'sops:secrets.yaml#.'";

/// What stands where the nodes of a file should be.
#[derive(Debug, Default)]
pub struct Sight {
    /// The guests that may be the nodes.
    pub candidates: Vec<Candidate>,
    /// Why the others cannot be.
    pub obstacles: Vec<Fault>,
}

/// Looks at what stands where the nodes of the file should be. Changes nothing.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn look(ground: &Ground, site: &Site, castle: &Castle, nodes: &[Node]) -> Result<Sight, Fault> {
    let mut sight = Sight::default();
    for node in nodes {
        match candidate(ground, &wanted(site, castle, node)).await {
            Ok(candidate) => sight.candidates.push(candidate),
            Err(fault) if fault.guarded => sight.obstacles.push(fault),
            Err(fault) => return Err(fault),
        }
    }
    Ok(sight)
}

/// A node as the file wants it, wherever it is.
fn wanted(site: &Site, castle: &Castle, node: &Node) -> castle_proxmox::steps::Wanted {
    site.wanted(castle, node, "")
}

/// Asks at the address of every node who is there: a node of the cluster with these secrets, in the very guest that is meant, and called as the
/// file calls it. Tells of those of whom that is not so, or who do not say.
pub async fn strangers(wire: &Wire, keys: &Keys, nodes: &[Node], candidates: &[Candidate]) -> Vec<Fault> {
    let ask = async |(node, candidate): (&Node, &Candidate)| {
        let whom = Whom { name: node.name.value.clone(), address: node.address.value };
        match wire.contact(&whom, keys) {
            Ok(contact) => doubt(&contact, &whom, candidate).await,
            Err(fault) => Some(fault),
        }
    };
    join_all(nodes.iter().zip(candidates).map(ask)).await.into_iter().flatten().collect()
}

/// Why whoever is at a node's address is not that node.
async fn doubt(contact: &Contact, whom: &Whom, candidate: &Candidate) -> Option<Fault> {
    let Whom { name, address } = whom;
    let asking = |what: &str| format!("talosctl --nodes {address} {what}");
    let silent = |refusal: Refusal| {
        let evidence = format!("does not answer at {address}, so nobody knows its cluster: {}", refusal.sentence);
        Some(Fault::guard(name, evidence).next(asking("version")))
    };
    match contact.probe().await {
        Presence::Running(_) => {}
        Presence::Maintenance(_) => {
            let evidence = "waits for its first configuration, so it is in no cluster yet";
            return Some(Fault::guard(name, evidence).next(asking("apply-config --insecure --file CONFIGURATION")));
        }
        Presence::Stranger(refusal) => {
            let evidence = format!("is not of the cluster whose secrets talos.bundle names ({})", refusal.sentence);
            return Some(Fault::guard(name, evidence).next(SECRETS));
        }
        Presence::Unreachable(refusal) => return silent(refusal),
    }
    let node = contact.running();
    let (there, called) = match (node.hardware_addresses().await, node.hostname().await) {
        (Ok(there), Ok(called)) => (there, called.unwrap_or_default()),
        (Err(refusal), _) | (_, Err(refusal)) => return silent(refusal),
    };
    if !candidate.macs.iter().any(|mac| there.contains(mac)) {
        let evidence = format!(
            "another machine answers at {address}: it has the hardware addresses {}, and VM {} has {}",
            there.join(", "),
            candidate.vmid,
            candidate.macs.join(", ")
        );
        return Some(Fault::guard(name, evidence).next(asking("get links")));
    }
    if called != *name {
        let evidence = format!("calls itself `{called}` at {address}, and castle up would rename it");
        return Some(Fault::guard(name, evidence).next("give the node the name that it has in castle.yaml"));
    }
    None
}

/// Adds the steps that mark the guests of the nodes, each after its cluster's secrets are kept; with what was seen of their etcd.
pub fn mark(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    site: &Site,
    castle: &Castle,
    nodes: &[Node],
    (after, has_begun): (&StepId, bool),
) {
    for node in nodes {
        let step = StepId::new(&platform::layer(), "mark", &node.name.value);
        let mark = MarkGuest::new(ground.clone(), wanted(site, castle, node)).of_etcd(has_begun);
        graph.step(step.clone(), Place::default(), (), mark);
        graph.after(step, after.clone());
    }
}
