//! Sets with an identity: pods with numbers, one after the other, each with its claims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{is_active, is_ready, pod_of, template_hash};
use crate::kubernetes::kube::{CONTROLLER, CONTROLLER_STATUS, Kube};
use crate::kubernetes::value;

const HASH: &str = "controller-revision-hash";

impl Kube {
    pub(super) fn sync_stateful_set(&mut self, set: &Arc<Value>) {
        if value::is_deleting(set) {
            return;
        }
        let (namespace, name) = (value::namespace(set), value::name(set));
        let wanted = value::number(set, "spec.replicas").unwrap_or(1);
        let is_parallel = value::text(set, "spec.podManagementPolicy") == "Parallel";
        let revision = format!("{name}-{}", template_hash(&set["spec"]["template"]));
        for index in 0..wanted {
            let pod_name = format!("{name}-{index}");
            let pod = self.get("pods", namespace, &pod_name);
            match &pod {
                None => {
                    self.make_claims(set, index);
                    let mut pod = pod_of(&set["spec"]["template"], set, &pod_name);
                    let labels = value::place(&mut pod, "metadata.labels");
                    labels[HASH] = json!(revision);
                    labels["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
                    labels["apps.kubernetes.io/pod-index"] = json!(index.to_string());
                    value::set(&mut pod, "spec.hostname", pod_name.as_str());
                    value::set(&mut pod, "spec.subdomain", value::text(set, "spec.serviceName"));
                    mount_claims(set, index, &mut pod);
                    if self.make_pod_like(set, pod).is_err() {
                        break;
                    }
                }
                Some(pod) if !is_active(pod) && !value::is_deleting(pod) => self.dismiss("pods", pod),
                Some(_) => {}
            }
            // The next begins only after this one is ready.
            let is_up = self.get("pods", namespace, &pod_name).is_some_and(|pod| is_ready(&pod));
            if !is_parallel && !is_up {
                break;
            }
        }
        let pods = self.controlled(set, "pods");
        let number =
            |pod: &Value| value::name(pod).rsplit('-').next().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        for pod in pods.iter().filter(|pod| number(pod) >= wanted) {
            self.dismiss("pods", pod);
        }
        let of_revision = |pod: &&Arc<Value>| {
            value::at(pod, "metadata.labels").and_then(|labels| labels.get(HASH)) == Some(&json!(revision))
        };
        let is_settled = pods.iter().all(|pod| is_ready(pod));
        if is_settled && value::text(set, "spec.updateStrategy.type") == "RollingUpdate" {
            let mut old: Vec<&Arc<Value>> = pods.iter().filter(|pod| !of_revision(pod)).collect();
            old.sort_by_key(|pod| std::cmp::Reverse(number(pod)));
            if let Some(pod) = old.first() {
                self.dismiss("pods", pod);
            }
        }
        let active: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_active(pod)).collect();
        let (total, ready, updated) = (
            active.len(),
            active.iter().filter(|pod| is_ready(pod)).count(),
            active.iter().filter(|pod| of_revision(pod)).count(),
        );
        self.amend(&CONTROLLER_STATUS, ("statefulsets.apps", namespace, name), |object| {
            let generation = object["metadata"]["generation"].clone();
            let known = value::text(object, "status.currentRevision").to_owned();
            let current = if known.is_empty() || updated == total { revision.clone() } else { known };
            let status = json!({
                "observedGeneration": generation, "replicas": total, "readyReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated,
                "currentRevision": current, "updateRevision": revision, "collisionCount": 0, "availableReplicas": ready,
            });
            value::set(object, "status", status);
        });
    }

    fn make_claims(&mut self, set: &Value, index: i64) {
        for template in value::items(set, "spec.volumeClaimTemplates") {
            let name = format!("{}-{}-{index}", value::name(template), value::name(set));
            let mut labels = json!({});
            for (key, label) in value::members(set, "spec.selector.matchLabels") {
                labels[key.as_str()] = label.clone();
            }
            let metadata = json!({ "name": name, "namespace": value::namespace(set), "labels": labels });
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"] });
            if self.store.get("persistentvolumeclaims", value::namespace(set), &name).is_none() {
                // A claim that is refused keeps its pod from being placed, and that is told there.
                let _ = self.submit(CONTROLLER.name, "persistentvolumeclaims", claim);
            }
        }
    }
}

fn mount_claims(set: &Value, index: i64, pod: &mut Value) {
    let mut volumes = value::items(pod, "spec.volumes").to_vec();
    for template in value::items(set, "spec.volumeClaimTemplates") {
        let claim = format!("{}-{}-{index}", value::name(template), value::name(set));
        volumes.retain(|volume| value::text(volume, "name") != value::name(template));
        volumes.push(json!({ "name": value::name(template), "persistentVolumeClaim": { "claimName": claim } }));
    }
    if !volumes.is_empty() {
        value::set(pod, "spec.volumes", volumes);
    }
}
