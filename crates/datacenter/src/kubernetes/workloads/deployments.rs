//! Deployments: one set of replicas for each template, and the way from one to the next.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{share, template_hash};
use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{CONTROLLER, CONTROLLER_STATUS, Due, Kube, unstamp};
use crate::kubernetes::value;

const SETS: &str = "replicasets.apps";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

impl Kube {
    pub(super) fn sync_deployment(&mut self, deployment: &Arc<Value>) {
        if value::is_deleting(deployment) {
            return;
        }
        let template = deployment["spec"]["template"].clone();
        let name = format!("{}-{}", value::name(deployment), template_hash(&template));
        let sets = self.controlled(deployment, SETS);
        if !sets.iter().any(|set| value::name(set) == name) && !value::is_true(deployment, "spec.paused") {
            self.make_set(deployment, &name, &template, &sets);
        }
        self.roll(deployment, &name);
        self.deployment_status(deployment, &name);
    }

    fn make_set(&mut self, deployment: &Value, name: &str, template: &Value, sets: &[Arc<Value>]) {
        let hash = name.rsplit('-').next().unwrap_or_default().to_owned();
        let mut template = template.clone();
        value::place(&mut template, "metadata.labels")[HASH] = json!(hash);
        let mut selector = deployment["spec"]["selector"].clone();
        value::place(&mut selector, "matchLabels")[HASH] = json!(hash);
        let revision = sets.iter().filter_map(|set| revision(set)).max().unwrap_or(0) + 1;
        let mut annotations = json!({});
        annotations[REVISION] = json!(revision.to_string());
        let metadata = json!({
            "name": name, "namespace": value::namespace(deployment), "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": value::controlled_by(deployment),
        });
        let spec = json!({ "replicas": 0, "selector": selector, "template": template });
        if self.make(&CONTROLLER, SETS, json!({ "metadata": metadata, "spec": spec })).is_some() {
            let place = ("deployments.apps", value::namespace(deployment), value::name(deployment));
            self.amend(&CONTROLLER, place, |object| {
                value::place(object, "metadata.annotations")[REVISION] = json!(revision.to_string());
            });
            // Somebody looks again once there was time enough to get on.
            if let Some(deadline) = value::number(deployment, "spec.progressDeadlineSeconds") {
                let wait = self.scaled(deadline as f64 + 1.0);
                let key = (Arc::from("deployments.apps"), place.1.to_owned(), place.2.to_owned());
                self.plan(wait, Due::Look(key));
            }
        }
    }

    /// Moves replicas from the old sets to the new one, as far as the strategy lets it.
    fn roll(&mut self, deployment: &Value, name: &str) {
        let wanted = value::number(deployment, "spec.replicas").unwrap_or(1);
        let sets = self.controlled(deployment, SETS);
        let count = |set: &Value| value::number(set, "spec.replicas").unwrap_or(0);
        let Some(new) = sets.iter().find(|set| value::name(set) == name) else { return };
        let old: Vec<&Arc<Value>> = sets.iter().filter(|set| value::name(set) != name).collect();
        let old_total: i64 = old.iter().map(|set| count(set)).sum();
        if value::text(deployment, "spec.strategy.type") == "Recreate" {
            let left: i64 = old.iter().map(|set| value::number(set, "status.replicas").unwrap_or(0)).sum();
            for set in old.iter().filter(|set| count(set) > 0) {
                self.scale_set(deployment, set, 0);
            }
            if old_total == 0 && left == 0 {
                self.scale_set(deployment, new, wanted);
            }
            return;
        }
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let surge = share(rolling.get("maxSurge"), wanted, true);
        let mut missing = share(rolling.get("maxUnavailable"), wanted, false);
        if surge == 0 && missing == 0 {
            missing = 1;
        }
        let room = (wanted + surge - old_total).clamp(0, wanted);
        let target = if old_total == 0 { wanted } else { room.max(count(new).min(wanted)) };
        self.scale_set(deployment, new, target);
        let available: i64 = sets.iter().map(|set| value::number(set, "status.availableReplicas").unwrap_or(0)).sum();
        let mut spare = (available - (wanted - missing)).max(0);
        for set in old.iter().filter(|set| count(set) > 0) {
            let unavailable = count(set) - value::number(set, "status.availableReplicas").unwrap_or(0).min(count(set));
            let gone = (spare + unavailable).min(count(set));
            spare -= (gone - unavailable).max(0);
            self.scale_set(deployment, set, count(set) - gone);
        }
    }

