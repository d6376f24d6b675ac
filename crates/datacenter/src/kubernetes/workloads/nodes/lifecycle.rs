//! What follows from how nodes are: taints by their conditions, and the end of pods on those that are not there any more.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kubernetes::crd::condition;
use crate::kubernetes::delete::Options;
use crate::kubernetes::kube::{CONTROLLER, CONTROLLER_STATUS, Due, Kube, unstamp};
use crate::kubernetes::value;
use crate::kubernetes::workloads::AGAIN;
use crate::kubernetes::workloads::pods::{Moment, Step};
use crate::kubernetes::workloads::schedule::tolerates;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// From how many of all nodes on nobody is sure any more who it is that is not there.
const UNHEALTHY_SHARE: f64 = 0.55;

impl Kube {
    /// A node was silent for too long: nothing is known of it any more.
    pub(super) fn miss(&mut self, name: &str) {
        let now = self.stamp();
        self.amend(&CONTROLLER_STATUS, ("nodes", "", name), |node| {
            let kinds: Vec<(String, String)> = (value::items(node, "status.conditions").iter())
                .map(|it| (value::text(it, "type").to_owned(), value::text(it, "lastHeartbeatTime").to_owned()))
                .collect();
            for (kind, heard) in kinds {
                condition(node, &now, &kind, "Unknown", ("NodeStatusUnknown", "Kubelet stopped posting node status."));
                let list = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
                for item in list.into_iter().flatten().filter(|it| value::text(it, "type") == kind) {
                    value::set(item, "lastHeartbeatTime", heard.as_str());
                }
            }
        });
    }

    /// Looks after a node: whoever changed it may have closed it, or ended what it shows.
    pub(in crate::kubernetes::workloads) fn sync_node(&mut self, node: &Value) {
        self.taint_by_conditions(value::name(node));
        let told = self.workloads.agents.get(value::name(node)).map(|agent| agent.told.clone());
        if let Some(told) = told {
            self.mirror(&told);
        }
    }

    /// Gives a node the taints that its conditions ask for, and takes those away that they do not.
    pub(super) fn taint_by_conditions(&mut self, name: &str) {
        let Some(node) = self.get("nodes", "", name) else { return };
        let mut wanted: Vec<(&str, &str)> = Vec::new();
        let key = match readiness(&node) {
            "False" => Some(NOT_READY),
            "Unknown" => Some(UNREACHABLE),
            _ => None,
        };
        if let Some(key) = key {
            wanted.push((key, "NoSchedule"));
            if self.evicts() {
                wanted.push((key, "NoExecute"));
            }
        }
        if value::is_true(&node, "spec.unschedulable") {
            wanted.push((UNSCHEDULABLE, "NoSchedule"));
        }
        // A node that never had a condition has the taint that it began with.
        let is_own = |taint: &Value| {
            let key = value::text(taint, "key");
            key == UNSCHEDULABLE || [NOT_READY, UNREACHABLE].contains(&key) && !readiness(&node).is_empty()
        };
        let has = |taint: &Value| (value::text(taint, "key").to_owned(), value::text(taint, "effect").to_owned());
        let known = value::items(&node, "spec.taints");
        let mut kept: Vec<Value> = known
            .iter()
            .filter(|taint| {
                let (key, effect) = has(taint);
                !is_own(taint) || wanted.contains(&(key.as_str(), effect.as_str()))
            })
            .cloned()
            .collect();
        let now = self.stamp();
        for (key, effect) in wanted {
            if !kept.iter().any(|taint| has(taint) == (key.to_owned(), effect.to_owned())) {
                kept.push(json!({ "key": key, "effect": effect, "timeAdded": now }));
            }
        }
        if kept == known {
            return;
        }
        self.amend(&CONTROLLER, ("nodes", "", name), |node| match kept.is_empty() {
            true => drop(value::remove(node, "spec.taints")),
            false => value::set(node, "spec.taints", kept),
        });
    }

    /// Whether pods are taken off nodes that are not ready: not where that is so of all of them, or of most. Who says so is then
    /// more likely to be wrong than they are.
    fn evicts(&self) -> bool {
        let all: Vec<&Arc<Value>> = self.store.all("nodes", "").collect();
        let lost = all.iter().filter(|node| readiness(node) != "True").count();
        let is_partial = lost > 2 && lost as f64 / all.len() as f64 >= UNHEALTHY_SHARE;
        lost < all.len() && !is_partial
    }

    /// Plans the end of a pod whose node has a taint that it does not bear for ever, or forgets about it.
    pub(in crate::kubernetes::workloads) fn heed_taints(&mut self, pod: &Value, node: &Value) {
        let uid = value::uid(pod).to_owned();
        let Some(left) = bears(pod, node) else {
            self.workloads.evictions.remove(&uid);
            return;
        };
        let since = value::items(node, "spec.taints").iter().filter(|it| value::text(it, "effect") == "NoExecute");
        let since = since.filter_map(|taint| unstamp(value::text(taint, "timeAdded"))).min();
        let since = since.map_or(self.now, |at| at.saturating_sub(self.calendar));
        let at = (since + left).max(self.now);
        if self.workloads.evictions.insert(uid, at) != Some(at) {
            self.plan(at.saturating_sub(self.now), Due::Pod(Moment::of(pod, Step::Evicted)));
        }
    }

    /// The time that a pod bore a taint of its node is over.
    pub(in crate::kubernetes::workloads) fn pod_evicted(&mut self, pod: &Arc<Value>) {
        let is_due = self.workloads.evictions.get(value::uid(pod)).is_some_and(|at| *at <= self.now);
        if !is_due {
            return;
        }
        self.workloads.evictions.remove(value::uid(pod));
        let (namespace, name) = (value::namespace(pod), value::name(pod));
        let message = format!("Marking for deletion Pod {namespace}/{name}");
        self.tell("taint-eviction-controller", pod, true, "TaintManagerEviction", &message);
        let now = self.stamp();
        self.amend(&CONTROLLER_STATUS, ("pods", namespace, name), |object| {
            let why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
            condition(object, &now, "DisruptionTarget", "True", why);
        });
        let Some(pod) = self.get("pods", namespace, name) else { return };
        if self.dismiss_as("taint-eviction-controller", &pod, "pods", &Options::default()).is_err() {
            self.workloads.evictions.insert(value::uid(&pod).to_owned(), self.now + AGAIN);
            self.plan(AGAIN, Due::Pod(Moment::of(&pod, Step::Evicted)));
        }
    }
}

/// What a node's condition of being ready says; empty if it says nothing.
fn readiness(node: &Value) -> &str {
    let conditions = value::items(node, "status.conditions").iter();
    let ready = conditions.filter(|it| value::text(it, "type") == "Ready");
    ready.map(|it| value::text(it, "status")).next().unwrap_or_default()
}

/// How long a pod bears the taints of its node that end pods; nothing if for ever.
fn bears(pod: &Value, node: &Value) -> Option<Duration> {
    let taints = value::items(node, "spec.taints").iter().filter(|it| value::text(it, "effect") == "NoExecute");
    taints
        .filter_map(|taint| {
            let mut own = value::items(pod, "spec.tolerations").iter().filter(|own| tolerates(own, taint));
            match own.next() {
                None => Some(Duration::ZERO),
                Some(own) => value::number(own, "tolerationSeconds")
                    .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            }
        })
        .min()
}
