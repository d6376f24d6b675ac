//! Kustomizations: built, applied, pruned and waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::apply::{Applied, CONTROLLER, Entry, own};
use super::health::{self, Health};
use super::{FINALIZER, KUSTOMIZATIONS, REPOSITORIES, build, mark, span};
use crate::kubernetes::components::{Component, ComponentFault, secret_text};
use crate::kubernetes::crd::is;
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;

const WRITER: Writer<'_> = Writer { name: CONTROLLER, subresource: "" };
const STATUS: Writer<'_> = Writer { name: CONTROLLER, subresource: "status" };
/// When one that waits for another looks again.
const DEPENDENCY: Duration = Duration::from_secs(30);
/// How long an early stage may take.
const STAGE: Duration = Duration::from_secs(60);
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// How many results are remembered.
const HISTORY: usize = 5;
/// How a message begins that tells of a folder that is not in the tree.
const NO_FOLDER: &str = "kustomization path not found";
const NO_ARTIFACT: &str = "Source artifact not found, retrying in 30s";
/// The label of ConfigMaps and Secrets whose changes are seen at once by those that read them.
const WATCHED: (&str, &str) = ("reconcile.fluxcd.io/watch", "Enabled");

/// How a look ended.
enum Ending {
    Well,
    /// Something is waited for; for how long at most, and what is said meanwhile.
    Waits(Duration, String),
    /// A reason and a text.
    Failed(&'static str, String),
}

impl Kube {
    pub(super) fn sync_kustomizations(&mut self) {
        for key in self.keys(KUSTOMIZATIONS, "") {
            let Some(object) = self.get(&key.0, &key.1, &key.2) else { continue };
            if value::is_deleting(&object) {
                self.end_kustomization(&key, &object);
                continue;
            }
            self.hold(&WRITER, &key);
            if !value::is_true(&object, "spec.suspend") {
                self.turn_kustomization(&key, &object);
            }
        }
    }

    fn end_kustomization(&mut self, key: &Key, object: &Value) {
        let policy = value::text(object, "spec.deletionPolicy");
        let prunes = value::is_true(object, "spec.prune") && !["Orphan"].contains(&policy) || policy == "Delete";
        if prunes && !value::is_true(object, "spec.suspend") && value::finalizers(object).contains(&FINALIZER) {
            // What cannot be removed now is left to whoever removes the rest.
            let _ = self.prune(object, &inventory(object), &BTreeSet::new());
        }
        self.let_go(&WRITER, key);
    }

    fn source(&self, object: &Value) -> Key {
        let own = value::text(object, "spec.sourceRef.namespace");
        let namespace = if own.is_empty() { value::namespace(object) } else { own };
        (Arc::from(REPOSITORIES), namespace.to_owned(), value::text(object, "spec.sourceRef.name").to_owned())
    }

    fn turn_kustomization(&mut self, key: &Key, object: &Arc<Value>) {
        let source = self.source(object);
        let revision = self.components.flux.artifacts.get(&source).map(|(revision, _)| revision.clone());
        let mark = format!("{} {} {}", mark(object), revision.clone().unwrap_or_default(), self.watched(object));
        let now = self.now;
        let turn = self.components.flux.turns.entry(key.clone()).or_default();
        let waited = turn.waits.filter(|_| turn.mark == mark);
        if turn.mark == mark && now < turn.next && waited.is_none() {
            return;
        }
        let applied = turn.applied.clone().filter(|_| waited.is_some());
        let ending = match &applied {
            // Whoever waits for health does nothing else meanwhile.
            Some(entries) => self.check_health(object, entries),
            None => self.reconcile_kustomization(key, object, revision.as_deref()),
        };
        let interval = span(object, "spec.interval").unwrap_or(TEN_MINUTES);
        let (mut waits, mut next) = (None, now + interval);
        match ending {
            Ending::Well => self.say_well(key, object, revision.as_deref().unwrap_or_default()),
            Ending::Waits(patience, message) => {
                let same = waited.filter(|(since, until)| *until - *since == patience);
                let (since, until) = same.unwrap_or((now, now + patience));
                if now < until {
                    waits = Some((since, until));
                    next = until;
                    self.say_progress(key, revision.as_deref(), &message);
                } else {
                    next = now + span(object, "spec.retryInterval").unwrap_or(interval);
                    let why = format!(
                        "health check failed after {}s: timeout waiting for: {message}",
                        (until - since).as_secs()
                    );
                    self.say_failed(key, object, revision.as_deref(), "HealthCheckFailed", &why);
                }
            }
            Ending::Failed(reason, why) => {
                let retry = span(object, "spec.retryInterval").unwrap_or(interval);
                let is_early = reason == "DependencyNotReady" || why == NO_ARTIFACT;
                next = now + if is_early { DEPENDENCY } else { retry };
                self.say_failed(key, object, revision.as_deref(), reason, &why);
            }
        }
        if let Some(turn) = self.components.flux.turns.get_mut(key) {
            (turn.mark, turn.next, turn.waits) = (mark, next, waits);
            if waits.is_none() {
                turn.applied = None;
            }
        }
        self.flux_again(next);
    }

