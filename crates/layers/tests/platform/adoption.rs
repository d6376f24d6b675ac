//! What castle does with a guest that is there or not, whose it is, and whether it meant to make it: one test a row of the table.

use std::sync::Arc;

use castle_engine::{Class, Impact, Outcome, Report};
use castle_layers::platform::{self, Whose};
use castle_proxmox::steps::{Ground, Record};
use castle_testbed::in_virtual_time;

use crate::room::{Room, done, file};

fn small() -> String {
    file(1, 0, "nodes: [pve]")
}

/// The only failure of a run.
fn failure(report: &Report) -> &castle_engine::Fault {
    let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
    let [(_, Outcome::Failed { fault })] = failed.as_slice() else { panic!("{failed:#?}") };
    fault
}

#[test]
fn meant_and_absent_is_made() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let guest = &room.datacenter.look().guests[&421];
        assert!(guest.running && guest.config["name"] == "blue-cp-1");
    });
}

#[test]
fn meant_and_there_and_ours_is_adopted() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let effects = room.datacenter.effects();
        // Another process, which has no journal and no memory at all.
        let report = room.again().up().await;
        done(&report);
        assert_eq!((report.effects(), room.datacenter.effects()), (0, effects));
    });
}

#[test]
fn a_placeholder_that_is_being_made_is_waited_for() {
    in_virtual_time(async |clock| {
        let slow = crate::room::blueprint(&["pve"], castle_datacenter::Version::Nine);
        let room = Room::new(slow, &file(3, 0, "nodes: [pve]"), crate::room::door(clock));
        let is_cloning = || room.datacenter.look().guests.values().any(|guest| guest.lock.as_deref() == Some("clone"));
        // The first process dies while it clones.
        {
            let first = room.again();
            let mut first = std::pin::pin!(first.up());
            while !is_cloning() {
                let moment = castle_seams::deadline(clock, std::time::Duration::from_millis(10), first.as_mut());
                assert!(moment.await.is_err(), "it was done before it was seen to clone");
            }
        }
        done(&room.up().await);
        let clones = room.datacenter.effects().into_iter().filter(|(effect, _)| effect.starts_with("clone "));
        assert_eq!(clones.map(|(_, count)| count).collect::<Vec<_>>(), [1, 1, 1], "nothing is cloned twice");
    });
}

#[test]
fn a_placeholder_that_nobody_makes_is_reported_as_stuck() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.end_next_task("qmclone", castle_datacenter::Ending::Vanishes);
        let report = room.up().await;
        let fault = failure(&report);
        assert!(fault.evidence.contains("locked (clone)") && fault.next.contains("qm unlock 421"), "{fault:?}");
        assert_eq!(fault.class, Class::Final);
    });
}

#[test]
fn meant_and_there_and_foreign_stops_and_names_the_owner() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.add_guest(castle_datacenter::blueprint::Stranger::new(421, "pve", "printer", "local-lvm", 8));
        let before = room.datacenter.digest_of(421);
        let report = room.up().await;
        let fault = failure(&report);
        assert!(fault.guarded && fault.evidence.contains("printer"), "{fault:?}");
        assert_eq!(room.datacenter.digest_of(421), before, "it was not touched");
    });
}

#[test]
fn another_castles_guest_is_named_with_its_castle() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.id.lineage = "fedcba9876543210".into();
        let report = room.up().await;
        let fault = report.ended(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded)).next();
        let Some((_, Outcome::Failed { fault })) = fault else { panic!("{report:?}") };
        assert!(fault.evidence.contains("0123456789abcdef"), "{fault:?}");
    });
}

#[test]
fn not_meant_and_there_and_ours_is_an_orphan_that_down_takes_along() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&file(3, 0, "nodes: [pve]"), clock);
        done(&room.up().await);
        room.rewrite(&small());
        // `up` of a smaller file leaves the others alone: what is gone from the file is not destroyed by the way.
        let report = room.up().await;
        done(&report);
        assert_eq!(report.effects(), 0);
        let orphans = platform::found(&room.ground(false)).await.unwrap();
        assert_eq!(orphans.iter().filter(|guest| guest.whose == Whose::Ours).count(), 4, "three nodes and an image");
        done(&room.down().await);
        let ours = room.datacenter.look().guests.into_keys().filter(|vmid| *vmid >= 421).count();
        assert_eq!(ours, 0);
    });
}

