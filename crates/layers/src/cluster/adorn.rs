//! That the nodes are in Kubernetes what the file and its patches say: labels, annotations and taints, looked at where they count.
//!
//! What is not so is given by castle as an administrator. What others have put on a node is left alone: a taint is one by key and effect, and
//! of those that castle gave itself and wants no more, a note on the node tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use castle_engine::{Change, Decision, Fault, Impact, Operation, Step};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object};
use castle_kubernetes::steps::Present;
use castle_seams::BoxFuture;
use castle_talos::model::bundle::Bundle;
use castle_talos::model::config::Configuration;
use castle_talos::steps::Keys;
use serde_json::{Map, Value, json};

use super::traits::{TaintId, Traits, id_of, spelled, taints_by};

/// What castle has given a node as an administrator: nobody else would take it away again.
const GIVEN: &str = "castle.dev/given";

/// A node, and what it is to be.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) is_worker: bool,
    pub(super) traits: Traits,
    /// All taints that it is to have by its configuration.
    pub(super) by_configuration: BTreeSet<TaintId>,
}

/// The taints that nodes were seen to have by their configurations, before they got others: a node has them from its birth, before anybody could write down
/// that castle gave them.
#[derive(Debug, Default)]
pub(super) struct Inborn(Mutex<BTreeMap<String, BTreeSet<TaintId>>>);

impl Inborn {
    /// Notes what a node has.
    pub(super) fn note(&self, name: &str, configuration: &Configuration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.to_owned()).or_default().extend(taints_by(configuration));
    }

    /// What a node has had, and is to have no more.
    fn unwanted(&self, wanted: &Wanted) -> BTreeSet<TaintId> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&wanted.name).map(|had| had - &wanted.by_configuration).unwrap_or_default()
    }
}

type Compose = Box<dyn Fn(&Bundle) -> Result<Vec<Wanted>, Fault> + Send + Sync>;

/// Gives all nodes the labels, annotations and taints that they are to have.
pub(super) struct Adorn {
    compose: Compose,
    inborn: Arc<Inborn>,
}

/// What is to be changed of a node.
#[derive(Debug)]
pub(super) struct Lacking {
    node: Object,
    /// What, how it is, how it is wanted.
    differences: Vec<(String, Option<String>, Option<String>)>,
    metadata: Map<String, Value>,
    spec: Value,
}

/// What castle has given a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    labels: BTreeSet<String>,
    taints: BTreeSet<TaintId>,
}

impl Given {
    fn read(text: &str) -> Self {
        let note: Value = serde_json::from_str(text).unwrap_or_default();
        let all = |key: &str| note[key].as_array().cloned().unwrap_or_default();
        Self {
            labels: all("labels").iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            taints: all("taints").iter().map(id_of).collect(),
        }
    }

    /// What a node is given. A control plane has its labels from Talos, which takes them away again; of its taints Talos does so by their keys alone, and takes
    /// one that castle gave before for its own.
    fn of(wanted: &Wanted) -> Self {
        let Wanted { is_worker, traits, .. } = wanted;
        let labels = if *is_worker { traits.reserved_labels() } else { BTreeSet::new() };
        Self { labels, taints: traits.taints.keys().cloned().collect() }
    }

    fn note(&self) -> Option<String> {
        let taints: Vec<Value> = self.taints.iter().map(|id| spelled(id, "")).collect();
        (*self != Self::default()).then(|| json!({"labels": self.labels, "taints": taints}).to_string())
    }
}

impl Adorn {
    pub(super) fn new(compose: Compose, inborn: Arc<Inborn>) -> Self {
        Self { compose, inborn }
    }

    async fn look(&self, api: &Api, keys: &Keys) -> Result<Vec<Lacking>, Fault> {
        let wanted = (self.compose)(&keys.bundle)?;
        let every = Key::new("", "Node", "", "");
        let nodes = api.list(&Kind::new("v1", "Node"), &Scope::default()).await;
        let nodes = nodes.map_err(|trouble| trouble.fault(&every))?.objects;
        // Whoever has not joined yet is told of by the gate before this, which waits for it; whoever only looks passes it by.
        let lacks = |wanted: &Wanted| {
            lacking(wanted, nodes.iter().find(|node| node.name() == wanted.name)?, self.inborn.unwanted(wanted))
        };
        Ok(wanted.iter().filter_map(lacks).collect())
    }
}

