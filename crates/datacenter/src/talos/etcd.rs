//! The etcd that control planes make: members, learners one at a time, and who leads.

use std::collections::BTreeMap;

use super::node::{Data, Moment};
use crate::world::World;

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

    /// Whether more than half of the voters of an etcd run.
    pub(crate) fn is_quorate(&self, etcd: u64) -> bool {
        let Some(known) = self.talos.etcds.get(&etcd) else { return false };
        let voters = known.members.iter().filter(|(_, member)| !member.is_learner);
        let (all, up) = voters.fold((0, 0), |(all, up), (id, member)| {
            let is_up = self.membership(member.vmid) == Some((etcd, *id)) && self.is_member_up(member.vmid);
            (all + 1, up + usize::from(is_up))
        });
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

    /// etcd starts: with the data that is there, or as a new one if the node was told to begin it.
    pub(super) fn etcd_starts(&mut self, vmid: u32) {
        let id = self.chance.number("talos etcd");
        let member = self.chance.number("talos etcd member");
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let (hostname, address) = (node.hostname(), node.address().map(|ip| ip.to_string()).unwrap_or_default());
        let Some(boot) = node.boot.as_mut() else { return };
        let Some(key) = boot.config.as_deref().map(|config| config.key.clone()) else { return };
        match node.disk.etcd {
            Some(Data::Foreign) => {
                boot.runs_etcd = true;
                return;
            }
            Some(Data::Member { .. }) => boot.runs_etcd = true,
            None if boot.is_bootstrapping => {
                boot.is_bootstrapping = false;
                boot.runs_etcd = true;
                node.disk.etcd = Some(Data::Member { etcd: id, member });
                let first = Member { vmid, hostname, address, is_learner: false };
                let members = BTreeMap::from([(member, first)]);
                self.talos.etcds.insert(id, Etcd { key, members, leader: Some(member), term: 2, index: 4 });
                self.effect("bootstrap", vmid);
            }
            None => return,
        }
        self.talos_plan_fixed(vmid, Moment::EtcdHealthy, 5.0);
    }

    /// A node asks to be taken in. Only one learner is taken at a time.
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
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let Some(etcd) = self.talos.etcds.get_mut(&id) else { return };
        if etcd.members.values().any(|member| member.is_learner) {
            return;
        }
        // One that comes back with an empty disk removes what it was before.
        let hostname = node.hostname();
        etcd.members.retain(|_, member| member.hostname != hostname);
        let address = node.address().map(|ip| ip.to_string()).unwrap_or_default();
        etcd.members.insert(member, Member { vmid, hostname: String::new(), address, is_learner: true });
        etcd.index += 1;
        node.disk.etcd = Some(Data::Member { etcd: id, member });
        self.talos_plan_fixed(vmid, Moment::JoinStarted, 1.5);
        self.talos_plan(vmid, Moment::Promote, span);
    }

    pub(super) fn etcd_join_started(&mut self, vmid: u32) {
        let Some((etcd, id)) = self.membership(vmid) else { return };
        let Some(node) = self.talos.nodes.get_mut(&vmid) else { return };
        let hostname = node.hostname();
        let Some(boot) = node.boot.as_mut() else { return };
        boot.runs_etcd = true;
        if let Some(member) = self.talos.etcds.get_mut(&etcd).and_then(|etcd| etcd.members.get_mut(&id)) {
            member.hostname = hostname;
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
            && !boot.is_bootstrapping
            && !boot.has_left
            && !boot.stage.is_ending()
    }

    /// Who leads is who can; the next by number if it can no more.
    pub(super) fn elect(&mut self, key: &str) {
        let ids: Vec<u64> = self.talos.etcds.iter().filter(|(_, etcd)| etcd.key == key).map(|(id, _)| *id).collect();
        for id in ids {
            let is_quorate = self.is_quorate(id);
            let etcd = &self.talos.etcds[&id];
            let can_lead = |member: &u64| {
                etcd.members.get(member).is_some_and(|known| !known.is_learner && self.is_member_up(known.vmid))
            };
            let leader = match etcd.leader {
                _ if !is_quorate => None,
                Some(leader) if can_lead(&leader) => Some(leader),
                _ => etcd.members.keys().copied().find(can_lead),
            };
            let Some(etcd) = self.talos.etcds.get_mut(&id) else { continue };
            if leader.is_some() && leader != etcd.leader {
                etcd.term += 1;
            }
            etcd.leader = leader;
        }
    }

    /// Removes a member by its number. Says whether there was one in this etcd.
    pub(crate) fn remove_member(&mut self, etcd: u64, member: u64) -> bool {
        let Some(known) = self.talos.etcds.get_mut(&etcd) else { return false };
        let Some(removed) = known.members.remove(&member) else { return false };
        known.index += 1;
        let key = known.key.clone();
        if let Some(boot) = self.talos.boot_mut(removed.vmid) {
            boot.runs_etcd = false;
            boot.is_etcd_checked = false;
        }
        self.effect("etcd removal", removed.vmid);
        self.talos_settle(&key);
        true
    }
}
