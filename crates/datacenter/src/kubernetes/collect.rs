//! What follows from changes: dependents of what is gone, namespaces that end, and whom else to tell.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::crd::{self, DEFINITIONS};
use super::delete::{Options, Propagation};
use super::kube::{CONTROLLER, CONTROLLER_STATUS, Due, Key, Kube};
use super::value;
use super::workloads::AGAIN;
use super::workloads::volumes::CLAIMS;

/// Collections whose objects somebody always looks after.
const LOOKED_AFTER: [&str; 15] = [
    "namespaces",
    "pods",
    "services",
    "nodes",
    "deployments.apps",
    "replicasets.apps",
    "daemonsets.apps",
    "statefulsets.apps",
    "jobs.batch",
    "cronjobs.batch",
    "persistentvolumeclaims",
    "poddisruptionbudgets.policy",
    super::certificates::REQUESTS,
    super::workloads::AUTOSCALERS,
    DEFINITIONS,
];

impl Kube {
    /// Notes who is to look at a change.
    pub(crate) fn changed(&mut self, key: &Key, object: &Value) {
        let collection = &*key.0;
        if LOOKED_AFTER.contains(&collection)
            || value::is_deleting(object)
            || object.pointer("/metadata/ownerReferences").is_some()
        {
            self.note(key.clone());
        }
        if collection == DEFINITIONS {
            self.definition_changed(&key.2.clone());
        }
        if let Some(owner) = value::controller(object)
            && let Some(owner) = self.uids.get(value::text(owner, "uid")).cloned()
        {
            self.note(owner);
        }
        self.workload_changed(key, object);
        self.component_changed(key);
    }

    /// Notes what follows from the end of an object.
    pub(crate) fn erased(&mut self, collection: &str, object: &Value) {
        if collection == DEFINITIONS {
            self.definition_gone(object);
        }
        match collection {
            CLAIMS => self.claim_gone(object),
            // Its claims may have waited for it.
            "pods" => {
                self.workloads.evictions.remove(value::uid(object));
                for volume in value::items(object, "spec.volumes") {
                    let claim = value::text(volume, "persistentVolumeClaim.claimName");
                    if !claim.is_empty() {
                        self.note((Arc::from(CLAIMS), value::namespace(object).to_owned(), claim.to_owned()));
                        self.claim_let_go();
                    }
                }
            }
            _ => {}
        }
        let namespace = value::namespace(object);
        if !namespace.is_empty() && self.get("namespaces", "", namespace).is_some_and(|it| value::is_deleting(&it)) {
            self.note((Arc::from("namespaces"), String::new(), namespace.to_owned()));
        }
        if self.customs.values().any(|resource| resource.qualified() == collection)
            && self.get(DEFINITIONS, "", collection).is_some_and(|it| value::is_deleting(&it))
        {
            self.note((Arc::from(DEFINITIONS), String::new(), collection.to_owned()));
        }
        for owner in value::items(object, "metadata.ownerReferences") {
            if let Some(owner) = self.uids.get(value::text(owner, "uid")).cloned() {
                self.note(owner);
            }
        }
    }

    /// Looks after everything that was noted.
    pub(crate) fn reconcile(&mut self) {
        self.is_reconcile_planned = false;
        for key in std::mem::take(&mut self.dirty) {
            self.collect(&key);
            match &*key.0 {
                "namespaces" => self.sync_namespace(&key.2),
                DEFINITIONS => self.definition_ends(&key.2),
                _ => {}
            }
            self.sync_workload(&key);
        }
    }

