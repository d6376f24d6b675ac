//! From power-on to running, and down again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Happening;
use super::config::{Config, Role, prefix};
use super::cosi::unmet;
use super::image::Image;
use super::node::{After, Boot, Disk, Moment, Node, Stage};
use super::story::Story;
use crate::blueprint::Span;
use crate::machines::Machine;
use crate::world::World;
use crate::world::events::Event;
use crate::world::guest::hex;

/// The services that run from the first moment on.
const FIRST: [&str; 5] = ["auditd", "containerd", "machined", "syslogd", "udevd"];

impl World {
    /// A guest has booted. If it came from an image of Talos, a node does.
    pub(crate) fn talos_booted(&mut self, vmid: u32) {
        let Some(machine) = self.machines.get(vmid).cloned() else { return };
        let Some(image) = machine.image.as_deref().and_then(Image::parse) else { return };
        let is_new = self.talos.nodes.get(&vmid).is_none_or(|node| node.image.origin != image.origin);
        if is_new {
            let (platform_name, platform_addresses) = (String::new(), Vec::new());
            let (disk, life, boot, is_frozen) = (Disk::default(), 0, None, false);
            let node = Node { vmid, image, platform_name, platform_addresses, disk, life, boot, is_frozen };
            self.talos.nodes.insert(vmid, node);
        }
        if let Some(node) = self.talos.nodes.get_mut(&vmid) {
            (node.platform_name, node.platform_addresses) = platform(&machine);
        }
        let drawn = self.chance.number(&format!("talos first boot {vmid}")) % 1_000_000;
        if is_new && (drawn as f64) < self.latencies.talos.failed_first_boot * 1e6 {
            // It stumbles, and starts over by itself.
            let span = self.latencies.talos.failed_boot;
            return self.talos_plan(vmid, Moment::Boot, span);
        }
        self.talos_up(vmid);
    }

    /// The kernel is up: with a configuration it goes on, without it waits for one.
    fn talos_up(&mut self, vmid: u32) {
        if self.machines.get(vmid).is_none() {
            return;
        }
        let (now, apid) = (self.now, self.talos.next_apid());
        let is_synced = self.clock_ahead(vmid) == 0 || self.talos.stranded.contains(&vmid);
        let boot_id = self.boot_id(vmid);
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        node.life += 1;
        let mut boot = Boot::new(now, boot_id);
        for id in FIRST {
            boot.serve(now, id, "Running", Some(true));
        }
        let config = node.disk.config.clone();
        if config.is_none() {
            boot.stage = Stage::Maintenance;
            boot.serve(now, "apid", "Running", Some(true));
            boot.apid = Some(apid);
            boot.is_synced = is_synced;
        }
        node.boot = Some(boot);
        if let Some(config) = config {
            self.talos_begin(vmid, config);
        }
        self.talos_tell(vmid);
    }

    /// Notes where a node stands, for those who listen to its events.
    pub(crate) fn talos_tell(&mut self, vmid: u32) {
        let now = self.now;
        let Some(node) = self.talos.nodes.get(&vmid) else { return };
        let Some(boot) = &node.boot else { return };
        let (stage, unmet) = (boot.stage, unmet(self, node, boot));
        if let Some(boot) = self.talos.boot_mut(vmid) {
            boot.story.status(now, stage, unmet);
        }
    }

    /// A node begins to do what its configuration says. Its Talos API ends, and comes back with another certificate.
    pub(crate) fn talos_begin(&mut self, vmid: u32, config: Arc<Config>) {
        let (now, spans, is_time_lost) = (self.now, self.latencies.talos.clone(), self.talos.is_time_lost);
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        let syncs_time = config.syncs_time();
        let (role, can_issue) = (config.role, config.os.can_issue());
        boot.config = Some(config);
        boot.apid = None;
        boot.is_synced = !syncs_time;
        boot.stage = Stage::Booting;
        // One that served in maintenance is the same process with another certificate.
        if !boot.services.contains_key("apid") {
            boot.serve(now, "apid", "Waiting", None);
        }
        if role == Role::ControlPlane {
            // With an authority that is none there is never a certificate, and so never an answer.
            if can_issue {
                self.talos_plan(vmid, Moment::Apid, spans.apid);
            }
        }
        if syncs_time && !is_time_lost {
            self.talos_plan(vmid, Moment::Synced, spans.time_sync);
        }
        let mounted = Span::new(spans.services.mean / 2.0, spans.services.p95 / 2.0);
        self.talos_plan(vmid, Moment::Ephemeral, mounted);
        self.talos_plan(vmid, Moment::Cri, spans.services);
        self.talos_settle_of(vmid);
    }

    /// Plans a moment of a node's life, once.
    pub(crate) fn talos_plan(&mut self, vmid: u32, moment: Moment, span: Span) {
        let wait = self.draw(&format!("talos {moment:?} {vmid}"), span);
        self.talos_plan_in(vmid, moment, wait);
    }

