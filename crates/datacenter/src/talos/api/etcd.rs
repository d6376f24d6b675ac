//! What is asked and told about etcd.
//!
//! A node answers through a client of etcd, which waits for an etcd that answers as long as its caller does.

use std::time::Duration;

use castle_talos_api::common::Data;
use castle_talos_api::machine::{
    EtcdForfeitLeadership, EtcdForfeitLeadershipResponse, EtcdLeaveCluster, EtcdLeaveClusterResponse, EtcdMember,
    EtcdMemberListResponse, EtcdMemberStatus, EtcdMembers, EtcdRemoveMemberById, EtcdRemoveMemberByIdResponse,
    EtcdSnapshotRequest, EtcdStatus, EtcdStatusResponse,
};
use futures_util::stream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::Api;
use super::call::Caller;
use crate::talos::etcd::refused;
use crate::world::World;

/// The size of the database that is told: nothing is stored.
const DATABASE: i64 = 8 << 20;
/// The same of one that holds nothing yet, and what of it is in use.
const EMPTY: (i64, i64) = (20_480, 16_384);
/// How long a client of etcd asks again before it gives up on a leader.
const RETRIES: Duration = Duration::from_millis(2_700);
/// How long a node waits to learn which member it is.
const OWN_MEMBER: Duration = Duration::from_secs(180);
/// How long a member that leaves asks again while it is refused, as the others are not well.
const LEAVING: Duration = Duration::from_secs(300);

/// What a call needs of etcd before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// That it answers on this very node.
    Own,
    /// The same, and that the members agree.
    OwnQuorum,
    /// The same as the first, and a leader, who is waited for a while.
    OwnLeader,
    /// That it answers on some control plane.
    Any,
    /// The same, and a leader, who is waited for a while.
    AnyLeader,
    /// The same as on any control plane, and that the node knows which member it is.
    Membership,
    /// The same, and that it may go.
    Leave,
}

/// Whether a call waits on.
enum Wait {
    Over,
    /// For ever, or for this long since it got so far.
    On(Option<Duration>),
}

fn unknown(text: impl Into<String>) -> Status {
    Status::unknown(text)
}

impl World {
    /// The control planes that a node would ask: those it knows of.
    fn etcd_endpoints(&self, vmid: u32) -> Vec<u32> {
        let Some(config) = self.talos.nodes.get(&vmid).and_then(|node| node.config()) else { return Vec::new() };
        let is_discovered = config.is_discovered() && !self.talos.is_discovery_lost;
        let named = config.endpoint_host().parse().ok().and_then(|address| self.node_at(address));
        let mut all = vec![vmid];
        let others = self.nodes_of(&config.key).into_iter().filter(|other| {
            self.talos.nodes.get(other).is_some_and(super::super::node::Node::is_control_plane)
                && (is_discovered || Some(*other) == named)
        });
        all.extend(others.filter(|other| *other != vmid));
        all
    }

    /// The member that answers when a node asks: itself before others, voters before learners.
    fn answering(&self, vmid: u32, is_own: bool) -> Option<(u64, u64)> {
        let serves = |vmid: &u32| self.talos.boot(*vmid).is_some_and(|boot| boot.serves_etcd);
        let asked = if is_own { vec![vmid] } else { self.etcd_endpoints(vmid) };
        let mut members: Vec<(u64, u64)> =
            asked.into_iter().filter(serves).filter_map(|it| self.membership(it)).collect();
        members.sort_by_key(|(etcd, member)| self.talos.etcds[etcd].members[member].is_learner);
        members.first().copied()
    }

    /// Whether what a call needs is there, or cannot come any more.
    fn etcd_wait(&self, vmid: u32, needs: Needs) -> Wait {
        let is_control_plane = self.talos.nodes.get(&vmid).is_some_and(super::super::node::Node::is_control_plane);
        if !is_control_plane {
            return Wait::Over;
        }
        let is_own = matches!(needs, Needs::Own | Needs::OwnQuorum | Needs::OwnLeader);
        let Some((etcd, member)) = self.answering(vmid, is_own) else { return Wait::On(None) };
        let known = &self.talos.etcds[&etcd];
        let has_leader = known.leader.is_some();
        match needs {
            Needs::Own | Needs::Any => Wait::Over,
            _ if known.members[&member].is_learner => Wait::Over,
            Needs::OwnLeader | Needs::AnyLeader if has_leader => Wait::Over,
            Needs::OwnLeader | Needs::AnyLeader => Wait::On(Some(RETRIES)),
            Needs::OwnQuorum if self.is_quorate(etcd) => Wait::Over,
            Needs::OwnQuorum => Wait::On(None),
            Needs::Membership | Needs::Leave if !self.is_member_up(vmid) => Wait::On(Some(OWN_MEMBER)),
            Needs::Leave if has_leader && self.check_leave(vmid) == Err(refused::UNHEALTHY) => Wait::On(Some(LEAVING)),
            Needs::Membership | Needs::Leave => Wait::Over,
        }
    }

