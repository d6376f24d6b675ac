//! What nodes do with pods: pull, start, watch, end.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::PodFault;
use crate::kubernetes::crd::{condition, is};
use crate::kubernetes::kube::{Due, KUBELET, Key, Kube};
use crate::kubernetes::value;

mod asked;

/// How long a node must be gone before its pods are collected, however quick everything else is.
const QUARANTINE: Duration = Duration::from_secs(40);

/// What happens to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Its images are there.
    Pulled,
    /// Its containers run.
    Started,
    /// It can be used.
    Ready,
    /// It has done what it was for.
    Finished,
    /// It bears a taint of its node no longer.
    Evicted,
    /// It is gone.
    Gone,
}

/// A step of a pod's life, if it still is this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    namespace: String,
    name: String,
    uid: String,
    step: Step,
}

impl Moment {
    pub(super) fn of(pod: &Value, step: Step) -> Self {
        Self {
            namespace: value::namespace(pod).to_owned(),
            name: value::name(pod).to_owned(),
            uid: value::uid(pod).to_owned(),
            step,
        }
    }

    /// The end of a pod.
    pub(crate) fn gone(pod: &Value) -> Self {
        Self::of(pod, Step::Gone)
    }
}

impl Kube {
    /// Looks after a pod: it gets a node, and its node begins with it.
    pub(super) fn sync_pod(&mut self, pod: &Arc<Value>) {
        let node = value::text(pod, "spec.nodeName");
        if !node.is_empty() && self.get("nodes", "", node).is_none() {
            // Its node is not there any more: nobody else ends it.
            return self.plan(QUARANTINE, Due::Pod(Moment::gone(pod)));
        }
        if value::is_deleting(pod) || ["Succeeded", "Failed"].contains(&value::text(pod, "status.phase")) {
            return;
        }
        if node.is_empty() {
            self.schedule(pod);
            return;
        }
        let Some(node) = self.get("nodes", "", node) else { return };
        self.heed_taints(pod, &node);
        let place = (value::namespace(pod).to_owned(), value::name(pod).to_owned());
        if self.is_down(value::name(&node)) {
            // Whoever would begin with it is not there.
        } else if value::text(pod, "status.startTime").is_empty() {
            self.pull(pod, &node);
        } else if self.workloads.waiting.contains(&place) && self.missing_mount(pod).is_none() {
            self.workloads.waiting.remove(&place);
            let wait = self.draw("kubernetes pod start", self.setup.latencies.start);
            self.plan(wait, Due::Pod(Moment::of(pod, Step::Started)));
        }
        // A pod on a node that is silent is not counted on.
        if !is(&node, "Ready") && is(pod, "Ready") {
            let is_lost = value::items(&node, "status.conditions")
                .iter()
                .any(|it| value::text(it, "type") == "Ready" && value::text(it, "status") == "Unknown");
            if is_lost {
                self.set_ready(pod, false, "NodeNotReady");
            }
        } else if is(&node, "Ready")
            && !is(pod, "Ready")
            && value::text(pod, "status.phase") == "Running"
            && is_resumed(pod)
        {
            self.set_ready(pod, true, "");
        }
    }

    /// The node sees the pod and pulls its images, those that it has not.
    fn pull(&mut self, pod: &Arc<Value>, node: &Value) {
        let (now, host) = (self.stamp(), host_ip(node));
        let images: Vec<String> =
            containers(pod).into_iter().map(|(_, container)| value::text(container, "image").to_owned()).collect();
        let fault = self.fault_of(pod);
        let reason = if fault == Some(PodFault::ImagePull) { "ImagePullBackOff" } else { "ContainerCreating" };
        self.amend(&KUBELET, ("pods", value::namespace(pod), value::name(pod)), |object| {
            value::set(object, "status.startTime", now.as_str());
            at_host(object, &host);
            for (kind, status) in [("PodReadyToStartContainers", "False"), ("Initialized", "True")] {
                condition(object, &now, kind, status, ("", ""));
            }
            for kind in ["Ready", "ContainersReady"] {
                let names: Vec<&str> =
                    value::items(object, "spec.containers").iter().map(|it| value::text(it, "name")).collect();
                let message = format!("containers with unready status: [{}]", names.join(" "));
                condition(object, &now, kind, "False", ("ContainersNotReady", &message));
            }
            tidy(object);
            let statuses = statuses(object, |_| json!({ "waiting": { "reason": reason } }), false, 0);
            value::set(object, "status.containerStatuses", statuses);
        });
        if fault == Some(PodFault::ImagePull) {
            for image in &images {
                let message = format!(
                    "Failed to pull image {image:?}: failed to pull and unpack image {image:?}: failed to resolve reference: not found"
                );
                self.tell("kubelet", pod, false, "Failed", &message);
                self.tell("kubelet", pod, false, "BackOff", &format!("Back-off pulling image {image:?}"));
            }
            return;
        }
        let mut ready_at = self.now;
        for image in images {
            let key = (value::name(node).to_owned(), image.clone());
            let at = match self.workloads.images.get(&key) {
                Some(at) => *at,
                None => {
                    self.tell("kubelet", pod, true, "Pulling", &format!("Pulling image {image:?}"));
                    let span = self.setup.latencies.pull_of(&image);
                    let at = self.now + self.draw(&format!("kubernetes pull {} {image}", key.0), span);
                    self.workloads.images.insert(key, at);
                    at
                }
            };
            ready_at = ready_at.max(at);
        }
        self.plan(ready_at.saturating_sub(self.now), Due::Pod(Moment::of(pod, Step::Pulled)));
    }

