//! What the nodes of one cluster make together beyond etcd: the shared address, the API of Kubernetes, its nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::config::{Config, Role};
use super::node::{Boot, Data, Moment, Stage};
use super::{Happening, Hurdle};
use crate::world::World;
use crate::world::events::Event;

/// How long Kubernetes waits for a silent node before it counts on it no more.
pub(crate) const GRACE: Duration = Duration::from_secs(40);

/// A cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    pub(crate) vips: BTreeMap<IpAddr, Vip>,
    /// The nodes that registered, by name.
    pub(crate) nodes: BTreeMap<String, KubeNode>,
    /// Whether control planes bring a network along; workers are not told.
    pub(crate) has_network: bool,
    /// Whether they bring names along.
    pub(crate) wants_dns: bool,
    /// Whether names resolve.
    pub(crate) has_dns: bool,
    campaigns: u64,
}

/// An address that control planes share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vip {
    pub(crate) holder: Option<u32>,
    /// The lease of one that vanished ends then.
    free_at: Duration,
    campaign: Option<u64>,
}

/// A node of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeNode {
    pub(crate) vmid: u32,
    pub(crate) since: Duration,
    pub(crate) is_ready: bool,
    /// When that last changed.
    pub(crate) changed: Duration,
    /// Whether nothing was heard of it for too long.
    pub(crate) is_silent: bool,
    pub(crate) is_unschedulable: bool,
    pub(crate) addresses: Vec<String>,
    /// The version of its kubelet, as it was when that last started.
    pub(crate) version: String,
}

impl Cluster {
    /// What a node held is free from then on.
    pub(super) fn give_back(&mut self, vmid: u32, from: Duration) {
        for vip in self.vips.values_mut().filter(|vip| vip.holder == Some(vmid)) {
            vip.holder = None;
            vip.free_at = from;
            vip.campaign = None;
        }
    }
}

impl World {
    pub(crate) fn talos_settle_of(&mut self, vmid: u32) {
        let key = self.talos.nodes.get(&vmid).and_then(|node| node.config()).map(|config| config.key.clone());
        if let Some(key) = key {
            self.talos_settle(&key);
        }
    }

    /// The nodes of a cluster that are up.
    pub(crate) fn nodes_of(&self, key: &str) -> Vec<u32> {
        let of_cluster = |config: &Config| config.key == key;
        let nodes = self.talos.nodes.values().filter(|node| node.config().is_some_and(|config| of_cluster(config)));
        nodes.map(|node| node.vmid).collect()
    }

    /// Whether the API of Kubernetes on a node answers as ready.
    pub(crate) fn is_api_ready(&self, vmid: u32) -> bool {
        self.talos.boot(vmid).is_some_and(|boot| boot.runs_apiserver) && self.has_etcd(vmid)
    }

    /// Draws the conclusions of whatever changed in a cluster: what can go on is planned.
    pub(crate) fn talos_settle(&mut self, key: &str) {
        let nodes = self.nodes_of(key);
        self.learn(key, &nodes);
        self.elect(key);
        let signers = self.signers(&nodes);
        for &vmid in &nodes {
            self.settle_services(vmid, &signers);
            self.settle_etcd(vmid, key);
        }
        let has_api = nodes.iter().any(|node| self.is_api_ready(*node));
        for &vmid in &nodes {
            self.settle_stage(vmid);
            self.settle_kubernetes(vmid, key, has_api);
        }
        self.settle_vips(key, &nodes);
        if has_api {
            self.kubernetes_nodes(key);
        }
        for &vmid in &nodes {
            self.talos_tell(vmid);
        }
        self.touch();
    }

    /// Notes what the configurations of a cluster want of it.
    fn learn(&mut self, key: &str, nodes: &[u32]) {
        for vmid in nodes {
            let Some(config) = self.talos.nodes.get(vmid).and_then(|node| node.config()).cloned() else { continue };
            let cluster = self.talos.cluster_mut(key, &config);
            if config.role == Role::ControlPlane {
                cluster.has_network = config.has_network();
                cluster.wants_dns = config.has_dns();
            }
            for vip in config.vips() {
                cluster.vips.entry(vip).or_default();
            }
        }
    }

