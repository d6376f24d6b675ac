//! Nodes, as the machines tell of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{CONTROLLER, KUBELET, Kube, Writer};
use crate::kubernetes::value;

/// What a machine tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    /// Whether nothing is heard of it.
    pub(crate) is_silent: bool,
    pub(crate) is_unschedulable: bool,
    pub(crate) addresses: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// By key: the effect, with the value before a colon where there is one.
    pub(crate) taints: BTreeMap<String, String>,
    pub(crate) version: String,
    pub(crate) cores: u64,
    pub(crate) memory_mib: u64,
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl Kube {
    /// A range of addresses for the pods of one more node; nothing if all are given away.
    fn free_range(&self) -> Option<String> {
        const LENGTH: u8 = 24;
        let (first, length) = self.setup.pods;
        let own = length.max(LENGTH);
        let taken: BTreeSet<&str> = self.store.all("nodes", "").map(|node| value::text(node, "spec.podCIDR")).collect();
        let count = 1_u32.checked_shl((own - length).into()).unwrap_or(1);
        let ranges = (0..count).map(|at| {
            let offset = at.checked_shl((32 - own).into()).unwrap_or(0);
            format!("{}/{own}", Ipv4Addr::from(u32::from(first).wrapping_add(offset)))
        });
        ranges.into_iter().find(|range| !taken.contains(range.as_str()))
    }

    /// Writes what a machine tells into its node, which is made if it is new.
    pub(crate) fn tell_node(&mut self, told: &Told) {
        let registrar = Writer { name: "kubelet", subresource: "" };
        if self.store.get("nodes", "", &told.name).is_none() {
            let mut labels = json!({});
            for (key, text) in [
                ("beta.kubernetes.io/arch", "amd64"),
                ("beta.kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", "amd64"),
                ("kubernetes.io/hostname", told.name.as_str()),
                ("kubernetes.io/os", "linux"),
            ] {
                labels[key] = json!(text);
            }
            let metadata = json!({ "name": told.name, "labels": labels });
            self.make(&registrar, "nodes", json!({ "metadata": metadata, "spec": {} }));
            if let Some(range) = self.free_range() {
                self.amend(&CONTROLLER, ("nodes", "", &told.name), |node| {
                    value::set(node, "spec.podCIDR", range.as_str());
                    value::set(node, "spec.podCIDRs", json!([range]));
                });
            }
        }
        let now = self.stamp();
        let place = ("nodes", "", told.name.as_str());
        self.amend(&registrar, place, |node| {
            for (key, text) in &told.labels {
                value::place(node, "metadata.labels")[key.as_str()] = json!(text);
            }
            // What others tainted it with stays.
            let own = |key: &str| told.taints.contains_key(key) || [NOT_READY, UNREACHABLE].contains(&key);
            let mut taints: Vec<Value> =
                value::items(node, "spec.taints").iter().filter(|it| !own(value::text(it, "key"))).cloned().collect();
            let mut all: Vec<Value> = told.taints.iter().map(|(key, effect)| taint(key, effect)).collect();
            all.append(&mut taints);
            if told.is_silent {
                all.push(taint(UNREACHABLE, "NoSchedule"));
            } else if !told.is_ready {
                all.push(taint(NOT_READY, "NoSchedule"));
            }
            match all.is_empty() {
                true => drop(value::remove(node, "spec.taints")),
                false => value::set(node, "spec.taints", all),
            }
            if told.is_unschedulable {
                value::set(node, "spec.unschedulable", true);
            }
        });
        let (status, reason, message) = if told.is_ready {
            ("True", "KubeletReady", "kubelet is posting ready status")
        } else if told.is_silent {
            ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        } else {
            (
                "False",
                "KubeletNotReady",
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
            )
        };
        self.amend(&KUBELET, place, |node| {
            let mut addresses: Vec<Value> = told.addresses.iter().map(|it| json!({ "type": "InternalIP", "address": it })).collect();
            addresses.push(json!({ "type": "Hostname", "address": told.name }));
            value::set(node, "status.addresses", addresses);
            let (cores, memory) = (told.cores.to_string(), format!("{}Ki", told.memory_mib << 10));
            let capacity = json!({ "cpu": cores, "memory": memory, "pods": "110", "ephemeral-storage": "20Gi" });
            value::set(node, "status.capacity", capacity.clone());
            value::set(node, "status.allocatable", capacity);
            value::set(node, "status.nodeInfo", json!({
                "kubeletVersion": told.version, "osImage": "Talos", "operatingSystem": "linux", "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.2.0", "kernelVersion": "6.18.0-talos",
                "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
            }));
            value::set(node, "status.daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 10_250 } }));
            let known = value::items(node, "status.conditions").iter().find(|it| value::text(it, "type") == "Ready").cloned();
            condition(node, &now, "Ready", status, (reason, message));
            for (kind, reason, message) in [
                ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ] {
                condition(node, &now, kind, "False", (reason, message));
            }
            let is_same = known.is_some_and(|known| value::text(&known, "status") == status);
            for item in node.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
                if !is_same {
                    value::set(item, "lastHeartbeatTime", now.as_str());
                } else {
                    value::default(item, "lastHeartbeatTime", now.as_str());
                }
            }
        });
    }
}

pub(super) fn taint(key: &str, effect: &str) -> Value {
    match effect.rsplit_once(':') {
        Some((value, effect)) if !value.is_empty() => json!({ "key": key, "value": value, "effect": effect }),
        Some((_, effect)) => json!({ "key": key, "effect": effect }),
        None => json!({ "key": key, "effect": effect }),
    }
}