    fn check_leave(&self, vmid: u32) -> Result<(), &'static str> {
        self.membership(vmid).map_or(Ok(()), |(etcd, member)| self.may_lose(etcd, member))
    }

    /// The member that answers, if it is one that can: what is not there by now does not come.
    fn asked_etcd(&self, vmid: u32, is_own: bool, what: &str) -> Result<(u64, u64), Status> {
        self.check_control_plane(vmid, what)?;
        let gone = || Status::deadline_exceeded("context deadline exceeded");
        self.answering(vmid, is_own).ok_or_else(gone)
    }

    /// Refuses where this node is no member that answers.
    pub(super) fn check_member(&self, vmid: u32, what: &str) -> Result<(u64, u64), Status> {
        self.asked_etcd(vmid, true, what)
    }

    pub(super) fn member_list(&self, vmid: u32, is_own: bool) -> Result<EtcdMemberListResponse, Status> {
        let (etcd, member) = self.asked_etcd(vmid, is_own, "member list")?;
        let known = &self.talos.etcds[&etcd];
        if known.leader.is_none() {
            return Err(unknown(refused::NO_LEADER));
        }
        if known.members[&member].is_learner {
            return Err(unknown(refused::LEARNER));
        }
        let members: Vec<EtcdMember> = (known.members.iter())
            .map(|(id, member)| EtcdMember {
                id: *id,
                hostname: member.hostname.clone(),
                peer_urls: vec![format!("https://{}:2380", member.address)],
                // Only one that has started has said where it listens.
                client_urls: if member.hostname.is_empty() {
                    Vec::new()
                } else {
                    vec![format!("https://{}:2379", member.address)]
                },
                is_learner: member.is_learner,
            })
            .collect();
        let legacy_members = members.iter().map(|member| member.hostname.clone()).collect();
        Ok(EtcdMemberListResponse { messages: vec![EtcdMembers { metadata: None, legacy_members, members }] })
    }

    pub(super) fn etcd_status(&self, vmid: u32) -> Result<EtcdStatusResponse, Status> {
        let (etcd, id) = self.check_member(vmid, "etcd status")?;
        let known = &self.talos.etcds[&etcd];
        let errors = if known.leader.is_none() { vec![refused::NO_LEADER.to_owned()] } else { Vec::new() };
        let is_used = self.kubernetes.get(&known.key).is_some();
        let (db_size, db_size_in_use) = if is_used { (DATABASE, DATABASE / 2) } else { EMPTY };
        let member_status = Some(EtcdMemberStatus {
            protocol_version: "3.6.12".to_owned(),
            storage_version: "3.6.0".to_owned(),
            db_size,
            db_size_in_use,
            leader: known.leader.unwrap_or(0),
            raft_index: known.index,
            raft_term: known.term,
            raft_applied_index: known.index,
            errors,
            is_learner: known.members[&id].is_learner,
            member_id: id,
        });
        Ok(EtcdStatusResponse { messages: vec![EtcdStatus { metadata: None, member_status }] })
    }

    pub(super) fn remove_member_of(&mut self, vmid: u32, member: u64) -> Result<EtcdRemoveMemberByIdResponse, Status> {
        let (etcd, _) = self.asked_etcd(vmid, false, "etcd remove member")?;
        let failed = |why: &str| format!("failed to remove member {member}: {why}");
        match self.may_lose(etcd, member) {
            Err(why) if why == refused::NOT_FOUND => return Err(Status::not_found(failed(why))),
            Err(why) => return Err(unknown(format!("failed to remove member: {}", failed(why)))),
            Ok(()) => self.remove_member(etcd, member),
        };
        Ok(EtcdRemoveMemberByIdResponse { messages: vec![EtcdRemoveMemberById::default()] })
    }

    pub(super) fn leave_etcd(&mut self, vmid: u32) -> Result<EtcdLeaveClusterResponse, Status> {
        self.asked_etcd(vmid, false, "etcd leave")?;
        let Some((etcd, member)) = self.membership(vmid).filter(|_| self.is_member_up(vmid)) else {
            let why = "failed to get local etcd member ID: context deadline exceeded";
            return Err(unknown(format!("failed to leave cluster: {why}")));
        };
        if let Err(why) = self.may_lose(etcd, member) {
            let text = format!("failed to leave cluster: failed to remove member {member}: {why}");
            return Err(unknown(text));
        }
        self.leave(vmid, etcd, member);
        Ok(EtcdLeaveClusterResponse { messages: vec![EtcdLeaveCluster::default()] })
    }

    /// A member goes, and takes its data along.
    pub(super) fn leave(&mut self, vmid: u32, etcd: u64, member: u64) {
        let now = self.now;
        self.remove_member(etcd, member);
        if let Some(node) = self.talos.nodes.get_mut(&vmid) {
            node.disk.etcd = None;
            if let Some(boot) = &mut node.boot {
                boot.has_left = true;
                boot.runs_apiserver = false;
                boot.note(now, "etcd", "Finished", "Service finished successfully");
            }
        }
        self.talos_settle_of(vmid);
    }

    pub(super) fn forfeit_leadership(&mut self, vmid: u32) -> Result<EtcdForfeitLeadershipResponse, Status> {
        self.asked_etcd(vmid, false, "etcd forfeit leadership")?;
        let failed = |why: &str| unknown(format!("failed to forfeit leadership: {why}"));
        let Some((etcd, id)) = self.membership(vmid).filter(|_| self.is_member_up(vmid)) else {
            return Err(unknown("failed to get local etcd member ID: context deadline exceeded"));
        };
        let known = &self.talos.etcds[&etcd];
        if known.leader.is_none() {
            return Err(failed(&format!("failed to list etcd members: {}", refused::NO_LEADER)));
        }
        if known.members.len() == 1 {
            return Err(failed("cannot forfeit leadership, only one member"));
        }
        let mut told = String::new();
        if known.leader == Some(id) {
            // It is offered to the first of the others, whoever that is.
            let next = known.members.iter().find(|(other, _)| **other != id);
            let Some((next, member)) = next.map(|(next, member)| (*next, member.clone())) else {
                return Err(failed(refused::BAD_TRANSFEREE));
            };
            if member.is_learner || !self.is_member_up(member.vmid) {
                return Err(failed(refused::BAD_TRANSFEREE));
            }
            if let Some(known) = self.talos.etcds.get_mut(&etcd) {
                known.leader = Some(next);
                known.term += 1;
            }
            told = member.hostname;
            self.touch();
        }
        Ok(EtcdForfeitLeadershipResponse { messages: vec![EtcdForfeitLeadership { metadata: None, member: told }] })
    }
}

