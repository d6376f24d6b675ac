//! What happens to control planes and to the etcd on them: one is lost, several are, their file is edited meanwhile. However it goes, there is one
//! etcd in one life, and what a survivor has is not lost.

use std::path::Path;

use castle_rehearsal::{Loss, Moment};

use super::super::fixture::HOME;
use super::super::life::{At, Kill};
use super::super::promises::forget;
use super::of_restarts::{restarted, watched};
use super::*;

pub(super) const THREE: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9, serviceAccountKey: p256}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 3, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
secrets: embedded
";

pub(super) fn three() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(THREE));
    SCRIPT.clone()
}

pub(super) fn vmid(life: &Life, name: &str) -> u32 {
    life.script.nodes.iter().find(|node| node.name.value == name).unwrap().vmid.0
}

pub(super) fn control_planes(life: &Life) -> Vec<u32> {
    ["blue-cp-1", "blue-cp-2", "blue-cp-3"].iter().map(|name| vmid(life, name)).collect()
}

/// Somebody deletes a machine.
pub(super) fn lose(life: &Life, name: &str) {
    assert!(life.datacenter.remove_guest(vmid(life, name)), "{name}");
}

/// The castle's file says this from now on.
pub(super) fn edit(life: &Life, from: &str, to: &str) {
    assert!(THREE.contains(from), "{from}");
    life.disk().tamper(&Path::new(HOME).join("castle.yaml"), THREE.replace(from, to).into_bytes());
}

/// What tells one cluster from another that has the same name: drawn when its API server first finds its etcd.
pub(super) fn identity(life: &Life) -> String {
    first_identity(life).expect("one cluster")
}

/// The same, if it came to that.
pub(super) fn first_identity(life: &Life) -> Option<String> {
    let objects = life.datacenter.objects();
    let is_it = |(_, collection, place): &(String, String, String)| {
        collection == "namespaces" && place.ends_with("kube-system")
    };
    let uids: Vec<_> =
        objects.iter().filter(|(key, _)| is_it(key)).map(|(_, it)| it["metadata"]["uid"].to_string()).collect();
    assert!(uids.len() <= 1, "one cluster: {uids:?}");
    uids.first().cloned()
}

pub(super) fn bootstraps(life: &Life) -> usize {
    life.tally.changes().iter().filter(|change| change.starts_with("Bootstrap")).count()
}

/// Raises the castle, lets something happen to it, and holds that the etcd it has at the end is the one that it had.
fn survives(happens: impl AsyncFn(&Life) + Sync) {
    in_worlds(&three(), &SEEDS, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(bootstraps(&life), 1);
        let (others, before, expected) = (Others::of_strangers(&life), identity(&life), Picture::settled(&life).await);
        happens(&life).await;
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(bootstraps(&life), 0, "etcd begins once: {}", up.printed.text);
        assert_eq!(identity(&life), before);
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
        assert_eq!(Picture::settled(&life).await.against(&expected), Vec::<String>::new(), "{}", up.printed.text);
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
        assert_eq!(others.touched(&life), Vec::<String>::new());
    });
}

/// Raises the castle, lets something happen to it, and holds that `up` and `plan` refuse with these words and change nothing.
fn refused(happens: impl AsyncFn(&Life) + Sync, words: &[&str]) {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        happens(&life).await;
        for verb in ["plan", "up"] {
            life.tally.changes();
            let told = life.run(&[verb]).await;
            hold(&told, Exit::Refused, words);
            assert_eq!(told.printed.result["result"], "refused", "{}", told.printed.result);
            assert_eq!(life.tally.changes(), Vec::<String>::new(), "{verb}");
        }
    });
}

#[test]
fn a_lost_control_plane_is_taken_out_of_etcd_and_made_anew() {
    survives(async |life| lose(life, "blue-cp-2"));
}

#[test]
fn the_first_control_plane_is_lost() {
    survives(async |life| {
        lose(life, "blue-cp-1");
        let plan = life.run(&["plan"]).await;
        hold(
            &plan,
            Exit::Done,
            &["platform/member/blue-cp-1", "forget", "member of etcd: blue-cp-1 at 127.42.0.11 -> nothing"],
        );
        assert_eq!(bootstraps(life), 0);
    });
}

#[test]
fn a_control_plane_is_lost_and_so_is_the_state() {
    survives(async |life| {
        lose(life, "blue-cp-1");
        forget(life);
    });
}

#[test]
fn a_control_plane_is_lost_while_the_others_are_off() {
    survives(async |life| {
        lose(life, "blue-cp-3");
        for name in ["blue-cp-1", "blue-cp-2"] {
            life.datacenter.switch(vmid(life, name), false);
        }
    });
}