    /// Something that a pod mounts and that is not there.
    fn missing_mount(&self, pod: &Value) -> Option<String> {
        let namespace = value::namespace(pod);
        let is_missing = |kind: &str, name: &str| !name.is_empty() && self.store.get(kind, namespace, name).is_none();
        for volume in value::items(pod, "spec.volumes") {
            for (kind, word, path, key) in
                [("secrets", "secret", "secret", "secretName"), ("configmaps", "configmap", "configMap", "name")]
            {
                let name = value::text(volume, &format!("{path}.{key}"));
                if is_missing(kind, name) && !value::is_true(volume, &format!("{path}.optional")) {
                    return Some(format!(
                        "MountVolume.SetUp failed for volume {:?} : {word} {name:?} not found",
                        value::text(volume, "name")
                    ));
                }
            }
        }
        None
    }

    /// Lets happen to a pod what is due.
    pub(crate) fn pod_moment(&mut self, moment: &Moment) {
        let Some(pod) = self.get("pods", &moment.namespace, &moment.name).filter(|pod| value::uid(pod) == moment.uid)
        else {
            return;
        };
        let node = value::text(&pod, "spec.nodeName");
        if moment.step != Step::Evicted && self.is_down(node) && self.get("nodes", "", node).is_some() {
            // Whoever would do it does it once he is back.
            self.workloads.held.entry(node.to_owned()).or_default().push(moment.clone());
            return;
        }
        if moment.step == Step::Gone {
            // Collected with its node, which is back by now.
            if !value::is_deleting(&pod) && self.get("nodes", "", node).is_some() {
                return;
            }
            self.workloads.waiting.remove(&(moment.namespace.clone(), moment.name.clone()));
            // Nobody but who collects it has told it to end.
            self.dismiss("pods", &pod);
            if let Some(pod) = self.get("pods", &moment.namespace, &moment.name) {
                self.pod_gone(&pod);
            }
            return;
        }
        if value::is_deleting(&pod) {
            return;
        }
        match moment.step {
            Step::Pulled => {
                for (_, container) in containers(&pod) {
                    let message = format!("Successfully pulled image {:?}", value::text(container, "image"));
                    self.tell("kubelet", &pod, true, "Pulled", &message);
                }
                if let Some(message) = self.missing_mount(&pod) {
                    self.tell("kubelet", &pod, false, "FailedMount", &message);
                    self.workloads.waiting.insert((moment.namespace.clone(), moment.name.clone()));
                    return;
                }
                let wait = self.draw("kubernetes pod start", self.setup.latencies.start);
                self.plan(wait, Due::Pod(Moment::of(&pod, Step::Started)));
            }
            Step::Started => self.pod_started(&pod),
            Step::Ready => self.pod_ready(&pod),
            Step::Finished => self.pod_finished(&pod),
            Step::Evicted => self.pod_evicted(&pod),
            Step::Gone => {}
        }
    }

