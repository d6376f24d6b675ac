//! Longhorn: managers that start one after another, the webhook that each of them serves, and what they make at run time:
//! settings, classes and nodes ([`objects`]), the storage driver and its volumes ([`driver`]), where these are attached
//! ([`attachments`]), and what may leave ([`budgets`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CONFIGURATIONS, Component, ComponentFault, certificate_data, is_running, secret_text};
use crate::kubernetes::crd::DEFINITIONS;
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;
use crate::kubernetes::webhooks::served::{Asked, Verdict};
use crate::kubernetes::workloads::PodFault;

mod attachments;
mod budgets;
mod driver;
mod objects;

const NAMESPACE: &str = "longhorn-system";
const MANAGER: &str = "longhorn-manager";
const SERVICE: &str = "longhorn-admission-webhook";
const DRIVER: &str = "driver.longhorn.io";
const NODES: &str = "nodes.longhorn.io";
const SETTINGS: &str = "settings.longhorn.io";
/// Where Talos mounts volumes, which every kubelet sees,
const MOUNTS: &str = "/var/mnt";
/// and the one that is meant for Longhorn.
const MOUNT: &str = "/var/mnt/longhorn";

const WRITER: Writer<'_> = Writer { name: MANAGER, subresource: "" };
const STATUS: Writer<'_> = Writer { name: MANAGER, subresource: "status" };

/// What a machine has for Longhorn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Whether iSCSI can be spoken.
    pub(crate) has_iscsi: bool,
    /// The bytes of the system's disk.
    pub(crate) system: u64,
    /// The bytes of the volume that its configuration asks for, or why there is none; nothing if it does not ask.
    pub(crate) volume: Option<Result<u64, String>>,
    /// What else of the host the kubelet sees.
    pub(crate) mounts: Vec<String>,
}

impl Machine {
    /// The bytes of the disk at a path; or why nothing can be kept there.
    fn room(&self, path: &str) -> Result<u64, String> {
        let is_in = |folder: &str| {
            path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match &self.volume {
            Some(volume) if is_in(MOUNT) => volume.clone().map_err(|why| format!("volume u-longhorn: {why}")),
            // Without a volume of its own it shares the disk of the system.
            _ if is_in(MOUNTS) || self.mounts.iter().any(|mount| is_in(mount)) => Ok(self.system),
            _ => Err(format!("cannot create directory {path:?}: Read-only file system")),
        }
    }
}

/// How far the managers have come.
#[derive(Debug, Default)]
pub(super) struct Longhorn {
    pub(super) machines: BTreeMap<String, Machine>,
    /// The pod that has the lease, by uid, and when it lets go.
    holder: Option<(String, Duration)>,
    /// The pods that have started, by uid.
    started: BTreeSet<String>,
}

/// Whether a change is of interest.
pub(super) fn concerns(key: &Key) -> bool {
    key.1 == NAMESPACE
        || ["nodes", "persistentvolumes"].contains(&&*key.0)
        || CONFIGURATIONS.contains(&&*key.0) && key.2.starts_with("longhorn-")
        || &*key.0 == DEFINITIONS && key.2.ends_with(".longhorn.io")
}

impl Kube {
    /// Takes what a machine has for Longhorn.
    pub(crate) fn tell_machine(&mut self, node: &str, machine: Machine) {
        if self.components.longhorn.machines.get(node) != Some(&machine) {
            self.components.longhorn.machines.insert(node.to_owned(), machine);
            self.wake(Component::Longhorn);
        }
    }

    fn machine(&self, node: &str) -> Machine {
        // A node that no machine stands for has all that is needed.
        let usual = || Machine { has_iscsi: true, system: 50 << 30, volume: None, mounts: vec!["/".to_owned()] };
        self.components.longhorn.machines.get(node).cloned().unwrap_or_else(usual)
    }

    /// What goes wrong with a pod because of the machine that it is on: a manager ends where iSCSI cannot be spoken.
    pub(super) fn longhorn_fault(&self, pod: &Value) -> Option<PodFault> {
        let is_manager = value::namespace(pod) == NAMESPACE && value::name(pod).starts_with("longhorn-manager-");
        (is_manager && !self.machine(value::text(pod, "spec.nodeName")).has_iscsi).then_some(PodFault::CrashLoop)
    }

    /// Whether a manager says that it is not ready, whatever the time.
    pub(super) fn longhorn_holds(&self, pod: &Value) -> bool {
        let is_manager = value::namespace(pod) == NAMESPACE && value::name(pod).starts_with("longhorn-manager-");
        is_manager && !self.components.longhorn.started.contains(value::uid(pod))
    }

