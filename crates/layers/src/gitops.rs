//! The gitops layer: Flux, what it needs, and the handover to it.
//!
//! Flux's controllers are applied as soon as the API answers. What they follow is applied once their credential is there and, where
//! castle installs External Secrets, its webhook answers, for Flux tries again only after a while. The handover is a fact: the commit that Flux has
//! applied is the newest of the branch.

pub mod credential;
mod following;
mod handover;
mod hopeless;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_engine::{Fault, GraphBuilder, Handle, Place, StepId};
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind, Object, Stage, condition};
use castle_kubernetes::steps::{Expect, Present, Test, Unmet, served_step, stage_step};
use castle_seams::BoxFuture;
use castle_secrets::Secret;
use castle_spec::ComponentName;
use castle_spec::model::Gitops;
use serde_json::{Value, json};

use crate::inside::{DECIDED, Inside, SERVING, deployments, objects};
use crate::names::id;
use crate::names::{AGE_KEY, FLUX_SYSTEM, FROM_VAULT, STORE, VARIABLES, entry, variables};
use credential::{Credential, encoded};
pub use following::{Following, Weight, following};
pub use handover::{Handed, Revision};
use handover::{Handover, critical};

const LAYER: &str = "gitops";
const COMPONENT: ComponentName = ComponentName::Flux;
const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
/// How often Flux looks for commits.
const LOOKS: &str = "1m";
/// How often it brings the cluster back to what the newest says.
const REPAIRS: &str = "10m";
/// How soon it tries again what failed. By default it would wait as long as for a repair.
const RETRIES: &str = "30s";
/// The label of ConfigMaps and Secrets whose changes Flux acts on at once.
const WATCHED: (&str, &str) = ("reconcile.fluxcd.io/watch", "Enabled");

/// The part of the Secret with the authority of the repository's server.
const AUTHORITY: &str = "ca.crt";

/// Tells the newest commit of the branch; nothing if that cannot be read from here.
pub type Head = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<String>, Fault>> + Send + Sync>;

/// The repository that Flux follows, and what it needs to.
pub struct Repository {
    /// Its address, as Flux is told.
    pub address: String,
    /// Who may read it, if not everyone may.
    pub credential: Option<Credential>,
    /// The certificates of its server's authority as PEM, if that is not public.
    pub authority: Option<String>,
    /// The age key that opens what is sealed in it.
    pub age_key: Option<Secret>,
    /// The newest commit.
    pub head: Head,
    /// Where the handover tells what Flux has applied.
    pub handed: Handed,
}

/// The gates that the handover consists of: each, and what it claims.
#[must_use]
pub fn gates(castle: &castle_spec::Castle) -> Vec<(StepId, String)> {
    let Some(gitops) = &castle.gitops else { return Vec::new() };
    let critical = gitops.critical.iter().map(|(name, _)| {
        let name = name.value.as_str();
        (id(LAYER, "kustomization", name), format!("Flux has applied {name}"))
    });
    let handover = (id(LAYER, "handover", FLUX_SYSTEM), "Flux has applied the newest commit".to_owned());
    std::iter::once(handover).chain(critical).collect()
}

/// Adds the layer; returns the promise of the handover. `store` is the promise of a vault that the cluster reads.
pub fn raise(
    graph: &mut GraphBuilder,
    inside: &Inside<'_>,
    repository: &Repository,
    store: Option<&Handle<Present>>,
) -> Option<Handle<Revision>> {
    let gitops = inside.castle.gitops.as_ref()?;
    let (mark, present) = inside.component(graph, COMPONENT)?;
    let mut names = vec!["source-controller", "kustomize-controller", "helm-controller", "notification-controller"];
    if gitops.image_automation.value {
        names.extend(["image-reflector-controller", "image-automation-controller"]);
    }
    if inside.castle.has_source_watcher() {
        names.push("source-watcher");
    }
    let serving = id(LAYER, COMPONENT.word(), "serving");
    inside.gate(graph, (serving.clone(), SERVING), &present, deployments(COMPONENT, &names));

    let inputs_mark = inside.mark(LAYER, "inputs");
    let (given, followed) = (stage_step(&inputs_mark, Stage::Rest), inside.mark(LAYER, "sync"));
    let inputs = inside.beside(graph, COMPONENT, &inputs_mark, &inputs(inside, repository));
    graph.after(given.clone(), stage_step(&mark, Stage::Rest));
    let sync = inside.beside(graph, COMPONENT, &followed, &sync(inside, gitops, repository));
    let followed = stage_step(&followed, Stage::Rest);
    graph.after(followed.clone(), given.clone());
    graph.after(followed.clone(), served_step(&mark));
    if store.is_some() {
        // What the repository has of its kinds would be refused before, and tried again only after a while.
        graph.after(followed.clone(), id("engine", "store", "valid"));
    }
    if let Some(Credential::Vaulted(_)) = &repository.credential {
        graph.after(given, id("engine", "store", "valid"));
        let synced = id(LAYER, "credential", "synced");
        inside.gate(graph, (synced.clone(), DECIDED), &inputs, vec![credential_synced()]);
        graph.after(followed, synced);
    }

    let (handed, within) = (id(LAYER, "handover", FLUX_SYSTEM), gitops.within.value.duration());
    let place = Place { lane: None, predicted: Duration::from_secs(30) };
    let (head, handed_over) = (repository.head.clone(), repository.handed.clone());
    let is_open = inside.open.contains(&handed);
    let handover = Handover::new(head, gitops.branch.as_str(), within, handed_over).taken_for_open(is_open);
    let revision = graph.gate(handed.clone(), place.clone(), (inside.api.clone(), sync), handover);
    graph.after(handed, serving);
    for (name, within) in gitops.critical.iter() {
        let applied = id(LAYER, "kustomization", name.value.as_str());
        let gate = critical(name.value.as_str(), within.value.duration(), inside.open.contains(&applied));
        let needs = (inside.api.clone(), revision.clone());
        graph.gate(applied, place.clone(), needs, gate);
    }
    Some(revision)
}

