//! What bad luck and other people do to nodes. Each happens at once, at the clock's time.

use std::net::IpAddr;
use std::time::Duration;

use castle_talos_api::machine::ApplyConfigurationRequest;
use castle_talos_api::machine::apply_configuration_request::Mode;

use super::Hurdle;
use super::config::Config;
use super::node::{After, Data, Moment, Stage};
use crate::datacenter::Datacenter;

impl Datacenter {
    /// Lets time servers answer no more, or again. A node that waits for them goes on once they do.
    pub fn set_time_servers(&self, do_answer: bool) {
        let mut world = self.world();
        world.talos.is_time_lost = !do_answer;
        let span = world.latencies.talos.time_sync;
        let waiting: Vec<u32> = (world.talos.nodes.values())
            .filter(|node| node.boot.as_ref().is_some_and(|boot| boot.config.is_some() && !boot.is_synced))
            .map(|node| node.vmid)
            .collect();
        for vmid in waiting.into_iter().filter(|_| do_answer) {
            world.talos_plan(vmid, Moment::Synced, span);
        }
        world.touch();
    }

    /// Puts the clock of the node in a guest ahead by so many seconds, or behind, from now on: also of one that is still to boot. It reaches none of
    /// the usual time servers, so that it stays so until [`Datacenter::settle_clock`], or until its configuration names others.
    pub fn shift_clock(&self, vmid: u32, ahead: i64) {
        let mut world = self.world();
        let now = world.now;
        world.talos.clocks.entry(vmid).or_default().shift(now, ahead);
        if let Some(boot) = world.talos.boot_mut(vmid) {
            boot.is_synced = false;
        }
        world.touch();
    }

    /// The same of a node that was in sync before, and reaches its time server no more: it goes on saying that it is in sync.
    pub fn strand_clock(&self, vmid: u32, ahead: i64) {
        let is_synced = self.world().talos.boot(vmid).is_some_and(|boot| boot.is_synced);
        self.shift_clock(vmid, ahead);
        let mut world = self.world();
        world.talos.stranded.insert(vmid);
        if let Some(boot) = world.talos.boot_mut(vmid) {
            boot.is_synced = is_synced;
        }
        world.touch();
    }

    /// Puts the clock of the hypervisor ahead by so many seconds, or behind: what its answers are dated by. Together with [`Datacenter::shift_clock`]
    /// of its nodes, that is a client whose own clock is wrong.
    pub fn shift_hypervisor_clock(&self, ahead: i64) {
        self.world().hypervisor_ahead = ahead;
    }

    /// Lets a node whose clock was shifted reach a time server. What it noted before keeps the time that it had.
    pub fn settle_clock(&self, vmid: u32) {
        let mut world = self.world();
        world.clock_settles(vmid);
        world.talos_settle_of(vmid);
        world.touch();
    }

    /// Lets the discovery service answer no more, or again.
    pub fn set_discovery(&self, does_answer: bool) {
        let mut world = self.world();
        world.talos.is_discovery_lost = !does_answer;
        let keys: Vec<String> = world.talos.clusters.keys().cloned().collect();
        for key in keys {
            world.talos_settle(&key);
        }
    }

    /// Leaves data of an etcd from another time on the disk of a node. Says whether there is such a node.
    pub fn plant_etcd_data(&self, vmid: u32) -> bool {
        let mut world = self.world();
        let Some(node) = world.talos.nodes.get_mut(&vmid) else { return false };
        node.disk.etcd = Some(Data::Foreign);
        world.talos_settle_of(vmid);
        world.touch();
        true
    }

    /// Lets the disk of a node fail where the data of its etcd are, if there are any: nobody can tell.
    pub fn spoil_etcd_data(&self, vmid: u32) {
        let mut world = self.world();
        world.talos.unreadable.insert(vmid);
        world.touch();
    }

    /// Destroys the etcd of a node with its data; the others still count on it. Says whether it was a member.
    pub fn lose_etcd_member(&self, vmid: u32) -> bool {
        let mut world = self.world();
        let now = world.now;
        if world.membership(vmid).is_none() {
            return false;
        }
        if let Some(node) = world.talos.nodes.get_mut(&vmid) {
            node.disk.etcd = None;
            if let Some(boot) = &mut node.boot {
                boot.end_etcd();
                boot.joining = None;
                boot.runs_apiserver = false;
                boot.serve(now, "etcd", "Preparing", None);
            }
        }
        world.talos_settle_of(vmid);
        true
    }

