//! The checks that ask the Kubernetes API, as the vendor's do.

use serde_json::Value;

use super::checks::{Passed, Verdict, Wanted, quoted, text};
use crate::kubernetes::kube::Kube;
use crate::kubernetes::value;
use crate::world::World;

const SYSTEM: &str = "kube-system";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The API, if one of the control planes serves it.
fn api<'w>(world: &'w World, wanted: &Wanted) -> Result<&'w Kube, String> {
    let is_served = world.nodes_of(&wanted.key).into_iter().any(|vmid| world.is_api_ready(vmid));
    let kube = world.kubernetes.get(&wanted.key).filter(|_| is_served);
    kube.ok_or_else(|| {
        let endpoint = world.talos.clusters.get(&wanted.key).map_or("", |cluster| cluster.endpoint.as_str());
        let host = endpoint.trim_start_matches("https://");
        format!("Get \"{endpoint}/api/v1/nodes\": dial tcp {host}: connect: connection refused")
    })
}

/// The objects of a collection in the namespace of the system that have a label.
fn labelled<'k>(kube: &'k Kube, collection: &str, selector: &'k str) -> impl Iterator<Item = &'k Value> {
    let (key, wanted) = selector.split_once('=').unwrap_or((selector, ""));
    let has_it = move |object: &&Value| object["metadata"]["labels"][key].as_str() == Some(wanted);
    kube.store.all(collection, SYSTEM).map(AsRef::as_ref).filter(has_it)
}

/// A condition that is there, and whether it is true.
fn condition(object: &Value, kind: &str) -> Option<bool> {
    let found = value::items(object, "status.conditions").iter().find(|it| it["type"] == kind)?;
    Some(found["status"] == "True")
}

fn nodes(kube: &Kube) -> impl Iterator<Item = &Value> {
    kube.store.all("nodes", "").map(AsRef::as_ref)
}

/// The addresses by which a node is known.
pub(super) fn addresses(node: &Value) -> Vec<&str> {
    let all = value::items(node, "status.addresses").iter();
    let counted = all.filter(|it| it["type"] == "InternalIP" || it["type"] == "ExternalIP");
    counted.map(|it| text(it, "/address")).collect()
}

pub(super) fn is_control_plane(node: &Value) -> bool {
    node["metadata"]["labels"].get(CONTROL_PLANE).is_some()
}

/// Holds that these nodes are exactly those, by any of their addresses.
fn same(expected: &[&[String]], mut actual: Vec<Vec<&str>>) -> Result<(), String> {
    for ips in expected {
        let is_it = |node: &Vec<&str>| node.iter().any(|ip| ips.iter().any(|own| own == ip));
        let Some(at) = actual.iter().position(is_it) else {
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            return Err(format!("can't find expected node with IPs {}", quoted(&ips)));
        };
        actual.remove(at);
    }
    let mut unexpected: Vec<&str> = actual.into_iter().flatten().collect();
    unexpected.sort_by_key(|ip| ip.parse::<std::net::IpAddr>().ok());
    if unexpected.is_empty() { Ok(()) } else { Err(format!("unexpected nodes with IPs {}", quoted(&unexpected))) }
}

pub(super) fn nodes_report(world: &World, wanted: &Wanted) -> Verdict {
    let kube = api(world, wanted)?;
    let expected: Vec<&[String]> = wanted.members.iter().map(|member| member.ips.as_slice()).collect();
    same(&expected, nodes(kube).map(addresses).collect()).map(|()| Passed::Held)
}

