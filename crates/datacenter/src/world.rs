//! The world behind all interfaces: what there is, and what is due.
//!
//! Nothing runs in the background. Whoever looks first lets the world catch up with the clock ([`World::advance`]), event by
//! event in the order of time: the same requests at the same times always find the same world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use castle_seams::Clock;

use crate::access::Access;
use crate::blueprint::{Blueprint, FaultyPods, Host, Latencies, Span, Version};
use crate::chance::Chance;
use crate::infisical;
use crate::kubernetes::clusters::Clusters;
use crate::machines::Machines;
use crate::proxmox::{Download, Managed};
use crate::talos::Talos;

pub(crate) mod events;
pub(crate) mod guest;
pub(crate) mod locks;
pub(crate) mod seen;
pub(crate) mod stores;
pub(crate) mod tasks;

use events::{Event, Events};
use guest::Guest;
use locks::Locks;
use seen::Seen;
use stores::Stores;
use tasks::Tasks;

/// The members of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) comment: String,
    pub(crate) guests: BTreeSet<u32>,
    pub(crate) storages: BTreeSet<String>,
}

/// Everything there is.
pub(crate) struct World {
    /// How far it has come.
    pub(crate) now: Duration,
    /// What the calendar said at the beginning of time, in seconds since 1970.
    pub(crate) calendar: Duration,
    /// By how many seconds the clock of the hypervisor is ahead.
    pub(crate) hypervisor_ahead: i64,
    /// The clock of clients who live in another time.
    pub(crate) clients: Option<Arc<dyn Clock>>,
    pub(crate) version: Version,
    pub(crate) cluster: String,
    pub(crate) hosts: BTreeMap<String, Host>,
    /// Hosts that are down.
    pub(crate) down: BTreeSet<String>,
    pub(crate) has_quorum: bool,
    pub(crate) bridges: Vec<String>,
    pub(crate) access: Access,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) guests: BTreeMap<u32, Guest>,
    pub(crate) stores: Stores,
    pub(crate) tasks: Tasks,
    pub(crate) locks: Locks,
    pub(crate) machines: Machines,
    pub(crate) talos: Talos,
    /// The vaults by the names that they are dialled by.
    pub(crate) infisical: BTreeMap<String, infisical::Site>,
    /// Which vault listens at an address of this machine.
    pub(crate) vault_doors: BTreeMap<String, String>,
    pub(crate) git: crate::git::Hosts,
    pub(crate) kubernetes: Clusters,
    /// The pods that go wrong in every new cluster.
    pub(crate) faulty_pods: Vec<FaultyPods>,
    /// Counts what happened that somebody may wait for.
    pub(crate) revision: u64,
    /// When the hosts last told of a number, and what.
    pub(crate) seen: BTreeMap<u32, (Duration, Seen)>,
    /// How often what took effect.
    pub(crate) effects: BTreeMap<String, u32>,
    /// The resources of high availability, by the numbers of the guests they are.
    pub(crate) ha: BTreeMap<u32, Managed>,
    /// What is found at addresses outside, besides what is always there.
    pub(crate) published: BTreeMap<String, Download>,
    pub(crate) latencies: Latencies,
    pub(crate) chance: Chance,
    pub(crate) events: Events,
    /// The fingerprints of the hosts' certificates, where they have any.
    pub(crate) fingerprints: BTreeMap<String, String>,
    /// Why the QEMU of a host copies no drive of a guest that runs.
    pub(crate) mirror_faults: BTreeMap<String, String>,
}

impl World {
    pub(crate) fn new(blueprint: Blueprint, now: Duration, calendar: Duration) -> Self {
        let mut chance = Chance::new(blueprint.seed);
        let ticket_key = chance.bytes("ticket key");
        let mut world = Self {
            now,
            calendar: calendar.saturating_sub(now),
            clients: None,
            hypervisor_ahead: 0,
            version: blueprint.version,
            cluster: blueprint.cluster,
            stores: Stores::new(&blueprint.storages, &blueprint.hosts),
            hosts: blueprint.hosts.into_iter().map(|host| (host.name.clone(), host)).collect(),
            down: BTreeSet::new(),
            has_quorum: blueprint.has_quorum,
            bridges: blueprint.bridges,
            access: Access::new(blueprint.version, blueprint.users, &blueprint.roles, blueprint.acl, &ticket_key),
            pools: blueprint.pools.into_iter().map(|name| (name, Pool::default())).collect(),
            guests: BTreeMap::new(),
            tasks: Tasks::default(),
            locks: Locks::default(),
            machines: Machines::default(),
            talos: Talos::default(),
            infisical: BTreeMap::new(),
            vault_doors: BTreeMap::new(),
            git: crate::git::Hosts::default(),
            kubernetes: Clusters::default(),
            faulty_pods: blueprint.faulty_pods,
            revision: 0,
            seen: BTreeMap::new(),
            effects: BTreeMap::new(),
            ha: BTreeMap::new(),
            published: BTreeMap::new(),
            latencies: blueprint.latencies,
            chance,
            events: Events::default(),
            fingerprints: BTreeMap::new(),
            mirror_faults: BTreeMap::new(),
        };
        for stranger in blueprint.guests {
            world.settle(stranger);
        }
        world.begin_broadcasts();
        let epoch = world.epoch();
        for site in blueprint.infisical {
            world.infisical.insert(site.host.clone(), infisical::Site::new(site, &mut world.chance, epoch));
        }
        world
    }

