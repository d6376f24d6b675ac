//! What control planes run without being told by the API: Talos gives it to their agents, which show it to everybody.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{AGENT, Told};
use crate::kubernetes::crd::is;
use crate::kubernetes::kube::{KUBELET, Kube, fine_stamp};
use crate::kubernetes::value;
use crate::kubernetes::workloads::pods;
use crate::world::guest::hex;

const NAMESPACE: &str = "kube-system";
/// Why a part that does not run is not ready.
const STOPPED: &str = "ContainersNotReady";

/// The parts of a control plane, and what Talos has them ask for of a node.
const PARTS: [(&str, &str, &str); 3] = [
    ("kube-apiserver", "200m", "512Mi"),
    ("kube-controller-manager", "50m", "256Mi"),
    ("kube-scheduler", "10m", "64Mi"),
];

impl Kube {
    /// Shows what a control plane runs, or that it does not any more. A node that never was one shows nothing.
    pub(super) fn mirror(&mut self, told: &Told) {
        if !told.is_up {
            return;
        }
        for ((part, cpu, memory), image) in PARTS.into_iter().zip(&told.images) {
            let name = format!("{part}-{}", told.name);
            let is_other = |pod: &Value| value::text(&pod["spec"]["containers"][0], "image") != image;
            match self.get("pods", NAMESPACE, &name) {
                None if told.runs_control_plane => self.make_mirror(told, (part, cpu, memory), image),
                // What is run is another one: the agent shows it anew.
                Some(pod) if told.runs_control_plane && is_other(&pod) => {
                    self.erase("pods", NAMESPACE, &name);
                    self.make_mirror(told, (part, cpu, memory), image);
                }
                Some(pod) if told.runs_control_plane && !is(&pod, "Ready") => self.set_ready(&pod, true, ""),
                Some(pod) if !told.runs_control_plane && why_unready(&pod) != STOPPED => {
                    self.set_ready(&pod, false, STOPPED);
                }
                _ => {}
            }
        }
    }

    fn make_mirror(&mut self, told: &Told, (part, cpu, memory): (&str, &str, &str), image: &str) {
        let version = image.split('@').next().and_then(|image| image.rsplit_once(':')).map_or("", |(_, tag)| tag);
        let Some(node) = self.get("nodes", "", &told.name) else { return };
        let labels = json!({
            "tier": "control-plane", "k8s-app": part, "component": part, "app.kubernetes.io/name": part,
            "app.kubernetes.io/version": version, "app.kubernetes.io/component": "control-plane",
            "app.kubernetes.io/managed-by": "Talos",
        });
        let hash = hex(&Sha256::digest(format!("{part} {} {image}", told.name))[..16]);
        let annotations = json!({
            "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash, "kubernetes.io/config.source": "http",
            "kubernetes.io/config.seen": fine_stamp(self.calendar + self.now),
        });
        let owner = json!([{
            "apiVersion": "v1", "kind": "Node", "name": told.name, "uid": value::uid(&node), "controller": true,
        }]);
        let container = json!({
            "name": part, "image": image,
            "command": [format!("/usr/local/bin/{part}")], "resources": { "requests": { "cpu": cpu, "memory": memory } },
        });
        let spec = json!({
            "nodeName": told.name, "hostNetwork": true, "priority": 2_000_000_000, "priorityClassName": "system-cluster-critical",
            "preemptionPolicy": "PreemptLowerPriority", "tolerations": [{ "operator": "Exists", "effect": "NoExecute" }],
            "containers": [container],
        });
        let metadata = json!({
            "name": format!("{part}-{}", told.name), "namespace": NAMESPACE, "labels": labels, "annotations": annotations,
            "ownerReferences": owner,
        });
        let (now, host) = (self.stamp(), told.addresses.first().cloned().unwrap_or_default());
        let made = self.make(&AGENT, "pods", json!({ "metadata": metadata, "spec": spec }));
        let Some(made) = made else { return };
        self.amend(&KUBELET, ("pods", NAMESPACE, value::name(&made)), |pod| {
            value::set(pod, "status.phase", "Running");
            value::set(pod, "status.startTime", now.as_str());
            pods::at_host(pod, &host);
            value::set(pod, "status.podIP", host.as_str());
            value::set(pod, "status.podIPs", json!([{ "ip": host }]));
            pods::runs(pod, &now);
        });
    }
}

/// Why a pod is not ready; empty if it is.
fn why_unready(pod: &Value) -> &str {
    let ready = value::items(pod, "status.conditions").iter().find(|it| value::text(it, "type") == "Ready");
    ready.map(|it| value::text(it, "reason")).unwrap_or_default()
}