/// What a node lacks, if anything. Of its taints, `inborn` are from castle, too.
fn lacking(wanted: &Wanted, node: &Object, inborn: BTreeSet<TaintId>) -> Option<Lacking> {
    let (mut given, giving) = (Given::read(annotation(node, GIVEN).unwrap_or_default()), Given::of(wanted));
    given.taints.extend(inborn);
    let mut lacking =
        Lacking { node: node.clone(), differences: Vec::new(), metadata: Map::new(), spec: Value::Object(Map::new()) };
    for (key, value) in &wanted.traits.labels {
        lacking.hold("label", "labels", key, node.label(key), Some(value));
    }
    for key in given.labels.iter().filter(|key| !wanted.traits.labels.contains_key(*key)) {
        lacking.hold("label", "labels", key, node.label(key), None);
    }
    for (key, value) in &wanted.traits.annotations {
        lacking.hold("annotation", "annotations", key, annotation(node, key), Some(value));
    }
    lacking.hold("annotation", "annotations", GIVEN, annotation(node, GIVEN), giving.note().as_deref());
    lacking.hold_taints(wanted, node, &given);
    (!lacking.differences.is_empty()).then_some(lacking)
}

fn annotation<'n>(node: &'n Object, key: &str) -> Option<&'n str> {
    node.at("/metadata/annotations").get(key).and_then(Value::as_str)
}

impl Lacking {
    fn differs(&mut self, what: String, is: Option<&str>, wanted: Option<&str>) {
        self.differences.push((what, is.map(str::to_owned), wanted.map(str::to_owned)));
    }

    /// Holds one label or annotation.
    fn hold(&mut self, what: &str, place: &str, key: &str, is: Option<&str>, wanted: Option<&str>) {
        if is == wanted {
            return;
        }
        self.differs(format!("{what} {key}"), is, wanted);
        let place = self.metadata.entry(place).or_insert_with(|| json!({}));
        place[key] = wanted.map_or(Value::Null, |wanted| json!(wanted));
    }

    /// Holds the taints, which Kubernetes keeps as one list: what others have put there stays in it.
    fn hold_taints(&mut self, wanted: &Wanted, node: &Object, given: &Given) {
        let taints = &wanted.traits.taints;
        let there = node.list("/spec/taints");
        let is_gone = |id: &TaintId| given.taints.contains(id) && !taints.contains_key(id);
        let told = |(key, effect): &TaintId| format!("taint {key}:{effect}");
        let before = self.differences.len();
        for (id, value) in taints {
            let is =
                there.iter().find(|taint| id_of(taint) == *id).map(|taint| taint["value"].as_str().unwrap_or_default());
            if is != Some(value) {
                self.differs(told(id), is, Some(value));
            }
        }
        for id in there.iter().map(id_of).filter(|id| is_gone(id)) {
            self.differs(told(&id), Some("given by castle"), None);
        }
        if self.differences.len() > before {
            let kept =
                there.iter().filter(|taint| !is_gone(&id_of(taint)) && !taints.contains_key(&id_of(taint))).cloned();
            let own = taints.iter().map(|(id, value)| spelled(id, value));
            self.spec["taints"] = kept.chain(own).collect();
        }
    }
}

impl Step for Adorn {
    type Needs = (Arc<Api>, Arc<Keys>);
    type Observed = Vec<Lacking>;
    type Action = ();
    type Output = Present;

    fn observe<'a>(&'a self, (api, keys): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Lacking>, Fault>> {
        Box::pin(self.look(api, keys))
    }

    fn decide(&self, _: &Self::Needs, lacking: &Vec<Lacking>) -> Decision {
        if lacking.is_empty() {
            return Decision::Nothing;
        }
        let mut change = Change::new("adorn", Impact::InPlace);
        for Lacking { node, differences, .. } in lacking {
            for (what, is, wanted) in differences {
                change = change.differing(&format!("{} {what}", node.name()), is.clone(), wanted.clone());
            }
        }
        Decision::Act((), change)
    }

    fn act<'a>(
        &'a self,
        (api, _): &'a Self::Needs,
        lacking: &'a Vec<Lacking>,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for Lacking { node, metadata, spec, .. } in lacking {
                // One that was changed since is looked at again.
                api.amend(node, metadata.clone(), spec).await.map_err(|trouble| trouble.fault(&node.key()))?;
            }
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Vec<Lacking>) -> Option<Present> {
        Some(Present)
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Lacking>) -> Present {
        Present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The annotation as castles that stand have it. It has no version: one would make every node of every castle differ from what is
    /// wanted. A key that is not known is passed over, so a later castle can add some.
    const RECORDED: &str =
        r#"{"labels":["node-role.kubernetes.io/worker"],"taints":[{"key":"gpu","effect":"NoSchedule"}]}"#;

    #[test]
    fn the_recorded_note_is_written_and_read() {
        let given = Given::read(RECORDED);
        assert_eq!(given.labels, ["node-role.kubernetes.io/worker".to_owned()].into());
        assert_eq!(given.taints.iter().map(|id| spelled(id, "")["key"].clone()).collect::<Vec<_>>(), ["gpu"]);
        assert_eq!(given.note().as_deref(), Some(RECORDED));
        let later = RECORDED.replacen('{', r#"{"format":2,"#, 1);
        assert_eq!(Given::read(&later), given);
        assert_eq!((Given::read(""), Given::default().note()), (Given::default(), None));
    }
}