    /// Lets everything happen that is due.
    pub(crate) fn advance(&mut self, now: Duration) {
        while let Some((at, event)) = self.events.take(now) {
            self.now = self.now.max(at);
            match event {
                Event::Resume(task) => self.resume(task),
                Event::GiveUp(task, name, ticket) => self.give_up(task, &name, ticket),
                Event::Broadcast(host) => self.broadcast(&host),
                Event::Restart(vmid) => self.restart(vmid),
                Event::Managed(vmid) => self.manage(vmid),
                Event::Booted(vmid, power_on) => {
                    if self.machines.booted(vmid, power_on) {
                        self.talos_booted(vmid);
                        self.touch();
                    }
                }
                Event::Talos(happening) => {
                    self.talos_happens(&happening);
                    self.touch();
                }
                Event::Kubernetes(key, etcd, due) => self.kubernetes_happens(&key, etcd, &due),
            }
            self.talos_prune();
        }
        self.now = self.now.max(now);
        self.talos_prune();
    }

    /// Notes that something happened that somebody may wait for.
    pub(crate) fn touch(&mut self) {
        self.revision += 1;
    }

    /// Seconds since 1970.
    pub(crate) fn epoch(&self) -> u64 {
        (self.calendar + self.now).as_secs()
    }

    /// How long something takes this time.
    pub(crate) fn draw(&mut self, purpose: &str, span: Span) -> Duration {
        self.chance.span(purpose, span, self.latencies.factor)
    }

    /// Notes that something took effect.
    pub(crate) fn effect(&mut self, verb: &str, target: impl std::fmt::Display) {
        *self.effects.entry(format!("{verb} {target}")).or_default() += 1;
    }

    pub(crate) fn is_up(&self, host: &str) -> bool {
        self.hosts.contains_key(host) && !self.down.contains(host)
    }

    pub(crate) fn is_vault_up(&self, host: &str) -> bool {
        self.vault_state(host) == Some(true)
    }

    /// Whether a vault is up; nothing if there is none of this name.
    pub(crate) fn vault_state(&self, host: &str) -> Option<bool> {
        self.infisical.get(host).map(infisical::Site::is_up)
    }

    /// The guest of this number on this host, or the vendor's words for its absence.
    pub(crate) fn guest(&self, host: &str, vmid: u32) -> Result<&Guest, String> {
        self.guests.get(&vmid).filter(|guest| guest.host == host).ok_or_else(|| absent(host, vmid))
    }

    /// As [`World::guest`], in the words of those who first look whether it runs.
    pub(crate) fn guest_to_run(&self, host: &str, vmid: u32) -> Result<&Guest, String> {
        self.guest(host, vmid).map_err(|_| format!("unable to find configuration file for VM {vmid} on node '{host}'"))
    }

    /// As [`World::guest`], to be changed.
    pub(crate) fn guest_mut(&mut self, host: &str, vmid: u32) -> Result<&mut Guest, String> {
        self.guests.get_mut(&vmid).filter(|guest| guest.host == host).ok_or_else(|| absent(host, vmid))
    }

    /// The pool that a guest is in.
    pub(crate) fn pool_of(&self, vmid: u32) -> Option<&str> {
        self.pools.iter().find(|(_, pool)| pool.guests.contains(&vmid)).map(|(name, _)| name.as_str())
    }

    /// Refuses to write a guest's file while the cluster has no quorum.
    pub(crate) fn check_writable(&self, host: &str, vmid: u32) -> Result<(), String> {
        if self.has_quorum { Ok(()) } else { Err(unwritable(host, vmid)) }
    }

    /// Refuses while the cluster has no quorum.
    pub(crate) fn check_quorum(&self) -> Result<(), String> {
        if self.has_quorum { Ok(()) } else { Err("cluster not ready - no quorum?".to_owned()) }
    }
}

/// What is told where the cluster's files cannot be written.
fn unwritable(host: &str, vmid: u32) -> String {
    format!("unable to open file '/etc/pve/nodes/{host}/qemu-server/{vmid}.conf.tmp' - Permission denied")
}

fn absent(host: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{host}/qemu-server/{vmid}.conf' does not exist")
}