    fn pod_started(&mut self, pod: &Arc<Value>) {
        let node = value::text(pod, "spec.nodeName").to_owned();
        let now = self.stamp();
        let ip = if value::is_true(pod, "spec.hostNetwork") {
            value::text(pod, "status.hostIP").to_owned()
        } else {
            self.pod_address(&node)
        };
        let crashes = self.fault_of(pod) == Some(PodFault::CrashLoop);
        self.amend(&KUBELET, ("pods", value::namespace(pod), value::name(pod)), |object| {
            value::set(object, "status.phase", "Running");
            value::set(object, "status.podIP", ip.as_str());
            value::set(object, "status.podIPs", json!([{ "ip": ip }]));
            condition(object, &now, "PodReadyToStartContainers", "True", ("", ""));
            tidy(object);
            let list = if crashes {
                let message = "back-off 5m0s restarting failed container";
                statuses(object, |_| json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } }), false, 5)
            } else {
                statuses(object, |_| json!({ "running": { "startedAt": now } }), false, 0)
            };
            value::set(object, "status.containerStatuses", list);
            let done: Vec<Value> = (value::items(object, "spec.initContainers").iter())
                .map(|container| status_of(container, &json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now } }), true, 0))
                .collect();
            if !done.is_empty() {
                value::set(object, "status.initContainerStatuses", done);
            }
        });
        for (_, container) in containers(pod) {
            let name = value::text(container, "name");
            self.tell("kubelet", pod, true, "Created", &format!("Container created: {name}"));
            self.tell("kubelet", pod, true, "Started", &format!("Container started: {name}"));
        }
        if crashes && value::text(pod, "spec.restartPolicy") == "Never" {
            return self.pod_over(pod, false);
        }
        if crashes {
            let name = containers(pod)
                .first()
                .map(|(_, container)| value::text(container, "name").to_owned())
                .unwrap_or_default();
            let message = format!("Back-off restarting failed container {name} in pod {}", value::name(pod));
            self.tell("kubelet", pod, false, "BackOff", &message);
            return;
        }
        if ends(pod) {
            let wait = self.draw("kubernetes job", self.setup.latencies.job);
            self.plan(wait, Due::Pod(Moment::of(pod, Step::Finished)));
        }
        let delays = containers(pod).into_iter().filter_map(|(_, container)| {
            container.get("readinessProbe").map(|probe| {
                value::number(probe, "initialDelaySeconds").unwrap_or(0)
                    + value::number(probe, "periodSeconds").unwrap_or(0) / 2
            })
        });
        let wait = match delays.max() {
            None => Duration::ZERO,
            Some(seconds) => {
                self.scaled(seconds as f64) + self.draw("kubernetes pod ready", self.setup.latencies.ready)
            }
        };
        self.plan(wait, Due::Pod(Moment::of(pod, Step::Ready)));
    }

    pub(crate) fn pod_ready(&mut self, pod: &Arc<Value>) {
        if self.fault_of(pod).is_some() || value::text(pod, "status.phase") != "Running" {
            if self.fault_of(pod) == Some(PodFault::NotReady) {
                self.tell(
                    "kubelet",
                    pod,
                    false,
                    "Unhealthy",
                    "Readiness probe failed: HTTP probe failed with statuscode: 500",
                );
            }
            return;
        }
        if !self.holds_back(pod) {
            self.set_ready(pod, true, "");
        }
    }

    /// Says whether a pod is ready, and if not, why.
    pub(super) fn set_ready(&mut self, pod: &Value, is_ready: bool, why: &str) {
        let now = self.stamp();
        self.amend(&KUBELET, ("pods", value::namespace(pod), value::name(pod)), |object| {
            for kind in ["Ready", "ContainersReady"] {
                if is_ready {
                    condition(object, &now, kind, "True", ("", ""));
                } else if kind == "Ready" {
                    condition(object, &now, kind, "False", (why, ""));
                }
            }
            tidy(object);
            let list = object.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut);
            for status in list.into_iter().flatten() {
                value::set(status, "ready", is_ready);
                value::set(status, "started", true);
            }
        });
    }

    fn pod_finished(&mut self, pod: &Arc<Value>) {
        if self.fault_of(pod).is_none() {
            self.pod_over(pod, true);
        }
    }

    /// The containers of a pod have ended, and nobody starts them again.
    fn pod_over(&mut self, pod: &Arc<Value>, is_done: bool) {
        let now = self.stamp();
        self.amend(&KUBELET, ("pods", value::namespace(pod), value::name(pod)), |object| {
            let (phase, why) = if is_done { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
            value::set(object, "status.phase", phase);
            for kind in ["Ready", "ContainersReady"] {
                condition(object, &now, kind, "False", (why, ""));
            }
            tidy(object);
            let (code, reason) = if is_done { (0, "Completed") } else { (1, "Error") };
            let done =
                json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now } });
            let list = statuses(object, |_| done.clone(), false, 0);
            value::set(object, "status.containerStatuses", list);
        });
    }

    /// The containers of a pod have ended; the pod goes, unless somebody holds it.
    fn pod_gone(&mut self, pod: &Arc<Value>) {
        if !value::is_deleting(pod) {
            return;
        }
        if !value::finalizers(pod).is_empty() {
            self.amend(&KUBELET, ("pods", value::namespace(pod), value::name(pod)), |object| {
                value::set(object, "metadata.deletionGracePeriodSeconds", 0);
            });
            return;
        }
        self.erase("pods", value::namespace(pod), value::name(pod));
    }

    /// A pod starts over, as its node would have it.
    pub(super) fn restart_pod(&mut self, key: &Key) {
        self.amend(&KUBELET, (&key.0, &key.1, &key.2), |object| {
            for field in ["startTime", "containerStatuses", "podIP", "podIPs"] {
                value::remove(object, &format!("status.{field}"));
            }
            value::set(object, "status.phase", "Pending");
        });
    }

    fn pod_address(&mut self, node: &str) -> String {
        let range = self.get("nodes", "", node).map(|node| value::text(&node, "spec.podCIDR").to_owned());
        let first = range.as_deref().and_then(|range| range.split('/').next()).and_then(|text| text.parse().ok());
        let first: Ipv4Addr = first.unwrap_or(self.setup.pods.0);
        let last = self.workloads.addresses.entry(node.to_owned()).or_insert(1);
        *last += 1;
        // The first is the network's own, the second that of its bridge.
        Ipv4Addr::from(u32::from(first).wrapping_add(*last % 250 + 2)).to_string()
    }
}

