//! etcd as it is: what does not answer, what is refused, and what stays behind.

use std::time::Duration;

use castle_datacenter::{Blueprint, Stage};
use castle_seams::Clock;
use castle_talos_api::machine::{
    EtcdForfeitLeadershipRequest, EtcdLeaveClusterRequest, EtcdMemberStatus, EtcdRemoveMemberByIdRequest, FileInfo,
    ListRequest,
};
use castle_testbed::in_virtual_time;
use futures_util::StreamExt as _;
use futures_util::future::join;
use tonic::{Code, Status};

use crate::castle::Wanted;
use crate::wire::{AUTO, Node, Nodes, vmid};

const SECOND: Duration = Duration::from_secs(1);
const DATA: &str = "/var/lib/etcd";

fn told(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

async fn status_within(node: &Node, time: Duration) -> Result<EtcdMemberStatus, Status> {
    let mut request = tonic::Request::new(());
    request.set_timeout(time);
    let answer = node.machine().etcd_status(request).await?.into_inner();
    Ok(answer.messages[0].member_status.clone().unwrap())
}

async fn remove(node: &Node, member_id: u64) -> Result<(), Status> {
    node.machine().etcd_remove_member_by_id(EtcdRemoveMemberByIdRequest { member_id }).await.map(|_| ())
}

/// The number of the member by this name.
async fn member(node: &Node, name: &str) -> u64 {
    let members = node.members().await.unwrap();
    members.iter().find(|member| member.hostname == name).unwrap_or_else(|| panic!("{name}: {members:?}")).id
}

/// Goal: what asks for etcd before there is one is not answered until the caller's deadline, and at once when there is one.
#[test]
fn nothing_answers_before_bootstrap() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let node = nodes.admin(0);
        nodes.until("mutual TLS", async || node.version().await.is_ok()).await;
        let absent = node.files(DATA).await.unwrap_err();
        assert_eq!(told(&absent), (Code::Unknown, "lstat /var/lib/etcd: no such file or directory"));
        assert_eq!(node.service("etcd").await, None, "nothing is mounted yet, and nothing waits");
        nodes.until("a folder", async || node.files(DATA).await.is_ok()).await;
        assert_eq!(node.files(DATA).await.unwrap(), ["."], "it is there and empty before anybody begins");
        let (state, message) = node.service("etcd").await.unwrap();
        assert_eq!(state, "Waiting", "{message}");
        nodes.until("images", async || node.service("etcd").await.is_some_and(|(state, _)| state == "Preparing")).await;
        clock.sleep(60 * SECOND).await;
        assert_eq!(node.service("etcd").await.unwrap(), ("Preparing".to_owned(), "Running pre state".to_owned()));

        for (is_local, time) in [(false, 3), (true, 3), (false, 12), (false, 50)] {
            let before = clock.monotonic();
            let refused = node.members_within(is_local, time * SECOND).await.unwrap_err();
            assert_eq!(told(&refused), (Code::DeadlineExceeded, "context deadline exceeded"));
            let took = clock.monotonic() - before;
            assert!(took.abs_diff(time * SECOND) < SECOND / 5, "{took:?}");
        }
        assert_eq!(status_within(&node, 3 * SECOND).await.unwrap_err().code(), Code::DeadlineExceeded);

        let (members, begun) = join(node.members_within(false, 600 * SECOND), node.bootstrap()).await;
        begun.unwrap();
        assert_eq!(members.unwrap().len(), 1, "who waits long enough is answered");
        assert_eq!(node.files(DATA).await.unwrap(), [".", "member"]);
        let again = node.bootstrap().await.unwrap_err();
        assert_eq!(told(&again), (Code::AlreadyExists, "etcd data directory is not empty"));
    });
}

/// What a node answers to the calls of one part of the recording, written as that is.
async fn answers(node: &Node, part: &str) -> String {
    let mut text = String::new();
    for call in part.lines() {
        if let Some(root) = call.strip_prefix("List ") {
            text += &format!("List {root}\n");
            let request = ListRequest { root: root.to_owned(), ..ListRequest::default() };
            let entries: Vec<Result<FileInfo, Status>> = match node.machine().list(request).await {
                Ok(stream) => stream.into_inner().collect().await,
                Err(refused) => vec![Err(refused)],
            };
            for entry in entries {
                text += &match entry {
                    Ok(FileInfo { relative_name, mode, uid, gid, .. }) => {
                        format!("  {relative_name} mode {mode} uid {uid} gid {gid}\n")
                    }
                    Err(refused) => format!("  refused {:?} {}\n", refused.code(), refused.message()),
                };
            }
        } else if call.starts_with("etcd ") {
            let state = node.service("etcd").await.map_or("no service".to_owned(), |(state, _)| state);
            text += &format!("etcd {state}\n");
        }
    }
    text
}

