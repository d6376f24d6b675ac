//! The member of etcd on a node: whether there is one, who the others are, and how one of them goes.

use std::net::IpAddr;
use std::time::Duration;

use castle_talos_api::machine::{
    EtcdMember, EtcdMemberListRequest, EtcdMemberStatus, EtcdRemoveMemberByIdRequest, ListRequest,
};
use tonic::Status;

use super::calls::machine;
use super::{ErrorClass, Node, Refusal, checked, only};

/// Where a control plane keeps its data of etcd.
const DATA: &str = "/var/lib/etcd";
/// What a call may take that waits for etcd. A node without a running etcd does not answer before the caller gives up; one without a
/// quorum says so after 2.6 s.
const WAITING: Duration = Duration::from_secs(3);
/// More names than anything has that is etcd's.
const MOST_NAMES: usize = 64;

/// Whether a control plane has data of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdData {
    /// It has a place for them, and there is nothing in it: etcd has never begun on it, or has left it.
    Empty,
    /// It has some.
    There,
}

impl Node {
    /// Whether it has data of etcd. Tells at once after a start, long before etcd itself runs.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say; among others as long as its disk is not mounted, which is no sign that the disk is empty.
    pub async fn etcd_data(&self) -> Result<EtcdData, Refusal> {
        let ask = async |channel| {
            let request = ListRequest { root: DATA.to_owned(), ..ListRequest::default() };
            let mut stream = machine(channel).list(request).await?.into_inner();
            let (mut has_folder, mut has_data, mut names) = (false, false, 0);
            while let Some(entry) = stream.message().await? {
                let entry = checked(entry)?;
                if !entry.error.is_empty() {
                    return Err(Status::unknown(entry.error));
                }
                match entry.relative_name.as_str() {
                    "." => has_folder = true,
                    _ => has_data = true,
                }
                names += 1;
                if names > MOST_NAMES {
                    break;
                }
            }
            match (has_folder, has_data) {
                (_, true) => Ok(EtcdData::There),
                (true, false) => Ok(EtcdData::Empty),
                (false, false) => Err(Status::unknown(format!("the list of {DATA} is empty"))),
            }
        };
        self.look_with("List", "", WAITING, ask).await
    }

    /// The members of etcd, as a quorum of them knows them.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say; among others as long as etcd does not run on it, or has no quorum.
    pub async fn etcd_members(&self) -> Result<Vec<EtcdMember>, Refusal> {
        let ask = async |channel| {
            let request = EtcdMemberListRequest { query_local: false };
            only(machine(channel).etcd_member_list(request).await?.into_inner().messages)
        };
        Ok(self.look_with("EtcdMemberList", "", WAITING, ask).await?.members)
    }

    /// The state of the member of etcd on this node.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say; among others as long as etcd does not run on it.
    pub async fn etcd_status(&self) -> Result<EtcdMemberStatus, Refusal> {
        let ask = async |channel| only(machine(channel).etcd_status(()).await?.into_inner().messages);
        let answer = self.look_with("EtcdStatus", "", WAITING, ask).await?;
        answer.member_status.ok_or_else(|| self.unreadable("EtcdStatus", "there is no status in the answer"))
    }

    /// Takes a member out of etcd. To be asked of another one, which must have a quorum.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not, or if nobody knows. [`ErrorClass::Missing`] means that there is no such member.
    pub async fn remove_etcd_member(&self, id: u64) -> Result<(), Refusal> {
        let ask = async |channel| {
            let request = EtcdRemoveMemberByIdRequest { member_id: id };
            only(machine(channel).etcd_remove_member_by_id(request).await?.into_inner().messages)
        };
        match self.change("EtcdRemoveMemberByID", "", ask).await {
            Err(refusal) if refusal.class == ErrorClass::Missing => Ok(()),
            removed => removed.map(|_| ()),
        }
    }
}

/// Whether a member of etcd is at this address.
#[must_use]
pub fn is_at(member: &EtcdMember, address: IpAddr) -> bool {
    let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    let is_it = |url: &String| {
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        rest.rsplit_once(':').map_or(rest, |(host, _)| host) == host
    };
    member.peer_urls.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_by_its_address_alone() {
        let member = |url: &str| EtcdMember { peer_urls: vec![url.to_owned()], ..EtcdMember::default() };
        let at = |url: &str, address: &str| is_at(&member(url), address.parse().unwrap());
        assert!(at("https://10.0.0.1:2380", "10.0.0.1") && !at("https://10.0.0.11:2380", "10.0.0.1"));
        assert!(at("https://[fd00::1]:2380", "fd00::1") && !at("https://[fd00::11]:2380", "fd00::1"));
        assert!(!is_at(&EtcdMember::default(), "10.0.0.1".parse().unwrap()));
    }
}
