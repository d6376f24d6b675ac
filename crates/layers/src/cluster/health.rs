//! How a castle is before any of its nodes change.

use std::collections::BTreeSet;
use std::sync::Arc;

use castle_kubernetes::client::{Api as Kubernetes, Scope};
use castle_kubernetes::model::{Kind, condition};
use castle_spec::{Castle, Node, Role};
use castle_talos::client::GLANCE;
use castle_talos::steps::{Keys, Wire, voiceless};
use futures_util::future::{join, join_all};

use super::gates::Site;
use super::{url, whom};
use crate::platform::waits_for_nodes;
use crate::turns::Health;

/// Looks which nodes are missed as they are: those that are not ready, where castle waits for that at all, and control planes that do not vote or do not serve.
pub async fn health(castle: &Castle, nodes: &[Node], wire: &Arc<Wire>, keys: &Keys) -> Health {
    let control_planes: Vec<_> = nodes.iter().filter(|node| node.role == Role::ControlPlane).collect();
    let sites = control_planes.iter().map(|node| Site { wire: wire.clone(), address: url(node.address.value) });
    let sites: Vec<Site> = sites.collect();
    let asked = join_all(sites.iter().map(|site| site.ask(keys, "/readyz")));
    let silent = voiceless(wire, keys, control_planes.iter().map(|node| whom(node)).collect());
    let (asked, silent) = join(asked, silent).await;
    let apis: Vec<Option<Kubernetes>> = asked
        .into_iter()
        .map(|answer| match answer {
            Ok((200, _, api)) => Some(api),
            _ => None,
        })
        .collect();
    let mute = control_planes.iter().zip(&apis).filter(|(_, api)| api.is_none()).map(|(node, _)| *node);
    let mut ailing: BTreeSet<String> = mute.map(|node| node.name.value.clone()).collect();
    ailing.extend(silent.unwrap_or_default());
    let Some(api) = apis.into_iter().flatten().next() else { return Health { ailing, is_mute: true } };
    if waits_for_nodes(castle) {
        ailing.extend(unready(&api.with_deadline(GLANCE), nodes).await);
    }
    Health { ailing, is_mute: false }
}

/// The nodes that Kubernetes does not call ready, where it tells.
async fn unready(api: &Kubernetes, nodes: &[Node]) -> Vec<String> {
    let Ok(listed) = api.list(&Kind::new("v1", "Node"), &Scope::default()).await else { return Vec::new() };
    let is_ready = |name: &str| {
        let mut known = listed.objects.iter();
        known.any(|node| node.name() == name && condition(node, "Ready").is_some_and(|ready| ready.status == "True"))
    };
    nodes.iter().map(|node| node.name.value.clone()).filter(|name| !is_ready(name)).collect()
}
