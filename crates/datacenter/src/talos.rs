//! Talos nodes: what guests are that were started from an image of Talos.
//!
//! A guest becomes a node once it has booted, at the addresses that its cloud-init drive says. [`stages`] is its way from
//! power-on to running, [`etcd`] and [`cluster`] what nodes make together, [`config`] what they accept, [`api`] what they
//! answer. All of it happens inside of the world: events at drawn times, and nothing in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub(crate) mod api;
pub(crate) mod clocks;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod cosi;
pub(crate) mod credentials;
pub(crate) mod disks;
pub(crate) mod etcd;
pub(crate) mod identity;
pub(crate) mod image;
pub(crate) mod interventions;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod route;
pub(crate) mod services;
pub(crate) mod stages;
pub(crate) mod story;
pub(crate) mod tls;
pub(crate) mod views;
pub(crate) mod volumes;
pub(crate) mod yaml;

use cluster::Cluster;
use etcd::Etcd;
use node::{Moment, Node};

/// The port of the Talos API.
pub const TALOS_PORT: u16 = 50_000;
/// The port of the Kubernetes API.
pub const KUBERNETES_PORT: u16 = 6443;

/// Something that happens among the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// To a node, if it still is in this life.
    Node(u32, u64, Moment),
    /// An address that control planes share is claimed. The number tells one campaign from the next.
    Claim(String, IpAddr, u64),
    /// A node has been silent for too long, if its kubelet has not begun again.
    Silent(u32),
}

/// All nodes, and what they make together.
#[derive(Debug, Default)]
pub(crate) struct Talos {
    pub(crate) nodes: BTreeMap<u32, Node>,
    pub(crate) etcds: BTreeMap<u64, Etcd>,
    /// By what identifies a cluster: its authority and its id.
    pub(crate) clusters: BTreeMap<String, Cluster>,
    /// Whether time servers do not answer.
    pub(crate) is_time_lost: bool,
    /// Whether the discovery service does not answer.
    pub(crate) is_discovery_lost: bool,
    /// The addresses that devices have of which nobody here knows.
    pub(crate) occupied: BTreeSet<IpAddr>,
    /// How many servers of the Talos API there have been.
    pub(crate) apids: u64,
    /// The clocks that somebody has shifted, by the guests that they are in.
    pub(crate) clocks: BTreeMap<u32, clocks::Shifts>,
    /// The nodes that take over a configuration this very moment.
    pub(crate) applying: BTreeSet<u32>,
    /// Nodes that take connections and say nothing.
    pub(crate) hushed: BTreeSet<u32>,
    /// The guests whose disk fails where the data of etcd are.
    pub(crate) unreadable: BTreeSet<u32>,
    /// Nodes that were in sync with a time server, and reach none since.
    pub(crate) stranded: BTreeSet<u32>,
    /// Nodes whose API server does not start.
    pub(crate) mute: BTreeSet<u32>,
    /// What keeps kubelets from starting.
    pub(crate) hurdle: Option<Hurdle>,
}

/// What keeps the kubelet of a node from starting, until that is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hurdle {
    /// This stands in the configuration that it has booted with, or has been given since.
    Configured(String),
    /// Its guest has less memory than so many MiB.
    Memory(u64),
}
