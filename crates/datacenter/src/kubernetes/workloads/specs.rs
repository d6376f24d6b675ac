//! What Talos writes into the node of its machine: the labels, annotations and taints of the configuration, in one update, and
//! which of them are its own.
//!
//! A control plane does it as an administrator. A worker does it as the agent of its node, to whom the API refuses taints and
//! some labels; what else was in such an update is lost with it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::nodes::taint;
use crate::kubernetes::kube::{Kube, Writer};
use crate::kubernetes::{restriction, value};

/// What a configuration says of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSpecs {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// By key: the effect, with the value before a colon where there is one.
    pub(crate) taints: BTreeMap<String, String>,
    /// Whether they are written as an administrator, and not as the node itself.
    pub(crate) is_administrator: bool,
}

const TALOS: Writer<'_> = Writer { name: "machined", subresource: "" };

impl Kube {
    /// The taints that a node is registered with: nobody refuses them, and nobody looks at them again.
    pub(crate) fn register_taints(&mut self, name: &str, taints: &BTreeMap<String, String>) {
        let registrar = Writer { name: "kubelet", subresource: "" };
        self.amend(&registrar, ("nodes", "", name), |node| {
            let others = value::items(node, "spec.taints").iter();
            let others = others.filter(|it| !taints.contains_key(value::text(it, "key"))).cloned();
            let own = taints.iter().map(|(key, effect)| taint(key, effect));
            let all: Vec<Value> = own.chain(others.collect::<Vec<_>>()).collect();
            if !all.is_empty() {
                value::set(node, "spec.taints", all);
            }
        });
    }

    /// Writes what a configuration says into its node; or why the API refuses it, and then nothing is written.
    pub(crate) fn apply_node(&mut self, name: &str, specs: &NodeSpecs) -> Result<(), String> {
        let Some(old) = self.get("nodes", "", name) else { return Ok(()) };
        let mut new = Value::clone(&old);
        apply(&mut new, "metadata.labels", "talos.dev/owned-labels", &specs.labels);
        apply(&mut new, "metadata.annotations", "talos.dev/owned-annotations", &specs.annotations);
        apply_taints(&mut new, &specs.taints);
        if !specs.is_administrator
            && let Some(why) = restriction::objection(name, &old, &new)
        {
            return Err(format!("nodes {name:?} is forbidden: {why}"));
        }
        self.amend(&TALOS, ("nodes", "", name), |node| *node = new);
        Ok(())
    }
}

/// The keys that an annotation names as Talos' own.
fn owned(node: &Value, annotation: &str) -> BTreeSet<String> {
    let text = node.pointer("/metadata/annotations").and_then(|all| all.get(annotation)).and_then(Value::as_str);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn own(node: &mut Value, annotation: &str, keys: &BTreeSet<String>) {
    if keys.is_empty() {
        if let Some(all) = node.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            all.remove(annotation);
        }
    } else {
        value::place(node, "metadata.annotations")[annotation] = json!(json!(keys).to_string());
    }
}

/// Sets what is wanted where nobody else has set something else, and removes what was its own and is wanted no more.
fn apply(node: &mut Value, path: &str, annotation: &str, wanted: &BTreeMap<String, String>) {
    let mut keys = owned(node, annotation);
    let has_some = value::at(node, path).is_some();
    if !has_some && wanted.is_empty() {
        return;
    }
    let place = value::place(node, path);
    for (key, text) in wanted {
        let is_other = place.get(key).is_some_and(|known| known != text) && !keys.contains(key);
        if !is_other {
            place[key.as_str()] = json!(text);
            keys.insert(key.clone());
        }
    }
    let gone: Vec<String> = keys.iter().filter(|key| !wanted.contains_key(*key)).cloned().collect();
    for key in gone {
        if let Some(all) = place.as_object_mut() {
            all.remove(&key);
        }
        keys.remove(&key);
    }
    own(node, annotation, &keys);
}