pub(super) fn control_plane(world: &World, wanted: &Wanted) -> Verdict {
    let kube = api(world, wanted)?;
    let expected: Vec<&[String]> = wanted.control_planes().map(|member| member.ips.as_slice()).collect();
    let actual: Vec<Vec<&str>> = nodes(kube).filter(|node| is_control_plane(node)).map(addresses).collect();
    let count = actual.len();
    same(&expected, actual)?;
    for part in ["kube-apiserver", "kube-scheduler", "kube-controller-manager"] {
        let selector = format!("k8s-app={part}");
        let pods: Vec<&Value> = labelled(kube, "pods", &selector).collect();
        if pods.len() != count {
            return Err(format!("expected number of pods for {part} to be {count}, got {}", pods.len()));
        }
        let sick = named(pods.into_iter().filter(|pod| condition(pod, "Ready") == Some(false)));
        if !sick.is_empty() {
            return Err(format!("some pods are not ready for {part}: [{}]", sick.join(" ")));
        }
    }
    Ok(Passed::Held)
}

pub(super) fn nodes_ready(world: &World, wanted: &Wanted) -> Verdict {
    let sick = named(nodes(api(world, wanted)?).filter(|node| condition(node, "Ready") == Some(false)));
    if sick.is_empty() { Ok(Passed::Held) } else { Err(format!("some nodes are not ready: [{}]", sick.join(" "))) }
}

pub(super) fn nodes_schedulable(world: &World, wanted: &Wanted) -> Verdict {
    // The vendor stops at the first.
    let closed = nodes(api(world, wanted)?).find(|node| value::is_true(node, "spec.unschedulable"));
    match closed {
        None => Ok(Passed::Held),
        Some(node) => Err(format!("some nodes are not schedulable: [{}]", value::name(node))),
    }
}

/// The Pods of a set for every node, if there is one.
pub(super) fn daemons(world: &World, wanted: &Wanted, selector: &str) -> Verdict {
    let kube = api(world, wanted)?;
    let count = labelled(kube, "daemonsets.apps", selector)
        .next()
        .map(|set| value::number(set, "status.desiredNumberScheduled").unwrap_or(0));
    count.map_or(Ok(Passed::Skipped), |count| pods_ready(kube, count, selector))
}

/// The Pods of a deployment, if there is one.
pub(super) fn deployment(world: &World, wanted: &Wanted, selector: &str) -> Verdict {
    let kube = api(world, wanted)?;
    let count =
        labelled(kube, "deployments.apps", selector).next().map(|it| value::number(it, "spec.replicas").unwrap_or(0));
    count.map_or(Ok(Passed::Skipped), |count| pods_ready(kube, count, selector))
}

fn pods_ready(kube: &Kube, wanted: i64, selector: &str) -> Verdict {
    let pods: Vec<&Value> = labelled(kube, "pods", selector).collect();
    if pods.is_empty() {
        return Err(format!("no pods found for namespace {SYSTEM:?} and label selector {selector:?}"));
    }
    // Those that end, have failed, or whose containers have all ended, are no longer counted.
    let is_counted = |pod: &&Value| {
        let mut containers = value::items(pod, "status.containerStatuses").iter();
        let runs = containers.any(|container| container["state"].get("terminated").is_none());
        !value::is_deleting(pod) && pod["status"]["phase"] != "Failed" && runs
    };
    let (ready, sick): (Vec<&Value>, Vec<&Value>) =
        pods.into_iter().filter(is_counted).partition(|pod| condition(pod, "Ready") == Some(true));
    match (ready.len(), named(sick.into_iter())) {
        (0, _) => Err(format!("no ready pods found for namespace {SYSTEM:?} and label selector {selector:?}")),
        (count, sick) if sick.is_empty() => {
            let is_right = i64::try_from(count) == Ok(wanted);
            if is_right { Ok(Passed::Held) } else { Err(format!("expected {wanted} ready pods, got {count}")) }
        }
        (_, sick) => Err(format!("some pods are not ready: [{}]", sick.join(" "))),
    }
}

fn named<'o>(objects: impl Iterator<Item = &'o Value>) -> Vec<&'o str> {
    objects.map(value::name).collect()
}

/// The nodes of a cluster, as its API knows them: for clusters that are not discovered otherwise.
pub(super) fn known<'w>(world: &'w World, key: &str) -> Vec<&'w Value> {
    world.kubernetes.get(key).map(|kube| nodes(kube).collect()).unwrap_or_default()
}