#[test]
fn all_control_planes_are_off() {
    survives(async |life| {
        for vmid in control_planes(life) {
            life.datacenter.switch(vmid, false);
        }
    });
}

#[test]
fn all_control_planes_restart_at_the_same_moment() {
    survives(async |life| {
        for vmid in control_planes(life) {
            assert!(life.datacenter.reboot_node(vmid));
        }
    });
}

#[test]
fn the_etcd_of_one_is_wiped() {
    survives(async |life| assert!(life.datacenter.lose_etcd_member(vmid(life, "blue-cp-2"))));
}

/// The memory of all of them changes, and one is lost: it is made anew and votes before the first of the others restarts.
#[test]
fn a_control_plane_is_lost_and_the_memory_of_all_changes() {
    in_worlds(&three(), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = identity(&life);
        bootstraps(&life);
        lose(&life, "blue-cp-2");
        edit(&life, "memory: 4GiB", "memory: 6GiB");
        let (up, seen) = watched(&life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(seen.served, Some(2), "{}", up.printed.text);
        assert_eq!((bootstraps(&life), identity(&life)), (0, before));
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
        let guests = life.datacenter.look().guests;
        for vmid in control_planes(&life) {
            assert_eq!(guests[&vmid].config["memory"], "6144");
        }
        let mut restarted = restarted(&life);
        restarted.sort_unstable();
        assert_eq!(restarted, [vmid(&life, "blue-cp-1"), vmid(&life, "blue-cp-3")]);
    });
}

#[test]
fn a_lost_quorum_is_named_and_nothing_is_made() {
    let happens = async |life: &Life| {
        lose(life, "blue-cp-2");
        lose(life, "blue-cp-3");
        // Until the one that is left knows.
        life.clock().sleep(Duration::from_secs(120)).await;
    };
    let words = [
        "has lost its quorum, for ",
        "blue-cp-2 (its machine is not to be seen, since when is not known), blue-cp-3 (its machine is not to be seen, since when is not known)",
        "next: before anything else is tried, keep a copy of what blue-cp-1 has: talosctl --nodes 127.42.0.11 copy /var/lib/etcd FOLDER; then restore",
        "castle down --forget-secrets blue",
    ];
    refused(happens, &words);
}

/// One is lost, another has lost its etcd and says nothing: since when the second does, nobody tells either.
#[test]
fn since_when_a_silent_control_plane_is_missing_is_not_made_up() {
    let happens = async |life: &Life| {
        lose(life, "blue-cp-2");
        let silent = vmid(life, "blue-cp-3");
        assert!(life.datacenter.lose_etcd_member(silent));
        life.clock().sleep(Duration::from_secs(120)).await;
        life.datacenter.hush_node(silent, true);
    };
    let words = [
        "has lost its quorum, for ",
        "blue-cp-2 (its machine is not to be seen, since when is not known), blue-cp-3 (does not answer, since when is not known: ",
    ];
    refused(happens, &words);
}

/// With the one that is only off there is a quorum, and it is started before anybody is forgotten.
#[test]
fn a_control_plane_is_lost_while_another_is_off() {
    survives(async |life| {
        lose(life, "blue-cp-1");
        life.datacenter.switch(vmid(life, "blue-cp-2"), false);
        life.clock().sleep(Duration::from_secs(120)).await;
        let plan = ["platform/power/blue-cp-2", "platform/member/blue-cp-1"];
        hold(&life.run(&["plan"]).await, Exit::Done, &plan);
    });
}

/// Two are lost, and the one that is left has been restarted since: it does not know any more that it is alone, and finds out.
#[test]
fn a_quorum_that_was_lost_before_a_restart_is_named() {
    for (since, state) in [
        (
            30,
            "has most likely lost its quorum: of those that are left none says that it has one (blue-cp-3); missing: ",
        ),
        (180, "has lost its quorum, for "),
    ] {
        let happens = async |life: &Life| {
            lose(life, "blue-cp-1");
            lose(life, "blue-cp-2");
            for (is_on, seconds) in [(false, 30), (true, since)] {
                life.datacenter.switch(vmid(life, "blue-cp-3"), is_on);
                life.clock().sleep(Duration::from_secs(seconds)).await;
            }
        };
        refused(
            happens,
            &[
                state,
                "blue-cp-1 (its machine is not to be seen, since when is not known), blue-cp-2 (its machine is not to be seen, since when is not known)",
            ],
        );
    }
}

