//! What a node is in Kubernetes: its labels, annotations and taints, as its configuration says after all patches.
//!
//! Talos writes them into the Node itself: on a control plane as an administrator, on a worker with the kubelet's own credential. That
//! one may not change taints, nor set every label; and since Talos sends all in one update, one that is refused takes all others with
//! it, for good. So a worker's configuration has none of these: its kubelet registers with the taints, which is allowed once, and
//! castle gives the rest as an administrator ([`super::adorn`]).

use std::collections::{BTreeMap, BTreeSet};

use castle_talos::model::config::Configuration;
use serde_json::{Map, Value, json};

/// A taint by its key and effect, of which a node has one at most.
pub(super) type TaintId = (String, String);

/// What a node is to be in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Their values.
    pub(super) taints: BTreeMap<TaintId, String>,
}

/// Where labels, annotations and taints stand: before Talos 1.14 in the one document, since then in one of their own.
fn places(document: &Value) -> Option<(&'static str, [&'static str; 3])> {
    match document["kind"].as_str() {
        None if document.get("machine").is_some() => {
            Some(("/machine", ["nodeLabels", "nodeAnnotations", "nodeTaints"]))
        }
        Some("KubeNodeConfig") => Some(("", ["labels", "annotations", "taints"])),
        _ => None,
    }
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// `EFFECT`, or `VALUE:EFFECT`.
fn taint(key: &str, text: &str) -> (TaintId, String) {
    let (value, effect) = text.split_once(':').unwrap_or(("", text));
    ((key.to_owned(), effect.to_owned()), value.to_owned())
}

impl Traits {
    pub(super) fn of(configuration: &Configuration) -> Self {
        let mut all = Self::default();
        for document in configuration.documents() {
            let Some((place, [labels, annotations, taints])) = places(document) else { continue };
            let at = |key: &str| texts(document.pointer(&format!("{place}/{key}")).unwrap_or(&Value::Null));
            all.labels.extend(at(labels));
            all.annotations.extend(at(annotations));
            all.taints.extend(at(taints).iter().map(|(key, text)| taint(key, text)));
        }
        all
    }

    /// The labels that a worker may not set itself.
    pub(super) fn reserved_labels(&self) -> BTreeSet<String> {
        self.labels.keys().filter(|key| !may_label_itself(key)).cloned().collect()
    }
}

/// Whether a node may set this label on itself, as NodeRestriction has it.
fn may_label_itself(key: &str) -> bool {
    const OWN: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
    ];
    let Some((domain, _)) = key.split_once('/') else { return true };
    let is_in = |zone: &str| domain == zone || domain.ends_with(&format!(".{zone}"));
    let is_reserved = is_in("kubernetes.io") || is_in("k8s.io");
    !is_reserved || OWN.contains(&key) || is_in("node.kubernetes.io") || is_in("kubelet.kubernetes.io")
}

/// The configuration of a worker, without what it may not say of itself; its kubelet registers with the taints.
pub(super) fn of_worker(configuration: &Configuration) -> Configuration {
    let traits = Traits::of(configuration);
    let reserved = traits.reserved_labels();
    let mut documents = configuration.documents().to_vec();
    for document in &mut documents {
        if let Some((place, [labels, _, taints])) = places(document) {
            strip(document, place, labels, &reserved);
            if let Some(holder) = document.pointer_mut(place).and_then(Value::as_object_mut) {
                holder.remove(taints);
            }
        }
    }
    if !traits.taints.is_empty() {
        register(&mut documents, &traits.taints);
    }
    documents.into()
}

/// All taints that a node has by its configuration: those that Talos gives it, and those that its kubelet registers with.
pub(super) fn taints_by(configuration: &Configuration) -> BTreeSet<TaintId> {
    const REGISTERED: [&str; 2] = ["/config/registerWithTaints", "/machine/kubelet/extraConfig/registerWithTaints"];
    let registered = |document: &Value| -> Vec<TaintId> {
        let told = REGISTERED.iter().filter_map(|place| document.pointer(place)?.as_array());
        told.flatten().map(id_of).collect()
    };
    let own = Traits::of(configuration).taints.into_keys();
    configuration.documents().iter().flat_map(registered).chain(own).collect()
}

/// Takes keys out of a mapping, and the mapping if nothing is left in it.
fn strip(document: &mut Value, place: &str, key: &str, gone: &BTreeSet<String>) {
    let Some(holder) = document.pointer_mut(place).and_then(Value::as_object_mut) else { return };
    let Some(all) = holder.get_mut(key).and_then(Value::as_object_mut) else { return };
    all.retain(|name, _| !gone.contains(name));
    if all.is_empty() {
        holder.remove(key);
    }
}

/// Has the kubelet register with these taints, and with those that it was told to already.
fn register(documents: &mut [Value], taints: &BTreeMap<TaintId, String>) {
    let has_own = documents.iter().any(|document| document["kind"] == "KubeletConfig");
    for document in documents {
        let settings = match document["kind"].as_str() {
            Some("KubeletConfig") => entry(Some(document), "config"),
            None if !has_own && document.get("machine").is_some() => {
                entry(entry(entry(Some(document), "machine"), "kubelet"), "extraConfig")
            }
            _ => continue,
        };
        let Some(Value::Object(settings)) = settings else { continue };
        let told = settings.entry("registerWithTaints").or_insert_with(|| json!([]));
        let Some(told) = told.as_array_mut() else { continue };
        told.retain(|one| !taints.contains_key(&id_of(one)));
        told.extend(taints.iter().map(|(id, value)| spelled(id, value)));
    }
}

