//! What there is, as the objects of Kubernetes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::talos::cluster::KubeNode;
use crate::world::World;

/// A moment as objects write it: `2026-09-21T14:13:20Z`.
fn stamp(world: &World, at: Duration) -> String {
    let seconds = (world.calendar + at).as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1970 to a date, counted from March so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub(super) fn version(world: &World, vmid: u32) -> Value {
    let config = world.talos.nodes.get(&vmid).and_then(|node| node.config());
    let version = config.map(|config| config.kubernetes_version.clone()).unwrap_or_default();
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    json!({ "major": major, "minor": minor, "gitVersion": version, "platform": "linux/amd64" })
}

pub(super) fn api_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

pub(super) fn api_groups() -> Value {
    let version = json!({ "groupVersion": "apps/v1", "version": "v1" });
    let group = json!({ "name": "apps", "versions": [version], "preferredVersion": version });
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

pub(super) fn core_resources() -> Value {
    let nodes = json!({
        "name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["get", "list"], "shortNames": ["no"],
    });
    json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [nodes] })
}

pub(super) fn apps_resources() -> Value {
    let deployments = json!({
        "name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "verbs": ["get"],
        "shortNames": ["deploy"],
    });
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [deployments] })
}

pub(super) fn nodes(world: &World, key: &str) -> Value {
    let known = world.talos.clusters.get(key).map(|cluster| &cluster.nodes);
    let items: Vec<Value> = known.into_iter().flatten().map(|(name, node)| object(world, name, node)).collect();
    let metadata = json!({ "resourceVersion": world.revision.to_string() });
    json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items })
}

pub(super) fn node(world: &World, key: &str, name: &str) -> Option<Value> {
    let node = world.talos.clusters.get(key)?.nodes.get(name)?;
    Some(object(world, name, node))
}

fn object(world: &World, name: &str, node: &KubeNode) -> Value {
    let (status, reason, message) = if node.is_ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else if node.is_silent {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    } else {
        ("False", "KubeletNotReady", "container runtime network not ready: NetworkReady=false")
    };
    let mut labels =
        json!({ "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
    if let Some(all) = labels.as_object_mut() {
        all.extend(node.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    }
    let taint = |(key, effect): (&String, &String)| {
        let (value, effect) = effect.rsplit_once(':').unwrap_or(("", effect));
        if value.is_empty() {
            json!({ "key": key, "effect": effect })
        } else {
            json!({ "key": key, "value": value, "effect": effect })
        }
    };
    let mut taints: Vec<Value> = node.taints.iter().map(taint).collect();
    if !node.is_ready {
        taints.push(json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }));
    }
    let mut addresses: Vec<Value> =
        node.addresses.iter().map(|it| json!({ "type": "InternalIP", "address": it })).collect();
    addresses.push(json!({ "type": "Hostname", "address": name }));
    let changed = stamp(world, node.changed);
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": format!("00000000-0000-4000-8000-{:012}", node.vmid),
            "resourceVersion": world.revision.to_string(),
            "creationTimestamp": stamp(world, node.since),
            "labels": labels,
            "annotations": {},
        },
        "spec": { "taints": taints, "unschedulable": node.is_unschedulable },
        "status": {
            "addresses": addresses,
            "conditions": [{
                "type": "Ready",
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp(world, world.now),
                "lastTransitionTime": changed,
            }],
            "nodeInfo": {
                "kubeletVersion": node.version,
                "osImage": "Talos",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.2.0",
                "kernelVersion": "6.18.0-talos",
                "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
            },
        },
    })
}

/// The deployment of CoreDNS, from when there is a node that it could run on.
pub(super) fn coredns(world: &World, key: &str) -> Option<Value> {
    let cluster = world.talos.clusters.get(key).filter(|cluster| !cluster.nodes.is_empty())?;
    let available = if cluster.has_dns { 2 } else { 0 };
    let status = if cluster.has_dns { "True" } else { "False" };
    let condition = json!({ "type": "Available", "status": status, "reason": "MinimumReplicas", "message": "" });
    Some(json!({
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": { "name": "coredns", "namespace": "kube-system", "generation": 1, "labels": { "k8s-app": "kube-dns" } },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "k8s-app": "kube-dns" } } },
        "status": {
            "observedGeneration": 1,
            "replicas": 2,
            "updatedReplicas": 2,
            "readyReplicas": available,
            "availableReplicas": available,
            "unavailableReplicas": 2 - available,
            "conditions": [condition],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::Blueprint;

    #[test]
    fn moments_are_written_as_dates() {
        let at = |seconds: u64| {
            let world = World::new(Blueprint::embedded(&[]), Duration::ZERO, Duration::from_secs(seconds));
            stamp(&world, Duration::ZERO)
        };
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_790_000_000), "2026-09-21T14:13:20Z");
    }
}
