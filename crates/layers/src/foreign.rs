//! A castle that somebody else has raised: its machines are looked at, held to be of the cluster whose secrets are given, and marked.

use std::sync::Arc;

use castle_engine::{Fault, GraphBuilder, Place, StepId};
use castle_proxmox::steps::{Candidate, Ground, MarkGuest, candidate};
use castle_spec::{Castle, Node};
use castle_talos::client::Presence;
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

/// Asks every node whether it is of the cluster with these secrets; tells of those that are not, or do not say.
pub async fn strangers(wire: &Wire, keys: &Keys, nodes: &[Node]) -> Vec<Fault> {
    let ask = async |node: &Node| {
        let whom = Whom { name: node.name.value.clone(), address: node.address.value };
        let contact = match wire.contact(&whom, keys) {
            Ok(contact) => contact,
            Err(fault) => return Some(fault),
        };
        let (evidence, next) = match contact.probe().await {
            Presence::Running(_) => return None,
            Presence::Maintenance(_) => (
                "waits for its first configuration, so it is in no cluster yet".to_owned(),
                "give it one, or castle up for new machines".to_owned(),
            ),
            Presence::Stranger(refusal) => {
                let told = format!("is not of the cluster whose secrets talos.bundle names ({})", refusal.sentence);
                (told, SECRETS.to_owned())
            }
            Presence::Unreachable(refusal) => {
                let next = format!("talosctl --nodes {} version", whom.address);
                (
                    format!("does not answer at {}, so nobody knows its cluster: {}", whom.address, refusal.sentence),
                    next,
                )
            }
        };
        Some(Fault::guard(whom.name, evidence).next(next))
    };
    join_all(nodes.iter().map(ask)).await.into_iter().flatten().collect()
}

/// Adds the steps that mark the guests of the nodes, each after its cluster's secrets are kept.
pub fn mark(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    site: &Site,
    castle: &Castle,
    nodes: &[Node],
    after: &StepId,
) {
    for node in nodes {
        let step = StepId::new(&platform::layer(), "mark", &node.name.value);
        graph.step(step.clone(), Place::default(), (), MarkGuest::new(ground.clone(), wanted(site, castle, node)));
        graph.after(step, after.clone());
    }
}
