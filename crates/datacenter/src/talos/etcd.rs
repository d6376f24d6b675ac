//! The etcd that control planes make: members, learners one at a time, and who leads.

use std::collections::BTreeMap;

use super::node::{Data, Moment};
use crate::world::World;

/// What etcd says of a change of members that it does not make.
pub(crate) mod refused {
    pub(crate) const NO_LEADER: &str = "etcdserver: no leader";
    pub(crate) const NOT_FOUND: &str = "etcdserver: member not found";
    pub(crate) const NOT_ENOUGH: &str = "etcdserver: re-configuration failed due to not enough started members";
    pub(crate) const UNHEALTHY: &str = "etcdserver: unhealthy cluster";
    pub(crate) const SAME_ADDRESS: &str = "etcdserver: Peer URLs already exists";
    pub(crate) const TOO_MANY_LEARNERS: &str = "etcdserver: too many learner members in cluster";
    pub(crate) const BAD_TRANSFEREE: &str = "etcdserver: bad leader transferee";
    pub(crate) const LEARNER: &str = "etcdserver: rpc not supported for learner";
}

/// One etcd. There should be one for each cluster; two nodes that were both told to begin one make two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Etcd {
    /// The cluster that it belongs to.
    pub(crate) key: String,
    pub(crate) members: BTreeMap<u64, Member>,
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    /// Counts what was agreed upon.
    pub(crate) index: u64,
}

/// A member, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) vmid: u32,
    /// Its name; unknown until it has started.
    pub(crate) hostname: String,
    pub(crate) address: String,
    pub(crate) is_learner: bool,
}

impl Etcd {
    fn voters(&self) -> impl Iterator<Item = (u64, &Member)> {
        self.members.iter().filter(|(_, member)| !member.is_learner).map(|(id, member)| (*id, member))
    }
}

impl World {
    /// The etcd and the number of the member that a node is, if it is still one.
    pub(crate) fn membership(&self, vmid: u32) -> Option<(u64, u64)> {
        let Some(Data::Member { etcd, member }) = self.talos.nodes.get(&vmid)?.disk.etcd else { return None };
        self.talos.etcds.get(&etcd)?.members.contains_key(&member).then_some((etcd, member))
    }

    /// Whether the member that a node is runs.
    pub(crate) fn is_member_up(&self, vmid: u32) -> bool {
        self.membership(vmid).is_some() && self.talos.boot(vmid).is_some_and(|boot| boot.runs_etcd)
    }

    /// Whether a member of an etcd runs: the data of its node are still its own.
    fn is_heard(&self, etcd: u64, id: u64, member: &Member) -> bool {
        self.membership(member.vmid) == Some((etcd, id)) && self.is_member_up(member.vmid)
    }

    /// How many voters an etcd has, and how many of them run.
    fn votes(&self, etcd: u64) -> (usize, usize) {
        let Some(known) = self.talos.etcds.get(&etcd) else { return (0, 0) };
        known
            .voters()
            .fold((0, 0), |(all, up), (id, member)| (all + 1, up + usize::from(self.is_heard(etcd, id, member))))
    }

    /// Whether more than half of the voters of an etcd run.
    pub(crate) fn is_quorate(&self, etcd: u64) -> bool {
        let (all, up) = self.votes(etcd);
        up * 2 > all
    }

    /// Whether a node is a voter of an etcd that works.
    pub(crate) fn has_etcd(&self, vmid: u32) -> bool {
        let Some((etcd, id)) = self.membership(vmid) else { return false };
        let is_learner = self.talos.etcds[&etcd].members[&id].is_learner;
        !is_learner && self.is_member_up(vmid) && self.is_quorate(etcd)
    }

    /// The etcd that a node would ask to be taken in: one of its cluster that works.
    pub(crate) fn etcd_of(&self, key: &str) -> Option<u64> {
        let mut known = self.talos.etcds.iter().filter(|(_, etcd)| etcd.key == key);
        known.find(|(id, _)| self.is_quorate(**id)).map(|(id, _)| *id)
    }