#[test]
fn not_meant_and_foreign_is_never_touched() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        for vmid in [420, 500, 1000] {
            room.datacenter.add_guest(castle_datacenter::blueprint::Stranger::new(
                vmid,
                "pve",
                "theirs",
                "local-lvm",
                8,
            ));
        }
        let before: Vec<_> = [420, 500, 1000].map(|vmid| room.datacenter.digest_of(vmid)).into();
        done(&room.up().await);
        done(&room.down().await);
        let after: Vec<_> = [420, 500, 1000].map(|vmid| room.datacenter.digest_of(vmid)).into();
        assert_eq!(before, after);
        assert!(before.iter().all(Option::is_some));
    });
}

#[test]
fn the_whole_state_can_be_read_from_the_marks() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&file(1, 2, "nodes: [pve]"), clock);
        done(&room.up().await);
        // Nothing is known but the castle's name and its range.
        let client = room.client();
        let mut marks = Vec::new();
        for row in client.guests().await.unwrap() {
            let config = client.config(&row.host, row.vmid).await.unwrap().unwrap();
            marks.extend(castle_proxmox::model::Mark::read(config.description()).unwrap().map(|mark| (row.vmid, mark)));
        }
        let named: Vec<(u32, &str)> = marks.iter().map(|(vmid, mark)| (*vmid, mark.name.as_str())).collect();
        assert_eq!(named[..3], [(421, "blue-cp-1"), (428, "blue-worker-1"), (429, "blue-worker-2")]);
        assert!(marks.iter().all(|(_, mark)| mark.castle == room.id && mark.epoch == 1));
    });
}

#[test]
fn a_guest_that_was_moved_is_found_where_it_is() {
    in_virtual_time(async |clock| {
        let blueprint = crate::room::blueprint(&["pve", "pve2"], castle_datacenter::Version::Nine)
            .with_latencies(castle_datacenter::Latencies::none());
        let room = Room::new(blueprint, &file(1, 0, "nodes: [pve, pve2]"), crate::room::door(clock));
        done(&room.up().await);
        room.datacenter.move_guest(421, "pve2");
        let report = room.up().await;
        done(&report);
        assert_eq!(report.effects(), 0, "it is not made again");
        let plan = room.plan(true).await;
        done(&plan);
    });
}

/// Goal: marks that are really written name the cluster, and one that names another is on a copy. Method: two hosts; the line is changed by hand, as on a guest that
/// was restored in another cluster under its own number. Whoever may not know the cluster's name writes none, and goes by the number.
#[test]
fn marks_name_the_cluster_that_they_were_written_in() {
    for knows_cluster in [true, false] {
        in_virtual_time(async |clock| {
            let blueprint = crate::room::blueprint(&["pve", "pve2"], castle_datacenter::Version::Nine)
                .with_latencies(castle_datacenter::Latencies::none());
            let room = Room::new(blueprint, &file(1, 0, "nodes: [pve, pve2]"), crate::room::door(clock));
            if !knows_cluster {
                room.datacenter.revoke("castle@pve!embedded", "Sys.Audit");
            }
            done(&room.up().await);
            let description = || room.datacenter.look().guests[&421].config["description"].clone();
            let (written, line) = (description(), "cluster: embedded");
            assert_eq!(written.lines().any(|is| is == line), knows_cluster, "{written}");
            let place = room.client().place(421).await.unwrap();
            assert_eq!(place.cluster.as_deref(), knows_cluster.then_some("embedded"));
            let elsewhere = match knows_cluster {
                true => written.replace(line, "cluster: lab"),
                false => written.replace("vmid: 421", "vmid: 421\ncluster: lab"),
            };
            assert!(elsewhere != written && room.datacenter.change_guest(421, &[("description", Some(&elsewhere))]));
            let found = platform::found(&room.ground(false)).await.unwrap();
            let node = found.iter().find(|guest| guest.vmid == 421).unwrap();
            let (before, plan) = (room.datacenter.digest_of(421), room.plan(true).await);
            if knows_cluster {
                assert_eq!(node.whose, Whose::Copied(421));
                assert!(failure(&plan).evidence.contains("is a copy of VM 421 of the cluster lab"), "{plan:?}");
            } else {
                assert_eq!(node.whose, Whose::Ours);
            }
            assert_eq!(room.datacenter.digest_of(421), before);
        });
    }
}

