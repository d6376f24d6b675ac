//! Patches for the configuration of nodes, tried before any machine exists: merged as Talos merges them, and held against what the castle's
//! Talos can read.

use std::collections::BTreeMap;

use castle_layers::cluster::{ConfigurationError, brings_network, supposed};
use castle_secrets::Secret;
use castle_spec::model::Cni;
use castle_spec::{Castle, Node, Role};

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
                None => format!(
                    "see the configuration of Talos 1.{minor}: https://docs.siderolabs.com/talos/v1.{minor}/reference/configuration/"
                ),
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
    refusals
}

/// Whether Pods of a castle would have no network, for all that its file and patches say.
pub(crate) fn lacks_network(castle: &Castle, nodes: &[Node], patches: &BTreeMap<String, Secret>) -> bool {
    let Some(first) = nodes.iter().find(|node| node.role == Role::ControlPlane) else { return false };
    castle.kubernetes.cni.value == Cni::None
        && supposed(castle, nodes, first, patches).is_ok_and(|configuration| !brings_network(&configuration))
}
