//! The rest of the platform layer: nodes that have their configuration, one bootstrap, and the gates before anything is put into the
//! cluster.

mod adorn;
mod configuration;
mod drift;
mod gates;
mod health;
mod rolling;
mod traits;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, GraphBuilder, Handle, Place, Restarts, StepId};
use castle_kubernetes::client::{Access, Api as Kubernetes};
use castle_spec::model::Cni;
use castle_spec::{Castle, Node, Role, Schematic};
use castle_talos::model::bundle::Bundle;
use castle_talos::model::config::{Difference, Side, factory_installer};
use castle_talos::steps::{
    Answers, Bootstrap, Configure, Configured, Keys, Machine, MachineUuid, Members, Objection, Quorum, Release,
    Remembered, Whom, Wire,
};
use serde_json::Value;

use crate::graceful;
use crate::platform::{self, Uuids, waits_for_nodes};
use crate::survey::Survey;

pub use crate::turns::{For, Health, Manner, Rolling};
pub use configuration::{ConfigurationError, Referred, brings_network, configuration, password, recognised, supposed};
pub use drift::drift;
use gates::{Api, Named, SharedApi, Site as ApiSite, Versions, VolumeReady};
pub use health::health;

/// Where the Kubernetes API listens.
const API_PORT: u16 = 6443;

/// Where the Kubernetes API of a castle is reached: at its shared address, or at its only control plane.
#[must_use]
pub fn api_address(castle: &Castle, nodes: &[Node]) -> String {
    let first = nodes.iter().find(|node| node.role == Role::ControlPlane).map(|node| node.address.value);
    let address = castle.network.vip.as_ref().map(|vip| vip.value).or(first);
    address.map_or_else(String::new, url)
}

/// How castle reaches the Kubernetes API of a castle, with these keys.
#[must_use]
pub fn access(castle: &Castle, nodes: &[Node], keys: &Keys, is_plain: bool) -> Access {
    gates::access(api_address(castle, nodes), keys, is_plain)
}

fn url(address: IpAddr) -> String {
    if address.is_ipv6() { format!("https://[{address}]:{API_PORT}") } else { format!("https://{address}:{API_PORT}") }
}

/// What a cluster is formed from.
#[derive(Clone)]
pub struct Plan {
    /// The file.
    pub castle: Arc<Castle>,
    /// Its nodes.
    pub nodes: Arc<Vec<Node>>,
    /// What was seen of the machine of each of them.
    pub machines: Vec<Machine>,
    /// How nodes are reached.
    pub wire: Arc<Wire>,
    /// What the file refers to.
    pub referred: Arc<Referred>,
    /// What is known of its etcd from elsewhere than its nodes.
    pub remembered: Remembered,
    /// Which of them change, one after the other.
    pub rolling: Rolling,
    /// Those that the file does not name any more: they are there until nobody changes.
    pub leaving: Vec<String>,
    /// What the hypervisor knows the machine of this VMID by.
    pub uuids: Uuids,
}

fn id(kind: &str, name: &str) -> StepId {
    StepId::new(&platform::layer(), kind, name)
}

/// The step that gives a node its configuration, or refuses to.
#[must_use]
pub fn config_step(node: &Node) -> StepId {
    id("config", &node.name.value)
}

/// What was seen of the machines of these nodes.
#[must_use]
pub fn machines(nodes: &[Node], survey: &Survey) -> Vec<Machine> {
    let machine = |node: &Node| match survey.guests.contains_key(&node.vmid.0) {
        false => Machine::Absent,
        true if survey.running.contains(&node.vmid.0) => Machine::On,
        true => Machine::Off,
    };
    nodes.iter().map(machine).collect()
}

/// The step that gives the nodes their labels, annotations and taints.
fn adorn(
    castle: &Arc<Castle>,
    nodes: &Arc<Vec<Node>>,
    referred: &Arc<Referred>,
    inborn: Arc<adorn::Inborn>,
) -> adorn::Adorn {
    let (castle, nodes, referred) = (castle.clone(), nodes.clone(), referred.clone());
    let compose = move |bundle: &Bundle| {
        let wanted = |node: &Node| {
            let (traits, by_configuration) = configuration::traits(&castle, &nodes, node, bundle, &referred)
                .map_err(|error| error.fault(&node.name.value))?;
            let (name, is_worker) = (node.name.value.clone(), node.role == Role::Worker);
            Ok(adorn::Wanted { name, is_worker, traits, by_configuration })
        };
        nodes.iter().map(wanted).collect()
    };
    adorn::Adorn::new(Box::new(compose), inborn)
}

