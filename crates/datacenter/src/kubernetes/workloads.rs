//! What runs in the cluster: controllers that make pods, a scheduler that places them, and nodes that run them.
//!
//! Nothing of it runs by itself: a change notes who is to look ([`Kube::note`]), and looking makes further changes, each at
//! its drawn time. [`pods`] is what nodes do, [`schedule`] where pods go, the others are the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::admission::Deed;
use super::api::Call;
use super::delete::Options;
use super::kinds::Resource;
use super::kube::{CONTROLLER, Key, Kube};
use super::request::{Ask, Target, User};
use super::status::Failure;
use super::value;

mod daemons;
mod deployments;
mod endpoints;
mod jobs;
pub(crate) mod nodes;
pub(crate) mod pods;
mod replicas;
mod schedule;
pub(crate) mod specs;
mod stateful;
pub(crate) mod volumes;

/// When a controller tries again what it was refused.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// What goes wrong with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodFault {
    /// Their image cannot be pulled.
    ImagePull,
    /// They end as soon as they start, again and again.
    CrashLoop,
    /// No node takes them.
    Unschedulable,
    /// They run, and never become ready.
    NotReady,
}

/// What is known of what runs.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    /// When an image is on a node, or will be.
    pub(crate) images: BTreeMap<(String, String), Duration>,
    /// The last address that a node gave to a pod.
    pub(crate) addresses: BTreeMap<String, u32>,
    /// Pods that wait for something to mount, by their place.
    pub(crate) waiting: BTreeSet<(String, String)>,
    /// What goes wrong with pods in a namespace whose names begin so.
    pub(crate) faults: BTreeMap<(String, String), PodFault>,
    /// The claims, by uid, that a volume is being made for.
    pub(crate) ordered: BTreeSet<String>,
}

impl Kube {
    /// Notes who else is to look at a change.
    pub(crate) fn workload_changed(&mut self, key: &Key, object: &Value) {
        let namespace = key.1.clone();
        match &*key.0 {
            "pods" => {
                let services: Vec<Key> = self.keys("services", &namespace);
                let labels = value::at(object, "metadata.labels").cloned().unwrap_or_default();
                for service in services {
                    let is_chosen =
                        self.get(&service.0, &service.1, &service.2).is_some_and(|it| endpoints::chooses(&it, &labels));
                    if is_chosen {
                        self.note(service);
                    }
                }
                if value::is_deleting(object) || ["Succeeded", "Failed"].contains(&value::text(object, "status.phase"))
                {
                    self.note_pending();
                }
            }
            "nodes" => {
                self.note_pending();
                for key in self.keys("daemonsets.apps", "") {
                    self.note(key);
                }
                for key in self.keys("pods", "") {
                    self.note(key);
                }
            }
            "secrets" | "configmaps" => {
                let waiting: Vec<(String, String)> =
                    self.workloads.waiting.iter().filter(|(own, _)| *own == namespace).cloned().collect();
                for (namespace, name) in waiting {
                    self.note((Arc::from("pods"), namespace, name));
                }
            }
            volumes::CLAIMS => self.note_pending(),
            volumes::VOLUMES | "storageclasses.storage.k8s.io" => self.note_claims(),
            // What was refused before may be allowed now.
            "namespaces" | "serviceaccounts" | "resourcequotas" => {
                let namespace = if &*key.0 == "namespaces" { key.2.clone() } else { namespace };
                for collection in ["replicasets.apps", "daemonsets.apps", "statefulsets.apps", "jobs.batch"] {
                    for key in self.keys(collection, &namespace) {
                        self.note(key);
                    }
                }
            }
            _ => {}
        }
    }

    pub(crate) fn keys(&self, collection: &str, namespace: &str) -> Vec<Key> {
        let name: Arc<str> = Arc::from(collection);
        self.store
            .all(collection, namespace)
            .map(|it| (name.clone(), value::namespace(it).to_owned(), value::name(it).to_owned()))
            .collect()
    }

