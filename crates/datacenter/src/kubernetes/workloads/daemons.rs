//! Sets of daemons: one pod on every node that takes it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{is_active, is_ready, pod_of, schedule, template_hash};
use crate::kubernetes::kube::{CONTROLLER_STATUS, Kube};
use crate::kubernetes::value;

const HASH: &str = "controller-revision-hash";

impl Kube {
    pub(super) fn sync_daemon_set(&mut self, set: &Arc<Value>) {
        if value::is_deleting(set) {
            return;
        }
        let hash = template_hash(&set["spec"]["template"]);
        let nodes: Vec<Arc<Value>> = self.store.all("nodes", "").cloned().collect();
        let pods = self.controlled(set, "pods");
        let (mut desired, mut current, mut updated, mut ready, mut misplaced) = (0, 0, 0, 0, 0);
        let mut is_replacing = pods.iter().any(|pod| !is_ready(pod) && revision(pod) == hash);
        for node in &nodes {
            let name = value::name(node);
            let own: Vec<&Arc<Value>> = pods.iter().filter(|pod| wanted_node(pod) == name).collect();
            let template = template(set, &hash, name);
            if !schedule::takes_daemon(&template, node) {
                misplaced += i64::from(own.iter().any(|pod| is_active(pod)));
                if !schedule::keeps_daemon(&template, node) {
                    for pod in own {
                        self.dismiss("pods", pod);
                    }
                }
                continue;
            }
            desired += 1;
            match own.iter().find(|pod| is_active(pod)) {
                None if own.iter().any(|pod| value::is_deleting(pod)) => {}
                None => {
                    for pod in own {
                        self.dismiss("pods", pod);
                    }
                    let pod = pod_of(&template, set, &format!("{}-", value::name(set)));
                    current += i64::from(self.make_pod_like(set, pod).is_ok());
                    updated += 1;
                }
                Some(pod) => {
                    current += 1;
                    ready += i64::from(is_ready(pod));
                    if revision(pod) == hash {
                        updated += 1;
                    } else if !is_replacing && value::text(set, "spec.updateStrategy.type") == "RollingUpdate" {
                        // One after the other.
                        is_replacing = true;
                        self.dismiss("pods", pod);
                    }
                }
            }
        }
        for pod in pods.iter().filter(|pod| !nodes.iter().any(|node| value::name(node) == wanted_node(pod))) {
            self.dismiss("pods", pod);
        }
        self.amend(&CONTROLLER_STATUS, ("daemonsets.apps", value::namespace(set), value::name(set)), |object| {
            let generation = object["metadata"]["generation"].clone();
            let status = json!({
                "currentNumberScheduled": current, "numberMisscheduled": misplaced, "desiredNumberScheduled": desired, "numberReady": ready,
                "observedGeneration": generation, "updatedNumberScheduled": updated, "numberAvailable": ready, "numberUnavailable": desired - ready,
            });
            value::set(object, "status", status);
        });
    }
}

fn revision(pod: &Value) -> &str {
    value::at(pod, "metadata.labels").and_then(|labels| labels.get(HASH)).and_then(Value::as_str).unwrap_or_default()
}

/// The node that a daemon's pod is for.
fn wanted_node(pod: &Value) -> &str {
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let field = value::items(pod, path).iter().flat_map(|term| value::items(term, "matchFields")).next();
    field.and_then(|field| value::items(field, "values").first()).and_then(Value::as_str).unwrap_or_default()
}

/// The template with what daemons tolerate, for one node.
fn template(set: &Value, hash: &str, node: &str) -> Value {
    let mut template = set["spec"]["template"].clone();
    value::place(&mut template, "metadata.labels")[HASH] = json!(hash);
    let terms = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }]);
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let mut known = value::items(&template, path).to_vec();
    match known.is_empty() {
        true => value::set(&mut template, path, terms),
        false => {
            for term in &mut known {
                value::set(term, "matchFields", terms[0]["matchFields"].clone());
            }
            value::set(&mut template, path, known);
        }
    }
    let mut tolerations = value::items(&template, "spec.tolerations").to_vec();
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        tolerations.push(json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect }));
    }
    if value::is_true(&template, "spec.hostNetwork") {
        tolerations.push(
            json!({ "key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule" }),
        );
    }
    value::set(&mut template, "spec.tolerations", tolerations);
    template
}
