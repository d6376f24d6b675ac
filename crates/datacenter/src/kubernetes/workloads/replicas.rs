//! Sets of replicas: as many pods as are wanted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{is_active, is_ready, pod_of};
use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{CONTROLLER_STATUS, Kube};
use crate::kubernetes::value;

impl Kube {
    pub(super) fn sync_replica_set(&mut self, set: &Arc<Value>) {
        let wanted = usize::try_from(value::number(set, "spec.replicas").unwrap_or(1)).unwrap_or(0);
        let pods = self.controlled(set, "pods");
        let mut active: Vec<Arc<Value>> = pods.into_iter().filter(|pod| is_active(pod)).collect();
        let mut failure = None;
        if !value::is_deleting(set) {
            while active.len() < wanted {
                match self.make_pod(set, &format!("{}-", value::name(set))) {
                    Ok(pod) => active.push(pod),
                    Err(message) => {
                        failure = Some(message);
                        break;
                    }
                }
            }
            // Those go first that do the least.
            active.sort_by_key(|pod| {
                (is_ready(pod), !value::text(pod, "spec.nodeName").is_empty(), value::name(pod).to_owned())
            });
            let excess = active.len().saturating_sub(wanted);
            for pod in active.drain(..excess).collect::<Vec<_>>() {
                self.dismiss("pods", &pod);
                let message = format!("Deleted pod: {}", value::name(&pod));
                self.tell("replicaset-controller", set, true, "SuccessfulDelete", &message);
            }
        }
        // The name of each attempt is another: what was told first stays.
        let known =
            value::items(set, "status.conditions").iter().find(|it| value::text(it, "type") == "ReplicaFailure");
        let failure = failure.map(|message| known.map_or(message, |it| value::text(it, "message").to_owned()));
        let ready = active.iter().filter(|pod| is_ready(pod)).count();
        let now = self.stamp();
        self.amend(&CONTROLLER_STATUS, ("replicasets.apps", value::namespace(set), value::name(set)), |object| {
            let generation = object["metadata"]["generation"].clone();
            let status = json!({
                "replicas": active.len(), "fullyLabeledReplicas": active.len(), "readyReplicas": ready, "availableReplicas": ready,
                "observedGeneration": generation,
            });
            value::set(object, "status", status);
            if let Some(message) = &failure {
                condition(object, &now, "ReplicaFailure", "True", ("FailedCreate", message));
            }
        });
    }

    /// Makes a pod for an owner, or tells why there is none.
    pub(super) fn make_pod(&mut self, owner: &Value, name: &str) -> Result<Arc<Value>, String> {
        let pod = pod_of(&owner["spec"]["template"], owner, name);
        self.make_pod_like(owner, pod)
    }

    pub(super) fn make_pod_like(&mut self, owner: &Value, pod: Value) -> Result<Arc<Value>, String> {
        let source = format!("{}-controller", value::text(owner, "kind").to_lowercase());
        match self.submit(&source, "pods", pod) {
            Ok(pod) => {
                let message = format!("Created pod: {}", value::name(&pod));
                self.tell(&source, owner, true, "SuccessfulCreate", &message);
                Ok(pod)
            }
            Err(failure) => {
                self.tell(&source, owner, false, "FailedCreate", &format!("Error creating: {}", failure.message));
                Err(failure.message)
            }
        }
    }
}
