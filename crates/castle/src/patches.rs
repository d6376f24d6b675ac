//! Patches for the configuration of nodes, tried before any machine exists: merged as Talos merges them, and held against what the castle's
//! Talos can read, and what it takes of the whole.

use std::collections::{BTreeMap, BTreeSet};

use castle_datacenter::Objection;
use castle_layers::cluster::{ConfigurationError, brings_network, gates, supposed};
use castle_secrets::Secret;
use castle_spec::model::Cni;
use castle_spec::{Castle, Node, Role};

use crate::keeping::Kept;

/// Why a patch is of no use. Names places, never values: patches may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// The file, as castle.yaml calls it.
    pub(crate) file: String,
    /// What is wrong, and where.
    pub(crate) why: String,
    /// What to do.
    pub(crate) hint: String,
}

/// What Talos would refuse of the patches of a castle.
pub(crate) fn refused(castle: &Castle, nodes: &[Node], patches: &BTreeMap<String, Secret>) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let (_, minor) = castle.talos.version.value.minor();
    for (file, text) in patches {
        for found in castle_datacenter::misread(u32::try_from(minor).unwrap_or_default(), text.expose()) {
            let key = found.place.rsplit('.').next().unwrap_or_default();
            let hint = match castle_spec::nearest(key, &found.known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => reference(minor),
            };
            let place = if found.place.is_empty() { String::new() } else { format!("{}: ", found.place) };
            let why = format!("line {}: {place}{}", found.line, found.why);
            refusals.push(Refusal { file: file.clone(), why, hint });
        }
    }
    for node in nodes {
        let Err(ConfigurationError::PatchRefused { file, error }) = supposed(castle, nodes, node, patches) else {
            continue;
        };
        // That something of another kind cannot be merged only repeats that it is of another kind.
        if refusals.iter().all(|known| known.file != file) {
            let hint = "Talos would refuse it, too: `talosctl machineconfig patch` tries a patch".to_owned();
            refusals.push(Refusal { file, why: error.to_string(), hint });
        }
    }
    if refusals.is_empty() { objected(castle, nodes, patches) } else { refusals }
}

fn reference(minor: u64) -> String {
    format!(
        "see the configuration of Talos 1.{minor}: https://docs.siderolabs.com/talos/v1.{minor}/reference/configuration/"
    )
}

/// For what a node would refuse the configuration that the patches make of castle's. What it would refuse of castle's own is of the secrets that
/// stand in for the real ones here.
fn objected(castle: &Castle, nodes: &[Node], patches: &BTreeMap<String, Secret>) -> Vec<Refusal> {
    let (_, minor) = castle.talos.version.value.minor();
    let objections = |node: &Node, files: &[String]| -> Vec<Objection> {
        let node = Node { patches: files.to_vec(), ..node.clone() };
        let judged =
            |text: Secret| castle_datacenter::objections(u32::try_from(minor).unwrap_or_default(), text.expose());
        supposed(castle, nodes, &node, patches).map(|whole| judged(whole.text())).unwrap_or_default()
    };
    let mut refusals: Vec<Refusal> = Vec::new();
    let mut looked = BTreeSet::new();
    for node in nodes.iter().filter(|node| !node.patches.is_empty()) {
        if !looked.insert((node.role.word(), &node.patches)) {
            continue;
        }
        let own = objections(node, &[]);
        let mut found = objections(node, &node.patches);
        // A key that several documents took the place of is one mistake.
        let mut told = BTreeSet::new();
        found.retain(|one| !own.contains(one) && (one.beside.is_none() || told.insert(one.place.clone())));
        for one in found {
            let is_there = |count: &usize| objections(node, &node.patches[..*count]).contains(&one);
            let Some(count) = (1..=node.patches.len()).find(is_there) else { continue };
            let place = if one.place.is_empty() { String::new() } else { format!("{}: ", one.place) };
            let hint = match one.beside {
                Some(kind) => format!("say it by a patch of the document {kind}, which castle's configuration has"),
                None => reference(minor),
            };
            let refusal = Refusal { file: node.patches[count - 1].clone(), why: format!("{place}{}", one.why), hint };
            if !refusals.contains(&refusal) {
                refusals.push(refusal);
            }
        }
    }
    refusals
}

/// Whether Pods of a castle would have no network, for all that its file and patches say.
pub(crate) fn lacks_network(castle: &Castle, nodes: &[Node], patches: &BTreeMap<String, Secret>) -> bool {
    let Some(first) = nodes.iter().find(|node| node.role == Role::ControlPlane) else { return false };
    castle.kubernetes.cni.value == Cni::None
        && supposed(castle, nodes, first, patches).is_ok_and(|configuration| !brings_network(&configuration))
}

/// What is told of nodes that nobody waits for, for nothing that castle installs needs them, where nothing brings them a network.
pub(crate) fn unwatched_nodes(kept: &Kept) -> Option<&'static str> {
    let (castle, nodes) = (&kept.castle, &kept.nodes);
    let is_waited_for = gates(castle, nodes).iter().any(|(gate, _)| &*gate.kind == "nodes" && &*gate.name == "ready");
    let patches = kept.patches().ok()?;
    (!is_waited_for && lacks_network(castle, nodes, &patches)).then_some(UNWATCHED)
}

/// Where castle installs nothing, it waits for no node to be ready.
const UNWATCHED: &str = "Whether its nodes are ready was not looked at: kubernetes.cni is none, and nothing in their configurations brings a network \
                         (castle check --explain network-missing)";
