//! What keeps the Pod that runs a node's instances where it is: a budget, given up when the node takes no Pods any more and Longhorn's
//! policy for that finds nothing that would be missed.

use serde_json::{Value, json};

use super::driver::{OWN_VOLUMES, REPLICAS};
use super::{NAMESPACE, WRITER};
use crate::kubernetes::crd::is;
use crate::kubernetes::kube::Kube;
use crate::kubernetes::value;

const BUDGETS: &str = "poddisruptionbudgets.policy";

fn is_closed(node: &Value) -> bool {
    value::at(node, "spec.unschedulable") == Some(&Value::Bool(true))
}

impl Kube {
    /// Keeps the budget of this name, which is that of a node's instance manager with these labels.
    pub(super) fn keep_budget(&mut self, name: &str, node: &str, labels: &Value) {
        if self.get("nodes", "", node).is_none_or(|it| is_closed(&it)) {
            if self.may_be_drained(node) {
                self.dismiss_budget(name);
            }
        } else if self.get(BUDGETS, NAMESPACE, name).is_none() {
            let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": labels } });
            let metadata = json!({ "name": name, "namespace": NAMESPACE });
            self.make(&WRITER, BUDGETS, json!({ "metadata": metadata, "spec": spec }));
        }
    }

    pub(super) fn dismiss_budget(&mut self, name: &str) {
        if let Some(budget) = self.get(BUDGETS, NAMESPACE, name) {
            self.dismiss(BUDGETS, &budget);
        }
    }

    /// Whether nothing on a node would be missed, by the policy that is set.
    fn may_be_drained(&self, node: &str) -> bool {
        let is_on = |it: &Value, field: &str| value::text(it, field) == node;
        let is_attached = |volume: &Value| value::text(volume, "status.state") == "attached";
        let mut volumes = self.store.all(OWN_VOLUMES, NAMESPACE);
        if volumes.any(|volume| is_attached(volume) && is_on(volume, "status.currentNodeID")) {
            return false;
        }
        let policy = self.setting("node-drain-policy");
        let mut here = self.store.all(REPLICAS, NAMESPACE).filter(|replica| is_on(replica, "spec.nodeID"));
        let is_stopped = |replica: &Value| {
            let volume = self.get(OWN_VOLUMES, NAMESPACE, value::text(replica, "spec.volumeName"));
            !volume.is_some_and(|volume| is_attached(&volume))
        };
        match policy.as_str() {
            "always-allow" => true,
            "block-for-eviction" => here.next().is_none(),
            "allow-if-replica-is-stopped" => here.all(|it| is_stopped(it) || self.is_kept_elsewhere(it)),
            _ => here.all(|replica| self.is_kept_elsewhere(replica)),
        }
    }

    /// Whether the data of a replica are on another node as well, which takes Pods (as its own does not) and whose own budget is there; or
    /// there are none.
    fn is_kept_elsewhere(&self, replica: &Value) -> bool {
        let is_used = |it: &Value| !value::text(it, "spec.healthyAt").is_empty();
        let has_failed = |it: &Value| !value::text(it, "spec.failedAt").is_empty();
        if !is_used(replica) && !has_failed(replica) {
            return true;
        }
        let volume = value::text(replica, "spec.volumeName");
        self.store.all(REPLICAS, NAMESPACE).any(|other| {
            let place = value::text(other, "spec.nodeID");
            let is_sound = value::text(other, "spec.volumeName") == volume && is_used(other) && !has_failed(other);
            let budget = || self.get(BUDGETS, NAMESPACE, &super::objects::instance_manager(place));
            let stands = || self.get("nodes", "", place).is_some_and(|it| is(&it, "Ready") && !is_closed(&it));
            is_sound && stands() && budget().is_some()
        })
    }
}