    /// Services that begin once others run.
    fn settle_services(&mut self, vmid: u32, signers: &[u32]) {
        let spans = self.latencies.talos.clone();
        let Some(boot) = self.talos.boot(vmid) else { return };
        let Some(config) = boot.config.clone() else { return };
        if boot.stage.is_ending() {
            return;
        }
        let can_run = boot.is_healthy("cri") && boot.is_synced;
        let (has_kubelet, has_image, has_apid) = (boot.runs_kubelet, boot.has_etcd_image, boot.apid.is_some());
        if can_run && !has_kubelet && !self.is_hindered(vmid) {
            let now = self.now;
            if let Some(boot) = self.talos.boot_mut(vmid) {
                boot.serve(now, "kubelet", "Preparing", None);
            }
            self.talos_plan(vmid, Moment::Kubelet, spans.kubelet);
        }
        if can_run && config.role == Role::ControlPlane && !has_image {
            let now = self.now;
            if let Some(boot) = self.talos.boot_mut(vmid) {
                boot.serve(now, "etcd", "Preparing", None);
            }
            self.talos_plan(vmid, Moment::EtcdImage, spans.etcd_image);
        }
        // The certificate of a worker is signed by a control plane, once one is found.
        if config.role == Role::Worker && !has_apid && self.finds_trust(&config, signers) {
            self.talos_plan(vmid, Moment::Apid, spans.apid);
        }
    }

    /// Whether something keeps the kubelet of a node from starting.
    fn is_hindered(&self, vmid: u32) -> bool {
        let config = self.talos.boot(vmid).and_then(|boot| boot.config.as_ref());
        let memory = || self.guests.get(&vmid)?.config.get("memory")?.parse::<u64>().ok();
        match &self.talos.hurdle {
            None => false,
            Some(Hurdle::Configured(text)) => config.is_some_and(|config| config.text.contains(text)),
            Some(Hurdle::Memory(least)) => memory().is_some_and(|memory| memory < *least),
        }
    }

    /// The control planes that sign certificates.
    fn signers(&self, nodes: &[u32]) -> Vec<u32> {
        let signs = |vmid: &u32| {
            let Some(node) = self.talos.nodes.get(vmid) else { return false };
            // Nobody signs by a clock that is not set.
            let signs = |boot: &Boot| boot.is_healthy("trustd") && boot.is_synced;
            node.is_control_plane() && node.boot.as_ref().is_some_and(signs)
        };
        nodes.iter().copied().filter(signs).collect()
    }

    /// Whether a worker finds a control plane that signs its certificate: through discovery, or at the cluster's endpoint.
    fn finds_trust(&self, config: &Config, signers: &[u32]) -> bool {
        if config.is_discovered() && !self.talos.is_discovery_lost {
            return !signers.is_empty();
        }
        let Ok(endpoint) = config.endpoint_host().parse::<IpAddr>() else { return false };
        let holder = self.talos.clusters.get(&config.key).and_then(|cluster| cluster.vips.get(&endpoint)?.holder);
        signers.iter().any(|signer| {
            holder == Some(*signer) || self.talos.nodes.get(signer).is_some_and(|node| node.has_address(endpoint))
        })
    }