/// Whether a pod was only not ready because its node was not.
fn is_resumed(pod: &Value) -> bool {
    value::items(pod, "status.conditions")
        .iter()
        .any(|it| value::text(it, "type") == "Ready" && value::text(it, "reason") == "NodeNotReady")
}

/// Whether a pod is one that comes to an end: that of a job, or one of nobody's that is not always started again. What others
/// control (Longhorn's instances) runs on though it would not be.
fn ends(pod: &Value) -> bool {
    match value::controller(pod) {
        Some(owner) => value::text(owner, "kind") == "Job",
        None => value::text(pod, "spec.restartPolicy") != "Always",
    }
}

/// The containers that run at the same time.
fn containers(pod: &Value) -> Vec<(usize, &Value)> {
    value::items(pod, "spec.containers").iter().enumerate().collect()
}

fn host_ip(node: &Value) -> String {
    let mut addresses =
        value::items(node, "status.addresses").iter().filter(|it| value::text(it, "type") == "InternalIP");
    addresses.next().map(|it| value::text(it, "address").to_owned()).unwrap_or_default()
}

/// A pod is on a node with this address.
pub(super) fn at_host(pod: &mut Value, address: &str) {
    value::set(pod, "status.hostIP", address);
    value::set(pod, "status.hostIPs", json!([{ "ip": address }]));
}

/// All containers of a pod run, and it is ready.
pub(super) fn runs(pod: &mut Value, now: &str) {
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        condition(pod, now, kind, "True", ("", ""));
    }
    tidy(pod);
    let running = statuses(pod, |_| json!({ "running": { "startedAt": now } }), true, 0);
    value::set(pod, "status.containerStatuses", running);
}

/// Conditions without a reason or a message are written without them.
fn tidy(pod: &mut Value) {
    for item in pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        for key in ["reason", "message"] {
            if value::text(item, key).is_empty() {
                value::remove(item, key);
            }
        }
    }
}

fn statuses(pod: &Value, state: impl Fn(&Value) -> Value, is_ready: bool, restarts: i64) -> Vec<Value> {
    value::items(pod, "spec.containers")
        .iter()
        .map(|container| status_of(container, &state(container), is_ready, restarts))
        .collect()
}

fn status_of(container: &Value, state: &Value, is_ready: bool, restarts: i64) -> Value {
    let is_running = state.get("running").is_some();
    json!({
        "name": value::text(container, "name"), "image": value::text(container, "image"), "imageID": value::text(container, "image"),
        "ready": is_ready, "restartCount": restarts, "started": is_running, "state": state, "lastState": {},
    })
}