    pub(super) fn sync_longhorn(&mut self) {
        let pods = self.pods_of("daemonsets.apps", NAMESPACE, MANAGER);
        let running: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_running(pod)).collect();
        let uids: BTreeSet<String> = running.iter().map(|pod| value::uid(pod).to_owned()).collect();
        self.components.longhorn.started.retain(|uid| uids.contains(uid));
        if self.components.longhorn.holder.as_ref().is_some_and(|(uid, _)| !uids.contains(uid)) {
            self.components.longhorn.holder = None;
        }
        self.take_turns(&uids);
        let is_served = !self.components.longhorn.started.is_empty();
        let is_dead = self.suffers(Component::Longhorn, ComponentFault::DeadWebhook);
        if let Some(webhook) = self.hooks.get(&format!("{NAMESPACE}/{SERVICE}")).cloned() {
            let secret = self.get("secrets", NAMESPACE, "longhorn-webhook-tls");
            match secret.and_then(|secret| secret_text(&secret, "tls.crt")).filter(|_| is_served && !is_dead) {
                Some(certificate) => webhook.listen(&certificate),
                None => webhook.close(),
            }
        }
        self.release_held();
        if is_served {
            let nodes = running.iter().filter(|pod| self.components.longhorn.started.contains(value::uid(pod)));
            let nodes: Vec<String> = nodes.map(|pod| value::text(pod, "spec.nodeName").to_owned()).collect();
            self.make_longhorn_objects(&nodes);
            self.deploy_driver();
        }
    }

    /// One manager after another takes the lease, starts its webhook, and lets go.
    fn take_turns(&mut self, running: &BTreeSet<String>) {
        loop {
            if let Some((uid, at)) = self.components.longhorn.holder.clone() {
                if self.now < at {
                    return;
                }
                self.components.longhorn.holder = None;
                self.label_manager(&uid);
                self.components.longhorn.started.insert(uid);
                self.configure_webhooks();
            }
            let next = running.iter().find(|uid| !self.components.longhorn.started.contains(*uid)).cloned();
            let Some(next) = next else { return };
            let at = self.now + self.draw("longhorn lease", self.setup.latencies.components.lease);
            self.components.longhorn.holder = Some((next, at));
            self.wake_at(Component::Longhorn, at);
        }
    }

    /// A manager that serves gives its own pod the labels that its services choose by.
    fn label_manager(&mut self, uid: &str) {
        let Some((collection, namespace, name)) = self.uids.get(uid).cloned() else { return };
        self.amend(&WRITER, (&collection, &namespace, &name), |pod| {
            let labels = value::place(pod, "metadata.labels");
            for (key, service) in [("admission-webhook", SERVICE), ("recovery-backend", "longhorn-recovery-backend")] {
                labels[format!("longhorn.io/{key}")] = json!(service);
            }
        });
    }

    /// What is made when the first manager starts.
    fn configure_webhooks(&mut self) {
        let authority = match self.get("secrets", NAMESPACE, "longhorn-webhook-ca") {
            Some(secret) => secret_text(&secret, "ca.crt").unwrap_or_default(),
            None => {
                let names = [format!("{SERVICE}.{NAMESPACE}.svc")];
                let Ok(made) = self.issue_certificate(&names) else { return };
                for name in ["longhorn-webhook-ca", "longhorn-webhook-tls"] {
                    let metadata = json!({ "name": name, "namespace": NAMESPACE });
                    let secret =
                        json!({ "metadata": metadata, "type": "kubernetes.io/tls", "data": certificate_data(&made) });
                    self.make(&WRITER, "secrets", secret);
                }
                made.authority
            }
        };
        self.serve_behind(&format!("{NAMESPACE}/{SERVICE}"), judge);
        for (collection, name, path) in [
            (CONFIGURATIONS[0], "longhorn-webhook-validator", "/v1/webhook/validation"),
            (CONFIGURATIONS[1], "longhorn-webhook-mutator", "/v1/webhook/mutation"),
        ] {
            let is_validator = collection == CONFIGURATIONS[0];
            let configuration = configuration(name, path, is_validator);
            if self.get(collection, "", name).is_none() {
                self.make(&WRITER, collection, configuration);
            }
            if !self.suffers(Component::Longhorn, ComponentFault::NeverInjects) {
                self.inject(&WRITER, (collection, name), &authority);
            }
        }
    }
}