    fn reconcile_kustomization(&mut self, key: &Key, object: &Value, revision: Option<&str>) -> Ending {
        let source = self.source(object);
        let tree = self.components.flux.artifacts.get(&source).map(|(_, tree)| tree.clone());
        let (Some(tree), Some(_)) = (tree, revision) else {
            if self.get(&source.0, &source.1, &source.2).is_none() {
                let why = format!("GitRepository.source.toolkit.fluxcd.io {:?} not found", source.2);
                return Ending::Failed("ArtifactFailed", why);
            }
            return Ending::Failed("ArtifactFailed", NO_ARTIFACT.to_owned());
        };
        if let Some(name) = self.unready_dependency(object) {
            return Ending::Failed("DependencyNotReady", format!("dependency '{name}' is not ready"));
        }
        let path = build::folder(object);
        if !tree.is_folder(&path) || self.suffers(Component::Flux, ComponentFault::GitPath) {
            let why = format!("{NO_FOLDER}: stat /tmp/kustomization-1/{path}: no such file or directory");
            return Ending::Failed("ArtifactFailed", why);
        }
        let built = build::objects(&tree, object, self.variables(object));
        let objects = match built.and_then(|objects| self.adapted(object, objects)) {
            Ok(objects) => objects,
            Err(why) => return Ending::Failed("BuildFailed", why),
        };
        match self.apply_all(&objects, value::is_true(object, "spec.force")) {
            Applied::Failed(why) => return Ending::Failed("ReconciliationFailed", why),
            Applied::Waits => return Ending::Waits(STAGE, "the first stage".to_owned()),
            Applied::All => {}
        }
        let entries: BTreeSet<Entry> = objects.iter().map(Entry::of).collect();
        let before = inventory(object);
        if value::is_true(object, "spec.prune")
            && let Err(why) = self.prune(object, &before, &entries)
        {
            return Ending::Failed("PruneFailed", why);
        }
        let shown: Vec<Value> = entries.iter().map(Entry::shown).collect();
        let at = (KUSTOMIZATIONS, value::namespace(object), value::name(object));
        self.amend(&STATUS, at, |object| value::set(object, "status.inventory.entries", shown));
        let ending = self.check_health(object, &entries);
        if let Some(turn) = self.components.flux.turns.get_mut(key) {
            turn.applied = Some(entries);
        }
        ending
    }

    fn unready_dependency(&self, object: &Value) -> Option<String> {
        value::items(object, "spec.dependsOn").iter().find_map(|other| {
            let own = value::text(other, "namespace");
            let namespace = if own.is_empty() { value::namespace(object) } else { own };
            let name = value::text(other, "name");
            let is_ready = self.get(KUSTOMIZATIONS, namespace, name).is_some_and(|it| {
                is(&it, "Ready")
                    && value::number(&it, "status.observedGeneration") == value::number(&it, "metadata.generation")
            });
            (!is_ready).then(|| format!("{namespace}/{name}"))
        })
    }