    /// Pods that have no node are to be looked at again.
    fn note_pending(&mut self) {
        let pods = self.store.all("pods", "").filter(|pod| value::text(pod, "spec.nodeName").is_empty());
        let keys: Vec<Key> =
            pods.map(|it| (Arc::from("pods"), value::namespace(it).to_owned(), value::name(it).to_owned())).collect();
        keys.into_iter().for_each(|key| self.note(key));
    }

    /// Looks after one object that runs, or makes others run.
    pub(crate) fn sync_workload(&mut self, key: &Key) {
        let object = self.get(&key.0, &key.1, &key.2);
        match (&*key.0, object) {
            ("services", None) => self.drop_endpoints(&key.1, &key.2),
            ("deployments.apps", Some(object)) => self.sync_deployment(&object),
            ("replicasets.apps", Some(object)) => self.sync_replica_set(&object),
            ("daemonsets.apps", Some(object)) => self.sync_daemon_set(&object),
            ("statefulsets.apps", Some(object)) => self.sync_stateful_set(&object),
            ("jobs.batch", Some(object)) => self.sync_job(&object),
            ("services", Some(object)) => self.sync_endpoints(&object),
            ("pods", Some(object)) => self.sync_pod(&object),
            (volumes::CLAIMS, Some(object)) => self.sync_claim(&object),
            _ => {}
        }
    }

    /// Makes an object as a controller does: with all that admission and validation say.
    pub(crate) fn submit(
        &mut self,
        controller: &str,
        collection: &str,
        mut object: Value,
    ) -> Result<Arc<Value>, Failure> {
        let Some(resource) = self.resource_of(collection) else { return Err(Failure::unknown_resource()) };
        self.complete(&resource, &mut object);
        let ask = asked_by(controller, "POST");
        let mut call = call_of(&ask, resource, &object);
        self.finish_create(&mut call, object, None)
    }

    /// Ends an object as a controller does: if those let it who are asked.
    pub(crate) fn dismiss_as(
        &mut self,
        controller: &str,
        object: &Arc<Value>,
        collection: &str,
        options: &Options,
    ) -> Result<(), Failure> {
        let Some(resource) = self.resource_of(collection) else { return Ok(()) };
        let ask = asked_by(controller, "DELETE");
        let mut call = call_of(&ask, resource.clone(), object);
        self.review(&mut call, &Deed::delete(object), &Value::Null)?;
        self.end(&resource, object, options);
        Ok(())
    }

    /// Ends a pod or what stands between it and its owner.
    pub(crate) fn dismiss(&mut self, collection: &str, object: &Arc<Value>) {
        if value::is_deleting(object) {
            return;
        }
        if self.dismiss_as("replicaset-controller", object, collection, &Options::default()).is_err() {
            // Who refuses now is asked again.
            let key: Key = (Arc::from(collection), value::namespace(object).to_owned(), value::name(object).to_owned());
            self.plan(AGAIN, super::kube::Due::Look(key));
        }
    }

