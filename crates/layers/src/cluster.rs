//! The rest of the platform layer: nodes that have their configuration, one bootstrap, and the gates before anything is put into the
//! cluster.

mod gates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{GraphBuilder, Handle, Place, StepId};
use castle_spec::model::{Cni, Storage};
use castle_spec::{Castle, Node, Role};
use castle_talos::model::bundle::{Bundle, EncryptionSecret};
use castle_talos::model::config::{
    self, Authority, Cluster, Configuration, Disk, Input, Link, Route, Secrets, Vip, Volume,
};
use castle_talos::model::pki::Credential;
use castle_talos::steps::{Bootstrap, Configure, Configured, Keys, Machine, Members, Whom, Wire};

use crate::platform;
use crate::survey::Survey;
use gates::{Api, CoreDns, NodesReady, Site as ApiSite};

/// The name of the one link that a node has.
const LINK: &str = "net0";
/// Where the Kubernetes API listens.
const API_PORT: u16 = 6443;

/// Where the Kubernetes API of a castle is reached: at its shared address, or at its only control plane.
#[must_use]
pub fn api_address(castle: &Castle, nodes: &[Node]) -> String {
    let first = nodes.iter().find(|node| node.role == Role::ControlPlane).map(|node| node.address.value);
    let address = castle.network.vip.as_ref().map(|vip| vip.value).or(first);
    address.map_or_else(String::new, |address| match address.is_ipv6() {
        true => format!("https://[{address}]:{API_PORT}"),
        false => format!("https://{address}:{API_PORT}"),
    })
}

/// The configuration of a node.
///
/// # Errors
///
/// What is wrong with it, as a sentence.
pub fn configuration(castle: &Castle, nodes: &[Node], node: &Node, bundle: &Bundle) -> Result<Configuration, String> {
    let EncryptionSecret::Secretbox(secretbox) = &bundle.encryption else {
        return Err("the bundle is of Talos 1.2 or older: its encryption secret has no place in today's configuration"
            .to_owned());
    };
    let secrets = Secrets {
        cluster_id: &bundle.cluster_id,
        cluster_secret: bundle.cluster_secret.expose(),
        token: bundle.bootstrap_token.expose(),
        trustd_token: bundle.trustd_token.expose(),
        secretbox: secretbox.expose(),
        etcd: authority(&bundle.etcd),
        k8s: authority(&bundle.kubernetes),
        aggregator: authority(&bundle.aggregator),
        os: authority(&bundle.talos),
        service_account_key: bundle.service_account.expose(),
    };
    let role = match node.role {
        Role::ControlPlane => config::Role::ControlPlane,
        Role::Worker => config::Role::Worker,
    };
    let contract = config::Contract::of(&castle.talos.version.value.to_string())
        .ok_or_else(|| format!("castle does not know the configuration of Talos {}", castle.talos.version.value))?;
    let input = Input { secrets, cluster: cluster(castle, nodes), node: own(castle, node) };
    config::generate(contract, role, &input).map_err(|error| error.to_string())
}

fn authority(credential: &Credential) -> Authority<'_> {
    Authority { certificate: &credential.certificate, key: credential.key.expose() }
}

/// What all nodes share.
fn cluster(castle: &Castle, nodes: &[Node]) -> Cluster {
    let kubernetes = &castle.kubernetes;
    let has_workers = nodes.iter().any(|node| node.role == Role::Worker);
    let schedules = kubernetes.schedule_on_control_planes.as_ref().map_or(!has_workers, |schedules| schedules.value);
    Cluster {
        pod_subnets: kubernetes.pod_subnets.iter().map(|subnet| subnet.to_string()).collect(),
        service_subnets: kubernetes.service_subnets.iter().map(|subnet| subnet.to_string()).collect(),
        cni: match kubernetes.cni.value {
            Cni::Flannel => config::Cni::Flannel,
            Cni::None => config::Cni::None,
        },
        kube_proxy: kubernetes.kube_proxy.value,
        schedule_on_control_planes: schedules,
        balance_to_control_planes: !has_workers,
        ..Cluster::new(castle.castle.as_str(), &api_address(castle, nodes), &kubernetes.version.value.to_string())
    }
}

/// What is a node's own.
fn own(castle: &Castle, node: &Node) -> config::Node {
    let network = &castle.network;
    let longhorn = matches!(castle.storage.value, Storage::Longhorn(_)) && node.data_disk.is_some();
    let taints = node.taints.iter().map(|taint| {
        let (key, value, effect) = taint.parts();
        (key.to_owned(), if value.is_empty() { effect.to_owned() } else { format!("{value}:{effect}") })
    });
    config::Node {
        hostname: Some(node.name.value.clone()),
        certificate_sans: vec![node.address.value.to_string()],
        links: vec![Link {
            name: LINK.to_owned(),
            mac: Some(node.mac.to_string().to_lowercase()),
            mtu: None,
            addresses: vec![format!("{}/{}", node.address.value, network.cidr.prefix_len())],
            routes: vec![Route { destination: None, gateway: network.gateway.value.to_string() }],
        }],
        vip: network.vip.as_ref().map(|vip| Vip { address: vip.value.to_string(), link: LINK.to_owned() }),
        nameservers: network.nameservers.iter().map(|server| server.value.to_string()).collect(),
        time_servers: network.time_servers.iter().map(|server| server.to_string()).collect(),
        install: None,
        volumes: if longhorn { vec![Volume::longhorn(Disk::NotSystem)] } else { Vec::new() },
        labels: node.labels.clone(),
        taints: taints.collect(),
        mirrors: castle
            .talos
            .mirrors
            .iter()
            .map(|(registry, mirror)| config::Mirror {
                registry: registry.to_string(),
                endpoints: mirror.endpoints.iter().map(|endpoint| (endpoint.to_string(), false)).collect(),
                skip_fallback: false,
            })
            .collect(),
        registry_logins: Vec::new(),
        kernel_modules: castle.talos.kernel_modules.iter().map(|module| (module.to_string(), Vec::new())).collect(),
        sysctls: BTreeMap::new(),
        kubelet_args: BTreeMap::new(),
    }
}

