//! The nodes of a castle, derived from the file alone: the same on every machine and after every loss.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::model::{self, Castle, Override, Pool};
use crate::shape::Scalar;
use crate::span::{Origin, Sourced};
use crate::values::{Bounded, Mac, Name, Size, Taint, Vmid, Word};

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs etcd and the Kubernetes API.
    ControlPlane,
    /// It runs the workload.
    Worker,
}

impl Role {
    /// The word people and programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
        }
    }
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its host name.
    pub name: Sourced<String>,
    /// What it is for.
    pub role: Role,
    /// Its address.
    pub address: Sourced<IpAddr>,
    /// Its VMID.
    pub vmid: Sourced<Vmid>,
    /// Its hardware address.
    pub mac: Sourced<Mac>,
    /// The host that must carry it, if the file says so.
    pub host: Option<Sourced<Word>>,
    /// Its CPU cores.
    pub cores: Sourced<u32>,
    /// Its memory.
    pub memory: Sourced<Size>,
    /// Its system disk.
    pub disk: Sourced<Size>,
    /// Its second disk.
    pub data_disk: Option<Sourced<Size>>,
    /// Its labels in Kubernetes.
    pub labels: BTreeMap<String, String>,
    /// Its taints in Kubernetes.
    pub taints: Vec<Taint>,
    /// The files with patches for its configuration, in the order they are merged.
    pub patches: Vec<String>,
}

/// How many VMIDs at the end of the range belong to the Talos image on each host: the one in use, and the next during an upgrade.
pub(crate) const TEMPLATES: u32 = 2;

/// How many VMIDs at the end of the range belong to the Talos image in all.
pub(crate) fn templates(castle: &Castle) -> u32 {
    let hosts = castle.platform.hosts();
    let count = if hosts.is_broken() { 1 } else { u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1) };
    count.saturating_mul(TEMPLATES)
}

/// The word control planes are named by.
const CONTROL_PLANES: &str = "cp";

/// The pools of a castle, each with the word its nodes are named by.
pub(crate) fn pools(castle: &Castle) -> impl Iterator<Item = (&str, Role, &Sourced<Pool>)> {
    let nodes = &castle.nodes;
    std::iter::once((CONTROL_PLANES, Role::ControlPlane, &nodes.control_planes))
        .chain(nodes.workers.iter().map(|pool| ("worker", Role::Worker, pool)))
        .chain(nodes.pools.iter().map(|(name, pool)| (name.as_str(), Role::Worker, pool)))
}

/// What the nth node of a pool is called, counted from one.
fn name_of(castle: &str, pool: &str, number: u32) -> String {
    format!("{castle}-{pool}-{number}")
}

impl Castle {
    /// The control plane that etcd begins on.
    #[must_use]
    pub fn first_control_plane(&self) -> String {
        name_of(self.castle.as_str(), CONTROL_PLANES, 1)
    }
}

/// Derives the nodes. What cannot be read is derived as broken, so that checks stay silent about it.
pub(crate) fn derive(castle: &Castle) -> Vec<Node> {
    let overrides: BTreeMap<&str, &Override> =
        castle.nodes.overrides.iter().map(|(name, over)| (name.as_str(), &over.value)).collect();
    let base = &castle.nodes.control_planes.first_address;
    let castle_name = if castle.castle.is_broken() { "CASTLE" } else { castle.castle.as_str() };
    let mut nodes = Vec::new();
    for (word, role, pool) in pools(castle) {
        if pool.is_broken() {
            continue;
        }
        let first_vmid = first_vmid(castle, base, pool);
        for index in 0..pool.count.get() {
            let name = name_of(castle_name, word, index + 1);
            nodes.push(node(castle, role, pool, &first_vmid, index, name, &overrides));
        }
    }
    nodes
}

/// The VMID of a pool's first node. One that cannot be is returned as 0: no range contains it.
fn first_vmid(castle: &Castle, base: &Sourced<IpAddr>, pool: &Pool) -> Sourced<Vmid> {
    if let Some(vmid) = &pool.first_vmid {
        return vmid.clone();
    }
    let range = castle.platform.vmids();
    let first = &pool.first_address;
    if range.is_broken() || base.is_broken() || castle.platform.is_broken() {
        return Sourced::new(Vmid::placeholder(), Origin::Broken);
    }
    let vmid = crate::values::steps_between(base.value, first.value)
        .and_then(|steps| u32::try_from(steps).ok())
        .and_then(|steps| range.first.0.checked_add(steps));
    first.derive(Vmid(vmid.unwrap_or(0)))
}