/// Goal: that etcd has not begun is seen as on a real node, which castle relies on before it begins one. Method: the recorded calls in the recorded states.
#[test]
fn the_folder_of_etcd_is_told_as_recorded() {
    let recorded = include_str!("recorded/etcd-directory.txt");
    let part = |state: &str| {
        let (_, part) = recorded.split_once(&format!("== {state}\n")).unwrap();
        format!("{}\n", part.split("\n\n").next().unwrap().trim_end())
    };
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.until("maintenance", async || nodes.stage(0) == Some(Stage::Maintenance)).await;
        assert_eq!(answers(&nodes.stranger(0), &part("maintenance")).await, part("maintenance"));
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let node = nodes.admin(0);
        let is = async |state: &str| node.service("etcd").await.is_some_and(|(now, _)| now == state);
        nodes.until("an etcd that waits to begin", async || is("Preparing").await).await;
        assert_eq!(answers(&node, &part("configured")).await, part("configured"));
        node.bootstrap().await.unwrap();
        nodes.until("an etcd", async || is("Running").await).await;
        assert_eq!(answers(&node, &part("bootstrapped")).await, part("bootstrapped"));
    });
}

/// Goal: after a reboot the Talos API answers long before etcd runs, and data that are there cannot be seen for a while.
#[test]
fn a_node_that_comes_up_again_does_not_show_its_data_at_once() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let node = nodes.admin(0);
        assert!(nodes.datacenter().restart_node(vmid(&nodes.addresses[0])));
        nodes.until("down", async || nodes.stage(0).is_none()).await;
        nodes.until("the Talos API", async || node.version().await.is_ok()).await;
        assert_eq!(node.members_within(false, SECOND).await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(node.files(DATA).await.unwrap_err().code(), Code::Unknown);
        assert_eq!(node.bootstrap().await.unwrap_err().message(), "bootstrap is not available yet");
        nodes.until("the folder", async || node.files(DATA).await.is_ok()).await;
        assert_eq!(node.files(DATA).await.unwrap(), [".", "member"]);
        assert_ne!(node.service("etcd").await.unwrap().0, "Running", "{:?}", node.service("etcd").await);
        nodes.until("cri", async || node.service("cri").await.is_some_and(|(state, _)| state == "Running")).await;
        let refused = node.bootstrap().await.unwrap_err();
        assert_eq!(told(&refused), (Code::AlreadyExists, "etcd data directory is not empty"));
        nodes.until("everything", async || nodes.is_complete()).await;
        assert_eq!(nodes.datacenter().clusters()[0].etcds.len(), 1);
    });
}

#[test]
fn a_lost_quorum_is_told_as_one() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let node = nodes.admin(0);
        let (two, three) = (member(&node, "node-2").await, member(&node, "node-3").await);
        for address in &nodes.addresses[1..] {
            nodes.datacenter().switch(vmid(address), false);
        }
        for is_local in [false, true] {
            let before = clock.monotonic();
            let refused = node.members_within(is_local, 30 * SECOND).await.unwrap_err();
            assert_eq!(told(&refused), (Code::Unknown, "etcdserver: no leader"));
            let took = clock.monotonic() - before;
            assert!(took.abs_diff(SECOND * 27 / 10) < SECOND / 5, "{took:?}");
        }
        let status = status_within(&node, 3 * SECOND).await.unwrap();
        assert_eq!((status.leader, status.errors), (0, vec!["etcdserver: no leader".to_owned()]));
        for id in [two, three] {
            let refused = remove(&node, id).await.unwrap_err();
            let text = format!("failed to remove member: failed to remove member {id}: etcdserver: no leader");
            assert_eq!(told(&refused), (Code::Unknown, text.as_str()));
        }
        assert_eq!(node.files(DATA).await.unwrap(), [".", "member"]);

        // One that starts without a leader to be found does not begin to answer.
        assert!(nodes.datacenter().reboot_node(vmid(&nodes.addresses[0])));
        nodes.until("down", async || nodes.stage(0).is_none()).await;
        nodes.until("etcd", async || node.service("etcd").await.is_some_and(|(state, _)| state == "Running")).await;
        assert_eq!(node.members_within(false, 5 * SECOND).await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(status_within(&node, 5 * SECOND).await.unwrap_err().code(), Code::DeadlineExceeded);

        for address in &nodes.addresses[1..] {
            nodes.datacenter().switch(vmid(address), true);
        }
        nodes.until("everything", async || nodes.is_complete()).await;
        assert_eq!(nodes.datacenter().clusters()[0].etcds.len(), 1, "nothing was begun anew");
        assert_eq!(member(&node, "node-3").await, three);
    });
}

