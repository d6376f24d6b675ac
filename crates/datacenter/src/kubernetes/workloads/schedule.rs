//! Where pods go.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::PodFault;
use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{Kube, SCHEDULER, Writer};
use crate::kubernetes::quantity;
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::value;

/// Whether a template of daemons is for a node.
pub(super) fn takes_daemon(template: &Value, node: &Value) -> bool {
    let spec = &template["spec"];
    wants(spec, node) && untolerated(spec, node, &["NoSchedule", "NoExecute"]).is_none()
}

/// Whether a pod of daemons that is on a node stays there, though no other would come.
pub(super) fn keeps_daemon(template: &Value, node: &Value) -> bool {
    let spec = &template["spec"];
    wants(spec, node) && untolerated(spec, node, &["NoExecute"]).is_none()
}

/// Whether a toleration is for a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is_effect = ["", value::text(taint, "effect")].contains(&value::text(toleration, "effect"));
    let (key, exists) = (value::text(toleration, "key"), value::text(toleration, "operator") == "Exists");
    let is_key = key.is_empty() && exists || key == value::text(taint, "key");
    is_effect && is_key && (exists || value::text(toleration, "value") == value::text(taint, "value"))
}

/// The first taint of a node with one of these effects that a pod does not tolerate.
fn untolerated<'a>(spec: &Value, node: &'a Value, effects: &[&str]) -> Option<&'a Value> {
    let mut taints =
        value::items(node, "spec.taints").iter().filter(|taint| effects.contains(&value::text(taint, "effect")));
    taints.find(|taint| !value::items(spec, "tolerations").iter().any(|own| tolerates(own, taint)))
}

/// Whether a node is closed to a pod.
fn is_closed(spec: &Value, node: &Value) -> bool {
    let taint = json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
    value::is_true(node, "spec.unschedulable")
        && !value::items(spec, "tolerations").iter().any(|own| tolerates(own, &taint))
}

/// Whether a pod may go to a node by what it asks of nodes.
fn wants(spec: &Value, node: &Value) -> bool {
    let labels = value::at(node, "metadata.labels").unwrap_or(&Value::Null);
    let selector = spec.get("nodeSelector").cloned().unwrap_or_default();
    if !Labels::equal(&selector).fits(labels) {
        return false;
    }
    let path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let terms = value::items(spec, path);
    terms.is_empty()
        || terms.iter().any(|term| {
            let names = json!({ "metadata.name": value::name(node) });
            let by_field = Labels::of(&json!({ "matchExpressions": value::items(term, "matchFields") }));
            Labels::of(term).fits(labels) && by_field.fits(&names)
        })
}

/// What pods ask for, of processors (in thousandths) and memory.
fn requests(spec: &Value) -> (i64, i64) {
    let of = |container: &Value, name: &str| {
        value::at(container, "resources.requests")
            .and_then(|all| all.get(name))
            .and_then(Value::as_str)
            .unwrap_or("0")
            .to_owned()
    };
    let containers = value::items(spec, "containers");
    let cpu = containers.iter().map(|container| quantity::milli(&of(container, "cpu"))).sum();
    let memory = containers.iter().map(|container| quantity::whole(&of(container, "memory"))).sum();
    (cpu, memory)
}

impl Kube {
    /// Finds a node for a pod that has none, or tells why there is none.
    pub(super) fn schedule(&mut self, pod: &Arc<Value>) {
        // Whoever wants another scheduler waits for it.
        if !["", "default-scheduler"].contains(&value::text(pod, "spec.schedulerName")) {
            return;
        }
        match self.find_node(pod) {
            Ok(node) if self.select_node(pod, &node) => {}
            Ok(node) => self.place_pod(pod, &node),
            Err(message) => {
                let now = self.stamp();
                let writer = Writer { subresource: "status", ..SCHEDULER };
                self.amend(&writer, ("pods", value::namespace(pod), value::name(pod)), |object| {
                    condition(object, &now, "PodScheduled", "False", ("Unschedulable", &message));
                });
                let is_told =
                    value::items(pod, "status.conditions").iter().any(|it| value::text(it, "message") == message);
                if !is_told {
                    self.tell("default-scheduler", pod, false, "FailedScheduling", &message);
                }
            }
        }
    }

