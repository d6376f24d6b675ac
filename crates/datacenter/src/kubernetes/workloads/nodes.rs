//! Nodes, as the machines tell of them: [`heartbeats`] is how they say that they live, [`lifecycle`] what follows when they do
//! not, [`mirrors`] what they run without being told by the API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{CONTROLLER, KUBELET, Kube, Writer};
use crate::kubernetes::value;

pub(crate) mod heartbeats;
mod lifecycle;
mod mirrors;

/// The agent of a node, writing more than what it saw.
pub(super) const AGENT: Writer<'_> = Writer { name: "kubelet", subresource: "" };

/// What a machine tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    /// Whether its agent runs: whoever is off tells nothing, and is missed only later.
    pub(crate) is_up: bool,
    /// Whether nothing was heard of it for so long that it is missed.
    pub(crate) is_silent: bool,
    /// Whether it runs the API server, and with it the other parts of a control plane.
    pub(crate) runs_control_plane: bool,
    pub(crate) is_unschedulable: bool,
    pub(crate) addresses: Vec<String>,
    /// What it runs as a control plane: the API server, the controllers, the scheduler.
    pub(crate) images: [String; 3],
    pub(crate) labels: BTreeMap<String, String>,
    /// By key: the effect, with the value before a colon where there is one.
    pub(crate) taints: BTreeMap<String, String>,
    pub(crate) version: String,
    pub(crate) cores: u64,
    pub(crate) memory_mib: u64,
    /// Another one after each start of its machine.
    pub(crate) boot_id: String,
}

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
        if self.store.get("nodes", "", &told.name).is_none() {
            self.register(told);
        }
        let place = ("nodes", "", told.name.as_str());
        self.amend(&AGENT, place, |node| {
            for (key, text) in &told.labels {
                value::place(node, "metadata.labels")[key.as_str()] = json!(text);
            }
            // What others tainted it with stays.
            let others = value::items(node, "spec.taints").iter();
            let others = others.filter(|it| !told.taints.contains_key(value::text(it, "key"))).cloned();
            let own = told.taints.iter().map(|(key, effect)| taint(key, effect));
            let all: Vec<Value> = own.chain(others.collect::<Vec<_>>()).collect();
            match all.is_empty() {
                true => drop(value::remove(node, "spec.taints")),
                false => value::set(node, "spec.taints", all),
            }
            if told.is_unschedulable {
                value::set(node, "spec.unschedulable", true);
            }
        });
        if told.is_up {
            self.post_status(told);
        } else if told.is_silent {
            self.miss(&told.name);
        }
        self.tell_agent(told);
        self.taint_by_conditions(&told.name);
        self.mirror(told);
    }

    /// A machine registers its node.
    fn register(&mut self, told: &Told) {
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
        // Admission taints every node that begins.
        let taints = json!([{ "key": lifecycle::NOT_READY, "effect": "NoSchedule" }]);
        let metadata = json!({ "name": told.name, "labels": labels });
        self.make(&AGENT, "nodes", json!({ "metadata": metadata, "spec": { "taints": taints } }));
        if let Some(range) = self.free_range() {
            self.amend(&CONTROLLER, ("nodes", "", &told.name), |node| {
                value::set(node, "spec.podCIDR", range.as_str());
                value::set(node, "spec.podCIDRs", json!([range]));
            });
        }
    }

    /// The agent of a node writes how it is.
    fn post_status(&mut self, told: &Told) {
        let (status, reason, message) = if told.is_ready {
            ("True", "KubeletReady", "kubelet is posting ready status")
        } else {
            (
                "False",
                "KubeletNotReady",
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
            )
        };
        let now = self.stamp();
        self.amend(&KUBELET, ("nodes", "", told.name.as_str()), |node| {
            let mut addresses: Vec<Value> =
                told.addresses.iter().map(|it| json!({ "type": "InternalIP", "address": it })).collect();
            addresses.push(json!({ "type": "Hostname", "address": told.name }));
            value::set(node, "status.addresses", addresses);
            let (cores, memory) = (told.cores.to_string(), format!("{}Ki", told.memory_mib << 10));
            let capacity = json!({ "cpu": cores, "memory": memory, "pods": "110", "ephemeral-storage": "20Gi" });
            value::set(node, "status.capacity", capacity.clone());
            value::set(node, "status.allocatable", capacity);
            let info = json!({
                "kubeletVersion": told.version, "osImage": "Talos", "operatingSystem": "linux", "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.2.0", "kernelVersion": "6.18.0-talos",
                "machineID": "", "systemUUID": "", "bootID": told.boot_id, "kubeProxyVersion": "",
            });
            value::set(node, "status.nodeInfo", info);
            value::set(node, "status.daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 10_250 } }));
            let last = heartbeats::last(node);
            let before = node["status"].clone();
            condition(node, &now, "Ready", status, (reason, message));
            for (kind, reason, message) in [
                ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ] {
                condition(node, &now, kind, "False", (reason, message));
            }
            // What is told again is told without a beat of its own.
            if let Some(last) = last {
                heartbeats::set(node, &last);
            }
            if node["status"] != before {
                heartbeats::set(node, &now);
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
