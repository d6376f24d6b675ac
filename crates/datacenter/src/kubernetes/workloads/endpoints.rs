//! Where services lead: slices of endpoints.

use serde_json::{Value, json};

use super::is_ready;
use crate::kubernetes::kube::{CONTROLLER, Kube};
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::value;

const SLICES: &str = "endpointslices.discovery.k8s.io";

/// Whether a service leads to pods with these labels.
pub(super) fn chooses(service: &Value, labels: &Value) -> bool {
    value::at(service, "spec.selector")
        .filter(|selector| selector.as_object().is_some_and(|all| !all.is_empty()))
        .is_some_and(|selector| Labels::equal(selector).fits(labels))
}

impl Kube {
    pub(super) fn drop_endpoints(&mut self, namespace: &str, service: &str) {
        // The slice has its service as owner and goes with it; the older object does not.
        self.erase("endpoints", namespace, service);
    }

    pub(super) fn sync_endpoints(&mut self, service: &Value) {
        let (namespace, name) = (value::namespace(service), value::name(service));
        let has_selector = value::at(service, "spec.selector").is_some();
        if value::is_deleting(service) || !has_selector || value::text(service, "spec.type") == "ExternalName" {
            return;
        }
        let pods: Vec<Value> = (self.store.all("pods", namespace))
            .filter(|pod| chooses(service, value::at(pod, "metadata.labels").unwrap_or(&Value::Null)))
            .filter(|pod| !value::text(pod, "status.podIP").is_empty())
            .filter(|pod| !["Succeeded", "Failed"].contains(&value::text(pod, "status.phase")))
            .map(|pod| Value::clone(pod))
            .collect();
        let publishes = value::is_true(service, "spec.publishNotReadyAddresses");
        let endpoints: Vec<Value> = (pods.iter())
            .map(|pod| {
                let is_ending = value::is_deleting(pod);
                let serves = is_ready(pod);
                json!({
                    "addresses": [value::text(pod, "status.podIP")],
                    "conditions": { "ready": publishes || serves && !is_ending, "serving": serves, "terminating": is_ending },
                    "nodeName": value::text(pod, "spec.nodeName"),
                    "targetRef": { "kind": "Pod", "namespace": namespace, "name": value::name(pod), "uid": value::uid(pod) },
                })
            })
            .collect();
        let ports: Vec<Value> = (value::items(service, "spec.ports").iter())
            .map(|port| json!({ "name": value::text(port, "name"), "protocol": port["protocol"], "port": target(port, &pods) }))
            .collect();
        let labels = json!({
            "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        });
        let existing = self.store.all(SLICES, namespace).find(|slice| {
            value::at(slice, "metadata.labels")
                .is_some_and(|own| own.get("kubernetes.io/service-name") == Some(&json!(name)))
        });
        match existing.map(|slice| value::name(slice).to_owned()) {
            Some(slice) => self.amend(&CONTROLLER, (SLICES, namespace, &slice), |object| {
                value::set(object, "endpoints", endpoints);
                value::set(object, "ports", ports);
            }),
            None => {
                let own = format!("{name}-{}", self.suffix(5));
                let metadata = json!({ "name": own, "namespace": namespace, "labels": labels, "ownerReferences": value::controlled_by(service) });
                let slice =
                    json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports });
                self.make(&CONTROLLER, SLICES, slice);
            }
        }
        self.sync_old_endpoints(service, &pods);
    }

    /// The older form of the same.
    fn sync_old_endpoints(&mut self, service: &Value, pods: &[Value]) {
        let (namespace, name) = (value::namespace(service), value::name(service));
        let address = |pod: &Value| {
            json!({
                "ip": value::text(pod, "status.podIP"), "nodeName": value::text(pod, "spec.nodeName"),
                "targetRef": { "kind": "Pod", "namespace": namespace, "name": value::name(pod), "uid": value::uid(pod) },
            })
        };
        let (ready, others): (Vec<&Value>, Vec<&Value>) = pods.iter().partition(|pod| is_ready(pod));
        let ports: Vec<Value> = (value::items(service, "spec.ports").iter())
            .map(|port| json!({ "name": value::text(port, "name"), "protocol": port["protocol"], "port": target(port, pods) }))
            .collect();
        let mut subset = json!({ "ports": ports });
        if !ready.is_empty() {
            value::set(&mut subset, "addresses", ready.into_iter().map(address).collect::<Vec<_>>());
        }
        if !others.is_empty() {
            value::set(&mut subset, "notReadyAddresses", others.into_iter().map(address).collect::<Vec<_>>());
        }
        let subsets = if pods.is_empty() { json!([]) } else { json!([subset]) };
        if self.store.get("endpoints", namespace, name).is_none() {
            let labels = value::at(service, "metadata.labels").cloned().unwrap_or_else(|| json!({}));
            let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
            self.make(&CONTROLLER, "endpoints", json!({ "metadata": metadata }));
        }
        self.amend(&CONTROLLER, ("endpoints", namespace, name), |object| value::set(object, "subsets", subsets));
    }
}

/// The port of pods that a port of a service leads to.
fn target(port: &Value, pods: &[Value]) -> Value {
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            let mut ports = pods
                .iter()
                .flat_map(|pod| value::items(pod, "spec.containers"))
                .flat_map(|container| value::items(container, "ports"));
            ports
                .find(|port| value::text(port, "name") == name)
                .and_then(|port| port.get("containerPort"))
                .cloned()
                .unwrap_or_default()
        }
        Some(Value::Number(number)) if number.as_i64() != Some(0) => json!(number),
        _ => port["port"].clone(),
    }
}