    /// The objects as they are applied: with their owner, and none that nobody can open.
    fn adapted(&self, object: &Value, mut objects: Vec<Value>) -> Result<Vec<Value>, String> {
        if let Some(secret) = objects.iter().find(|it| it.get("sops").is_some())
            && value::at(object, "spec.decryption").is_some()
        {
            return Err(format!("{}: decryption is not simulated here", Entry::of(secret).words()));
        }
        own(&mut objects, object);
        Ok(objects)
    }

    /// The versions of the ConfigMaps and Secrets that a Kustomization reads and whose changes are seen at once.
    fn watched(&self, object: &Value) -> String {
        let from = value::items(object, "spec.postBuild.substituteFrom").iter();
        let from = from.map(|from| (value::text(from, "kind"), value::text(from, "name")));
        let key = ("Secret", value::text(object, "spec.decryption.secretRef.name"));
        let all = from.chain([key]).filter_map(|(kind, name)| {
            let collection = if kind == "Secret" { "secrets" } else { "configmaps" };
            let known = self.get(collection, value::namespace(object), name)?;
            let is_watched =
                value::members(&known, "metadata.labels").any(|(key, word)| key == WATCHED.0 && *word == WATCHED.1);
            is_watched.then(|| value::text(&known, "metadata.resourceVersion").to_owned())
        });
        all.collect::<Vec<_>>().join(",")
    }