/// A webhook configuration as the managers make it.
fn configuration(name: &str, path: &str, is_validator: bool) -> Value {
    let rule = |groups: &str, version: &str, resource: &str, operations: &[&str], scope: &str| json!({ "apiGroups": [groups], "apiVersions": [version], "resources": [resource], "operations": operations, "scope": scope });
    let all = ["CREATE", "UPDATE", "DELETE"];
    let own = [
        "backups",
        "engineimages",
        "engines",
        "instancemanagers",
        "nodes",
        "recurringjobs",
        "replicas",
        "settings",
        "volumes",
    ];
    let mut rules: Vec<Value> =
        own.iter().map(|plural| rule("longhorn.io", "v1beta2", plural, &all, "Namespaced")).collect();
    if is_validator {
        rules.push(rule("", "v1", "nodes", &["UPDATE"], "Cluster"));
        rules.push(rule("", "v1", "persistentvolumeclaims", &["UPDATE"], "Namespaced"));
    }
    let kind = if is_validator { "validator.longhorn.io" } else { "mutator.longhorn.io" };
    let client = json!({ "service": { "namespace": NAMESPACE, "name": SERVICE, "path": path, "port": 9_502 } });
    let hook = json!({
        "name": kind, "clientConfig": client, "rules": rules, "failurePolicy": "Fail", "matchPolicy": "Exact", "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"], "timeoutSeconds": 10,
    });
    json!({ "metadata": { "name": name }, "webhooks": [hook] })
}

/// What the webhook says.
fn judge(asked: &Asked<'_>) -> Verdict {
    let object = &asked.request["object"];
    let is_setting = value::text(asked.request, "resource.resource") == "settings" && !object.is_null();
    if is_setting && asked.path.ends_with("validation") {
        let (name, text) = (value::name(object), value::text(object, "value"));
        let wants_number = name == "default-replica-count" || name.ends_with("-percentage");
        let number = text.parse::<u32>();
        if wants_number && !text.starts_with('{') && number.is_err() {
            return Verdict::Deny { code: 400, message: format!("value {text} of setting {name} is not a number") };
        }
        if name == "default-replica-count" && number.is_ok_and(|count| !(1..=20).contains(&count)) {
            return Verdict::Deny {
                code: 400,
                message: format!("value {text} of setting {name} should be between 1 and 20"),
            };
        }
    }
    Verdict::Allow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::tests::Bench;

    #[test]
    fn a_disk_is_where_the_kubelet_sees_it() {
        let machine =
            |volume| Machine { has_iscsi: true, system: 1, volume, mounts: vec!["/var/lib/longhorn".to_owned()] };
        let rooms = |volume: Option<Result<u64, String>>| {
            ["/var/mnt/longhorn/", "/var/mnt/longhornother", "/var/lib/longhorn/", "/data"]
                .map(|path| machine(volume.clone()).room(path).map_err(|why| why.split(':').next().unwrap().to_owned()))
        };
        let unseen = || Err("cannot create directory \"/data\"".to_owned());
        assert_eq!(rooms(None), [Ok(1), Ok(1), Ok(1), unseen()], "all on the disk of the system");
        assert_eq!(rooms(Some(Ok(9))), [Ok(9), Ok(1), Ok(1), unseen()]);
        let failed = || Err("volume u-longhorn".to_owned());
        assert_eq!(rooms(Some(Err("no disks".to_owned()))), [failed(), Ok(1), Ok(1), unseen()]);
    }

    #[test]
    fn a_manager_ends_again_and_again_where_iscsi_cannot_be_spoken() {
        let mut bench = Bench::new();
        let machine = Machine { has_iscsi: false, system: 1 << 30, volume: None, mounts: Vec::new() };
        bench.kube.tell_machine("n1", machine);
        bench.node("n1");
        bench.node("n22");
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE, "labels": labels } });
        bench.post("/api/v1/namespaces", &namespace);
        let labels = json!({ "app": MANAGER });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": MANAGER, "image": "example.com/manager:1" }] } });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": MANAGER },
            "spec": { "selector": { "matchLabels": labels }, "template": template },
        });
        assert_eq!(bench.post(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"), &set).0, 201);
        bench.pass(5.0);
        let (_, list) = bench.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        let managers = value::items(&list, "items").iter().filter(|pod| value::name(pod).starts_with(MANAGER));
        let states: BTreeMap<&str, &str> = managers
            .map(|pod| {
                let status = &value::items(pod, "status.containerStatuses")[0];
                (value::text(pod, "spec.nodeName"), value::text(status, "state.waiting.reason"))
            })
            .collect();
        assert_eq!(states, BTreeMap::from([("n1", "CrashLoopBackOff"), ("n22", "")]));
    }
}
