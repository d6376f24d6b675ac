//! What a node tells of the Kubernetes that it is part of.

use serde_json::{Value, json};

use crate::talos::config::{Cni, Role};
use crate::talos::node::{Boot, Node};
use crate::world::World;

pub(super) fn nodename(node: &Node, boot: &Boot) -> Vec<(String, Value)> {
    let is_given = boot.config.as_ref().is_some_and(|config| config.hostname().is_some());
    let say = || {
        // The name of the platform came first, where another is given.
        let version = if is_given { "2" } else { "1" };
        json!({ "nodename": node.hostname(), "hostnameVersion": version, "skipNodeRegistration": false })
    };
    boot.config.as_ref().map(|_| ("nodename".to_owned(), say())).into_iter().collect()
}

pub(super) fn node_status(world: &World, node: &Node) -> Vec<(String, Value)> {
    let cluster = node.config().and_then(|config| world.talos.clusters.get(&config.key));
    let name = node.hostname();
    let Some(known) = cluster.and_then(|cluster| cluster.nodes.get(&name)) else { return Vec::new() };
    let key = node.config().map(|config| config.key.as_str()).unwrap_or_default();
    let object = world.kubernetes.get(key).and_then(|kube| kube.get("nodes", "", &name));
    let part = |path: &str| object.as_ref().and_then(|object| object.pointer(path).cloned());
    let said = json!({
        "nodename": name,
        "nodeReady": known.is_ready,
        "unschedulable": part("/spec/unschedulable") == Some(json!(true)),
        "labels": part("/metadata/labels").unwrap_or_else(|| json!({})),
        "annotations": part("/metadata/annotations").unwrap_or_else(|| json!({})),
        "podCIDRs": part("/spec/podCIDRs").unwrap_or_else(|| json!([])),
    });
    vec![(name, said)]
}

/// The parts of a control plane that the kubelet runs without being told by Kubernetes: their names, and whether each is ready;
/// nothing as long as nothing runs them.
pub(crate) fn static_pod_names(world: &World, node: &Node) -> Vec<(String, Option<bool>)> {
    let Some(boot) = &node.boot else { return Vec::new() };
    if !node.is_control_plane() || !boot.runs_kubelet || !boot.serves_etcd {
        return Vec::new();
    }
    let is_ready = boot.runs_apiserver.then(|| world.is_api_ready(node.vmid));
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
        .map(|part| (format!("kube-system/{part}-{}", node.hostname()), is_ready))
        .to_vec()
}

pub(super) fn static_pods(world: &World, node: &Node) -> Vec<(String, Value)> {
    let say = |(id, is_ready): (String, Option<bool>)| {
        let truth = |truth: bool| if truth { "True" } else { "False" };
        let condition = |kind: &str, is_true: bool| json!({ "type": kind, "status": truth(is_true) });
        let is_up = is_ready.is_some();
        let said = json!({
            "phase": if is_up { "Running" } else { "Pending" },
            "conditions": [
                condition("Initialized", is_up),
                condition("Ready", is_ready == Some(true)),
                condition("ContainersReady", is_ready == Some(true)),
                condition("PodScheduled", true),
            ],
            "hostIP": node.address().map(|address| address.to_string()).unwrap_or_default(),
        });
        (id, said)
    };
    static_pod_names(world, node).into_iter().map(say).collect()
}

/// What a control plane brings along when its cluster begins.
pub(super) fn manifests(node: &Node) -> Vec<(String, Value)> {
    let Some(config) = node.config().filter(|config| config.role == Role::ControlPlane) else { return Vec::new() };
    let machine = config.machine();
    let text = |path: &str| machine.and_then(|machine| machine.text_at(path)).unwrap_or_default();
    let subnets = |key: &str| {
        let new = config.documents_of("KubeNetworkConfig").next().map(|document| document.value.texts_at(key));
        let old = machine.map(|machine| machine.texts_at(&format!("cluster.network.{key}")));
        let named: Vec<String> = new.or(old).unwrap_or_default().into_iter().map(str::to_owned).collect();
        named
    };
    let pods = subnets("podSubnets");
    let cni = match config.cni() {
        Cni::Flannel => "flannel",
        Cni::None if text("cluster.network.cni.name") == "custom" => "custom",
        Cni::None => "none",
    };
    let has_proxy = machine.and_then(|machine| machine.bool_at("cluster.proxy.disabled")) != Some(true)
        && config.documents_of("KubeProxyConfig").all(|it| it.value.bool_at("enabled") != Some(false));
    let said = json!({
        "string": "https://127.0.0.1:7445",
        "clusterDomain": if text("cluster.network.dnsDomain").is_empty() { "cluster.local" } else { text("cluster.network.dnsDomain") },
        "podCIDRs": if pods.is_empty() { vec!["10.244.0.0/16".to_owned()] } else { pods },
        "proxyEnabled": has_proxy,
        "proxyImage": format!("registry.k8s.io/kube-proxy:{}", config.kubernetes_version),
        "proxyArgs": [],
        "coreDNSEnabled": config.has_dns(),
        "coreDNSImage": "registry.k8s.io/coredns/coredns:v1.13.2",
        "dnsServiceIP": "10.96.0.10",
        "dnsServiceIPv6": "",
        "flannelEnabled": cni == "flannel",
        "flannelImage": "ghcr.io/siderolabs/flannel:v0.28.0",
        "flannelExtraArgs": [],
        "podSecurityPolicyEnabled": false,
        "talosAPIServiceEnabled": false,
        "cniName": cni,
    });
    vec![("manifests".to_owned(), said)]
}