    /// Takes the member of a node out of etcd for good, as somebody does with talosctl. Says whether it was one, and etcd agreed.
    pub fn remove_etcd_member(&self, vmid: u32) -> bool {
        let mut world = self.world();
        let Some((etcd, member)) = world.membership(vmid) else { return false };
        world.may_lose(etcd, member).is_ok() && world.remove_member(etcd, member)
    }

    /// Lets the etcd member of a node be known at another address than its own, as one is that an earlier machine of this name has left behind. Says whether it
    /// was a member.
    pub fn readdress_etcd_member(&self, vmid: u32, address: IpAddr) -> bool {
        let mut world = self.world();
        let Some((etcd, member)) = world.membership(vmid) else { return false };
        let known = world.talos.etcds.get_mut(&etcd).and_then(|etcd| etcd.members.get_mut(&member));
        known.map(|member| member.address = address.to_string()).is_some()
    }

    /// Lets a device that nobody here knows have an address, or leave it: it answers there before any node, and refuses connections.
    pub fn occupy_address(&self, address: IpAddr, is_occupied: bool) {
        let mut world = self.world();
        if is_occupied {
            world.talos.occupied.insert(address);
        } else {
            world.talos.occupied.remove(&address);
        }
        world.touch();
    }

    /// Keeps the learner of a node from becoming a voter, or lets it.
    pub fn freeze_learner(&self, vmid: u32, is_frozen: bool) -> bool {
        let mut world = self.world();
        let Some(node) = world.talos.nodes.get_mut(&vmid) else { return false };
        node.is_frozen = is_frozen;
        world.talos_settle_of(vmid);
        world.touch();
        true
    }

    /// Lets a node take connections and say nothing, or speak again.
    pub fn hush_node(&self, vmid: u32, is_silent: bool) {
        let mut world = self.world();
        if is_silent {
            world.talos.hushed.insert(vmid);
        } else {
            world.talos.hushed.remove(&vmid);
        }
        world.touch();
    }

    /// Ends the API server of a node and keeps it from starting, or lets it.
    pub fn mute_api_server(&self, vmid: u32, is_mute: bool) {
        let mut world = self.world();
        if is_mute {
            world.talos.mute.insert(vmid);
            if let Some(boot) = world.talos.boot_mut(vmid) {
                boot.runs_apiserver = false;
            }
        } else {
            world.talos.mute.remove(&vmid);
        }
        world.talos_settle_of(vmid);
        world.touch();
    }

    /// Keeps kubelets from starting on nodes that are so from now on, or (with nothing) on none any more. One that runs goes on until it is started again.
    pub fn set_hurdle(&self, hurdle: Option<Hurdle>) {
        let mut world = self.world();
        world.talos.hurdle = hurdle;
        let keys: Vec<String> = world.talos.clusters.keys().cloned().collect();
        for key in keys {
            world.talos_settle(&key);
        }
        world.touch();
    }

    /// Lets a node run the kubelet of another version than its configuration has, until that starts again: as one whose image cannot be pulled. Says whether it
    /// is a node of Kubernetes.
    pub fn run_kubelet(&self, vmid: u32, version: &str) -> bool {
        let mut world = self.world();
        let Some(key) = world.talos.nodes.get(&vmid).and_then(|node| node.config()).map(|config| config.key.clone())
        else {
            return false;
        };
        let nodes = world.talos.clusters.get_mut(&key).map(|cluster| cluster.nodes.values_mut());
        let Some(node) = nodes.into_iter().flatten().find(|node| node.vmid == vmid) else { return false };
        version.clone_into(&mut node.version);
        world.talos_settle(&key);
        world.touch();
        true
    }

    /// Lets the API server of a node be one of another version than its configuration has, until it starts again. Says whether it runs one.
    pub fn run_api_server(&self, vmid: u32, version: &str) -> bool {
        let mut world = self.world();
        let Some(boot) = world.talos.boot_mut(vmid).filter(|boot| boot.runs_apiserver) else { return false };
        boot.api_image = format!("registry.k8s.io/kube-apiserver:{version}");
        world.talos_settle_of(vmid);
        world.touch();
        true
    }