    fn scale_set(&mut self, deployment: &Value, set: &Value, target: i64) {
        let before = value::number(set, "spec.replicas").unwrap_or(0);
        if before == target {
            return;
        }
        self.amend(&CONTROLLER, (SETS, value::namespace(set), value::name(set)), |object| {
            value::set(object, "spec.replicas", target);
        });
        let (verb, direction) = if target > before { ("Scaled up", "from") } else { ("Scaled down", "from") };
        let message = format!("{verb} replica set {} {direction} {before} to {target}", value::name(set));
        self.tell("deployment-controller", deployment, true, "ScalingReplicaSet", &message);
    }

    fn deployment_status(&mut self, deployment: &Value, name: &str) {
        let (namespace, own) = (value::namespace(deployment), value::name(deployment));
        let Some(deployment) = self.get("deployments.apps", namespace, own) else { return };
        let sets = self.controlled(&deployment, SETS);
        let sum = |path: &str| -> i64 { sets.iter().filter_map(|set| value::number(set, path)).sum() };
        let (total, ready, available) =
            (sum("status.replicas"), sum("status.readyReplicas"), sum("status.availableReplicas"));
        let new = sets.iter().find(|set| value::name(set) == name);
        let updated = new.and_then(|set| value::number(set, "status.replicas")).unwrap_or(0);
        let wanted = value::number(&deployment, "spec.replicas").unwrap_or(1);
        let missing = share(deployment.pointer("/spec/strategy/rollingUpdate/maxUnavailable"), wanted, false);
        let is_available = available >= wanted - missing;
        let is_done = updated == wanted && total == wanted && available == wanted;
        let failure = sets.iter().find_map(|set| {
            value::items(set, "status.conditions")
                .iter()
                .find(|it| value::text(it, "type") == "ReplicaFailure")
                .cloned()
        });
        let begun = new.and_then(|set| unstamp(value::text(set, "metadata.creationTimestamp"))).unwrap_or_default();
        let deadline = value::number(&deployment, "spec.progressDeadlineSeconds").unwrap_or(i64::MAX);
        let is_late = !is_done && (self.calendar + self.now).saturating_sub(begun).as_secs() > deadline.unsigned_abs();
        let now = self.stamp();
        let known =
            value::items(&deployment, "status.conditions").iter().find(|it| value::text(it, "type") == "Progressing");
        let was_done = known.is_some_and(|it| {
            value::text(it, "reason") == "NewReplicaSetAvailable" && value::text(it, "message").contains(name)
        });
        self.amend(&CONTROLLER_STATUS, ("deployments.apps", namespace, own), |object| {
            let generation = object["metadata"]["generation"].clone();
            let conditions = object.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
            let status = json!({
                "observedGeneration": generation, "replicas": total, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
                "unavailableReplicas": (wanted.max(total) - available).max(0), "conditions": conditions,
            });
            value::set(object, "status", status);
            let (progress, reason, message) = if is_done || was_done {
                ("True", "NewReplicaSetAvailable", format!("ReplicaSet {name:?} has successfully progressed."))
            } else if is_late {
                ("False", "ProgressDeadlineExceeded", format!("ReplicaSet {name:?} has timed out progressing."))
            } else {
                ("True", "ReplicaSetUpdated", format!("ReplicaSet {name:?} is progressing."))
            };
            if is_available {
                stamped(object, &now, "Available", "True", ("MinimumReplicasAvailable", "Deployment has minimum availability."));
            } else {
                stamped(object, &now, "Available", "False", ("MinimumReplicasUnavailable", "Deployment does not have minimum availability."));
            }
            stamped(object, &now, "Progressing", progress, (reason, &message));
            if let Some(failure) = &failure {
                stamped(object, &now, "ReplicaFailure", "True", (value::text(failure, "reason"), value::text(failure, "message")));
            }
        });
    }
}

/// A condition that also tells when it was last looked at.
fn stamped(object: &mut Value, now: &str, name: &str, status: &str, why: (&str, &str)) {
    let known = value::items(object, "status.conditions").iter().find(|it| value::text(it, "type") == name).cloned();
    condition(object, now, name, status, why);
    let list = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for item in list.into_iter().flatten().filter(|it| value::text(it, "type") == name) {
        let same = known.as_ref().filter(|it| {
            it["reason"] == item["reason"] && it["message"] == item["message"] && it["status"] == item["status"]
        });
        let at = same.map_or(now, |it| value::text(it, "lastUpdateTime")).to_owned();
        value::set(item, "lastUpdateTime", at);
    }
}

fn revision(set: &Value) -> Option<u64> {
    value::at(set, "metadata.annotations")?.get(REVISION)?.as_str()?.parse().ok()
}