    /// Whether etcd agrees to lose a member: as many voters as it needs must be left, and started, and be heard of.
    pub(crate) fn may_lose(&self, etcd: u64, id: u64) -> Result<(), &'static str> {
        let Some(known) = self.talos.etcds.get(&etcd).filter(|known| known.leader.is_some()) else {
            return Err(refused::NO_LEADER);
        };
        if known.members.get(&id).is_some_and(|member| member.is_learner) {
            return Ok(());
        }
        let (left, started) = known
            .voters()
            .filter(|(other, _)| *other != id)
            .fold((0, 0), |(left, started), (_, it)| (left + 1, started + usize::from(!it.hostname.is_empty())));
        if started < left / 2 + 1 {
            return Err(refused::NOT_ENOUGH);
        }
        // One that nothing is heard of is no loss.
        let Some(member) = known.members.get(&id) else { return Err(refused::NOT_FOUND) };
        let (all, up) = self.votes(etcd);
        if self.is_heard(etcd, id, member) && up - 1 < 1 + (all - 1) / 2 {
            return Err(refused::UNHEALTHY);
        }
        Ok(())
    }

    /// Whether etcd takes a node in, as a learner: what it was before by this name is removed, as many voters must be heard of
    /// as one more would need, nobody else may have its address, and nobody else may be a learner.
    pub(super) fn admits(&self, etcd: u64, vmid: u32) -> Result<Vec<u64>, &'static str> {
        let (Some(known), Some(node)) = (self.talos.etcds.get(&etcd), self.talos.nodes.get(&vmid)) else {
            return Err(refused::NO_LEADER);
        };
        let (hostname, address) = (node.hostname(), node.address().map(|ip| ip.to_string()).unwrap_or_default());
        let same = known.members.iter().filter(|(_, member)| member.hostname == hostname);
        let old: Vec<u64> = same.map(|(id, _)| *id).collect();
        for id in &old {
            self.may_lose(etcd, *id)?;
        }
        let mut others = known.members.iter().filter(|(id, _)| !old.contains(id)).map(|(id, member)| (*id, member));
        let (voters, up) = others
            .clone()
            .filter(|(_, member)| !member.is_learner)
            .fold((0_usize, 0_usize), |(all, up), (id, it)| (all + 1, up + usize::from(self.is_heard(etcd, id, it))));
        if up < voters.div_ceil(2) + 1 && up < voters {
            return Err(refused::UNHEALTHY);
        }
        if others.clone().any(|(_, member)| member.address == address) {
            return Err(refused::SAME_ADDRESS);
        }
        if others.any(|(_, member)| member.is_learner) {
            return Err(refused::TOO_MANY_LEARNERS);
        }
        Ok(old)
    }

    /// etcd starts: with the data that is there, or as a new one if the node was told to begin it.
    pub(super) fn etcd_starts(&mut self, vmid: u32) {
        let id = self.chance.number("talos etcd");
        let member = self.chance.number("talos etcd member");
        let now = self.now;
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let (hostname, address) = (node.hostname(), node.address().map(|ip| ip.to_string()).unwrap_or_default());
        let Some(boot) = node.boot.as_mut() else { return };
        let Some(key) = boot.config.as_deref().map(|config| config.key.clone()) else { return };
        match node.disk.etcd {
            Some(Data::Foreign) => {
                boot.runs_etcd = true;
                boot.serve(now, "etcd", "Running", None);
                return;
            }
            Some(Data::Member { .. }) => boot.runs_etcd = true,
            None if boot.is_bootstrapping => {
                boot.is_bootstrapping = false;
                boot.runs_etcd = true;
                node.disk.etcd = Some(Data::Member { etcd: id, member });
                let first = Member { vmid, hostname, address, is_learner: false };
                let members = BTreeMap::from([(member, first)]);
                self.talos.etcds.insert(id, Etcd { key, members, leader: Some(member), term: 2, index: 5 });
                self.effect("bootstrap", vmid);
            }
            None => return,
        }
        self.talos_plan_fixed(vmid, Moment::EtcdHealthy, 5.0);
    }

    /// A node asks to be taken in.
    pub(super) fn etcd_joins(&mut self, vmid: u32) {
        if !self.waits_for_etcd(vmid) {
            return;
        }
        let member = self.chance.number("talos etcd member");
        let span = self.latencies.talos.etcd_join;
        let Some(key) = self.talos.nodes.get(&vmid).and_then(|node| node.config()).map(|config| config.key.clone())
        else {
            return;
        };
        let Some(id) = self.etcd_of(&key) else { return };
        let Ok(old) = self.admits(id, vmid) else { return };
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let Some(etcd) = self.talos.etcds.get_mut(&id) else { return };
        etcd.members.retain(|member, _| !old.contains(member));
        let address = node.address().map(|ip| ip.to_string()).unwrap_or_default();
        etcd.members.insert(member, Member { vmid, hostname: String::new(), address, is_learner: true });
        etcd.index += 1 + old.len() as u64;
        if let Some(boot) = &mut node.boot {
            boot.joining = Some((id, member));
        }
        self.talos_plan_fixed(vmid, Moment::JoinStarted, 1.5);
        self.talos_plan(vmid, Moment::Promote, span);
    }

    /// etcd starts for the first time on a node that was taken in: from here on there are data.
    pub(super) fn etcd_join_started(&mut self, vmid: u32) {
        let now = self.now;
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let hostname = node.hostname();
        let Some(boot) = node.boot.as_mut() else { return };
        let Some((etcd, id)) = boot.joining.take() else { return };
        match self.talos.etcds.get_mut(&etcd).and_then(|etcd| etcd.members.get_mut(&id)) {
            Some(member) => {
                member.hostname = hostname;
                boot.runs_etcd = true;
                node.disk.etcd = Some(Data::Member { etcd, member: id });
            }
            // Removed before it began: it goes on trying to be a member that it is not.
            None => {
                boot.has_left = true;
                boot.note(now, "etcd", "Waiting", &crashed("member count is unequal"));
            }
        }
    }

    pub(super) fn etcd_promotes(&mut self, vmid: u32) {
        let Some((etcd, id)) = self.membership(vmid) else { return };
        let is_frozen = self.talos.nodes.get(&vmid).is_some_and(|node| node.is_frozen);
        if is_frozen || !self.is_quorate(etcd) || !self.is_member_up(vmid) {
            return;
        }
        let Some(known) = self.talos.etcds.get_mut(&etcd) else { return };
        let Some(member) = known.members.get_mut(&id) else { return };
        member.is_learner = false;
        known.index += 1;
        let span = self.latencies.talos.etcd_health;
        self.talos_plan(vmid, Moment::EtcdHealthy, span);
    }

    /// Whether a node has all it needs to be taken into an etcd, except one that takes it.
    pub(super) fn waits_for_etcd(&self, vmid: u32) -> bool {
        let Some(node) = self.talos.nodes.get(&vmid) else { return false };
        let Some(boot) = &node.boot else { return false };
        node.is_control_plane()
            && node.disk.etcd.is_none()
            && boot.has_etcd_image
            && boot.is_synced
            && boot.joining.is_none()
            && !boot.is_bootstrapping
            && !boot.has_left
            && !boot.stage.is_ending()
    }

    /// Who leads is who can; the next by number if it can no more. Members that have a leader begin to answer.
    pub(super) fn elect(&mut self, key: &str) {
        let ids: Vec<u64> = self.talos.etcds.iter().filter(|(_, etcd)| etcd.key == key).map(|(id, _)| *id).collect();
        for id in ids {
            let is_quorate = self.is_quorate(id);
            let etcd = &self.talos.etcds[&id];
            let up: Vec<(u64, u32, bool)> = (etcd.members.iter())
                .filter(|(member, known)| self.is_heard(id, **member, known))
                .map(|(member, known)| (*member, known.vmid, known.is_learner))
                .collect();
            let can_lead = |wanted: u64| up.iter().any(|(member, _, is_learner)| *member == wanted && !is_learner);
            let leader = match etcd.leader {
                _ if !is_quorate => None,
                Some(leader) if can_lead(leader) => Some(leader),
                _ => etcd.members.keys().copied().find(|member| can_lead(*member)),
            };
            let Some(etcd) = self.talos.etcds.get_mut(&id) else { continue };
            if leader.is_some() && leader != etcd.leader {
                etcd.term += 1;
            }
            etcd.leader = leader;
            for (_, vmid, _) in up.iter().filter(|_| leader.is_some()) {
                if let Some(boot) = self.talos.boot_mut(*vmid) {
                    boot.serves_etcd = true;
                }
            }
        }
    }

    /// A member that was removed while it was away finds that out as soon as it starts.
    pub(super) fn etcd_is_removed(&mut self, vmid: u32) {
        let now = self.now;
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        if boot.services.get("etcd").is_some_and(|etcd| etcd.state == "Preparing") {
            boot.note(now, "etcd", "Waiting", &crashed(REMOVED));
        }
    }

    /// Removes a member by its number, as it is: whether that may be is asked before. Says whether there was one in this etcd.
    pub(crate) fn remove_member(&mut self, etcd: u64, member: u64) -> bool {
        let now = self.now;
        let Some(known) = self.talos.etcds.get_mut(&etcd) else { return false };
        let Some(removed) = known.members.remove(&member) else { return false };
        known.index += 1;
        let key = known.key.clone();
        let node = self.talos.nodes.get_mut(&removed.vmid);
        let is_own = |data: &Data| *data == Data::Member { etcd, member };
        if let Some(node) = node.filter(|node| node.disk.etcd.as_ref().is_some_and(is_own))
            && let Some(boot) = &mut node.boot
            && boot.runs_etcd
        {
            boot.end_etcd();
            boot.note(now, "etcd", "Waiting", &crashed(REMOVED));
        }
        self.effect("etcd removal", removed.vmid);
        self.talos_settle(&key);
        true
    }
}

/// The last words of a member that was removed: it is started again and again with the data that it has.
const REMOVED: &str = "the member has been permanently removed from the cluster";

/// What is told of an etcd that ends as often as it is started.
fn crashed(last: &str) -> String {
    format!(
        "Error running Containerd(etcd), going to restart forever: task \"etcd\" failed: exit code 1 (last log {last:?})"
    )
}

impl super::node::Boot {
    /// etcd runs no more.
    pub(crate) fn end_etcd(&mut self) {
        self.runs_etcd = false;
        self.serves_etcd = false;
        self.is_etcd_checked = false;
    }
}