/// What must be so before anything is put into the cluster: each gate, and what it claims.
#[must_use]
pub fn gates(castle: &Castle, nodes: &[Node]) -> Vec<(StepId, String)> {
    let mut gates = vec![
        (id("etcd", "members"), "every control plane votes in etcd".to_owned()),
        (id("api", "endpoint"), format!("the API is ready at {}", api_address(castle, nodes))),
    ];
    if waits_for_nodes(castle) {
        gates.push((id("nodes", "ready"), "all nodes are ready".to_owned()));
    }
    if castle.kubernetes.cni.value == Cni::Flannel {
        gates.push((id("coredns", "available"), "CoreDNS is available".to_owned()));
    }
    gates
}

/// What to say of nodes that do not get ready because nobody brings a network.
fn lacking_network(castle: &Castle, nodes: &[Node], referred: &Referred) -> Option<&'static str> {
    if castle.kubernetes.cni.value != Cni::None {
        return None;
    }
    let first = nodes.iter().find(|node| node.role == Role::ControlPlane)?;
    let configuration = supposed(castle, nodes, first, &referred.patches).ok()?;
    (!brings_network(&configuration)).then_some(NO_NETWORK)
}

/// What is told of nodes without a network.
const NO_NETWORK: &str = "kubernetes.cni is none, and no manifest in the machine configuration brings a network: bring one now, or by \
                          talos.patches (docs/checks.md, network-missing)";

/// A cluster that others build on.
pub struct Formed {
    /// Its API, once it serves where it is always reached.
    pub api: Handle<castle_kubernetes::client::Api>,
    /// That each node with a disk for volumes has its volume.
    pub volumes: Vec<StepId>,
    /// Its etcd, once it has begun.
    pub quorum: Handle<Quorum>,
}

/// Who a node is on the wire.
#[must_use]
pub fn whom(node: &Node) -> Whom {
    Whom { name: node.name.value.clone(), address: node.address.value }
}

/// The documents of a configuration that give a node a volume for data.
const VOLUMES: [&str; 3] = ["UserVolumeConfig", "RawVolumeConfig", "ExistingVolumeConfig"];

/// The step that gives a node its configuration.
fn configure(plan: &Plan, node: &Node, machine: Machine, restarts: Restarts) -> Configure {
    let (castle, all, own, referred) = (plan.castle.clone(), plan.nodes.clone(), node.clone(), plan.referred.clone());
    let compose = Box::new(move |bundle: &Bundle| {
        let made = configuration(&castle, &all, &own, bundle, &referred);
        made.map_err(|error| error.fault(&own.name.value))
    });
    let configure = Configure::new(plan.wire.clone(), whom(node), machine, compose);
    let stands = plan.remembered.began.is_some();
    let objection = stands.then(|| -> Objection {
        let objections = [kubernetes_upgrade(&plan.castle, node), other_networks(node), taken_volume(node)];
        Box::new(move |differences| objections.iter().find_map(|objection| objection(differences)))
    });
    let configure = configure.only_if(release(&plan.castle)).unless(objection);
    let (uuids, vmid) = (plan.uuids.clone(), node.vmid.0);
    let uuid: MachineUuid = Box::new(move || uuids(vmid));
    configure.only_on(&node.mac.value.to_string()).known_by(Some(uuid)).restarting(restarts)
}

/// Where configurations have the images of Kubernetes: from Talos 1.14 on in documents of their own.
const KUBERNETES_IMAGES: [&str; 10] = [
    "machine.kubelet.image",
    "cluster.apiServer.image",
    "cluster.controllerManager.image",
    "cluster.scheduler.image",
    "cluster.proxy.image",
    "KubeletConfig.image",
    "KubeAPIServerConfig.image",
    "KubeControllerManagerConfig.image",
    "KubeSchedulerConfig.image",
    "KubeProxyConfig.image",
];

/// What runs where a configuration names no image.
const BROUGHT: &str = "whatever its Talos brings";

/// Objects to another version of Kubernetes, or of a part of it, for a node that has one: all nodes would get it at once.
fn kubernetes_upgrade(castle: &Castle, node: &Node) -> Objection {
    let (own, node) = (castle.kubernetes.version.value.to_string(), node.clone());
    Box::new(move |differences: &[Difference]| {
        let mut images = differences.iter().filter(|difference| KUBERNETES_IMAGES.contains(&difference.path.as_str()));
        let changed = |difference: &Difference| {
            let (is, wanted) = (image_version(&difference.is)?, image_version(&difference.wanted)?);
            // A kube-proxy that does not run has no image.
            let is_proxys_own = [is, wanted].contains(&BROUGHT) && difference.path.to_lowercase().contains("proxy");
            (is != wanted && !is_proxys_own).then(|| (is.to_owned(), wanted.to_owned(), difference.path.clone()))
        };
        let (is, wanted, path) = images.find_map(changed)?;
        let place = if wanted == own { String::new() } else { format!(" ({path}, by talos.patches)") };
        let evidence = format!(
            "runs Kubernetes {is}, and castle.yaml says {wanted}{place}: castle changes the version of no castle that stands yet"
        );
        let version = if wanted == BROUGHT { &own } else { &wanted };
        let to = version.trim_start_matches('v');
        Some(Fault::guard(&node.name.value, evidence).next(format!(
            "take the change back in castle.yaml; or upgrade the cluster by hand: talosctl --nodes {} upgrade-k8s --to {to}",
            node.address.value
        )))
    })
}

