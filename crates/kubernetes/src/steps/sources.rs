//! What Flux has applied: its Kustomizations and releases, what each has listed, and whether that is what its tree says.

use std::collections::BTreeSet;

use castle_engine::Fault;

use super::ownership::{fault_of, from_id};
use crate::client::{Api, Scope, together};
use crate::model::{Key, Object, Owner, condition};

/// A Kustomization, or a release of Flux's.
pub(super) struct Source {
    pub(super) owner: Owner,
    /// What it has applied, by its own account.
    pub(super) listed: BTreeSet<Key>,
    /// Why what it lists may not be what its tree says, and what to do about it.
    pub(super) behind: Option<(String, String)>,
    /// Whether it has applied nothing yet, so that nobody knows what it will list.
    pub(super) is_new: bool,
}

/// All of them.
pub(super) async fn sources(api: &Api) -> Result<Vec<Source>, Fault> {
    let served = api.served().await.map_err(fault_of("API"))?;
    let mut found = Vec::new();
    let kinds = [("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")];
    let kinds = kinds.iter().filter_map(|(group, kind)| served.preferred(group, kind));
    let lists = kinds.map(|kind| async { api.list(kind, &Scope::default()).await.map_err(fault_of(&kind.kind)) });
    for listed in together(lists.collect()).await {
        for source in listed?.objects {
            let is_tree = source.text("/kind") == "Kustomization";
            let (namespace, name) = (source.namespace().to_owned(), source.name().to_owned());
            let owner = if is_tree { Owner::Flux(namespace, name) } else { Owner::Helm(namespace, name) };
            let ids = source.list("/status/inventory/entries").iter().filter_map(|entry| entry["id"].as_str());
            let (listed, behind) = (ids.filter_map(from_id).collect(), behind(&source));
            let is_new = is_tree && source.text("/status/lastAppliedRevision").is_empty();
            found.push(Source { owner, listed, behind, is_new });
        }
    }
    Ok(found)
}

/// Why what a source lists may not be what its tree says.
fn behind(source: &Object) -> Option<(String, String)> {
    let (key, word) = (source.key(), source.text("/kind").to_lowercase());
    let at = format!("{} --namespace {}", key.name, key.namespace);
    if source.at("/spec/suspend") == true {
        return Some((format!("{key} is suspended"), format!("flux resume {word} {at}")));
    }
    let wait = format!("wait for it: flux get {word}s {at}");
    let ready = condition(source, "Ready");
    let is_ready = ready.is_some_and(|ready| ready.status == "True");
    if !is_ready || source.number("/status/observedGeneration") != source.number("/metadata/generation") {
        let why = ready.filter(|_| !is_ready).map_or("it has changed since", |ready| ready.message);
        return Some((format!("{key} is not reconciled: {why}"), wait));
    }
    let [applied, attempted] =
        ["/status/lastAppliedRevision", "/status/lastAttemptedRevision"].map(|at| source.text(at));
    if key.kind == "Kustomization" && applied != attempted {
        return Some((format!("{key} has applied {applied}, and not yet {attempted}"), wait));
    }
    None
}

/// Something of Flux's that castle waits for before an object is its own alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which Kustomization or release.
    pub owner: Owner,
    /// The objects that it still lists; none if it has applied nothing yet, so that nobody knows.
    pub objects: BTreeSet<Key>,
    /// Why it will not stop listing them by itself, if so.
    pub behind: Option<String>,
}

/// Which of these objects Flux declares, or may yet declare.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn declared(api: &Api, keys: &BTreeSet<Key>) -> Result<Vec<Waiting>, Fault> {
    Ok(waited_for(&sources(api).await?, keys))
}

pub(super) fn waited_for(sources: &[Source], keys: &BTreeSet<Key>) -> Vec<Waiting> {
    let waiting = sources.iter().map(|source| Waiting {
        owner: source.owner.clone(),
        objects: source.listed.intersection(keys).cloned().collect(),
        behind: source.behind.as_ref().map(|(why, next)| format!("{why}; {next}")),
    });
    let is_waited_for = |(waiting, source): &(Waiting, &Source)| !waiting.objects.is_empty() || source.is_new;
    waiting.zip(sources).filter(is_waited_for).map(|(waiting, _)| waiting).collect()
}