    /// The variables that a Kustomization gives its objects.
    fn variables(&self, object: &Value) -> Result<BTreeMap<String, String>, String> {
        let mut all = BTreeMap::new();
        for from in value::items(object, "spec.postBuild.substituteFrom") {
            let (kind, name) = (value::text(from, "kind"), value::text(from, "name"));
            let collection = if kind == "Secret" { "secrets" } else { "configmaps" };
            let Some(known) = self.get(collection, value::namespace(object), name) else {
                if value::is_true(from, "optional") {
                    continue;
                }
                let place = format!("{}/{name}", value::namespace(object));
                return Err(format!("substitute from '{kind}/{name}' error: {collection} {place:?} not found"));
            };
            for (key, text) in value::members(&known, "data") {
                let plain = text.as_str().unwrap_or_default().to_owned();
                let text = if kind == "Secret" { secret_text(&known, key).unwrap_or_default() } else { plain };
                all.insert(key.clone(), text);
            }
        }
        let own = value::members(object, "spec.postBuild.substitute");
        all.extend(own.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())));
        Ok(all)
    }

    /// Whether all that is to be waited for is there.
    fn check_health(&self, object: &Value, entries: &BTreeSet<Entry>) -> Ending {
        let interval = span(object, "spec.interval").unwrap_or(TEN_MINUTES);
        let usual = interval.saturating_sub(Duration::from_secs(30)).max(Duration::from_secs(30));
        let patience = span(object, "spec.timeout").unwrap_or(usual);
        let checked: Vec<Entry> = if value::is_true(object, "spec.wait") {
            entries.iter().cloned().collect()
        } else {
            let named = value::items(object, "spec.healthChecks").iter().map(|check| {
                let mut as_object = check.clone();
                value::set(
                    &mut as_object,
                    "metadata",
                    json!({ "name": check["name"], "namespace": check["namespace"] }),
                );
                Entry::of(&as_object)
            });
            named.collect()
        };
        if checked.is_empty() {
            return Ending::Well;
        }
        let is_doomed = self.suffers(Component::Flux, ComponentFault::FailedHealthChecks);
        let (mut late, mut failed) = (Vec::new(), Vec::new());
        for entry in &checked {
            let state = self.live(entry).map(|live| health::of(&live));
            match state {
                Some(Health::Current) if !is_doomed => {}
                Some(Health::Failed) => failed.push(format!("{} status: 'Failed'", entry.words())),
                state => {
                    let word = state.filter(|_| !is_doomed).map_or("InProgress", Health::word);
                    let word = if state.is_none() { "NotFound" } else { word };
                    late.push(format!("{} status: '{word}'", entry.words()));
                }
            }
        }
        if !failed.is_empty() {
            return Ending::Failed(
                "HealthCheckFailed",
                format!("health check failed: failed early due to stalled resources: [{}]", failed.join(", ")),
            );
        }
        if late.is_empty() { Ending::Well } else { Ending::Waits(patience, format!("[{}]", late.join(", "))) }
    }

    fn say_progress(&mut self, key: &Key, revision: Option<&str>, message: &str) {
        let message = format!("Running health checks for revision {}: {message}", revision.unwrap_or_default());
        let told = [
            ("Reconciling", "True", "Progressing", message.as_str()),
            ("Ready", "Unknown", "Progressing", "Reconciliation in progress"),
        ];
        let revision = revision.map(str::to_owned);
        self.say_flux(&STATUS, key, &told, |object| {
            if let Some(revision) = revision {
                value::set(object, "status.lastAttemptedRevision", revision);
            }
        });
    }

    fn say_failed(&mut self, key: &Key, object: &Value, revision: Option<&str>, reason: &str, why: &str) {
        let mut told = vec![("Ready", "False", reason, why)];
        if reason == "HealthCheckFailed" {
            told.push(("Healthy", "False", reason, why));
        }
        // What it was at when it failed is left to be seen: that alone tells the revision if the folder was not found.
        let timeout = value::text(object, "spec.timeout");
        let fetching =
            format!("Fetching manifests for revision {} with a timeout of {timeout}", revision.unwrap_or_default());
        if why.starts_with(NO_FOLDER) {
            told.push(("Reconciling", "True", "ProgressingWithRetry", fetching.as_str()));
        }
        let revision = revision.map(str::to_owned);
        self.say_flux(&STATUS, key, &told, |object| {
            if let Some(revision) = revision.filter(|_| !["DependencyNotReady", "ArtifactFailed"].contains(&reason)) {
                value::set(object, "status.lastAttemptedRevision", revision);
            }
            // The generation is noted once it is applied.
            Self::handled(object);
        });
        self.tell(CONTROLLER, object, false, reason, why);
    }

    fn say_well(&mut self, key: &Key, object: &Value, revision: &str) {
        let message = format!("Applied revision: {revision}");
        let mut told = vec![("Ready", "True", "ReconciliationSucceeded", message.as_str())];
        let checks = value::is_true(object, "spec.wait") || !value::items(object, "spec.healthChecks").is_empty();
        if checks {
            told.push(("Healthy", "True", "Succeeded", "Health check passed"));
        }
        let now = self.stamp();
        self.say_flux(&STATUS, key, &told, |object| {
            value::set(object, "status.lastAppliedRevision", revision);
            value::set(object, "status.lastAttemptedRevision", revision);
            Self::observe(object);
            remember(object, revision, &now);
        });
        let message = format!("Reconciliation finished, revision {revision}");
        self.tell(CONTROLLER, object, true, "ReconciliationSucceeded", &message);
    }
}

/// What was applied before.
fn inventory(object: &Value) -> Vec<Entry> {
    value::items(object, "status.inventory.entries").iter().filter_map(Entry::read).collect()
}

/// Adds a result to those that are remembered; the same again is counted.
fn remember(object: &mut Value, revision: &str, now: &str) {
    let entries = object["status"]["inventory"].to_string();
    let digest: String =
        Sha256::digest(format!("{revision}{entries}")).iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = format!("sha256:{digest}");
    let mut all = value::items(object, "status.history").to_vec();
    match all.iter_mut().find(|it| value::text(it, "digest") == digest) {
        Some(known) => {
            let count = value::number(known, "totalReconciliations").unwrap_or(0);
            value::set(known, "totalReconciliations", count + 1);
            value::set(known, "lastReconciled", now);
        }
        None => all.insert(0, json!({
            "digest": digest, "firstReconciled": now, "lastReconciled": now, "lastReconciledDuration": "1s",
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1, "metadata": { "revision": revision },
        })),
    }
    all.truncate(HISTORY);
    value::set(object, "status.history", all);
}