/// One control plane is lost, another has lost what its etcd had, and the third has only just started and does not know that it is alone. A worker is lost,
/// too: nothing at all is made before there is a quorum.
#[test]
fn nothing_is_made_while_nobody_knows_whether_there_is_a_quorum() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for name in ["blue-cp-2", "blue-worker-1"] {
            lose(&life, name);
        }
        assert!(life.datacenter.lose_etcd_member(vmid(&life, "blue-cp-3")));
        for is_on in [false, true] {
            life.datacenter.switch(vmid(&life, "blue-cp-1"), is_on);
        }
        let before: Vec<u32> = life.datacenter.look().guests.into_keys().collect();
        hold(&life.run(&["up"]).await, Exit::Refused, &["waits for etcd: has no quorum yet", "has lost its quorum"]);
        assert_eq!(life.datacenter.look().guests.into_keys().collect::<Vec<_>>(), before);
    });
}

/// Of those that the file names none is left, but others are.
#[test]
fn control_planes_that_the_file_names_no_more_have_an_etcd_all_the_same() {
    let happens = async |life: &Life| {
        edit(life, "count: 3", "count: 1");
        lose(life, "blue-cp-1");
    };
    refused(happens, &["others are there: VM 1001 (blue-cp-2), VM 1002 (blue-cp-3)", "put them back into castle.yaml"]);
}

#[test]
fn machines_that_are_not_to_be_seen_are_not_made_again() {
    let happens = async |life: &Life| {
        for name in ["blue-cp-1", "blue-cp-2", "blue-cp-3", "blue-worker-1"] {
            lose(life, name);
        }
    };
    let words = [
        "stands by its state, and none of its machines is to be seen",
        "blue-cp-1 (VM 1000 on pve)",
        "castle@pve!",
        "castle down --forget-secrets blue ends this life",
    ];
    refused(happens, &words);
    let happens = async |life: &Life| {
        for name in ["blue-cp-1", "blue-cp-2", "blue-cp-3"] {
            lose(life, name);
        }
    };
    refused(
        happens,
        &[
            "etcd: is lost",
            "none of its control planes is to be seen",
            "castle down --forget-secrets blue, then castle up",
        ],
    );
}

#[test]
fn a_castle_whose_machines_are_gone_begins_a_new_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for name in ["blue-cp-1", "blue-cp-2", "blue-cp-3", "blue-worker-1"] {
            lose(&life, name);
        }
        let kept = ["may still be there: blue-cp-1 (VM 1000 on pve)", "castle down --forget-secrets blue"];
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &kept);
        hold(&life.run(&["down", "--yes", "--forget-secrets", "green"]).await, Exit::Invalid, &["is called blue"]);
        hold(
            &life.run(&["down", "--yes", "--forget-secrets", "blue"]).await,
            Exit::Done,
            &["taken for gone: blue-cp-1"],
        );
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["stands as its file says (life 2)"]);
    });
}

/// Killed right after the call, nobody has written down that etcd has begun.
#[test]
fn killed_between_the_bootstrap_and_its_note() {
    in_worlds(&three(), &SEEDS, async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        let told = life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None);
        assert_eq!(bootstraps(&life), 1);
        life.clock().sleep(Duration::from_secs(60)).await;
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(bootstraps(&life), 0);
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
    });
}

/// The same, and then the machine is lost that was told to begin: it has what was begun, and nobody else does.
#[test]
fn killed_between_the_bootstrap_and_its_note_and_the_machine_is_lost() {
    in_worlds(&three(), &SEEDS, async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        lose(&life, "blue-cp-1");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
    });
}

/// Killed after the call and before its note, and then the file is edited: what lives on nodes that it does not name any more is nobody's to begin again.
fn edited_after_the_bootstrap(count: &str, happens: impl Fn(&Life) + Sync, (verbs, words): (&[&str], &[&str])) {
    in_worlds(&three(), &SEEDS[..2], async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(bootstraps(&life), 1);
        life.clock().sleep(Duration::from_secs(180)).await;
        let before = identity(&life);
        edit(&life, "count: 3", count);
        happens(&life);
        for verb in verbs {
            life.tally.changes();
            hold(&life.run(&[verb]).await, Exit::Refused, words);
            assert_eq!(life.tally.changes(), Vec::<String>::new(), "{verb}");
        }
        assert_eq!((life.datacenter.cluster("blue").unwrap().etcds.len(), identity(&life)), (1, before.clone()));
        edit(&life, "count: 3", "count: 3");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((bootstraps(&life), identity(&life)), (0, before));
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
    });
}