    /// Tells people what happened to an object. The same is counted rather than told again.
    pub(crate) fn tell(&mut self, source: &str, about: &Value, is_normal: bool, reason: &str, message: &str) {
        let namespace = match value::namespace(about) {
            "" => "default",
            namespace => namespace,
        };
        let digest = Sha256::digest(format!("{}{reason}{message}", value::uid(about)));
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}.{hash}", value::name(about));
        let now = self.stamp();
        if self.store.get("events", namespace, &name).is_some() {
            let writer = super::kube::Writer { name: source, subresource: "" };
            self.amend(&writer, ("events", namespace, &name), |event| {
                let count = value::number(event, "count").unwrap_or(1);
                value::set(event, "count", count + 1);
                value::set(event, "lastTimestamp", now.as_str());
            });
            return;
        }
        let involved = json!({
            "kind": value::text(about, "kind"), "namespace": value::namespace(about), "name": value::name(about), "uid": value::uid(about),
            "apiVersion": value::text(about, "apiVersion"), "resourceVersion": value::text(about, "metadata.resourceVersion"),
        });
        let event = json!({
            "metadata": { "name": name, "namespace": namespace }, "involvedObject": involved, "reason": reason, "message": message,
            "source": { "component": source }, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "type": if is_normal { "Normal" } else { "Warning" }, "reportingComponent": source, "reportingInstance": "",
        });
        let writer = super::kube::Writer { name: source, subresource: "" };
        self.make(&writer, "events", event);
    }

    /// What goes wrong with a pod, if anything does.
    pub(crate) fn fault_of(&self, pod: &Value) -> Option<PodFault> {
        let (namespace, name) = (value::namespace(pod), value::name(pod));
        let mut faults = self.workloads.faults.iter();
        let told = faults.find(|((own, prefix), _)| own == namespace && name.starts_with(prefix));
        told.map(|(_, fault)| *fault).or_else(|| self.machine_fault(pod))
    }

    /// Lets pods of a namespace whose names begin so go wrong, or run well again.
    pub(crate) fn set_fault(&mut self, namespace: &str, prefix: &str, fault: Option<PodFault>) {
        let key = (namespace.to_owned(), prefix.to_owned());
        match fault {
            Some(fault) => drop(self.workloads.faults.insert(key, fault)),
            None => drop(self.workloads.faults.remove(&key)),
        }
        let keys: Vec<Key> = self.keys("pods", namespace).into_iter().filter(|key| key.2.starts_with(prefix)).collect();
        for key in keys {
            self.restart_pod(&key);
            self.note(key);
        }
    }
}

/// A request as a controller makes it.
fn asked_by(controller: &str, method: &str) -> Ask {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    let user = User {
        name: format!("system:serviceaccount:kube-system:{controller}"),
        groups: groups.map(str::to_owned).to_vec(),
        ..User::default()
    };
    Ask { method: method.to_owned(), user_agent: CONTROLLER.name.to_owned(), user, ..Ask::default() }
}

fn call_of<'a>(ask: &'a Ask, resource: Arc<Resource>, object: &Value) -> Call<'a> {
    let target = Target {
        group: resource.group.clone(),
        version: resource.version.clone(),
        plural: resource.plural.clone(),
        namespace: value::namespace(object).to_owned(),
        is_in_namespace: resource.is_namespaced,
        ..Target::default()
    };
    Call { ask, resource, target, is_dry_run: false, is_watch: false, warnings: Vec::new() }
}

/// Letters that tell one template from another.
pub(crate) fn template_hash(template: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(template.to_string());
    digest.iter().take(10).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// A pod of a template.
pub(crate) fn pod_of(template: &Value, owner: &Value, name: &str) -> Value {
    let mut metadata = json!({ "namespace": value::namespace(owner), "ownerReferences": value::controlled_by(owner) });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(known) = value::at(template, "metadata").and_then(|it| it.get(key)) {
            value::set(&mut metadata, key, known.clone());
        }
    }
    if name.ends_with('-') {
        value::set(&mut metadata, "generateName", name);
    } else {
        value::set(&mut metadata, "name", name);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// Whether a pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    super::crd::is(pod, "Ready") && !value::is_deleting(pod)
}

/// Whether a pod counts: it is not over, and not told to end.
pub(crate) fn is_active(pod: &Value) -> bool {
    !value::is_deleting(pod) && !["Succeeded", "Failed"].contains(&value::text(pod, "status.phase"))
}

/// A number or a share of a whole: `25%`.
pub(crate) fn share(amount: Option<&Value>, of: i64, rounds_up: bool) -> i64 {
    match amount {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let scaled = percent * of;
            if rounds_up { (scaled + 99).div_euclid(100) } else { scaled.div_euclid(100) }
        }
        _ => 0,
    }
}
