//! How nodes say that they live: a lease that is renewed every ten seconds, and their status every five minutes.
//!
//! Nothing happens for it by itself: whoever looks finds what would have been written until then. Several renewals between two
//! looks are one change, and no controller is bothered by it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{AGENT, Told};
use crate::kubernetes::kube::{Due, KUBELET, Kube, fine_stamp, stamp, unstamp};
use crate::kubernetes::value;

/// The collection of leases.
pub(crate) const LEASES: &str = "leases.coordination.k8s.io";
const NAMESPACE: &str = "kube-node-lease";

/// How long a lease holds.
const HOLDS: Duration = Duration::from_secs(40);
/// How often it is renewed.
const RENEWED: Duration = Duration::from_secs(10);
/// How often a node posts a status that is the same as before.
const POSTED: Duration = Duration::from_secs(300);

/// What is known of the agent of a node.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    /// What its machine told last.
    pub(super) told: Told,
    /// When it first renewed its lease in this life.
    since: Duration,
}

impl Kube {
    /// Whether nobody runs pods on a node now. Nodes that never had an agent are taken for those that have one.
    pub(crate) fn is_down(&self, node: &str) -> bool {
        self.workloads.agents.get(node).is_some_and(|agent| !agent.told.is_up)
    }

    /// Notes whether a node's agent runs.
    pub(super) fn tell_agent(&mut self, told: &Told) {
        let known = self.workloads.agents.get(&told.name);
        let (was_up, since) = (known.map(|known| known.told.is_up), known.map(|known| known.since));
        if was_up == Some(true) && !told.is_up {
            // What it said before it fell silent.
            self.renew_lease(&told.name);
            self.post_again(&told.name);
        }
        let since = since.filter(|_| was_up == Some(true) || !told.is_up).unwrap_or(self.now);
        self.workloads.agents.insert(told.name.clone(), Agent { told: told.clone(), since });
        if told.is_up && (was_up != Some(true) || self.store.get(LEASES, NAMESPACE, &told.name).is_none()) {
            self.renew_lease(&told.name);
        }
        if told.is_up && was_up == Some(false) {
            self.node_is_back(&told.name);
        }
    }

    /// What waited for a node's agent goes on.
    fn node_is_back(&mut self, node: &str) {
        for moment in self.workloads.held.remove(node).unwrap_or_default() {
            self.plan(Duration::ZERO, Due::Pod(moment));
        }
        for key in self.keys("pods", "") {
            self.note(key);
        }
    }

    /// A node is gone: whoever registers it again is another.
    pub(in crate::kubernetes::workloads) fn forget_agent(&mut self, node: &str) {
        self.workloads.agents.remove(node);
        self.workloads.held.remove(node);
    }

    /// Writes what agents said until now about their leases, or their nodes: whoever looks at one of these collections finds it.
    pub(crate) fn catch_up(&mut self, collection: &str) {
        if ![LEASES, "nodes"].contains(&collection) {
            return;
        }
        let up = self.workloads.agents.iter().filter(|(_, agent)| agent.told.is_up);
        let names: Vec<String> = up.map(|(name, _)| name.clone()).collect();
        for name in names {
            if collection == LEASES { self.renew_lease(&name) } else { self.post_again(&name) }
        }
    }

    fn renew_lease(&mut self, name: &str) {
        let Some(since) = self.workloads.agents.get(name).map(|agent| agent.since) else { return };
        let Some(node) = self.get("nodes", "", name) else { return };
        let passed = self.now.saturating_sub(since);
        let last = since + RENEWED * u32::try_from(passed.as_secs() / RENEWED.as_secs()).unwrap_or(0);
        let at = fine_stamp(self.calendar + last);
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": value::uid(&node) }]);
        if self.store.get(LEASES, NAMESPACE, name).is_none() {
            let metadata = json!({ "name": name, "namespace": NAMESPACE, "ownerReferences": owner });
            let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": HOLDS.as_secs(), "renewTime": at });
            self.make(&AGENT, LEASES, json!({ "metadata": metadata, "spec": spec }));
            return;
        }
        self.quietly(|kube| {
            kube.amend(&AGENT, (LEASES, NAMESPACE, name), |lease| {
                value::set(lease, "metadata.ownerReferences", owner);
                value::set(lease, "spec.renewTime", at);
            });
        });
    }

    fn post_again(&mut self, name: &str) {
        let Some(node) = self.get("nodes", "", name) else { return };
        let Some(last) = last(&node).and_then(|last| unstamp(&last)) else { return };
        let passed = (self.calendar + self.now).saturating_sub(last);
        let times = u32::try_from(passed.as_secs() / POSTED.as_secs()).unwrap_or(0);
        if times == 0 {
            return;
        }
        let at = stamp(last + POSTED * times);
        self.quietly(|kube| kube.amend(&KUBELET, ("nodes", "", name), |node| set(node, &at)));
    }

    /// Writes what no controller looks at.
    fn quietly(&mut self, act: impl FnOnce(&mut Self)) {
        self.is_quiet = true;
        act(self);
        self.is_quiet = false;
    }
}

/// How often somebody who watches a collection finds something that nobody else tells.
pub(crate) fn rhythm(collection: &str) -> Option<Duration> {
    match collection {
        LEASES => Some(RENEWED),
        "nodes" => Some(POSTED),
        _ => None,
    }
}

/// When a node last posted its status.
pub(super) fn last(node: &Value) -> Option<String> {
    let conditions = value::items(node, "status.conditions").iter();
    conditions.map(|it| value::text(it, "lastHeartbeatTime").to_owned()).filter(|text| !text.is_empty()).max()
}

/// A node posts its status at that time.
pub(super) fn set(node: &mut Value, at: &str) {
    for item in node.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        value::set(item, "lastHeartbeatTime", at);
    }
}