    /// Deletes what lost its owners, and lets go what waited for its dependents.
    fn collect(&mut self, key: &Key) {
        let Some(object) = self.get(&key.0, &key.1, &key.2) else { return };
        if self.resource_of(&key.0).is_none() {
            return;
        }
        let owners = value::items(&object, "metadata.ownerReferences");
        let lives = |owner: &&Value| self.uids.contains_key(value::text(owner, "uid"));
        let is_waiting = |owner: &&Value| {
            let key = self.uids.get(value::text(owner, "uid"));
            let owner = key.and_then(|key| self.get(&key.0, &key.1, &key.2));
            owner.is_some_and(|owner| {
                value::is_deleting(&owner) && value::finalizers(&owner).contains(&"foregroundDeletion")
            })
        };
        if !owners.is_empty() && !value::is_deleting(&object) {
            let solid = owners.iter().filter(lives).filter(|owner| !is_waiting(owner)).count();
            if solid == 0 {
                let is_foreground = owners.iter().any(|owner| is_waiting(&owner));
                let propagation = Some(if is_foreground { Propagation::Foreground } else { Propagation::Background });
                let options = Options { propagation, ..Options::default() };
                if self.dismiss_as("generic-garbage-collector", &object, &key.0, &options).is_err() {
                    self.plan(AGAIN, Due::Look(key.clone()));
                }
                return;
            }
        }
        if !value::is_deleting(&object) {
            return;
        }
        let finalizers = value::finalizers(&object);
        let dependents: Vec<Key> = self.dependents.get(value::uid(&object)).into_iter().flatten().cloned().collect();
        if finalizers.contains(&"orphan") {
            let uid = value::uid(&object).to_owned();
            for (collection, namespace, name) in dependents {
                self.amend(&CONTROLLER, (&collection, &namespace, &name), |dependent| {
                    let left: Vec<Value> = value::items(dependent, "metadata.ownerReferences")
                        .iter()
                        .filter(|owner| value::text(owner, "uid") != uid)
                        .cloned()
                        .collect();
                    match left.is_empty() {
                        true => drop(value::remove(dependent, "metadata.ownerReferences")),
                        false => value::set(dependent, "metadata.ownerReferences", left),
                    }
                });
            }
            self.drop_finalizer(key, "orphan");
        } else if finalizers.contains(&"foregroundDeletion") {
            let uid = value::uid(&object).to_owned();
            let blocks = |key: &Key| {
                let dependent = self.get(&key.0, &key.1, &key.2);
                dependent.is_some_and(|it| {
                    value::items(&it, "metadata.ownerReferences")
                        .iter()
                        .any(|owner| value::text(owner, "uid") == uid && value::is_true(owner, "blockOwnerDeletion"))
                })
            };
            if !dependents.iter().any(blocks) {
                self.drop_finalizer(key, "foregroundDeletion");
            }
            dependents.into_iter().for_each(|dependent| self.note(dependent));
        }
        // What other parts of a cluster would let go once nobody uses it.
        for word in ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"] {
            if value::finalizers(&object).contains(&word) && !self.is_claim_used(&object) {
                self.drop_finalizer(key, word);
            }
        }
    }

    fn is_claim_used(&self, claim: &Value) -> bool {
        if value::text(claim, "kind") == "PersistentVolume" {
            return value::text(claim, "status.phase") == "Bound";
        }
        let pods = self.store.all("pods", value::namespace(claim));
        let mut volumes = pods
            .filter(|pod| !["Succeeded", "Failed"].contains(&value::text(pod, "status.phase")))
            .flat_map(|pod| value::items(pod, "spec.volumes"));
        volumes.any(|volume| value::text(volume, "persistentVolumeClaim.claimName") == value::name(claim))
    }

    fn drop_finalizer(&mut self, key: &Key, word: &str) {
        self.amend(&CONTROLLER, (&key.0, &key.1, &key.2), |object| {
            let left: Vec<Value> =
                value::finalizers(object).into_iter().filter(|own| *own != word).map(Value::from).collect();
            match left.is_empty() {
                true => drop(value::remove(object, "metadata.finalizers")),
                false => value::set(object, "metadata.finalizers", left),
            }
        });
    }

    /// Gives a namespace what every one has; or lets it end.
    fn sync_namespace(&mut self, name: &str) {
        let Some(namespace) = self.get("namespaces", "", name) else { return };
        if !value::is_deleting(&namespace) {
            let metadata = json!({ "name": "default", "namespace": name });
            self.make(&CONTROLLER, "serviceaccounts", json!({ "metadata": metadata }));
            let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
                        service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
            let metadata = json!({ "name": "kube-root-ca.crt", "namespace": name, "annotations": { "kubernetes.io/description": note } });
            let authority = self.setup.authority.clone();
            self.make(&CONTROLLER, "configmaps", json!({ "metadata": metadata, "data": { "ca.crt": authority } }));
            return;
        }
        self.end_namespace(name);
    }

    /// Deletes all that is in a namespace, and says what keeps it.
    fn end_namespace(&mut self, name: &str) {
        let collections: Vec<Arc<str>> = self.store.collections().cloned().collect();
        let mut refusals: Vec<String> = Vec::new();
        for collection in &collections {
            if self.resource_of(collection).is_none_or(|resource| !resource.is_namespaced) {
                continue;
            }
            let objects: Vec<Arc<Value>> = self.store.all(collection, name).cloned().collect();
            for object in objects.iter().filter(|object| !value::is_deleting(object)) {
                let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
                if let Err(failure) = self.dismiss_as("namespace-controller", object, collection, &options) {
                    refusals.push(failure.message);
                    // What is left of this kind waits as well.
                    break;
                }
            }
        }
        if !refusals.is_empty() {
            self.plan(AGAIN, Due::Look((Arc::from("namespaces"), String::new(), name.to_owned())));
        }
        let mut left: Vec<(String, usize)> = Vec::new();
        let mut finalizers: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        for collection in &collections {
            if self.resource_of(collection).is_none_or(|resource| !resource.is_namespaced) {
                continue;
            }
            let objects: Vec<&Arc<Value>> = self.store.all(collection, name).collect();
            if objects.is_empty() {
                continue;
            }
            for finalizer in objects.iter().flat_map(|object| value::finalizers(object)) {
                *finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
            left.push((collection.to_string(), objects.len()));
        }
        let now = self.stamp();
        let content: Vec<String> = left
            .iter()
            .map(|(collection, count)| {
                let name = if collection.contains('.') { collection.clone() } else { format!("{collection}.") };
                format!("{name} has {count} resource instances")
            })
            .collect();
        let waits: Vec<String> =
            finalizers.iter().map(|(word, count)| format!("{word} in {count} resource instances")).collect();
        self.amend(&CONTROLLER_STATUS, ("namespaces", "", name), |object| {
            let mut say = |kind: &str, is_so: bool, (reason, message): (&str, &str)| {
                crd::condition(object, &now, kind, if is_so { "True" } else { "False" }, (reason, message));
            };
            say(
                "NamespaceDeletionDiscoveryFailure",
                false,
                ("ResourcesDiscovered", "All resources successfully discovered"),
            );
            say(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            );
            if refusals.is_empty() {
                let message = "All content successfully deleted, may be waiting on finalization";
                say("NamespaceDeletionContentFailure", false, ("ContentDeleted", message));
            } else {
                let told = super::status::aggregate(&refusals);
                let message = format!("Failed to delete all resource types, {} remaining: {told}", refusals.len());
                say("NamespaceDeletionContentFailure", true, ("ContentDeletionFailed", &message));
            }
            if content.is_empty() {
                say("NamespaceContentRemaining", false, ("ContentRemoved", "All content successfully removed"));
            } else {
                let message = format!("Some resources are remaining: {}", content.join(", "));
                say("NamespaceContentRemaining", true, ("SomeResourcesRemain", &message));
            }
            if waits.is_empty() {
                say(
                    "NamespaceFinalizersRemaining",
                    false,
                    ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
                );
            } else {
                let message = format!("Some content in the namespace has finalizers remaining: {}", waits.join(", "));
                say("NamespaceFinalizersRemaining", true, ("SomeFinalizersRemain", &message));
            }
        });
        if left.is_empty() {
            self.amend(&CONTROLLER, ("namespaces", "", name), |object| {
                let others: Vec<Value> = value::items(object, "spec.finalizers")
                    .iter()
                    .filter(|word| *word != "kubernetes")
                    .cloned()
                    .collect();
                match others.is_empty() {
                    true => drop(value::remove(object, "spec.finalizers")),
                    false => value::set(object, "spec.finalizers", others),
                }
            });
        }
    }

    /// The places of all objects that some owner controls.
    pub(crate) fn controlled(&self, owner: &Value, collection: &str) -> Vec<Arc<Value>> {
        let uid = value::uid(owner);
        let keys: BTreeSet<&Key> =
            self.dependents.get(uid).into_iter().flatten().filter(|key| *key.0 == *collection).collect();
        let objects = keys.into_iter().filter_map(|key| self.get(&key.0, &key.1, &key.2));
        objects
            .filter(|object| value::controller(object).is_some_and(|owner| value::text(owner, "uid") == uid))
            .collect()
    }
}