    /// Ends the Talos API of a node, which comes back after a moment: every connection breaks.
    pub fn restart_apid(&self, vmid: u32) -> bool {
        let mut world = self.world();
        let (now, span) = (world.now, world.latencies.talos.apid);
        let Some(boot) = world.talos.boot_mut(vmid).filter(|boot| boot.apid.is_some()) else { return false };
        boot.apid = None;
        boot.serve(now, "apid", "Waiting", None);
        world.talos_plan(vmid, Moment::Apid, span);
        world.touch();
        true
    }

    /// Gives a node a configuration, as another castle would, whatever it has.
    ///
    /// # Errors
    ///
    /// What the node would say, if it does not accept it or there is none.
    pub fn configure_node(&self, vmid: u32, text: &str) -> Result<(), String> {
        let mut world = self.world();
        let node = world.talos.nodes.get_mut(&vmid).ok_or("no such node")?;
        let accepted = Config::accept(node.image.minor(), node.image.version.trim_start_matches('v'), text)?;
        node.disk.config = Some(accepted.config.clone());
        world.talos_begin(vmid, accepted.config);
        world.touch();
        Ok(())
    }

    /// Lets a person try a change of its configuration on a node for a while, one text for another; then it is taken back, as nobody confirms it.
    ///
    /// # Errors
    ///
    /// What the node would say, if it does not accept it or there is none.
    pub fn try_on_node(&self, vmid: u32, text: &str, instead: &str, time: Duration) -> Result<(), String> {
        let mut world = self.world();
        let node = world.talos.nodes.get(&vmid).ok_or("no such node")?;
        let changed = node.config().ok_or("it has no configuration")?.text.replace(text, instead);
        let accepted = Config::accept(node.image.minor(), node.image.version.trim_start_matches('v'), &changed)?;
        let seconds = i64::try_from(time.as_secs()).map_err(|_| "too long")?;
        let try_mode_timeout = Some(castle_talos_api::Duration { seconds, nanos: 0 });
        let asked = ApplyConfigurationRequest { try_mode_timeout, ..ApplyConfigurationRequest::default() };
        let mut told = String::new();
        let taken = world.take_over(vmid, Mode::Try, &asked, accepted.config, &mut told);
        taken.map_err(|status| status.message().to_owned())
    }

    /// Lets a node run an image of somebody's own with these extensions and kernel arguments, as after an upgrade by hand: it tells no schematic.
    pub fn replace_image(&self, vmid: u32, extensions: &[&str], kernel_args: &[&str]) -> bool {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let mut world = self.world();
        let Some(node) = world.talos.nodes.get_mut(&vmid) else { return false };
        node.image.schematic = None;
        (node.image.extensions, node.image.kernel_args) = (owned(extensions), owned(kernel_args));
        world.touch();
        true
    }

    /// Reboots a node from one moment to the next, as a kernel that panicked does.
    pub fn reboot_node(&self, vmid: u32) -> bool {
        let mut world = self.world();
        if world.talos.boot(vmid).is_none() {
            return false;
        }
        world.talos_gone(vmid, false);
        let span = world.latencies.talos.reboot;
        world.talos_plan(vmid, Moment::Boot, span);
        world.touch();
        true
    }

    /// Whether a node was told to begin an etcd and has not done so yet: it knows that in its memory alone.
    #[must_use]
    pub fn is_about_to_begin(&self, vmid: u32) -> bool {
        self.world().talos.boot(vmid).is_some_and(|boot| boot.is_bootstrapping)
    }

    /// Lets a node forget its configuration and its data, and come up again without, as `talosctl reset` does.
    pub fn reset_node(&self, vmid: u32) -> bool {
        let mut world = self.world();
        let Some(boot) = world.talos.boot_mut(vmid) else { return false };
        boot.wipes = (true, true);
        world.talos_end(vmid, Stage::Resetting, After::Boot, "");
        world.touch();
        true
    }

    /// Lets a node go down in order, and come up again.
    pub fn restart_node(&self, vmid: u32) -> bool {
        let mut world = self.world();
        if world.talos.boot(vmid).is_none() {
            return false;
        }
        world.talos_end(vmid, Stage::Rebooting, After::Boot, "");
        world.touch();
        true
    }
}
