//! Flux: the source controller fetches repositories ([`sources`]), the kustomize controller makes objects of them
//! ([`kustomizations`]), the helm controller installs the charts that are known here ([`releases`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_gitops::Tree;
use serde_json::{Value, json};

use super::errands::Fetched;
use super::{Component, annotation};
use crate::kubernetes::api::Reply;
use crate::kubernetes::crd::{DEFINITIONS, condition};
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::request::{Ask, Query, User};
use crate::kubernetes::value;
use crate::kubernetes::workloads::is_ready;

mod apply;
mod build;
mod charts;
mod credentials;
mod health;
mod kustomizations;
mod releases;
mod sources;

use apply::Entry;

const REPOSITORIES: &str = "gitrepositories.source.toolkit.fluxcd.io";
const KUSTOMIZATIONS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";
const RELEASES: &str = "helmreleases.helm.toolkit.fluxcd.io";
const CHART_SOURCES: [&str; 2] =
    ["helmrepositories.source.toolkit.fluxcd.io", "ocirepositories.source.toolkit.fluxcd.io"];
const FINALIZER: &str = "finalizers.fluxcd.io";
const REQUESTED: &str = "reconcile.fluxcd.io/requestedAt";

/// What the controllers remember.
#[derive(Default)]
pub(super) struct Flux {
    fetched: BTreeMap<Key, Fetched>,
    /// The files of each source, and the revision that they are of.
    artifacts: BTreeMap<Key, (String, Tree)>,
    turns: BTreeMap<Key, Turn>,
}

impl std::fmt::Debug for Flux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flux").field("turns", &self.turns).finish_non_exhaustive()
    }
}

/// How far an object is reconciled.
#[derive(Debug, Default)]
struct Turn {
    /// What it was done for: something else is done at once.
    mark: String,
    /// When it is done again.
    next: Duration,
    /// Since when something is waited for, and until when.
    waits: Option<(Duration, Duration)>,
    /// What was applied, once nothing is left to do but to wait for it.
    applied: Option<BTreeSet<Entry>>,
}

/// Whether a change is of interest.
pub(super) fn concerns(state: &Flux, key: &Key) -> bool {
    key.0.ends_with(".toolkit.fluxcd.io")
        || &*key.0 == DEFINITIONS && key.2.ends_with(".toolkit.fluxcd.io")
        || &*key.0 == "pods" && key.2.contains("-controller-")
        || ["configmaps", "secrets"].contains(&&*key.0) && key.1.starts_with("flux")
        || state.turns.values().any(|turn| turn.waits.is_some())
}

impl Kube {
    pub(super) fn sync_flux(&mut self) {
        if self.is_controller_ready("source-controller") {
            self.sync_sources();
        }
        if self.is_controller_ready("kustomize-controller") {
            self.sync_kustomizations();
        }
        if self.is_controller_ready("helm-controller") {
            self.sync_releases();
        }
    }

    fn is_controller_ready(&self, name: &str) -> bool {
        let Some(namespace) = self.namespace_of(name) else { return false };
        self.pods_of("deployments.apps", &namespace, name).iter().any(|pod| is_ready(pod))
    }

    /// Asks the API as a controller that may do everything.
    fn ask_as(&mut self, controller: &str, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let (path, more) = path.split_once('?').unwrap_or((path, ""));
        let query = match method {
            "PATCH" => format!("fieldManager={controller}&force=true&{more}"),
            _ => "propagationPolicy=Background".to_owned(),
        };
        let ask = Ask {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Query::parse(&query),
            content_type: "application/apply-patch+yaml".to_owned(),
            user_agent: format!("{controller}/v1"),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            user: User::master(&format!("system:serviceaccount:flux-system:{controller}")),
            ..Ask::default()
        };
        match self.handle(&ask) {
            Reply::Object { code, object, .. } if code < 300 => Ok(object),
            Reply::Object { object, .. } => Err(value::text(&object, "message").to_owned()),
            Reply::Raw(_, _, text) => Err(String::from_utf8_lossy(&text).trim().to_owned()),
            Reply::Watch(_) => Err("a watch is no object".to_owned()),
        }
    }

    /// Holds an object until the controller lets it go.
    fn hold(&mut self, writer: &Writer<'_>, key: &Key) {
        self.amend(writer, (&key.0, &key.1, &key.2), |object| {
            if !value::is_deleting(object) && !value::finalizers(object).contains(&FINALIZER) {
                let mut all = value::items(object, "metadata.finalizers").to_vec();
                all.push(json!(FINALIZER));
                value::set(object, "metadata.finalizers", all);
            }
        });
    }

    /// Lets an object go.
    fn let_go(&mut self, writer: &Writer<'_>, key: &Key) {
        self.components.flux.turns.remove(key);
        self.components.flux.fetched.remove(key);
        self.components.flux.artifacts.remove(key);
        self.amend(writer, (&key.0, &key.1, &key.2), |object| {
            let left: Vec<Value> =
                value::items(object, "metadata.finalizers").iter().filter(|it| *it != FINALIZER).cloned().collect();
            value::set(object, "metadata.finalizers", left);
        });
    }

    /// Writes what a controller says of an object: the conditions that hold, and those that do not any more.
    fn say_flux(
        &mut self,
        writer: &Writer<'_>,
        key: &Key,
        conditions: &[(&str, &str, &str, &str)],
        change: impl FnOnce(&mut Value),
    ) {
        let now = self.stamp();
        self.amend(writer, (&key.0, &key.1, &key.2), |object| {
            let kept: Vec<Value> = value::items(object, "status.conditions")
                .iter()
                .filter(|it| conditions.iter().any(|(kind, ..)| value::text(it, "type") == *kind))
                .cloned()
                .collect();
            value::set(object, "status.conditions", kept);
            let generation = value::number(object, "metadata.generation").unwrap_or(1);
            for (kind, status, reason, message) in conditions {
                condition(object, &now, kind, status, (reason, message));
            }
            let list = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for item in list.into_iter().flatten() {
                value::set(item, "observedGeneration", generation);
            }
            change(object);
        });
    }

    /// Notes that a revision was looked at as it was wished.
    fn observe(object: &mut Value) {
        let generation = value::number(object, "metadata.generation").unwrap_or(1);
        value::set(object, "status.observedGeneration", generation);
        Self::handled(object);
    }

    /// Notes that a wish to look at once was heard.
    fn handled(object: &mut Value) {
        if let Some(at) = annotation(object, REQUESTED).map(str::to_owned) {
            value::set(object, "status.lastHandledReconcileAt", at);
        }
    }

    fn flux_again(&mut self, at: Duration) {
        self.wake_at(Component::Flux, at);
    }
}

/// What every look of a controller depends on.
fn mark(object: &Value) -> String {
    let generation = value::number(object, "metadata.generation").unwrap_or(0);
    format!("{} {generation} {}", value::uid(object), annotation(object, REQUESTED).unwrap_or_default())
}

/// A time that an object gives: `10m0s`.
fn span(object: &Value, path: &str) -> Option<Duration> {
    super::duration(value::text(object, path))
}