/// What a cluster is formed from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file.
    pub castle: Arc<Castle>,
    /// Its nodes.
    pub nodes: Arc<Vec<Node>>,
    /// What was seen of the machine of each of them.
    pub machines: Vec<Machine>,
    /// How nodes are reached.
    pub wire: Arc<Wire>,
}

fn id(kind: &str, name: &str) -> StepId {
    StepId::new(&platform::layer(), kind, name)
}

/// What was seen of the machines of these nodes.
#[must_use]
pub fn machines(nodes: &[Node], survey: &Survey) -> Vec<Machine> {
    let machine = |node: &Node| match survey.guests.get(&node.vmid.0) {
        None => Machine::Absent,
        Some(guest) if guest.is_running() => Machine::On,
        Some(_) => Machine::Off,
    };
    nodes.iter().map(machine).collect()
}

/// What must be so before anything is put into the cluster: each gate, and what it claims.
#[must_use]
pub fn gates(castle: &Castle, nodes: &[Node]) -> Vec<(StepId, String)> {
    let mut gates = vec![
        (id("etcd", "members"), "every control plane votes in etcd".to_owned()),
        (id("api", "endpoint"), format!("the API is ready at {}", api_address(castle, nodes))),
    ];
    if castle.kubernetes.cni.value == Cni::Flannel {
        gates.push((id("nodes", "ready"), "all nodes are ready".to_owned()));
        gates.push((id("coredns", "available"), "CoreDNS is available".to_owned()));
    }
    gates
}

/// Adds the steps that make a cluster of the nodes, each after its machine runs; returns the promise of each node that has its
/// configuration.
pub fn form(graph: &mut GraphBuilder, plan: &Plan, keys: &Handle<Keys>) -> Vec<Handle<Configured>> {
    let Plan { castle, nodes, machines, wire } = plan;
    let whom = |node: &Node| Whom { name: node.name.value.clone(), address: node.address.value };
    let mut configured = Vec::new();
    for (node, machine) in nodes.iter().zip(machines) {
        let (castle, all, own) = (castle.clone(), nodes.clone(), node.clone());
        let compose = Box::new(move |bundle: &Bundle| configuration(&castle, &all, &own, bundle));
        let step = id("config", &node.name.value);
        let place = Place { lane: None, predicted: Duration::from_secs(30) };
        let handle = graph.step(
            step.clone(),
            place,
            (keys.clone(),),
            Configure::new(wire.clone(), whom(node), *machine, compose),
        );
        graph.after(step, platform::power_step(node));
        configured.push(handle);
    }
    let control_planes: Vec<Whom> = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect();
    let ready: Vec<Handle<Configured>> = nodes
        .iter()
        .zip(&configured)
        .filter(|(node, _)| node.role == Role::ControlPlane)
        .map(|(_, handle)| handle.clone())
        .collect();
    let place = |seconds| Place { lane: None, predicted: Duration::from_secs(seconds) };
    let begun = graph.step(
        id("etcd", "bootstrap"),
        place(5),
        (keys.clone(), ready),
        Bootstrap::new(wire.clone(), control_planes.clone()),
    );
    let gate = Members::new(wire.clone(), control_planes.clone());
    graph.gate(id("etcd", "members"), place(20), (keys.clone(), begun.clone()), gate);
    let at = |address: String| ApiSite { wire: wire.clone(), address };
    if let Some(first) = control_planes.first() {
        let address = first.address;
        let address = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        let api = Api::new(at(format!("https://{address}:{API_PORT}")), &first.name);
        graph.gate(id("api", &first.name), place(15), (keys.clone(), begun.clone()), api);
    }
    let shared = at(api_address(castle, nodes));
    let reached = graph.gate(
        id("api", "endpoint"),
        place(20),
        (keys.clone(), begun),
        Api::new(shared.clone(), "the castle's endpoint"),
    );
    if castle.kubernetes.cni.value == Cni::Flannel {
        let names = nodes.iter().map(|node| node.name.value.clone()).collect();
        let gate = NodesReady::new(shared.clone(), names);
        graph.gate(id("nodes", "ready"), place(15), (keys.clone(), reached.clone()), gate);
        graph.gate(id("coredns", "available"), place(10), (keys.clone(), reached), CoreDns::new(shared));
    }
    configured
}
