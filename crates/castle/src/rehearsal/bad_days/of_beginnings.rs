//! An etcd that has begun, of which nobody has written that down: of a castle that somebody else has raised, or of one whose first raise was cut
//! off. Its nodes tell it, and all that protects an etcd holds for it, too.

use castle_rehearsal::{Loss, Moment};

use super::super::life::{At, Kill};
use super::super::promises::forget;
use super::of_etcd::{THREE, bootstraps, control_planes, identity, lose, three, vmid};
use super::of_restarts::{restarted, watched};
use super::*;

/// The castle as somebody's scripts have made it, adopted.
fn adopted(lived: impl AsyncFn(&Life, &str) + Sync) {
    let text = THREE
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, bundle: 'file:bundle.yaml'}")
        .replace("secrets: embedded\n", "");
    in_worlds(&written(&text), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for guest in life.datacenter.look().guests.into_values() {
            let is_ours = guest.config.get("tags").is_some_and(|tags| tags.contains("castle"));
            if is_ours {
                let notes = [("description", Some("the lab, ask Ann")), ("tags", Some("lab"))];
                let is_node = life.script.nodes.iter().any(|node| node.vmid.0 == guest.vmid);
                assert!(is_node || life.datacenter.remove_guest(guest.vmid), "its image");
                assert!(!is_node || life.datacenter.change_guest(guest.vmid, &notes));
            }
        }
        forget(&life);
        hold(&life.run(&["adopt", "--foreign", "--yes"]).await, Exit::Done, &["is this castle's now, as it stands."]);
        bootstraps(&life);
        lived(&life, &text).await;
    });
}

#[test]
fn what_was_adopted_restarts_in_turns() {
    adopted(async |life, text| {
        life.disk().tamper(&life.script.file, text.replace("memory: 4GiB", "memory: 6GiB").into_bytes());
        let before = identity(life);
        let (up, seen) = watched(life, &["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(seen.served, Some(2), "{}", up.printed.text);
        assert_eq!((restarted(life).len(), bootstraps(life), identity(life)), (3, 0, before));
    });
}

#[test]
fn what_was_adopted_is_known_to_have_begun() {
    adopted(async |life, text| {
        let guests = life.datacenter.look().guests;
        for vmid in control_planes(life) {
            assert!(guests[&vmid].config["description"].contains("began on blue-cp-1"), "{:?}", guests[&vmid].config);
        }
        let other = text.replace("kubernetes: {version: v1.36.3}", "kubernetes: {version: v1.36.2}");
        life.disk().tamper(&life.script.file, other.into_bytes());
        hold(&life.run(&["up"]).await, Exit::Refused, &["runs Kubernetes v1.36.3, and castle.yaml says v1.36.2"]);
        life.disk().tamper(&life.script.file, text.as_bytes().to_vec());
        lose(life, "blue-cp-1");
        lose(life, "blue-cp-2");
        life.clock().sleep(Duration::from_secs(120)).await;
        hold(&life.run(&["up"]).await, Exit::Refused, &["has lost its quorum"]);
        assert_eq!(bootstraps(life), 0);
    });
}

/// Goal: a castle that was raised layer by layer is known to stand, and its etcd to have begun. Method: all its control planes go, and their marks with them; then
/// the state, too, so that only the vault knows.
#[test]
fn what_was_raised_layer_by_layer_is_known_to_have_begun() {
    in_worlds(&three(), &SEEDS[..2], async |life| {
        for layer in ["secrets", "platform"] {
            hold(&life.run(&["up", "--layer", layer]).await, Exit::Done, &[]);
        }
        assert_eq!(bootstraps(&life), 1);
        control_planes(&life).into_iter().for_each(|vmid| assert!(life.datacenter.remove_guest(vmid)));
        let words = |by: &str| format!("etcd: is lost: the {by} says that it began on blue-cp-1");
        for verb in ["plan", "up"] {
            hold(&life.run(&[verb]).await, Exit::Refused, &[&words("state")]);
        }
        forget(&life);
        hold(&life.run(&["up"]).await, Exit::Refused, &[&words("vault")]);
        assert_eq!(bootstraps(&life), 0);
    });
}

/// Killed right after etcd was told to begin: the others join by themselves, and nobody has written it down.
fn begun(lived: impl AsyncFn(&Life) + Sync) {
    in_worlds(&three(), &SEEDS, async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(bootstraps(&life), 1);
        life.clock().sleep(Duration::from_secs(120)).await;
        lived(&life).await;
        assert_eq!(bootstraps(&life), 0);
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.len(), 1);
    });
}

