//! What is asked and told about etcd.

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
use crate::world::World;

/// The size of the database that is told: nothing is stored.
const DATABASE: i64 = 8 << 20;

fn refused(port: &str) -> Status {
    Status::unavailable(format!(
        "connection error: desc = \"transport: Error while dialing: dial tcp {port}: connect: connection refused\""
    ))
}

impl World {
    /// Refuses where this node is no member that runs.
    pub(super) fn check_member(&self, vmid: u32, what: &str) -> Result<(u64, u64), Status> {
        self.check_control_plane(vmid, what)?;
        self.membership(vmid).filter(|_| self.is_member_up(vmid)).ok_or_else(|| refused("127.0.0.1:2379"))
    }

    /// The etcd that a control plane would ask: any of its cluster that works.
    fn asked_etcd(&self, vmid: u32, what: &str) -> Result<u64, Status> {
        self.check_control_plane(vmid, what)?;
        let key = self.talos.nodes.get(&vmid).and_then(|node| node.config()).map(|config| config.key.clone());
        let own = self.membership(vmid).map(|(etcd, _)| etcd).filter(|etcd| self.is_quorate(*etcd));
        let found = own.or_else(|| key.as_deref().and_then(|key| self.etcd_of(key)));
        found.ok_or_else(|| {
            let exists = key.as_ref().is_some_and(|key| self.talos.etcds.values().any(|etcd| etcd.key == *key));
            if exists { Status::unavailable("etcdserver: no leader") } else { refused("127.0.0.1:2379") }
        })
    }

    pub(super) fn member_list(&self, vmid: u32, is_local: bool) -> Result<EtcdMemberListResponse, Status> {
        let what = "member list";
        let etcd = if is_local { self.check_member(vmid, what)?.0 } else { self.asked_etcd(vmid, what)? };
        let members: Vec<EtcdMember> = (self.talos.etcds[&etcd].members.iter())
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
        let errors = if known.leader.is_none() { vec!["etcdserver: no leader".to_owned()] } else { Vec::new() };
        let member_status = Some(EtcdMemberStatus {
            protocol_version: "3.6.5".to_owned(),
            storage_version: "3.6.0".to_owned(),
            db_size: DATABASE,
            db_size_in_use: DATABASE / 2,
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
        let etcd = self.asked_etcd(vmid, "etcd remove member")?;
        if !self.remove_member(etcd, member) {
            return Err(Status::not_found("etcdserver: member not found"));
        }
        Ok(EtcdRemoveMemberByIdResponse { messages: vec![EtcdRemoveMemberById::default()] })
    }

    pub(super) fn leave_etcd(&mut self, vmid: u32) -> Result<EtcdLeaveClusterResponse, Status> {
        let (etcd, member) = self.check_member(vmid, "etcd leave")?;
        self.leave(vmid, etcd, member);
        Ok(EtcdLeaveClusterResponse { messages: vec![EtcdLeaveCluster::default()] })
    }

    /// A member goes, and takes its data along.
    pub(super) fn leave(&mut self, vmid: u32, etcd: u64, member: u64) {
        let now = self.now;
        if let Some(node) = self.talos.nodes.get_mut(&vmid) {
            node.disk.etcd = None;
            if let Some(boot) = &mut node.boot {
                boot.has_left = true;
                boot.runs_apiserver = false;
                boot.serve(now, "etcd", "Finished", None);
            }
        }
        self.remove_member(etcd, member);
    }

    pub(super) fn forfeit_leadership(&mut self, vmid: u32) -> Result<EtcdForfeitLeadershipResponse, Status> {
        let (etcd, id) = self.check_member(vmid, "etcd forfeit leadership")?;
        let others = self.talos.etcds[&etcd].members.iter();
        let next = others
            .filter(|(other, member)| **other != id && !member.is_learner && self.is_member_up(member.vmid))
            .map(|(other, member)| (*other, member.hostname.clone()))
            .next();
        let Some(known) = self.talos.etcds.get_mut(&etcd) else { return Err(refused("127.0.0.1:2379")) };
        let mut member = String::new();
        if known.leader == Some(id) {
            let (next, hostname) = next.ok_or_else(|| {
                Status::unknown("failed to forfeit leadership: no suitable member to transfer leadership to")
            })?;
            known.leader = Some(next);
            known.term += 1;
            member = hostname;
            self.touch();
        }
        Ok(EtcdForfeitLeadershipResponse { messages: vec![EtcdForfeitLeadership { metadata: None, member }] })
    }
}

impl Api {
    pub(super) async fn snapshot(
        &self,
        request: Request<EtcdSnapshotRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        let (caller, _) = self.admit_one("EtcdSnapshot", request).await?;
        let bytes = {
            let world = self.datacenter.world();
            let (etcd, _) = world.check_member(caller.vmid, "etcd snapshot")?;
            format!("snapshot of etcd {etcd:016x} at {}\n", world.talos.etcds[&etcd].index).into_bytes()
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(Data { metadata: caller.metadata(), bytes })]))))
    }
}