/// The version of an image: its tag, or its digest where it has none.
fn image_version(side: &Side) -> Option<&str> {
    match side {
        Side::Absent => Some(BROUGHT),
        Side::Value(Value::String(image)) => Some(tag(image)),
        _ => None,
    }
}

/// The tag of an image, or its digest where it has none.
fn tag(image: &str) -> &str {
    let (tagged, digest) = image.split_once('@').unwrap_or((image, ""));
    let name = tagged.rsplit_once('/').map_or(tagged, |(_, name)| name);
    name.split_once(':').map_or(digest, |(_, tag)| tag)
}

/// Objects to other networks for a node that has some: nobody gives Pods and Services that are there other addresses, nor names under another domain.
fn other_networks(node: &Node) -> Objection {
    /// Where configurations have them: from Talos 1.14 on in a document of their own.
    const SECTIONS: [&str; 2] = ["cluster.network.", "KubeNetworkConfig."];
    const NETWORKS: [(&str, &str); 3] = [
        ("podSubnets", "the subnets of Pods"),
        ("serviceSubnets", "the subnets of Services"),
        ("dnsDomain", "the cluster's domain"),
    ];
    let name = node.name.value.clone();
    Box::new(move |differences: &[Difference]| {
        let (what, difference) = differences.iter().find_map(|difference| {
            let key = SECTIONS.iter().find_map(|section| difference.path.strip_prefix(section))?;
            let (_, what) = NETWORKS.iter().find(|(network, _)| key.starts_with(network))?;
            Some((what, difference))
        })?;
        let evidence = format!(
            "has {} for {what}, and castle.yaml says {}: what stands keeps the addresses and names that it began with",
            difference.is, difference.wanted
        );
        Some(
            Fault::guard(&name, evidence)
                .next("take the change back in castle.yaml; or castle rebirth, for a new castle"),
        )
    })
}

/// Objects to the end of a volume on a node that has it: what is on it would be out of reach, on all nodes of a pool at once.
fn taken_volume(node: &Node) -> Objection {
    let (name, address) = (node.name.value.clone(), node.address.value);
    Box::new(move |differences: &[Difference]| {
        let taken = |difference: &Difference| {
            let volume = VOLUMES.iter().find_map(|kind| difference.path.strip_prefix(kind)?.strip_prefix('/'))?;
            (difference.wanted == Side::Absent && !volume.contains('.')).then(|| volume.to_owned())
        };
        let volume = differences.iter().find_map(taken)?;
        let evidence = format!(
            "has the volume {volume} and what is on it, and castle.yaml wants it no more: castle takes no volume from a node that stands"
        );
        Some(Fault::guard(&name, evidence).next(format!(
            "take the change back in castle.yaml (dataDisk, storage, talos.patches); if nothing on it is missed: talosctl --nodes {address} edit \
             machineconfig, and remove the volume there"
        )))
    })
}

/// What the nodes of a castle are to run.
fn release(castle: &Castle) -> Release {
    let (version, schematic) = (castle.talos.version.value.to_string(), Schematic::of(&castle.talos).id());
    let factory = castle.talos.image.factory.as_str();
    let host = factory.split_once("://").map_or(factory, |(_, host)| host).trim_end_matches('/');
    let installer = factory_installer(host, "nocloud", &schematic, version.trim_start_matches('v'));
    let extensions = castle.talos.extensions.iter().map(|extension| extension.as_str().to_owned()).collect();
    let kernel_args = castle.talos.kernel_args.iter().map(|argument| argument.as_str().to_owned()).collect();
    Release { version, schematic, extensions, kernel_args, installer }
}

/// Adds the gate behind which the API is ready where clients of the castle look for it.
fn endpoint(
    graph: &mut GraphBuilder,
    plan: &Plan,
    (gate, place): (StepId, Place),
    needs: (Handle<Keys>, Handle<Quorum>),
) -> Handle<Kubernetes> {
    let Plan { castle, nodes, wire, .. } = plan;
    let at = |address: String| ApiSite { wire: wire.clone(), address };
    let shared = at(api_address(castle, nodes));
    let Some(vip) = &castle.network.vip else {
        return graph.gate(gate, place, needs, Api::new(shared, "the castle's endpoint"));
    };
    let control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom);
    let own = control_planes.map(|whom| (whom.clone(), at(url(whom.address)))).collect();
    graph.gate(gate, place, needs, SharedApi::new(shared, vip.value, own))
}

