//! One node: what its disk holds, and what runs since its last boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, Network, Role};
use super::image::Image;
use super::ledger::Ledger;
use super::services::Service;
use super::story::Story;

/// How far a node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It starts, or waits for what it needs to run.
    Booting,
    /// It has no configuration, and waits for one.
    Maintenance,
    /// All that it was told to run does.
    Running,
    /// It goes down and comes up again.
    Rebooting,
    /// It goes down.
    ShuttingDown,
    /// It forgets everything.
    Resetting,
}

impl Stage {
    /// The vendor's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Maintenance => "maintenance",
            Self::Running => "running",
            Self::Rebooting => "rebooting",
            Self::ShuttingDown => "shutting down",
            Self::Resetting => "resetting",
        }
    }

    /// Whether it is on its way down.
    pub(crate) fn is_ending(self) -> bool {
        matches!(self, Self::Rebooting | Self::ShuttingDown | Self::Resetting)
    }
}

/// Something that happens to a node in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// The kernel and the network are up.
    Boot,
    /// The Talos API listens.
    Apid,
    /// The clock is right.
    Synced,
    /// The disk with the data is mounted, and services begin to wait for what they need.
    Ephemeral,
    /// Containers can be run.
    Cri,
    Kubelet,
    /// The image of etcd is there.
    EtcdImage,
    /// etcd starts with the data that it has, or with none if it was told to.
    EtcdStart,
    /// It asks the others to be taken in.
    Join,
    /// It runs as a learner.
    JoinStarted,
    /// It becomes a voter.
    Promote,
    /// etcd was found healthy.
    EtcdHealthy,
    ApiServer,
    /// The kubelet looks at what it is to run without being told by Kubernetes, and starts the API server anew.
    StaticPods,
    /// It is a node of Kubernetes.
    Register,
    /// Kubernetes can use it.
    Ready,
    /// What a configuration says of its node is written into it.
    Specs,
    /// A configuration that was only tried is taken back.
    Untry,
    /// It is down; then it comes up again, or not.
    Down,
}

/// What etcd finds on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// It is this member of this etcd.
    Member { etcd: u64, member: u64 },
    /// Something from another time, that nobody can use.
    Foreign,
}

/// What survives a boot.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) config: Option<Arc<Config>>,
    pub(crate) etcd: Option<Data>,
    pub(crate) meta: BTreeMap<u32, Vec<u8>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("config", &self.config).field("etcd", &self.etcd).finish_non_exhaustive()
    }
}

/// What comes after a node went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Boot,
    Off,
}

/// What runs since the last boot.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) stage: Stage,
    pub(crate) since: Duration,
    pub(crate) boot_id: String,
    /// The configuration that holds; the one on the disk may be for the next boot.
    pub(crate) config: Option<Arc<Config>>,
    /// What held before, as long as it has not come through to the node of Kubernetes.
    pub(crate) shown: Option<Arc<Config>>,
    /// What held before one that is only tried, and when it holds again.
    pub(crate) tried: Option<(Arc<Config>, Duration)>,
    /// Which Talos API listens, if any: another number is another server.
    pub(crate) apid: Option<u64>,
    pub(crate) is_synced: bool,
    /// Counts how often its clock jumped.
    pub(crate) epoch: u32,
    /// When the certificate of its Talos API was made, by the clock of the world.
    pub(crate) certified: Duration,
    pub(crate) has_etcd_image: bool,
    /// Whether it was told to begin an etcd; forgotten at the next boot.
    pub(crate) is_bootstrapping: bool,
    /// Whether it has left its etcd, and does not come back before the next boot.
    pub(crate) has_left: bool,
    /// Whether the disk is mounted that data are on: before, nobody sees whether there are any.
    pub(crate) has_ephemeral: bool,
    /// The etcd that has taken it in, and as which member, while its data directory is still empty.
    pub(crate) joining: Option<(u64, u64)>,
    pub(crate) runs_etcd: bool,
    /// Whether etcd answers clients: it does once it has found a leader since its start, and goes on without one.
    pub(crate) serves_etcd: bool,
    /// Whether etcd's health was looked at since it could be healthy.
    pub(crate) is_etcd_checked: bool,
    pub(crate) runs_kubelet: bool,
    /// Whether it has run since the boot; a restart in between is no end.
    pub(crate) has_run_kubelet: bool,
    pub(crate) runs_apiserver: bool,
    /// The image of the API server that was started last.
    pub(crate) api_image: String,
    pub(crate) services: BTreeMap<&'static str, Service>,
    pub(crate) planned: BTreeSet<Moment>,
    pub(crate) after: After,
    /// Whether the disk is emptied on the way down: the configuration, and what etcd holds.
    pub(crate) wipes: (bool, bool),
    pub(crate) story: Story,
    pub(crate) ledger: Ledger,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) vmid: u32,
    pub(crate) image: Image,
    /// What its platform tells it: its name and addresses.
    pub(crate) platform_name: String,
    pub(crate) platform_addresses: Vec<Network>,
    pub(crate) disk: Disk,
    /// Counts boots and ends: what was planned in another life does not happen.
    pub(crate) life: u64,
    pub(crate) boot: Option<Boot>,
    /// Whether its learner is never promoted.
    pub(crate) is_frozen: bool,
}

impl Node {
    /// The configuration that holds.
    pub(crate) fn config(&self) -> Option<&Arc<Config>> {
        self.boot.as_ref()?.config.as_ref()
    }

    /// The configuration that its node of Kubernetes shows.
    pub(crate) fn shown(&self) -> Option<&Arc<Config>> {
        self.boot.as_ref()?.shown.as_ref().or(self.config())
    }

    /// What identifies the cluster that it belongs to, be it switched off.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.config().or(self.disk.config.as_ref()).map(|config| config.key.as_str())
    }

    pub(crate) fn is_control_plane(&self) -> bool {
        self.config().is_some_and(|config| config.role == Role::ControlPlane)
    }

    /// The name it goes by.
    pub(crate) fn hostname(&self) -> String {
        let given = self.config().and_then(|config| config.hostname());
        let name = given.unwrap_or(&self.platform_name);
        if name.is_empty() { format!("talos-{}", self.vmid) } else { name.to_lowercase() }
    }

    /// Its addresses, without those it shares.
    pub(crate) fn addresses(&self) -> Vec<Network> {
        let mut all = self.platform_addresses.clone();
        for address in self.config().map(|config| config.addresses()).unwrap_or_default() {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses().iter().any(|(own, _)| *own == address)
    }

    /// The address that others know it by.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.addresses().first().map(|(address, _)| *address)
    }
}