    fn settle_etcd(&mut self, vmid: u32, key: &str) {
        let spans = self.latencies.talos.clone();
        let Some(node) = self.talos.nodes.get(&vmid) else { return };
        let Some(boot) = &node.boot else { return };
        if !node.is_control_plane() || !boot.has_etcd_image || !boot.is_synced || boot.stage.is_ending() {
            return;
        }
        let (runs, is_bootstrapping, data) = (boot.runs_etcd, boot.is_bootstrapping, node.disk.etcd.clone());
        match data {
            None if is_bootstrapping => self.talos_plan(vmid, Moment::EtcdStart, spans.etcd_first),
            // It asks again and again; what it is refused for changes only when something else does.
            None => {
                let is_open = self.etcd_of(key).is_some_and(|etcd| self.admits(etcd, vmid).is_ok());
                if is_open && self.waits_for_etcd(vmid) {
                    self.talos_plan(vmid, Moment::Join, spans.etcd_retry);
                }
            }
            Some(Data::Foreign) if !runs => self.talos_plan_fixed(vmid, Moment::EtcdStart, 1.0),
            Some(Data::Member { .. }) if !runs && self.membership(vmid).is_some() => {
                self.talos_plan_fixed(vmid, Moment::EtcdStart, 1.0);
            }
            Some(Data::Member { .. }) if !runs && self.membership(vmid).is_none() => self.etcd_is_removed(vmid),
            Some(Data::Member { etcd, member }) => {
                // A learner that was kept from becoming a voter tries again.
                let known = self.talos.etcds.get(&etcd).and_then(|etcd| etcd.members.get(&member));
                let is_learner = known.is_some_and(|member| member.is_learner);
                let is_frozen = self.talos.nodes.get(&vmid).is_some_and(|node| node.is_frozen);
                if is_learner && runs && !is_frozen && self.is_quorate(etcd) {
                    self.talos_plan(vmid, Moment::Promote, spans.etcd_join);
                }
            }
            Some(Data::Foreign) => {}
        }
    }

    /// What the list of services says of etcd, and whether the node runs.
    fn settle_stage(&mut self, vmid: u32) {
        let (now, has_etcd) = (self.now, self.has_etcd(vmid));
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let is_control_plane = node.is_control_plane();
        let Some(boot) = node.boot.as_mut() else { return };
        if is_control_plane && boot.runs_etcd {
            let is_healthy = boot.is_etcd_checked.then_some(has_etcd);
            boot.serve(now, "etcd", "Running", is_healthy);
        }
        let is_up = boot.runs_kubelet && boot.apid.is_some() && (!is_control_plane || boot.is_healthy("etcd"));
        if boot.stage == Stage::Booting && is_up {
            boot.stage = Stage::Running;
        }
    }

    fn settle_kubernetes(&mut self, vmid: u32, key: &str, has_api: bool) {
        let spans = self.latencies.talos.clone();
        let has_etcd = self.has_etcd(vmid);
        let Some(node) = self.talos.nodes.get(&vmid) else { return };
        let (Some(boot), name) = (&node.boot, node.hostname()) else { return };
        let Some(config) = boot.config.clone() else { return };
        if boot.stage.is_ending() || !boot.runs_kubelet {
            return;
        }
        let addresses: Vec<String> = node.addresses().iter().map(|(address, _)| address.to_string()).collect();
        let can_serve = has_etcd && !self.talos.mute.contains(&vmid);
        if config.role == Role::ControlPlane && can_serve && !boot.runs_apiserver {
            self.talos_plan(vmid, Moment::ApiServer, spans.api_server);
        }
        if !has_api {
            return;
        }
        let cluster = self.talos.clusters.get_mut(key);
        let has_network = cluster.as_ref().is_some_and(|cluster| cluster.has_network);
        let known = cluster.and_then(|cluster| cluster.nodes.get_mut(&name)).filter(|known| known.vmid == vmid);
        let (is_registered, is_ready) = (known.is_some(), known.as_ref().is_some_and(|it| it.is_ready));
        if let Some(known) = known {
            known.addresses = addresses;
        }
        if !is_registered {
            self.talos_plan(vmid, Moment::Register, spans.register);
        } else if !is_ready && has_network {
            self.talos_plan(vmid, Moment::Ready, spans.cni);
        }
    }

    pub(super) fn talos_register(&mut self, vmid: u32) {
        let now = self.now;
        let Some(node) = self.talos.nodes.get(&vmid) else { return };
        let Some(config) = node.config() else { return };
        let kube_node = KubeNode {
            vmid,
            since: now,
            is_ready: false,
            changed: now,
            is_silent: false,
            is_unschedulable: false,
            addresses: node.addresses().iter().map(|(address, _)| address.to_string()).collect(),
            version: config.kubernetes_version.clone(),
        };
        let (key, name) = (config.key.clone(), node.hostname());
        self.talos.cluster_mut(&key, config.clone().as_ref()).nodes.insert(name, kube_node);
    }

