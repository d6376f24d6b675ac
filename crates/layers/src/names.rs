//! The names that others rely on: what a repository may refer to, and what castle looks for.

use std::collections::BTreeMap;

use castle_engine::{Layer, StepId};
use castle_spec::Castle;

/// The ClusterSecretStore that reads the castle's vault.
pub const STORE: &str = "infisical";
/// The namespace of Flux, and in it the GitRepository, the first Kustomization and the Secret that opens the repository.
pub const FLUX_SYSTEM: &str = "flux-system";
/// The Secret that opens the repository if the cluster reads it from the vault by itself. It has a name of its own, so that neither way is in the
/// way of the other.
pub const FROM_VAULT: &str = "flux-system-vault";
/// The ConfigMap with the values that manifests may use.
pub const VARIABLES: &str = "cluster-vars";
/// The Secret with the age key that opens what SOPS has sealed.
pub const AGE_KEY: &str = "sops-age";
/// The pool of addresses for services, and its advertisement.
pub const POOL: &str = "castle";

/// The folder of the repository that Flux begins at.
#[must_use]
pub fn entry(castle: &Castle) -> String {
    let named = castle.gitops.as_ref().and_then(|gitops| gitops.path.as_ref());
    named.map_or_else(|| format!("clusters/{}", castle.castle.as_str()), |path| path.as_str().to_owned())
}

/// What manifests may use: the castle's own name, and what its file adds. Never empty, for without a single variable Flux would
/// substitute nothing, not even defaults.
#[must_use]
pub fn variables(castle: &Castle) -> BTreeMap<String, String> {
    let own = ("castle_name".to_owned(), castle.castle.as_str().to_owned());
    let more = castle.gitops.iter().flat_map(|gitops| gitops.vars.iter());
    let more = more.map(|(key, value)| (key.as_str().to_owned(), value.as_str().to_owned()));
    std::iter::once(own).chain(more).collect()
}

/// The layers, from below.
pub const LAYERS: [&str; 6] = ["secrets", "platform", "engine", "networking", "storage", "gitops"];

/// The name of a step or gate.
pub(crate) fn id(layer: &str, kind: &str, name: &str) -> StepId {
    StepId::new(&Layer::new(layer), kind, name)
}