/// That the Secret was made of the credential as it is wanted now. External Secrets tells no generation in its condition, but in what it
/// has synced: `GENERATION-DIGEST`.
fn credential_synced() -> Expect {
    let kind = Kind::new("external-secrets.io/v1", "ExternalSecret");
    let key = Key::new(&kind.group, &kind.kind, FLUX_SYSTEM, FROM_VAULT);
    let test = Test::new(move |found| {
        let Some(wanted) = found.first() else { return Err(Unmet::absent(key.clone())) };
        match condition(wanted, "Ready") {
            Some(ready) if ready.status == "True" && ready.reason == "SecretSynced" => {}
            Some(ready) => {
                return Err(Unmet::of(wanted, format!("is not ready ({}): {}", ready.reason, ready.message)));
            }
            None => return Err(Unmet::of(wanted, "has no condition Ready yet")),
        }
        let synced = wanted.text("/status/syncedResourceVersion").split('-').next().unwrap_or_default();
        let generation = wanted.number("/metadata/generation").unwrap_or_default().to_string();
        if synced == generation { Ok(()) } else { Err(Unmet::of(wanted, "was not synced since it was changed")) }
    });
    Expect::Holds(kind, Scope::named(FLUX_SYSTEM, FROM_VAULT), test)
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": FLUX_SYSTEM})
}

/// The same for what Kustomizations read: Flux acts on a change at once.
fn watched(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({WATCHED.0: WATCHED.1});
    metadata
}

fn secret(name: &str, data: &BTreeMap<String, String>) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata(name), "data": data})
}

/// What Flux needs before it follows anything: values, the credential, and the key.
fn inputs(inside: &Inside<'_>, repository: &Repository) -> Vec<Object> {
    let mut values = vec![json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": watched(VARIABLES), "data": variables(inside.castle),
    })];
    let authority = repository.authority.as_ref();
    let authority_part = authority.map(|pem| (AUTHORITY.to_owned(), STANDARD.encode(pem)));
    match &repository.credential {
        Some(Credential::Given(parts)) => {
            values.push(secret(FLUX_SYSTEM, &encoded(parts).into_iter().chain(authority_part).collect()));
        }
        Some(Credential::Vaulted(entry)) => {
            let mut made = json!({"username": "git", "password": "{{ .token }}"});
            if let Some(pem) = authority {
                made[AUTHORITY] = pem.as_str().into();
            }
            values.push(json!({
                "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": metadata(FROM_VAULT),
                "spec": {
                    "refreshInterval": "1h",
                    "secretStoreRef": {"kind": "ClusterSecretStore", "name": STORE},
                    "target": {"name": FROM_VAULT, "creationPolicy": "Owner", "template": {"data": made}},
                    "data": [{"secretKey": "token", "remoteRef": {"key": entry}}],
                },
            }));
        }
        None => values.extend(authority_part.map(|part| secret(FLUX_SYSTEM, &[part].into()))),
    }
    if let Some(key) = &repository.age_key {
        let data = BTreeMap::from([("castle.agekey".to_owned(), credential::encode(key))]);
        let mut made = secret(AGE_KEY, &data);
        made["metadata"] = watched(AGE_KEY);
        values.push(made);
    }
    values.into_iter().filter_map(Object::new).collect()
}

/// What Flux follows.
fn sync(inside: &Inside<'_>, gitops: &Gitops, repository: &Repository) -> Vec<Object> {
    let mut source = json!({
        "interval": LOOKS, "timeout": "60s", "url": repository.address, "ref": {"branch": gitops.branch.as_str()},
    });
    if repository.credential.is_some() || repository.authority.is_some() {
        let is_vaulted = matches!(repository.credential, Some(Credential::Vaulted(_)));
        source["secretRef"] = json!({"name": if is_vaulted { FROM_VAULT } else { FLUX_SYSTEM }});
    }
    if matches!(&repository.credential, Some(Credential::Given(parts)) if credential::is_app(parts)) {
        source["provider"] = "github".into();
    }
    let path = entry(inside.castle);
    let path = path.trim_start_matches("./").trim_matches('/');
    let mut kustomization = json!({
        "interval": REPAIRS, "retryInterval": RETRIES, "timeout": "5m", "prune": true,
        "path": if path.is_empty() { "./".to_owned() } else { format!("./{path}") },
        "sourceRef": {"kind": "GitRepository", "name": FLUX_SYSTEM},
        // The values themselves, too: with others it is another generation, and what was applied with those before is not taken for the newest.
        "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": VARIABLES}], "substitute": variables(inside.castle)},
    });
    if repository.age_key.is_some() {
        kustomization["decryption"] = json!({"provider": "sops", "secretRef": {"name": AGE_KEY}});
    }
    objects([
        json!({"apiVersion": SOURCE, "kind": "GitRepository", "metadata": metadata(FLUX_SYSTEM), "spec": source}),
        json!({"apiVersion": KUSTOMIZE, "kind": "Kustomization", "metadata": metadata(FLUX_SYSTEM), "spec": kustomization}),
    ])
}