/// Goal: what a person has copied stands in nobody's way while its host is away. Method: two hosts; a copy of a worker within the range and one outside of it,
/// on the host that goes off.
#[test]
fn a_copy_on_a_host_that_is_away_is_a_copy() {
    in_virtual_time(async |clock| {
        let blueprint = crate::room::blueprint(&["pve", "pve2"], castle_datacenter::Version::Nine)
            .with_latencies(castle_datacenter::Latencies::none());
        let room = Room::new(blueprint, &file(1, 1, "nodes: [pve]"), crate::room::door(clock));
        done(&room.up().await);
        let original = room.datacenter.look().guests[&428].config.clone();
        for vmid in [300, 500] {
            let copy = castle_datacenter::blueprint::Stranger::new(vmid, "pve2", "copy", "local-lvm", 1);
            room.datacenter.add_guest(copy);
            let options =
                ["description", "tags", "name"].map(|option| (option, original.get(option).map(String::as_str)));
            assert!(room.datacenter.change_guest(vmid, &options));
        }
        room.datacenter.host_down("pve2");
        let record =
            |vmids: &[u32]| Some(Record { vmids: vmids.iter().copied().collect(), hosts: ["pve".to_owned()].into() });
        for (record, within) in [
            (record(&[421, 428]), Whose::Copied(428)),
            // Castle may have been at it when it was cut off.
            (record(&[421, 428, 500]), Whose::Unfinished),
            (None, Whose::Unfinished),
        ] {
            let ground = Ground::new(Arc::new(room.client()), room.id.clone(), room.site.vmids.clone(), false);
            let ground = ground.with_record(record);
            let found = platform::found(&ground).await.unwrap();
            let whose = |vmid: u32| found.iter().find(|guest| guest.vmid == vmid).map(|guest| guest.whose);
            assert_eq!((whose(500), whose(300)), (Some(within), None));
            assert_eq!((whose(421), whose(428)), (Some(Whose::Ours), Some(Whose::Ours)));
            let survey = castle_layers::survey(&ground, &room.site).await.unwrap();
            for strict in [false, true] {
                let unnamed = platform::unnamed_control_planes(&ground, &room.site, &survey, &room.nodes, strict).await;
                assert!(unnamed.unwrap().is_empty());
            }
        }
    });
}

#[test]
fn an_older_writer_stops_before_a_newer_ones_guest() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        room.epoch = 5;
        done(&room.up().await);
        room.epoch = 4;
        room.rewrite(&small().replace("cores: 2", "cores: 4"));
        let report = room.up().await;
        let fault = failure(&report);
        assert!(fault.guarded && fault.evidence.contains("epoch 5"), "{fault:?}");
    });
}

#[test]
fn an_earlier_life_is_refused_and_named() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.id.generation = 2;
        let report = room.up().await;
        let guarded =
            report.ended(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.next.contains("castle wipe")));
        assert_eq!(guarded.count(), 1, "{report:?}");
        assert_eq!(
            platform::found(&room.ground(false))
                .await
                .unwrap()
                .iter()
                .filter(|guest| guest.whose == Whose::Ours)
                .count(),
            2
        );
    });
}

#[test]
fn what_a_plan_says_is_what_up_does() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&file(1, 1, "nodes: [pve]"), clock);
        let plan = room.plan(false).await;
        let planned: Vec<(String, Impact)> = plan
            .outcomes
            .iter()
            .filter_map(|(step, outcome)| match outcome {
                Outcome::Planned { change } => Some((step.to_string(), change.impact)),
                _ => None,
            })
            .collect();
        assert_eq!(planned.len(), 6, "a download, an image, two guests, and their starts: {plan:?}");
        assert!(room.datacenter.effects().is_empty(), "a plan changes nothing");
        done(&room.up().await);
        done(&room.plan(true).await);
    });
}