#[test]
fn one_is_lost_before_it_was_written_down_that_etcd_began() {
    begun(async |life| {
        let before = identity(life);
        lose(life, "blue-cp-2");
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/member/blue-cp-2", "forget"]);
        life.tally.changes();
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &["platform/member/blue-cp-2"]);
        assert_eq!(identity(life), before, "{}", up.printed.text);
    });
}

/// The same, and nobody can say that it began: the others are off, or have only just started.
#[test]
fn one_is_lost_and_the_others_restart_before_it_was_written_down_that_etcd_began() {
    for seconds in [None, Some(0), Some(8)] {
        begun(async |life| {
            let (before, others) = (identity(life), ["blue-cp-1", "blue-cp-3"].map(|name| vmid(life, name)));
            lose(life, "blue-cp-2");
            others.iter().for_each(|vmid| life.datacenter.switch(*vmid, false));
            if let Some(seconds) = seconds {
                others.iter().for_each(|vmid| life.datacenter.switch(*vmid, true));
                life.clock().sleep(Duration::from_secs(seconds)).await;
            }
            let up = life.run(&["up"]).await;
            hold(&up, Exit::Done, &["platform/member/blue-cp-2"]);
            assert_eq!(identity(life), before, "{}", up.printed.text);
            let members = life.datacenter.cluster("blue").unwrap().etcds.concat();
            assert_eq!(members.len(), 3, "{members:?}");
        });
    }
}

/// A first raise that was cut off before etcd began: those that are there show that they have none, and the others are made.
#[test]
fn a_raise_that_was_cut_off_before_etcd_began_goes_on() {
    in_worlds(&three(), &SEEDS, async |life| {
        let at = At::Change(Box::new(|change| change.ends_with("/qemu/1000/status/start")));
        life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        for name in ["blue-cp-2", "blue-worker-1"] {
            life.datacenter.remove_guest(vmid(&life, name));
        }
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &["platform/vm/blue-cp-2"]);
        assert!(!plan.printed.text.contains("forget"), "{}", plan.printed.text);
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(bootstraps(&life), 1, "{}", up.printed.text);
        assert_eq!(life.datacenter.cluster("blue").unwrap().etcds.concat().len(), 3);
    });
}

