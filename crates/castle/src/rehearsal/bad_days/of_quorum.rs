//! Whether there is a quorum is told by etcd: what castle has written down of machines that are gone says nothing of who its members are.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use castle_rehearsal::{Loss, Moment};

use super::super::fixture::HOME;
use super::super::life::{At, Kill};
use super::of_etcd::{THREE, bootstraps, control_planes, identity, lose, three, vmid};
use super::*;

fn five() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> =
        LazyLock::new(|| written(&THREE.replace("controlPlanes: {count: 3", "controlPlanes: {count: 5")));
    SCRIPT.clone()
}

/// So long that whoever is left knows who is gone.
async fn a_while(life: &Life) {
    life.clock().sleep(Duration::from_secs(120)).await;
}

/// Somebody takes control planes out of etcd, deletes their machines, and has them no more in the file.
async fn shrunk_by_hand(life: &Life) {
    for name in ["blue-cp-3", "blue-cp-2"] {
        assert!(life.datacenter.remove_etcd_member(vmid(life, name)), "{name}");
        lose(life, name);
    }
    let file = THREE.replace("count: 3", "count: 1");
    life.disk().tamper(&Path::new(HOME).join("castle.yaml"), file.into_bytes());
    a_while(life).await;
}

/// Two of five are lost, castle has taken both out of etcd and was killed before it made them anew; then a third is lost. Two of three decide.
#[test]
fn members_that_etcd_has_let_go_are_not_missed() {
    in_worlds(&five(), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = identity(&life);
        for name in ["blue-cp-4", "blue-cp-5"] {
            lose(&life, name);
        }
        let removals = AtomicUsize::new(0);
        let is_second =
            move |change: &str| change.contains("EtcdRemoveMember") && removals.fetch_add(1, Ordering::Relaxed) == 1;
        let at = At::Change(Box::new(is_second));
        let told = life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        lose(&life, "blue-cp-3");
        a_while(&life).await;
        bootstraps(&life);
        hold(&life.run(&["plan"]).await, Exit::Done, &["platform/member/blue-cp-3"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((bootstraps(&life), identity(&life)), (0, before));
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
        assert_eq!(life.run(&["up"]).await.printed.result["result"], "unchanged");
    });
}

#[test]
fn a_quorum_of_five_that_is_lost_is_named() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for name in ["blue-cp-1", "blue-cp-4", "blue-cp-5"] {
            lose(&life, name);
        }
        a_while(&life).await;
        for verb in ["plan", "up"] {
            life.tally.changes();
            hold(
                &life.run(&[verb]).await,
                Exit::Refused,
                &["etcd: has lost its quorum, for ", "keep a copy of what blue-cp-2 has"],
            );
            assert_eq!(life.tally.changes(), Vec::<String>::new(), "{verb}");
        }
    });
}

#[test]
fn a_castle_that_was_shrunk_by_hand_has_its_quorum() {
    in_worlds(&three(), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = identity(&life);
        bootstraps(&life);
        shrunk_by_hand(&life).await;
        hold(&life.run(&["plan"]).await, Exit::Done, &[]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((bootstraps(&life), identity(&life)), (0, before));
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// What is proved to be gone, and is no member any more, is written down no more: by whoever changes anything, also where that does not end well.
#[test]
fn machines_that_etcd_has_let_go_leave_the_record() {
    for verb in ["up", "adopt"] {
        in_worlds(&three(), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            shrunk_by_hand(&life).await;
            let worker = vmid(&life, "blue-worker-1");
            life.datacenter.hush_node(worker, true);
            life.run(&[verb]).await;
            life.datacenter.hush_node(worker, false);
            // With nobody left who could be asked, the record alone says what there was.
            life.datacenter.switch(vmid(&life, "blue-cp-1"), false);
            hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        });
    }
}

/// All control planes are silent, and it is written down that etcd has begun: that is what is told, and not that it may not have.
#[test]
fn an_etcd_that_has_begun_is_not_said_not_to_have() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for vmid in control_planes(&life) {
            life.datacenter.hush_node(vmid, true);
        }
        let status = life.run(&["status"]).await;
        let text = &status.printed.text;
        assert!(text.contains("has begun, and no control plane that has its data answers"), "{text}");
        assert!(!text.contains("has not begun"), "{text}");
    });
}