    /// As [`World::talos_plan`], after a fixed time that is compressed as all others are.
    pub(crate) fn talos_plan_fixed(&mut self, vmid: u32, moment: Moment, seconds: f64) {
        let wait = Duration::from_secs_f64(seconds).mul_f64(self.latencies.factor.max(0.0));
        self.talos_plan_in(vmid, moment, wait);
    }

    fn talos_plan_in(&mut self, vmid: u32, moment: Moment, wait: Duration) {
        let at = self.now + wait;
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        if node.boot.as_mut().is_none_or(|boot| boot.planned.insert(moment)) {
            self.events.plan(at, Event::Talos(Happening::Node(vmid, node.life, moment)));
        }
    }

    /// Lets happen what was planned among the nodes.
    pub(crate) fn talos_happens(&mut self, happening: &Happening) {
        match happening {
            Happening::Node(vmid, life, moment) => {
                let is_same = self.talos.nodes.get(vmid).is_some_and(|node| node.life == *life);
                if is_same {
                    if let Some(boot) = self.talos.boot_mut(*vmid) {
                        boot.planned.remove(moment);
                    }
                    self.talos_moment(*vmid, *moment);
                    self.talos_settle_of(*vmid);
                }
            }
            Happening::Claim(key, address, campaign) => self.talos_claim(key, *address, *campaign),
            Happening::Silent(vmid) => self.talos_silent(*vmid),
        }
    }

    fn talos_moment(&mut self, vmid: u32, moment: Moment) {
        let (now, apid) = (self.now, self.talos.next_apid());
        match moment {
            Moment::Boot => self.talos_up(vmid),
            Moment::Down => self.talos_went_down(vmid),
            Moment::Untry => self.talos_untry(vmid),
            Moment::Specs => {
                if let Some(boot) = self.talos.boot_mut(vmid) {
                    boot.shown = None;
                }
            }
            Moment::EtcdStart => self.etcd_starts(vmid),
            Moment::Join => self.etcd_joins(vmid),
            Moment::JoinStarted => self.etcd_join_started(vmid),
            Moment::Promote => self.etcd_promotes(vmid),
            Moment::Register => self.talos_register(vmid),
            Moment::Ready => self.talos_ready(vmid),
            Moment::Kubelet => self.kubelet_started(vmid),
            Moment::Synced if self.reaches_time(vmid) => self.clock_settles(vmid),
            _ => {
                let is_mute = self.talos.mute.contains(&vmid);
                let Some(boot) = self.talos.boot_mut(vmid) else { return };
                let is_control_plane = boot.config.as_ref().is_some_and(|config| config.role == Role::ControlPlane);
                match moment {
                    Moment::Apid => {
                        boot.apid = Some(apid);
                        boot.certified = now;
                        boot.serve(now, "apid", "Running", Some(true));
                        if is_control_plane {
                            boot.serve(now, "trustd", "Running", Some(true));
                        }
                    }
                    Moment::Ephemeral => boot.mount(now, is_control_plane),
                    Moment::Cri => {
                        boot.mount(now, is_control_plane);
                        boot.serve(now, "cri", "Running", Some(true));
                    }
                    Moment::EtcdImage => boot.has_etcd_image = true,
                    Moment::EtcdHealthy => boot.is_etcd_checked = true,
                    Moment::ApiServer => {
                        boot.runs_apiserver = !is_mute;
                        let [image, _, _] =
                            boot.config.as_ref().map(|config| config.static_images()).unwrap_or_default();
                        boot.api_image = image;
                    }
                    Moment::StaticPods => boot.runs_apiserver = false,
                    _ => {}
                }
            }
        }
    }

    /// A node is told to go down by somebody: it stops what it runs, and then is down.
    pub(crate) fn talos_end(&mut self, vmid: u32, stage: Stage, after: After, actor: &str) {
        let (now, span) = (self.now, self.latencies.talos.stopping);
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        boot.after = after;
        boot.stage = stage;
        let sequence = match stage {
            Stage::ShuttingDown => "shutdown",
            Stage::Resetting => "reset",
            _ => "reboot",
        };
        boot.story.sequence(now, sequence, actor);
        self.talos_plan(vmid, Moment::Down, span);
        self.talos_tell(vmid);
        self.talos_settle_of(vmid);
    }

    fn talos_went_down(&mut self, vmid: u32) {
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let Some(boot) = node.boot.as_ref() else { return };
        let (after, (wipes_config, wipes_data)) = (boot.after, boot.wipes);
        let key = boot.config.as_deref().map(|config| config.key.clone());
        if wipes_config {
            node.disk.config = None;
            node.disk.meta.clear();
        }
        if wipes_data {
            node.disk.etcd = None;
        }
        self.talos_gone(vmid, true);
        match after {
            After::Boot => {
                let span = self.latencies.talos.reboot;
                self.talos_plan(vmid, Moment::Boot, span);
                // What it drew to come up the first time is part of the reboot.
                self.effect("node reboot", vmid);
            }
            After::Off => self.power_off(vmid),
        }
        if let Some(key) = key {
            self.talos_settle(&key);
        }
    }