/// A mapping within a mapping, made if it is not there.
fn entry<'v>(value: Option<&'v mut Value>, key: &str) -> Option<&'v mut Value> {
    let entry = value?.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    Some(entry)
}

/// A taint as Kubernetes spells it.
pub(super) fn spelled((key, effect): &TaintId, value: &str) -> Value {
    match value {
        "" => json!({"key": key, "effect": effect}),
        value => json!({"key": key, "value": value, "effect": effect}),
    }
}

/// Which taint it is that Kubernetes spells so.
pub(super) fn id_of(taint: &Value) -> TaintId {
    let text = |key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    (text("key"), text("effect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "version: v1alpha1
machine:
    type: worker
    nodeLabels:
        castle.dev/pool: main
        node-role.kubernetes.io/worker: ''
    nodeAnnotations:
        note: x
    nodeTaints:
        dedicated: storage:NoSchedule
        lonely: NoExecute
    kubelet:
        image: kubelet
        extraConfig:
            registerWithTaints:
                - {key: told, effect: NoSchedule}
                - {key: lonely, value: old, effect: NoExecute}
";
    const NEW: &str = "version: v1alpha1
machine:
    type: worker
---
apiVersion: v1alpha1
kind: KubeNodeConfig
labels: {node-role.kubernetes.io/worker: ''}
annotations: {note: x}
taints: {dedicated: 'storage:NoSchedule', lonely: NoExecute}
---
apiVersion: v1alpha1
kind: KubeletConfig
image: kubelet
";

    #[test]
    fn a_worker_says_nothing_of_itself_that_it_may_not() {
        for text in [OLD, NEW] {
            let configuration = Configuration::parse(text).unwrap();
            let traits = Traits::of(&configuration);
            assert_eq!(traits.annotations["note"], "x");
            assert_eq!(traits.reserved_labels(), ["node-role.kubernetes.io/worker".to_owned()].into());
            let id = |key: &str, effect: &str| (key.to_owned(), effect.to_owned());
            assert_eq!(traits.taints[&id("dedicated", "NoSchedule")], "storage");
            assert_eq!(traits.taints[&id("lonely", "NoExecute")], "");
            let settled = of_worker(&configuration);
            let left = Traits::of(&settled);
            assert!(left.taints.is_empty() && left.reserved_labels().is_empty(), "{left:?}");
            assert_eq!(left.annotations, traits.annotations);
            let place = if text == OLD { "/0/machine/kubelet/extraConfig" } else { "/2/config" };
            let documents = Value::Array(settled.documents().to_vec());
            let told = documents.pointer(&format!("{place}/registerWithTaints")).unwrap().as_array().unwrap();
            let mut wanted = vec![
                json!({"key": "dedicated", "value": "storage", "effect": "NoSchedule"}),
                json!({"key": "lonely", "effect": "NoExecute"}),
            ];
            if text == OLD {
                wanted.insert(0, json!({"key": "told", "effect": "NoSchedule"}));
            }
            assert_eq!(*told, wanted);
            assert_eq!(of_worker(&settled).documents(), settled.documents(), "once is enough");
        }
    }

    /// As a real API server has answered.
    #[test]
    fn nodes_may_set_on_themselves_what_node_restriction_lets_them() {
        for free in [
            "plain",
            "castle.dev/pool",
            "node.longhorn.io/x",
            "node.kubernetes.io/any",
            "kubelet.kubernetes.io/any",
            "x.node.kubernetes.io/any",
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        ] {
            assert!(may_label_itself(free), "{free}");
        }
        for reserved in [
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/x",
            "topology.kubernetes.io/rack",
            "kubernetes.io/x",
            "k8s.io/x",
            "some.k8s.io/x",
        ] {
            assert!(!may_label_itself(reserved), "{reserved}");
        }
    }
    /// Goal: what a node is said to be allowed is what the API server of the embedded datacenter allows. Method: every key that one of them names, and keys
    /// around it.
    #[test]
    fn the_api_server_agrees_on_what_nodes_may_set_on_themselves() {
        const DOMAINS: [&str; 10] = [
            "kubernetes.io",
            "beta.kubernetes.io",
            "k8s.io",
            "node.kubernetes.io",
            "kubelet.kubernetes.io",
            "topology.kubernetes.io",
            "failure-domain.kubernetes.io",
            "failure-domain.beta.kubernetes.io",
            "node-restriction.kubernetes.io",
            "example.com",
        ];
        const NAMES: [&str; 8] = ["hostname", "os", "arch", "zone", "region", "instance-type", "rack", "any"];
        let keys = |prefix: &str| {
            let of = |domain: &str| NAMES.map(|name| format!("{prefix}{domain}/{name}"));
            DOMAINS.iter().flat_map(|domain| of(domain)).collect::<Vec<_>>()
        };
        for key in [keys(""), keys("x."), keys("x"), NAMES.map(ToOwned::to_owned).to_vec()].concat() {
            assert_eq!(may_label_itself(&key), castle_datacenter::may_label_itself(&key), "{key}");
        }
    }
}