fn node(
    castle: &Castle,
    role: Role,
    pool: &Pool,
    first_vmid: &Sourced<Vmid>,
    index: u32,
    name: String,
    overrides: &BTreeMap<&str, &Override>,
) -> Node {
    let over = overrides.get(name.as_str()).copied();
    let address = over.and_then(|over| over.address.clone()).unwrap_or_else(|| {
        let unspecified =
            if pool.first_address.is_ipv4() { IpAddr::placeholder() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        pool.first_address.derive(crate::values::step(pool.first_address.value, index.into()).unwrap_or(unspecified))
    });
    let vmid = over.and_then(|over| over.vmid.clone()).unwrap_or_else(|| {
        first_vmid.derive(Vmid(if first_vmid.0 == 0 { 0 } else { first_vmid.0.saturating_add(index) }))
    });
    let name = match over.and_then(|over| over.hostname.as_ref()) {
        Some(hostname) => Sourced::new(hostname.to_string(), hostname.origin),
        None => castle.castle.derive(name),
    };
    let mac = over
        .and_then(|over| over.mac.clone())
        .unwrap_or_else(|| address.derive(hardware_address(castle.castle.as_str(), &name, address.value)));
    let pick = |own: fn(&Override) -> &Option<Sourced<Size>>, shared: &Option<Sourced<Size>>, default: Size| {
        over.and_then(|over| own(over).clone())
            .or_else(|| shared.clone())
            .unwrap_or_else(|| Sourced::new(default, Origin::Default))
    };
    let cores = over.and_then(|over| over.cores.clone()).or_else(|| pool.cores.clone());
    Node {
        role,
        vmid,
        mac,
        host: over.and_then(|over| over.host.clone()),
        cores: cores
            .map_or(Sourced::new(model::CORES, Origin::Default), |cores| Sourced::new(cores.get(), cores.origin)),
        memory: pick(|over| &over.memory, &pool.memory, model::MEMORY),
        disk: pick(|over| &over.disk, &pool.disk, model::DISK),
        data_disk: over.and_then(|over| over.data_disk.clone()).or_else(|| pool.data_disk.clone()),
        labels: pool.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        taints: pool.taints.iter().map(|taint| taint.value.clone()).collect(),
        patches: castle.talos.patches.iter().chain(pool.patches.iter()).map(|file| file.to_string()).collect(),
        name,
        address,
    }
}

/// A locally administered unicast address that two nodes on one wire do not share: the node's address is part of it.
fn hardware_address(castle: &str, name: &str, address: IpAddr) -> Mac {
    let hash = Sha256::digest(format!("castle mac\n{castle}\n{name}\n{address}"));
    Mac([0x02, hash[0], hash[1], hash[2], hash[3], hash[4]])
}

/// Writes into the castle what follows from its other parts, so that it is complete.
pub(crate) fn complete(castle: &mut Castle, nodes: &[Node]) {
    let base = castle.nodes.control_planes.first_address.clone();
    let vmids: Vec<Sourced<Vmid>> = pools(castle).map(|(.., pool)| first_vmid(castle, &base, pool)).collect();
    let storage_nodes = u32::try_from(storage_nodes(nodes).count()).unwrap_or(u32::MAX);
    let platform = castle.platform.word();
    let model::Nodes { control_planes, workers, pools, .. } = &mut castle.nodes.value;
    let pools = std::iter::once(control_planes).chain(workers).chain(pools.value.iter_mut().map(|(_, pool)| pool));
    for (pool, vmid) in pools.zip(vmids) {
        let pool = &mut pool.value;
        pool.first_vmid.get_or_insert(vmid);
        pool.cores.get_or_insert(Sourced::new(Bounded::clamped(model::CORES), Origin::Default));
        pool.memory.get_or_insert(Sourced::new(model::MEMORY, Origin::Default));
        pool.disk.get_or_insert(Sourced::new(model::DISK, Origin::Default));
    }
    if let model::Storage::Longhorn(longhorn) = &mut castle.storage.value {
        longhorn.replicas.get_or_insert(Sourced::new(Bounded::clamped(storage_nodes.clamp(1, 3)), Origin::Default));
    }
    if let Some(model::Vault::Infisical(infisical)) = castle.secrets.as_mut().map(|secrets| &mut secrets.value) {
        let path = format!("/castle/{}/{platform}", castle.castle.as_str());
        default_line(&mut infisical.path, &path);
    }
    if let Some(gitops) = &mut castle.gitops {
        default_line(&mut gitops.value.path, &format!("clusters/{}", castle.castle.as_str()));
    }
}

fn default_line(line: &mut Option<Sourced<crate::values::Line>>, text: &str) {
    if line.is_none() {
        *line = crate::values::Line::parse(text).ok().map(|text| Sourced::new(text, Origin::Default));
    }
}

/// What a further pool leaves out is as in `workers`.
pub(crate) fn inherit(castle: &mut Castle) {
    let Some(workers) = castle.nodes.workers.clone() else { return };
    for (_, pool) in &mut castle.nodes.value.pools.value {
        let pool = &mut pool.value;
        pool.cores = pool.cores.take().or_else(|| workers.cores.clone());
        pool.memory = pool.memory.take().or_else(|| workers.memory.clone());
        pool.disk = pool.disk.take().or_else(|| workers.disk.clone());
        pool.data_disk = pool.data_disk.take().or_else(|| workers.data_disk.clone());
    }
}

/// The nodes that hold volumes: the workers, or the control planes of a castle without any.
pub(crate) fn storage_nodes(nodes: &[Node]) -> impl Iterator<Item = &Node> {
    let role = if nodes.iter().any(|node| node.role == Role::Worker) { Role::Worker } else { Role::ControlPlane };
    nodes.iter().filter(move |node| node.role == role)
}

/// Whether a host name is one: the castle and pool names may be too long together.
pub(crate) fn is_name(name: &str) -> bool {
    Name::parse(name).is_ok()
}

impl Castle {
    /// The VMIDs that the Talos image may have on the host of this index among [`model::Platform::hosts`]: the one in use, and the next
    /// during an upgrade.
    #[must_use]
    pub fn image_vmids(&self, host: usize) -> [u32; 2] {
        let before = u32::try_from(host).unwrap_or(u32::MAX).saturating_mul(TEMPLATES);
        let last = self.platform.vmids().last.0.saturating_sub(before);
        [last.saturating_sub(1), last]
    }
}