/// Goal: with the state lost and no vault, the machines say where etcd begins, and it is told so on no other. Method: a raise is cut off before Bootstrap, and the marks
/// name another control plane than the file would choose, as those of a castle that chooses otherwise do.
#[test]
fn machines_say_where_etcd_begins() {
    let text = THREE
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, bundle: 'file:bundle.yaml'}")
        .replace("secrets: embedded\n", "");
    in_worlds(&written(&text), &SEEDS[..2], async |life| {
        let bootstrap = |moment| Kill {
            at: At::Change(Box::new(|change| change.starts_with("Bootstrap"))),
            moment,
            loss: Loss::None,
        };
        let begun_on = |life: &Life| -> Vec<String> {
            let changes = life.tally.changes().into_iter();
            changes.filter(|change| change.starts_with("Bootstrap")).collect()
        };
        assert_eq!(life.run_killed(&["up"], bootstrap(Moment::Before)).await.exit, None);
        begun_on(&life);
        let renamed = |life: &Life, vmid: u32, to: &str| {
            let description = life.datacenter.look().guests[&vmid].config["description"].clone();
            assert!(description.contains("\netcd: begins on blue-cp-"), "{description}");
            let (before, _) = description.split_once("\netcd: ").unwrap();
            let description = format!("{before}\netcd: begins on {to}");
            assert!(life.datacenter.change_guest(vmid, &[("description", Some(&description))]));
        };
        control_planes(&life).into_iter().for_each(|vmid| renamed(&life, vmid, "blue-cp-2"));
        forget(&life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["is known again"]);
        // Machines that do not agree are no word to go by.
        renamed(&life, vmid(&life, "blue-cp-3"), "blue-cp-1");
        life.tally.changes();
        let words =
            ["etcd: the mark on VM 1000 (blue-cp-1) says that it begins on blue-cp-2", "that it begins on blue-cp-1"];
        hold(&life.run(&["up"]).await, Exit::Refused, &words);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        renamed(&life, vmid(&life, "blue-cp-3"), "blue-cp-2");
        // What is made anew says the same.
        lose(&life, "blue-cp-3");
        assert_eq!(life.run_killed(&["up"], bootstrap(Moment::After)).await.exit, None);
        assert_eq!(begun_on(&life), ["Bootstrap at 127.42.0.12"]);
        forget(&life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["is known again"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert!(begun_on(&life).iter().all(|told| told == "Bootstrap at 127.42.0.12"));
        let etcds = life.datacenter.cluster("blue").unwrap().etcds;
        assert_eq!((etcds.len(), etcds.concat().len()), (1, 3));
        let guests = life.datacenter.look().guests;
        for vmid in control_planes(&life) {
            let description = &guests[&vmid].config["description"];
            assert!(description.contains("began on blue-cp-2"), "{description}");
        }
    });
}

/// The same where the file does not name that one any more.
#[test]
fn etcd_begins_nowhere_where_the_file_does_not_name_its_first() {
    let text = THREE
        .replace("serviceAccountKey: p256}", "serviceAccountKey: p256, bundle: 'file:bundle.yaml'}")
        .replace("secrets: embedded\n", "");
    in_worlds(&written(&text), &SEEDS[..1], async |life| {
        let at = At::Change(Box::new(|change| change.starts_with("Bootstrap")));
        life.run_killed(&["up"], Kill { at, moment: Moment::Before, loss: Loss::None }).await;
        let first = vmid(&life, "blue-cp-1");
        let description = life.datacenter.look().guests[&first].config["description"].clone();
        let description = description.replace("begins on blue-cp-1", "begins on blue-cp-2");
        assert!(life.datacenter.change_guest(first, &[("description", Some(&description))]));
        ["blue-cp-2", "blue-cp-3"].iter().for_each(|name| lose(&life, name));
        forget(&life);
        life.disk().tamper(&life.script.file, text.replace("count: 3", "count: 1").into_bytes());
        bootstraps(&life);
        let words = [
            "begins on blue-cp-2 in this life of the castle, and the file does not name it",
            "name blue-cp-2 in castle.yaml again",
        ];
        for verb in ["adopt", "up"] {
            hold(&life.run(&[verb]).await, Exit::Refused, &words);
        }
        assert_eq!(bootstraps(&life), 0);
    });
}

#[test]
fn two_are_lost_before_it_was_written_down_that_etcd_began() {
    begun(async |life| {
        lose(life, "blue-cp-2");
        lose(life, "blue-cp-3");
        life.clock().sleep(Duration::from_secs(120)).await;
        let before = life.datacenter.look().guests.into_keys().collect::<Vec<_>>();
        let words = [
            "has lost its quorum, for ",
            "blue-cp-2 (its machine is not to be seen, since when is not known)",
            "next: before anything else is tried, keep a copy",
            "castle down --forget-secrets CASTLE, then castle up",
        ];
        for verb in ["plan", "up"] {
            hold(&life.run(&[verb]).await, Exit::Refused, &words);
        }
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        assert_eq!(life.datacenter.look().guests.into_keys().collect::<Vec<_>>(), before);
    });
}