#[test]
fn the_first_loses_its_etcd_and_the_file_names_the_others_no_more() {
    let happens = |life: &Life| assert!(life.datacenter.lose_etcd_member(vmid(life, "blue-cp-1")));
    let words = [
        "etcd: may have begun on control planes that nobody can ask: blue-cp-2 (VM 1001), blue-cp-3 (VM 1002)",
        "put them back into castle.yaml (nodes.controlPlanes)",
    ];
    // A while later it has joined the others again.
    edited_after_the_bootstrap("count: 1", happens, (&["up"], &words));
}

/// The same, and the marks of the others are gone: castle has written down that it made them.
#[test]
fn the_first_loses_its_etcd_and_the_others_their_marks() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        life.clock().sleep(Duration::from_secs(180)).await;
        bootstraps(&life);
        edit(&life, "count: 3", "count: 1");
        assert!(life.datacenter.lose_etcd_member(vmid(&life, "blue-cp-1")));
        for name in ["blue-cp-2", "blue-cp-3"] {
            // Of their notes; their tags tell nobody what they are.
            assert!(life.datacenter.change_guest(vmid(&life, name), &[("description", Some("ask Ann"))]));
        }
        hold(&life.run(&["up"]).await, Exit::Refused, &["blue-cp-2 (VM 1001 on pve), blue-cp-3 (VM 1002 on pve)"]);
        assert_eq!(bootstraps(&life), 0);
    });
}

/// Another machine would be the first: the one that was told to begin has another number than the file gives it now.
#[test]
fn the_file_makes_another_machine_the_first() {
    in_worlds(&three(), &SEEDS[..2], async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        let others = "  overrides: {blue-cp-1: {vmid: 1020, address: 127.42.0.14}}\nstorage: none";
        edit(&life, "storage: none", others);
        for verb in ["plan", "up"] {
            life.tally.changes();
            hold(&life.run(&[verb]).await, Exit::Refused, &["control planes that nobody can ask: blue-cp-1 (VM 1000)"]);
            assert_eq!(life.tally.changes(), Vec::<String>::new(), "{verb}");
        }
        edit(&life, "storage: none", "storage: none");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((bootstraps(&life), life.datacenter.cluster("blue").unwrap().etcds.len()), (0, 1));
    });
}

/// None of those that were made is one that the file names.
#[test]
fn the_file_names_other_machines() {
    let words = ["none of the control planes of the file is to be seen", "VM 1000 (blue-cp-1), VM 1001 (blue-cp-2)"];
    edited_after_the_bootstrap("count: 3, firstVmid: 1020", |_| (), (&["plan", "up"], &words));
}

/// It has begun, the file names one of three, and that one has lost what it had: the others have it.
#[test]
fn the_others_have_what_the_one_of_the_file_has_lost() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = identity(&life);
        edit(&life, "count: 3", "count: 1");
        assert!(life.datacenter.lose_etcd_member(vmid(&life, "blue-cp-1")));
        bootstraps(&life);
        for verb in ["plan", "up"] {
            let told = life.run(&[verb]).await;
            hold(&told, Exit::Refused, &["others may have it: blue-cp-2 (VM 1001), blue-cp-3 (VM 1002)"]);
            assert!(!told.printed.text.contains("castle down"), "{}", told.printed.text);
        }
        assert_eq!((bootstraps(&life), identity(&life)), (0, before));
    });
}

/// A castle without a vault, whose state is lost: its marks alone tell that its etcd has begun.
#[test]
fn marks_alone_keep_an_etcd_from_beginning_again() {
    let text = THREE
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, bundle: 'file:bundle.yaml'}")
        .replace("secrets: embedded\n", "");
    let lost = ["etcd: is lost: the mark on VM 1000", "says that it began on blue-cp-1"];
    let wiped: &(dyn Fn(&Life) + Sync) = &|life| {
        control_planes(life).into_iter().for_each(|vmid| assert!(life.datacenter.lose_etcd_member(vmid)));
    };
    let off: &(dyn Fn(&Life) + Sync) = &|life| {
        control_planes(life).into_iter().for_each(|vmid| life.datacenter.switch(vmid, false));
    };
    for (happens, expected, words) in [(wiped, Exit::Refused, lost.as_slice()), (off, Exit::Done, &[])] {
        in_worlds(&written(&text), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            forget(&life);
            bootstraps(&life);
            happens(&life);
            let up = life.run(&["up"]).await;
            hold(&up, expected, words);
            assert_eq!(bootstraps(&life), 0, "{}", up.printed.text);
        });
    }
}

#[test]
fn a_castle_that_keeps_its_identity_begins_its_etcd_once_more() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = identity(&life);
        hold(&life.run(&["rebirth", "--keep-identity", "--yes"]).await, Exit::Done, &[]);
        assert_ne!(identity(&life), before);
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
    });
}