impl Api {
    /// Waits until all nodes that are asked find of etcd what is needed, or give up.
    pub(super) async fn until_etcd(&self, vmids: &[u32], needs: Needs) {
        loop {
            // As long as nothing answers at all, a client waits for ever.
            let patience = self.datacenter.until(|world| match self.longest_wait(world, vmids, needs) {
                Wait::Over => Some(None),
                Wait::On(patience) => patience.map(Some),
            });
            let Some(patience) = patience.await else { return };
            let changed = self.datacenter.until(|world| {
                let is_same =
                    matches!(self.longest_wait(world, vmids, needs), Wait::On(Some(same)) if same == patience);
                (!is_same).then_some(())
            });
            if castle_seams::deadline(self.datacenter.shared.clock.as_ref(), patience, changed).await.is_err() {
                return;
            }
        }
    }

    /// How long the one of these nodes waits that waits longest.
    fn longest_wait(&self, world: &World, vmids: &[u32], needs: Needs) -> Wait {
        if !world.is_open(self.door) {
            return Wait::Over;
        }
        vmids.iter().fold(Wait::Over, |longest, vmid| match (longest, world.etcd_wait(*vmid, needs)) {
            (Wait::Over, wait) | (wait, Wait::Over) => wait,
            (Wait::On(one), Wait::On(two)) => Wait::On(one.zip(two).map(|(one, two)| one.max(two))),
        })
    }

    pub(super) async fn snapshot(
        &self,
        request: Request<EtcdSnapshotRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        let (caller, _): (Caller, _) = self.admit_one("EtcdSnapshot", request).await?;
        self.until_etcd(&[caller.vmid], Needs::Own).await;
        let bytes = {
            let world = self.datacenter.world();
            let (etcd, _) = world.check_member(caller.vmid, "etcd snapshot")?;
            format!("snapshot of etcd {etcd:016x} at {}\n", world.talos.etcds[&etcd].index).into_bytes()
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(Data { metadata: caller.metadata(), bytes })]))))
    }
}