/// The same for taints, which are told apart by their keys alone: of several that have one, the last is meant. What is wanted no more goes, and with the first
/// of it the key is no longer its own.
fn apply_taints(node: &mut Value, wanted: &BTreeMap<String, String>) {
    const OWNED: &str = "talos.dev/owned-taints";
    let mut keys = owned(node, OWNED);
    let mut all: Vec<Value> = value::items(node, "spec.taints").to_vec();
    for (key, effect) in wanted {
        let new = taint(key, effect);
        match all.iter_mut().rfind(|known| value::text(known, "key") == key) {
            None => {
                all.push(new);
                keys.insert(key.clone());
            }
            Some(known) if keys.contains(key) => *known = new,
            Some(known) if *known == new => drop(keys.insert(key.clone())),
            Some(_) => {}
        }
    }
    all.retain(|known| {
        let key = value::text(known, "key");
        wanted.contains_key(key) || !keys.remove(key)
    });
    match all.is_empty() {
        true => drop(value::remove(node, "spec.taints")),
        false => value::set(node, "spec.taints", all),
    }
    own(node, OWNED, &keys);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::tests::Bench;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    fn specs(labels: &[(&str, &str)], taints: &[(&str, &str)], is_administrator: bool) -> NodeSpecs {
        NodeSpecs { labels: map(labels), annotations: BTreeMap::new(), taints: map(taints), is_administrator }
    }

    #[test]
    fn labels_come_and_go_and_those_of_others_stay() {
        let mut bench = Bench::new();
        bench.node("one");
        let label = |bench: &Bench, key: &str| {
            let node = bench.kube.get("nodes", "", "one").unwrap();
            node["metadata"]["labels"].get(key).and_then(Value::as_str).map(str::to_owned)
        };
        bench.merge("/api/v1/nodes/one", &json!({ "metadata": { "labels": { "castle.dev/foreign": "1" } } }));
        bench.kube.apply_node("one", &specs(&[("castle.dev/foreign", "2"), ("a", "b")], &[], false)).unwrap();
        assert_eq!(label(&bench, "castle.dev/foreign").as_deref(), Some("1"), "somebody else's");
        assert_eq!(label(&bench, "a").as_deref(), Some("b"));
        bench.kube.apply_node("one", &specs(&[("a", "c")], &[], false)).unwrap();
        assert_eq!(label(&bench, "a").as_deref(), Some("c"));
        let node = bench.kube.get("nodes", "", "one").unwrap();
        assert_eq!(node["metadata"]["annotations"]["talos.dev/owned-labels"], "[\"a\"]");
        bench.kube.apply_node("one", &specs(&[], &[], false)).unwrap();
        assert_eq!(label(&bench, "a"), None);
        assert_eq!(label(&bench, "kubernetes.io/hostname").as_deref(), Some("one"));
    }

    /// As ApplyTaints of Talos 1.13 does it.
    #[test]
    fn of_taints_with_one_key_the_last_is_meant() {
        let mut bench = Bench::new();
        bench.node("one");
        let taints = |bench: &Bench| -> Vec<String> {
            let node = bench.kube.get("nodes", "", "one").unwrap();
            value::items(&node, "spec.taints").iter().map(|it| value::text(it, "effect").to_owned()).collect()
        };
        let add = |bench: &mut Bench, effect: &str| {
            let node = bench.kube.get("nodes", "", "one").unwrap();
            let mut all = value::items(&node, "spec.taints").to_vec();
            all.push(json!({"key": "a", "effect": effect}));
            bench.merge("/api/v1/nodes/one", &json!({"spec": {"taints": all}}));
        };
        bench.kube.apply_node("one", &specs(&[], &[("a", "NoSchedule")], true)).unwrap();
        add(&mut bench, "NoExecute");
        bench.kube.apply_node("one", &specs(&[], &[("a", "NoExecute")], true)).unwrap();
        assert_eq!(taints(&bench), ["NoSchedule", "NoExecute"], "the first is nobody's concern");
        bench.kube.apply_node("one", &specs(&[], &[], true)).unwrap();
        assert_eq!(taints(&bench), ["NoExecute"], "once one of them is gone the other is nobody's");
    }

    #[test]
    fn a_worker_cannot_taint_itself_and_loses_what_else_it_wanted() {
        let mut bench = Bench::new();
        bench.node("one");
        let both = specs(&[("a", "b")], &[("castle.dev/only", "mine:NoSchedule")], false);
        let refused = bench.kube.apply_node("one", &both).unwrap_err();
        assert_eq!(refused, "nodes \"one\" is forbidden: node \"one\" is not allowed to modify taints");
        assert_eq!(bench.kube.get("nodes", "", "one").unwrap()["metadata"]["labels"].get("a"), None);
        let role = specs(&[("a", "b"), ("node-role.kubernetes.io/worker", "")], &[], false);
        let refused = bench.kube.apply_node("one", &role).unwrap_err();
        let text = "nodes \"one\" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/worker";
        assert_eq!(refused, text);
        // With the same taint there already, it takes it over, and cannot get rid of it.
        bench.kube.register_taints("one", &both.taints);
        bench.kube.apply_node("one", &both).unwrap();
        bench.kube.apply_node("one", &specs(&[], &[], false)).unwrap_err();
        bench.kube.apply_node("one", &specs(&[], &[], true)).unwrap();
        let node = bench.kube.get("nodes", "", "one").unwrap();
        assert_eq!((node["spec"].get("taints"), node["metadata"]["labels"].get("a")), (None, None));
    }
}