    /// The kubelet has started: its version is that of the configuration.
    pub(super) fn kubelet_started(&mut self, vmid: u32) {
        let now = self.now;
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        (boot.runs_kubelet, boot.has_run_kubelet) = (true, true);
        boot.serve(now, "kubelet", "Running", Some(true));
        let Some(config) = boot.config.clone() else { return };
        let Some(cluster) = self.talos.clusters.get_mut(&config.key) else { return };
        for node in cluster.nodes.values_mut().filter(|node| node.vmid == vmid) {
            node.version.clone_from(&config.kubernetes_version);
        }
    }

    pub(super) fn talos_ready(&mut self, vmid: u32) {
        let now = self.now;
        let Some(config) = self.talos.nodes.get(&vmid).and_then(|node| node.config()).cloned() else { return };
        let key = config.key.clone();
        let Some(cluster) = self.talos.clusters.get_mut(&key) else { return };
        for node in cluster.nodes.values_mut().filter(|node| node.vmid == vmid) {
            (node.is_ready, node.is_silent, node.changed) = (true, false, now);
        }
    }

    /// Nothing has been heard of a node for as long as Kubernetes waits.
    pub(super) fn talos_silent(&mut self, vmid: u32) {
        let now = self.now;
        if self.talos.boot(vmid).is_some_and(|boot| boot.runs_kubelet) {
            return;
        }
        for cluster in self.talos.clusters.values_mut() {
            for node in cluster.nodes.values_mut().filter(|node| node.vmid == vmid && node.is_ready) {
                (node.is_ready, node.is_silent, node.changed) = (false, true, now);
            }
        }
        let keys: Vec<String> = self.talos.clusters.keys().cloned().collect();
        for key in keys {
            self.kubernetes_nodes(&key);
        }
    }

    /// Whether a node may hold an address that control planes share.
    fn is_candidate(&self, vmid: u32) -> bool {
        let Some(boot) = self.talos.boot(vmid) else { return false };
        !boot.stage.is_ending() && boot.is_healthy("etcd") && boot.has_run_kubelet && self.has_etcd(vmid)
    }

    fn settle_vips(&mut self, key: &str, nodes: &[u32]) {
        let now = self.now;
        let candidates: Vec<u32> = nodes.iter().copied().filter(|vmid| self.is_candidate(*vmid)).collect();
        let addresses: Vec<IpAddr> =
            self.talos.clusters.get(key).map(|it| it.vips.keys().copied().collect()).unwrap_or_default();
        for address in addresses {
            let wait = self.latencies.talos.vip;
            let Some(vip) = self.talos.clusters.get_mut(key).and_then(|it| it.vips.get_mut(&address)) else { continue };
            vip.holder = vip.holder.filter(|holder| candidates.contains(holder));
            if vip.holder.is_some() || vip.campaign.is_some() || candidates.is_empty() {
                continue;
            }
            let free_at = vip.free_at;
            let at = free_at.max(now + self.draw(&format!("talos vip {address}"), wait));
            let Some(cluster) = self.talos.clusters.get_mut(key) else { continue };
            cluster.campaigns += 1;
            let campaign = cluster.campaigns;
            if let Some(vip) = cluster.vips.get_mut(&address) {
                vip.campaign = Some(campaign);
            }
            self.events.plan(at, Event::Talos(Happening::Claim(key.to_owned(), address, campaign)));
        }
    }

    pub(super) fn talos_claim(&mut self, key: &str, address: IpAddr, campaign: u64) {
        let winner = self.nodes_of(key).into_iter().find(|vmid| {
            let config = self.talos.nodes.get(vmid).and_then(|node| node.config());
            config.is_some_and(|config| config.vips().contains(&address)) && self.is_candidate(*vmid)
        });
        let Some(vip) = self.talos.clusters.get_mut(key).and_then(|it| it.vips.get_mut(&address)) else { return };
        if vip.campaign == Some(campaign) {
            vip.campaign = None;
            vip.holder = winner;
            self.talos_settle(key);
        }
    }
}

impl super::Talos {
    /// The cluster of a configuration.
    pub(super) fn cluster_mut(&mut self, key: &str, config: &Config) -> &mut Cluster {
        self.clusters.entry(key.to_owned()).or_insert_with(|| Cluster {
            name: config.cluster_name.clone(),
            endpoint: config.endpoint.clone(),
            ..Cluster::default()
        })
    }
}
