//! Nodes and clusters, told without a request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::node::Stage;
use crate::datacenter::Datacenter;
use crate::world::World;

/// A node as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The number of the guest.
    pub vmid: u32,
    /// The version of Talos: `v1.13.9`.
    pub version: String,
    /// The name it goes by.
    pub hostname: String,
    /// Its addresses, without those it shares.
    pub addresses: Vec<IpAddr>,
    /// How far it has come; nothing while it is down.
    pub stage: Option<Stage>,
    /// Whether it has a configuration.
    pub is_configured: bool,
    /// Whether it is a control plane.
    pub is_control_plane: bool,
}

/// A member of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its number.
    pub id: u64,
    /// The guest that it runs on.
    pub vmid: u32,
    /// Its name; empty until it has started.
    pub hostname: String,
    /// Whether it only learns yet.
    pub is_learner: bool,
    /// Whether it runs.
    pub is_up: bool,
    /// Whether it leads.
    pub is_leader: bool,
}

/// A node of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesNodeView {
    /// The guest that it runs on.
    pub vmid: u32,
    /// Whether Kubernetes can use it.
    pub is_ready: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A cluster as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// The address of its Kubernetes API.
    pub endpoint: String,
    /// The members of each of its etcds: more than one etcd is an accident.
    pub etcds: Vec<Vec<MemberView>>,
    /// The nodes of Kubernetes, by name.
    pub nodes: BTreeMap<String, KubernetesNodeView>,
    /// Whether the Kubernetes API is ready, by the guest that it runs on.
    pub api_servers: BTreeMap<u32, bool>,
    /// Who holds each address that control planes share.
    pub vips: BTreeMap<IpAddr, Option<u32>>,
    /// Whether names of the cluster resolve.
    pub has_dns: bool,
}

impl Datacenter {
    /// The Talos nodes, by the numbers of their guests.
    #[must_use]
    pub fn talos_nodes(&self) -> Vec<NodeView> {
        let world = self.world();
        let view = |node: &super::node::Node| NodeView {
            vmid: node.vmid,
            version: node.image.version.clone(),
            hostname: node.hostname(),
            addresses: node.addresses().iter().map(|(address, _)| *address).collect(),
            stage: node.boot.as_ref().map(|boot| boot.stage),
            is_configured: node.disk.config.is_some(),
            is_control_plane: node.is_control_plane(),
        };
        world.talos.nodes.values().map(view).collect()
    }

    /// The configuration on the disk of a node, as it was sent, with its secrets.
    #[must_use]
    pub fn machine_configuration(&self, vmid: u32) -> Option<String> {
        let world = self.world();
        Some(world.talos.nodes.get(&vmid)?.disk.config.as_ref()?.text.clone())
    }

    /// All clusters that there are, in the order of what identifies them.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterView> {
        let world = self.world();
        world.talos.clusters.keys().map(|key| view(&world, key)).collect()
    }

    /// The cluster of this name; the first, if several castles gave theirs the same.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<ClusterView> {
        self.clusters().into_iter().find(|cluster| cluster.name == name)
    }
}

fn view(world: &World, key: &str) -> ClusterView {
    let Some(cluster) = world.talos.clusters.get(key) else { return ClusterView::default() };
    let etcds = world.talos.etcds.iter().filter(|(_, etcd)| etcd.key == key).map(|(id, etcd)| {
        let members = etcd.members.iter().map(|(member, known)| MemberView {
            id: *member,
            vmid: known.vmid,
            hostname: known.hostname.clone(),
            is_learner: known.is_learner,
            is_up: world.membership(known.vmid) == Some((*id, *member)) && world.is_member_up(known.vmid),
            is_leader: etcd.leader == Some(*member),
        });
        members.collect()
    });
    let nodes = cluster.nodes.iter().map(|(name, node)| {
        let object = world.kubernetes.get(key).and_then(|kube| kube.get("nodes", "", name));
        let labels = object.iter().flat_map(|object| object["metadata"]["labels"].as_object()).flatten();
        let labels = labels.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect();
        let view = KubernetesNodeView { vmid: node.vmid, is_ready: node.is_ready, labels };
        (name.clone(), view)
    });
    let servers =
        world.nodes_of(key).into_iter().filter(|vmid| world.talos.boot(*vmid).is_some_and(|it| it.runs_apiserver));
    ClusterView {
        name: cluster.name.clone(),
        endpoint: cluster.endpoint.clone(),
        etcds: etcds.collect(),
        nodes: nodes.collect(),
        api_servers: servers.map(|vmid| (vmid, world.is_api_ready(vmid))).collect(),
        vips: cluster.vips.iter().map(|(address, vip)| (*address, vip.holder)).collect(),
        has_dns: cluster.has_dns,
    }
}