/// Which Kubernetes the configurations of the nodes name.
fn named(castle: &Arc<Castle>, nodes: &Arc<Vec<Node>>, referred: &Arc<Referred>) -> impl Fn() -> Named + use<> {
    let (castle, nodes, referred) = (castle.clone(), nodes.clone(), referred.clone());
    move || {
        Named::of(nodes.iter().filter_map(|node| {
            let made = supposed(&castle, &nodes, node, &referred.patches).ok()?;
            Some((node.name.value.as_str(), node.role == Role::ControlPlane, made))
        }))
    }
}

/// Adds the steps that make a cluster of the nodes, each after its machine runs.
pub fn form(graph: &mut GraphBuilder, plan: &Plan, keys: &Handle<Keys>) -> Formed {
    let Plan { castle, nodes, machines, wire, referred, remembered, rolling, .. } = plan;
    let (mut configured, mut volumes, inborn) = (Vec::new(), Vec::new(), Arc::<adorn::Inborn>::default());
    for (node, machine) in nodes.iter().zip(machines) {
        let step = id("config", &node.name.value);
        let place = Place { lane: None, predicted: Duration::from_secs(30) };
        let (known, name) = (inborn.clone(), node.name.value.clone());
        let configure = configure(plan, node, *machine, rolling.changes(node))
            .noting(Box::new(move |configuration| known.note(&name, configuration)));
        let handle = graph.step(step.clone(), place, (keys.clone(),), configure);
        graph.after(step.clone(), platform::power_step(node));
        // Whoever only looks does not wait, and is told by the configuration that it cannot be compared.
        if !wire.is_looking() {
            let answers = id("answers", &node.name.value);
            let place = Place { lane: None, predicted: Duration::from_secs(20) };
            let gate = Answers::new(wire.clone(), whom(node));
            let gate = gate.naming_time_servers(!castle.network.time_servers.value.is_empty());
            graph.gate(answers.clone(), place, (keys.clone(),), gate);
            graph.after(answers.clone(), platform::power_step(node));
            graph.after(step, answers);
        }
        if configuration::has_longhorn(&plan.castle, node) {
            let gate = VolumeReady::new(wire.clone(), whom(node), configuration::LONGHORN);
            let place = Place { lane: None, predicted: Duration::from_secs(5) };
            let ready = id("volume", &node.name.value);
            graph.gate(ready.clone(), place, (keys.clone(), handle.clone()), gate);
            volumes.push(ready);
        }
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
        Bootstrap::new(wire.clone(), control_planes.clone(), remembered.clone()),
    );
    let gate = Members::new(wire.clone(), control_planes.clone());
    graph.gate(id("etcd", "members"), place(20), (keys.clone(), begun.clone()), gate);
    let at = |address: String| ApiSite { wire: wire.clone(), address };
    if let Some(first) = control_planes.first() {
        let api = Api::new(at(url(first.address)), &first.name);
        graph.gate(id("api", &first.name), place(15), (keys.clone(), begun.clone()), api);
    }
    let api = endpoint(graph, plan, (id("api", "endpoint"), place(20)), (keys.clone(), begun.clone()));
    graceful::wake(graph, &api);
    let needs = (api.clone(), begun.clone());
    let names = nodes.iter().map(|node| node.name.value.clone()).collect();
    // Without a network nodes are there, and are not ready.
    let joined = id("nodes", if waits_for_nodes(castle) { "ready" } else { "registered" });
    let gate = match waits_for_nodes(castle) {
        true => gates::nodes_ready(names, lacking_network(castle, nodes, referred)),
        false => gates::nodes_registered(names),
    };
    graph.gate(joined.clone(), place(15), needs.clone(), gate);
    // One that gets no configuration never joins.
    for node in nodes.iter() {
        graph.after(joined.clone(), id("config", &node.name.value));
    }
    if castle.kubernetes.cni.value == Cni::Flannel {
        graph.gate(id("coredns", "available"), place(10), needs, gates::core_dns());
    }
    let api = if rolling.is_empty() { api } else { rolling::roll(graph, plan, keys, &api, &begun) };
    let versions = id("nodes", "versions");
    graph.gate(versions.clone(), place(1), (api.clone(), begun.clone()), Versions::new(named(castle, nodes, referred)));
    // What is refused another version is told by its configuration.
    for node in nodes.iter() {
        graph.after(versions.clone(), id("config", &node.name.value));
    }
    if waits_for_nodes(castle) {
        graph.after(versions, id("nodes", "ready"));
    }
    let traits = id("nodes", "traits");
    graph.step(traits.clone(), place(2), (api.clone(), keys.clone()), adorn(castle, nodes, referred, inborn));
    graph.after(traits, joined);
    Formed { api, volumes, quorum: begun }
}