    /// Puts a pod onto a node.
    pub(crate) fn place_pod(&mut self, pod: &Value, node: &str) {
        let (namespace, name) = (value::namespace(pod), value::name(pod));
        let now = self.stamp();
        self.amend(&SCHEDULER, ("pods", namespace, name), |object| {
            value::set(object, "spec.nodeName", node);
            condition(object, &now, "PodScheduled", "True", ("", ""));
            for item in object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
                for key in ["reason", "message"] {
                    if value::text(item, key).is_empty() {
                        value::remove(item, key);
                    }
                }
            }
        });
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.tell("default-scheduler", pod, true, "Scheduled", &message);
    }

    fn find_node(&self, pod: &Value) -> Result<String, String> {
        let spec = &pod["spec"];
        let nodes: Vec<&Arc<Value>> = self.store.all("nodes", "").collect();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        if nodes.is_empty() {
            return Err("no nodes available to schedule pods".to_owned());
        }
        if let Some(claim) = self.unbound_claim(pod) {
            let count = nodes.len();
            return Err(match self.get("persistentvolumeclaims", value::namespace(pod), &claim) {
                None => format!("0/{count} nodes are available: persistentvolumeclaim {claim:?} not found. not found"),
                Some(_) => format!(
                    "0/{count} nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
                ),
            });
        }
        let (cpu, memory) = requests(spec);
        let mut fitting: Vec<(usize, String)> = Vec::new();
        for node in &nodes {
            let refusal = if self.fault_of(pod) == Some(PodFault::Unschedulable) {
                Some("node(s) didn't match Pod's node affinity/selector".to_owned())
            } else if is_closed(spec, node) {
                Some("node(s) were unschedulable".to_owned())
            } else if let Some(taint) = untolerated(spec, node, &["NoSchedule", "NoExecute"]) {
                let text = value::text(taint, "value");
                Some(format!("node(s) had untolerated taint {{{}: {text}}}", value::text(taint, "key")))
            } else if !wants(spec, node) {
                Some("node(s) didn't match Pod's node affinity/selector".to_owned())
            } else if self.is_crowded(node, pod, &nodes) {
                Some("node(s) didn't match pod topology spread constraints".to_owned())
            } else {
                self.lacks(node, pod, cpu, memory)
            };
            match refusal {
                Some(reason) => *reasons.entry(reason).or_default() += 1,
                None => {
                    let load = self
                        .store
                        .all("pods", "")
                        .filter(|other| value::text(other, "spec.nodeName") == value::name(node))
                        .count();
                    fitting.push((load, value::name(node).to_owned()));
                }
            }
        }
        fitting.sort();
        if let Some((_, node)) = fitting.into_iter().next() {
            return Ok(node);
        }
        let reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        Err(format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", ")))
    }

    /// Whether a pod must not go to a node because its like are spread unevenly then.
    fn is_crowded(&self, node: &Value, pod: &Value, nodes: &[&Arc<Value>]) -> bool {
        let spec = &pod["spec"];
        let all = value::items(spec, "topologySpreadConstraints").iter();
        let mut strict = all.filter(|it| value::text(it, "whenUnsatisfiable") == "DoNotSchedule");
        strict.any(|constraint| {
            let key = value::text(constraint, "topologyKey");
            let domain = |node: &Value| value::at(node, "metadata.labels")?.get(key)?.as_str().map(str::to_owned);
            let Some(own) = domain(node) else { return true };
            // By themselves constraints look at nodes that the pod asks for, whether or not it tolerates them.
            let is_counted = |node: &Value| {
                (value::text(constraint, "nodeAffinityPolicy") == "Ignore" || wants(spec, node))
                    && (value::text(constraint, "nodeTaintsPolicy") != "Honor"
                        || untolerated(spec, node, &["NoSchedule", "NoExecute"]).is_none())
            };
            let domains = nodes.iter().filter(|node| is_counted(node)).filter_map(|node| domain(node));
            let mut counts: BTreeMap<String, i64> = domains.map(|domain| (domain, 0)).collect();
            let choice = Labels::of(&constraint["labelSelector"]);
            let placed = self
                .store
                .all("pods", value::namespace(pod))
                .filter(|other| super::is_active(other) && !value::is_deleting(other) && choice.chooses(other));
            for other in placed {
                let place = nodes.iter().find(|node| value::name(node) == value::text(other, "spec.nodeName"));
                if let Some(count) = place.and_then(|node| domain(node)).and_then(|domain| counts.get_mut(&domain)) {
                    *count += 1;
                }
            }
            let is_few = value::number(constraint, "minDomains").is_some_and(|least| (counts.len() as i64) < least);
            let least = if is_few { 0 } else { counts.values().min().copied().unwrap_or(0) };
            let here = counts.get(&own).copied().unwrap_or(0) + i64::from(choice.chooses(pod));
            here - least > value::number(constraint, "maxSkew").unwrap_or(1)
        })
    }

    /// What a node has too little of, or who on it is not borne.
    fn lacks(&self, node: &Value, pod: &Value, cpu: i64, memory: i64) -> Option<String> {
        let name = value::name(node);
        let others: Vec<&Arc<Value>> = self
            .store
            .all("pods", "")
            .filter(|other| value::text(other, "spec.nodeName") == name && super::is_active(other))
            .collect();
        let used =
            others.iter().map(|other| requests(&other["spec"])).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let has = |key: &str| {
            value::at(node, "status.allocatable")
                .and_then(|all| all.get(key))
                .and_then(Value::as_str)
                .unwrap_or("0")
                .to_owned()
        };
        if cpu > 0 && used.0 + cpu > quantity::milli(&has("cpu")) {
            return Some("Insufficient cpu".to_owned());
        }
        if memory > 0 && used.1 + memory > quantity::whole(&has("memory")) {
            return Some("Insufficient memory".to_owned());
        }
        let terms = value::items(pod, "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution");
        let is_borne = |term: &Value| {
            let choice = Labels::of(&term["labelSelector"]);
            !others.iter().any(|other| value::namespace(other) == value::namespace(pod) && choice.chooses(other))
        };
        let by_host = terms.iter().filter(|term| value::text(term, "topologyKey") == "kubernetes.io/hostname");
        if by_host.into_iter().any(|term| !is_borne(term)) {
            return Some("node(s) didn't match pod anti-affinity rules".to_owned());
        }
        let ports = |pod: &Value| -> Vec<i64> {
            value::items(pod, "spec.containers")
                .iter()
                .flat_map(|it| value::items(it, "ports"))
                .filter_map(|port| value::number(port, "hostPort"))
                .filter(|port| *port > 0)
                .collect()
        };
        let wanted = ports(pod);
        let is_taken = others.iter().any(|other| ports(other).iter().any(|port| wanted.contains(port)));
        is_taken.then(|| "node(s) didn't have free ports for the requested pod ports".to_owned())
    }
}