/// Goal: a machine that is gone stays a member, and counts; it can be removed while the others have a quorum, and one of them
/// cannot. Method: the guest of the third is destroyed.
#[test]
fn members_are_removed_only_as_far_as_a_quorum_stays() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 4).await;
        nodes.bring_up(&Wanted::default()).await;
        let node = nodes.admin(0);
        let (two, three) = (member(&node, "node-2").await, member(&node, "node-3").await);
        assert!(nodes.datacenter().remove_guest(vmid(&nodes.addresses[2])));
        clock.sleep(SECOND).await;
        assert_eq!(node.members().await.unwrap().len(), 3, "nobody removed it");
        let refused = remove(&node, two).await.unwrap_err();
        let text = format!("failed to remove member: failed to remove member {two}: etcdserver: unhealthy cluster");
        assert_eq!(told(&refused), (Code::Unknown, text.as_str()));

        // Nobody else is taken in as long as one is missing.
        let worker = vmid(&nodes.addresses[3]);
        assert!(nodes.datacenter().reset_node(worker));
        nodes.until("maintenance", async || nodes.stranger(3).version().await.is_ok()).await;
        nodes.stranger(3).apply(&nodes.castle.config(true, &Wanted::default()), AUTO).await.unwrap();
        clock.sleep(180 * SECOND).await;
        assert_eq!(node.members().await.unwrap().len(), 3, "the cluster is not healthy");

        remove(&node, three).await.unwrap();
        nodes.until("the fourth", async || node.members().await.is_ok_and(|members| members.len() == 3)).await;
        let voters = async || node.members().await.is_ok_and(|all| all.iter().all(|member| !member.is_learner));
        nodes.until("a voter", voters).await;
    });
}

#[test]
fn a_member_that_was_removed_keeps_its_data_and_does_not_come_back() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let (node, third) = (nodes.admin(0), nodes.admin(2));
        remove(&node, member(&node, "node-3").await).await.unwrap();
        clock.sleep(120 * SECOND).await;
        assert_eq!(node.members().await.unwrap().len(), 2);
        assert_eq!(third.files(DATA).await.unwrap(), [".", "member"]);
        let (state, message) = third.service("etcd").await.unwrap();
        assert_eq!(state, "Waiting");
        assert!(message.contains("permanently removed"), "{message}");
        let local = third.members_within(true, 5 * SECOND).await.unwrap_err();
        assert_eq!(local.code(), Code::DeadlineExceeded);
        assert_eq!(third.members().await.unwrap().len(), 2, "the others answer for it");
        let refused = third.bootstrap().await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
    });
}

#[test]
fn one_that_leaves_takes_its_data_along_and_the_last_cannot() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 2).await;
        nodes.bring_up(&Wanted::default()).await;
        let (node, second) = (nodes.admin(0), nodes.admin(1));
        let own = member(&node, "node-1").await;
        let moved = node.machine().etcd_forfeit_leadership(EtcdForfeitLeadershipRequest::default()).await.unwrap();
        assert_eq!(moved.into_inner().messages[0].member, "node-2");
        second.machine().etcd_leave_cluster(EtcdLeaveClusterRequest::default()).await.unwrap();
        assert_eq!(second.files(DATA).await.unwrap_err().message(), "lstat /var/lib/etcd: no such file or directory");
        assert_eq!(node.members().await.unwrap().len(), 1);
        let refused = node.machine().etcd_leave_cluster(EtcdLeaveClusterRequest::default()).await.unwrap_err();
        let why = "etcdserver: re-configuration failed due to not enough started members";
        let text = format!("failed to leave cluster: failed to remove member {own}: {why}");
        assert_eq!(told(&refused), (Code::Unknown, text.as_str()));
        let alone = node.machine().etcd_forfeit_leadership(EtcdForfeitLeadershipRequest::default()).await.unwrap_err();
        let text = "failed to forfeit leadership: cannot forfeit leadership, only one member";
        assert_eq!(told(&alone), (Code::Unknown, text));
        clock.sleep(60 * SECOND).await;
        assert_eq!(node.members().await.unwrap().len(), 1, "it comes back with the next boot only");
    });
}

/// Goal: a node that was taken in and vanished before its etcd began is in the way of everybody, itself included. Method: it is
/// reset in that very second.
#[test]
fn a_learner_that_never_began_keeps_its_address() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 2).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        let second = vmid(&nodes.addresses[1]);
        let is_taken_in = || {
            let cluster = nodes.datacenter().cluster("blue");
            cluster.is_some_and(|cluster| cluster.etcds.iter().flatten().any(|member| member.vmid == second))
        };
        while !is_taken_in() {
            clock.sleep(SECOND / 10).await;
        }
        assert!(nodes.datacenter().reboot_node(second));
        nodes.until("up again", async || nodes.admin(1).files(DATA).await.is_ok()).await;
        assert_eq!(nodes.admin(1).files(DATA).await.unwrap(), ["."]);
        clock.sleep(180 * SECOND).await;
        let members = nodes.admin(0).members().await.unwrap();
        let stale = members.iter().find(|member| member.hostname.is_empty()).expect("it has not begun").clone();
        assert_eq!((members.len(), stale.is_learner, stale.client_urls.len()), (2, true, 0));
        remove(&nodes.admin(0), stale.id).await.unwrap();
        nodes.until("everything", async || nodes.is_complete()).await;
    });
}