    /// A node is gone from one moment to the next; one that went down by itself has given back what it held.
    pub(crate) fn talos_gone(&mut self, vmid: u32, is_graceful: bool) {
        let now = self.now;
        let lost = self.draw(&format!("talos vip lost {vmid}"), self.latencies.talos.vip_lost);
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        node.life += 1;
        let Some(boot) = node.boot.take() else { return };
        let Some(key) = boot.config.as_deref().map(|config| config.key.clone()) else { return };
        let until = if is_graceful { now } else { now + lost };
        if let Some(cluster) = self.talos.clusters.get_mut(&key) {
            cluster.give_back(vmid, until);
        }
        self.kubelet_ends(vmid);
        self.talos_settle(&key);
    }

    /// The kubelet of a node runs no more. Kubernetes misses it after a while, unless it has begun again.
    pub(crate) fn kubelet_ends(&mut self, vmid: u32) {
        let silence = super::cluster::GRACE.mul_f64(self.latencies.factor.max(0.0));
        self.events.plan(self.now + silence, Event::Talos(Happening::Silent(vmid)));
    }

    /// Forgets the nodes whose guests are gone, and clusters with them: nobody else has their data.
    pub(crate) fn talos_prune(&mut self) {
        let gone: Vec<u32> = self.talos.nodes.keys().filter(|vmid| !self.guests.contains_key(vmid)).copied().collect();
        for vmid in gone {
            let key = self.talos.nodes.get(&vmid).and_then(Node::cluster).map(ToOwned::to_owned);
            self.talos_gone(vmid, false);
            self.talos.nodes.remove(&vmid);
            let Some(key) = key else { continue };
            if !self.talos.nodes.values().any(|node| node.cluster() == Some(&key)) {
                self.talos.clusters.remove(&key);
                self.talos.etcds.retain(|_, etcd| etcd.key != key);
                self.kubernetes.forget(&key);
            }
        }
    }

    fn boot_id(&mut self, vmid: u32) -> String {
        let bytes = self.chance.bytes(&format!("talos boot id {vmid}"));
        uuid(&bytes)
    }
}

/// Bytes in the form of a random UUID.
pub(crate) fn uuid(bytes: &[u8; 32]) -> String {
    let digits = hex(&bytes[..16]);
    format!("{}-{}-4{}-a{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32])
}

/// What the cloud-init drive tells: the name, and the fixed addresses.
fn platform(machine: &Machine) -> (String, Vec<(std::net::IpAddr, u8)>) {
    let Some(told) = &machine.cloud_init else { return (String::new(), Vec::new()) };
    let addresses = told.interfaces.keys().filter_map(|device| {
        let (ip, length) = told.address(device)?;
        prefix(&format!("{ip}/{length}"))
    });
    (told.hostname.clone(), addresses.collect())
}

impl Boot {
    pub(crate) fn new(now: Duration, boot_id: String) -> Self {
        Self {
            stage: Stage::Booting,
            since: now,
            boot_id,
            config: None,
            shown: None,
            tried: None,
            apid: None,
            is_synced: false,
            epoch: 1,
            certified: now,
            has_etcd_image: false,
            is_bootstrapping: false,
            has_left: false,
            has_ephemeral: false,
            joining: None,
            runs_etcd: false,
            serves_etcd: false,
            is_etcd_checked: false,
            runs_kubelet: false,
            has_run_kubelet: false,
            runs_apiserver: false,
            api_image: String::new(),
            services: BTreeMap::new(),
            planned: BTreeSet::new(),
            after: After::Boot,
            wipes: (false, false),
            story: Story::default(),
            ledger: super::ledger::Ledger::default(),
        }
    }
}

impl Boot {
    /// The disk with the data is mounted, and the services are loaded that need it.
    fn mount(&mut self, now: Duration, is_control_plane: bool) {
        if self.has_ephemeral {
            return;
        }
        self.has_ephemeral = true;
        self.serve(now, "cri", "Waiting", None);
        self.load(now, "kubelet");
        if is_control_plane {
            self.serve(now, "etcd", "Waiting", None);
            self.mounted(now, "etcd");
        }
    }
}

impl super::Talos {
    pub(crate) fn boot_mut(&mut self, vmid: u32) -> Option<&mut Boot> {
        self.nodes.get_mut(&vmid)?.boot.as_mut()
    }

    pub(crate) fn boot(&self, vmid: u32) -> Option<&Boot> {
        self.nodes.get(&vmid)?.boot.as_ref()
    }

    /// A number that no server of the Talos API has had.
    pub(crate) fn next_apid(&mut self) -> u64 {
        self.apids += 1;
        self.apids
    }
}
