//! Differences: none after `up`, and each one that a person makes is found, classed and mended.

use castle_datacenter::{Latencies, Version};
use castle_engine::{Change, Impact, Outcome, Report};
use castle_layers::cluster::{Health, Rolling};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::room::{Room, blueprint, done, door, file};

fn small() -> String {
    file(1, 1, "nodes: [pve]")
}

/// Lets the folder take disks, too.
fn images_in_local(mut blueprint: castle_datacenter::Blueprint) -> castle_datacenter::Blueprint {
    for storage in blueprint.storages.iter_mut().filter(|storage| storage.name == "local") {
        storage.content.push("images".to_owned());
    }
    blueprint
}

fn changes(report: &Report) -> Vec<&Change> {
    report
        .outcomes
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Planned { change } => Some(change),
            _ => None,
        })
        .collect()
}

#[test]
fn after_up_nothing_differs_however_closely_one_looks() {
    for version in [Version::Eight, Version::Nine] {
        for more in [
            "nodes: [pve]",
            "nodes: [pve]\n    vlan: 7\n    hardware: {scsiController: virtio-scsi-single, iothread: true, cpu: host, machine: i440fx}",
            "nodes: [pve]\n    storage: {disks: local}",
        ] {
            in_virtual_time(async |clock| {
                let blueprint = blueprint(&["pve"], version).with_latencies(Latencies::none());
                let blueprint = images_in_local(blueprint);
                let room = Room::new(blueprint, &file(1, 1, more), door(clock));
                done(&room.up().await);
                let deep = room.plan(true).await;
                assert!(changes(&deep).is_empty(), "{version:?} {more}: {:#?}", changes(&deep));
                done(&deep);
                let again = room.up().await;
                assert_eq!(again.effects(), 0);
            });
        }
    }
}

/// Each is done by hand to a running guest, and then found by a close look: how it is classed, and what mends it.
#[test]
fn what_people_change_is_found_and_mended() {
    let cases: [(&str, Option<&str>, Impact); 8] = [
        ("memory", Some("2048"), Impact::Reboot),
        ("cores", Some("1"), Impact::Reboot),
        ("cpu", Some("host"), Impact::Reboot),
        ("tags", Some("mine"), Impact::InPlace),
        ("name", Some("renamed"), Impact::InPlace),
        ("onboot", None, Impact::InPlace),
        ("net0", Some("virtio=02:00:00:00:00:99,bridge=vmbr0"), Impact::InPlace),
        ("nameserver", Some("9.9.9.9"), Impact::Reboot),
    ];
    for (option, value, impact) in cases {
        in_virtual_time(async |clock| {
            let room = Room::plain(&small(), clock);
            done(&room.up().await);
            let before = room.snapshot();
            assert!(room.datacenter.change_guest(421, &[(option, value)]));
            let plan = room.plan(true).await;
            let found = changes(&plan);
            let [change] = found.as_slice() else { panic!("{option}: {found:#?}") };
            assert_eq!(change.impact, impact, "{option}");
            let ground = room.ground(true);
            let survey = castle_layers::survey(&ground, &room.site).await.unwrap();
            done(&room.run(&room.graph(&ground, &survey), true).await);
            let mine = |text: String| text.replace("castle-is-", "").replace(";mine", "");
            assert_eq!(mine(room.snapshot()), mine(before), "{option}: mended, and nothing else");
        });
    }
}

#[test]
fn the_list_alone_shows_what_the_file_wants_otherwise() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.rewrite(
            &small().replace("cores: 2", "cores: 3").replace("disk: 16GiB, dataDisk", "disk: 24GiB, dataDisk"),
        );
        let plan = room.plan(false).await;
        let verbs: Vec<&str> = changes(&plan).iter().map(|change| change.verb.as_str()).collect();
        assert_eq!(verbs, ["configure", "resize"]);
        done(&room.up().await);
        let look = room.datacenter.look();
        assert_eq!(look.guests[&421].config["cores"], "3");
        assert!(look.guests[&421].pending.is_empty(), "restarted, so that it takes effect");
        assert!(look.guests[&428].config["scsi0"].contains("size=24G"), "{:?}", look.guests[&428].config);
        done(&room.plan(true).await);
    });
}

/// What waits for the next start is inert, and shown by no list; what is in a guest's configuration, the list shows a moment later.
#[test]
fn memory_that_is_changed_by_hand_is_found_by_the_list_and_mended_by_any_run() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        assert!(room.datacenter.change_guest(421, &[("memory", Some("2048"))]));
        clock.sleep(std::time::Duration::from_secs(20)).await;
        let plan = room.plan(false).await;
        let found = changes(&plan);
        let told: Vec<&str> =
            found.iter().flat_map(|change| &change.differences).map(|differing| differing.field.as_str()).collect();
        assert_eq!(told, ["memory"]);
        done(&room.up().await);
        assert_eq!(room.datacenter.look().guests[&421].config["memory"], "4096");
        done(&room.plan(true).await);
    });
}

/// Somebody has written what would hold from the next start on. Nothing is to be restarted for it: it is told, and called off.
#[test]
fn what_only_waits_for_the_next_start_is_called_off_without_one() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let (client, subject) = (room.client(), "by hand");
        let form = castle_proxmox::model::Form::new().with("memory", 2048).with("cores", 1);
        client.change(subject, castle_http::Method::PUT, "/nodes/pve/qemu/421/config", &form).await.unwrap();
        assert!(!room.datacenter.look().guests[&421].pending.is_empty());
        let plan = room.plan(true).await;
        let found = changes(&plan);
        let [change] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!((change.verb.as_str(), change.impact), ("configure", Impact::InPlace));
        let told: Vec<&str> = change.differences.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(told, ["cores", "memory"]);
        let ground = room.ground(true);
        let survey = castle_layers::survey(&ground, &room.site).await.unwrap();
        done(&room.run(&room.graph(&ground, &survey), true).await);
        let look = room.datacenter.look();
        assert!(look.guests[&421].pending.is_empty(), "{:?}", look.guests[&421].pending);
        assert!(look.tasks.iter().all(|task| task.kind != "qmreboot"), "{:#?}", look.tasks);
        done(&room.plan(true).await);
    });
}

/// Between looking and doing, somebody else has seen to it that a guest has to restart.
#[test]
fn a_guest_that_was_not_to_restart_is_not_restarted() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        let before = room.snapshot();
        room.rewrite(&small().replace("cores: 2", "cores: 3"));
        room.rolling = Rolling::of(&room.nodes, |_| None, None, &Health::default());
        let report = room.up().await;
        let refused = report.ended(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded)).count();
        assert_eq!((refused, room.snapshot()), (1, before));
        room.rolling = Rolling::at_once();
        done(&room.up().await);
    });
}

#[test]
fn a_disk_that_would_shrink_is_refused_and_nothing_is_lost() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        let before = room.snapshot();
        room.rewrite(&small().replace("dataDisk: 20GiB", "dataDisk: 10GiB"));
        let plan = room.plan(false).await;
        assert_eq!(changes(&plan).iter().map(|change| change.impact).collect::<Vec<_>>(), [Impact::Replace]);
        let report = room.up().await;
        let refused = report.ended(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded)).count();
        assert_eq!((refused, room.snapshot()), (1, before));
    });
}

#[test]
fn a_guest_that_stopped_is_started() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.datacenter.switch(421, false);
        let report = room.up().await;
        done(&report);
        assert_eq!(report.effects(), 1);
        assert!(room.datacenter.look().guests[&421].running);
    });
}

/// The images that there are, by name.
fn images(room: &Room) -> Vec<String> {
    let guests = room.datacenter.look().guests.into_values();
    guests.filter(|guest| guest.config.contains_key("template")).map(|guest| guest.config["name"].clone()).collect()
}

#[test]
fn images_of_other_versions_go_when_nothing_needs_them() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.rewrite(&file(1, 2, "nodes: [pve]").replace("v1.13.9", "v1.13.8"));
        done(&room.up().await);
        // Clones on a thin pool stand by themselves.
        assert_eq!(images(&room), ["talos-v1.13.8-e187c9b90f77"]);
        done(&room.plan(true).await);
    });
}

#[test]
fn images_that_something_is_linked_to_stay() {
    in_virtual_time(async |clock| {
        let blueprint = images_in_local(blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none()));
        let in_folder = "nodes: [pve]\n    storage: {disks: local}";
        let mut room = Room::new(blueprint, &file(1, 1, in_folder), door(clock));
        done(&room.up().await);
        room.rewrite(&file(1, 2, in_folder).replace("v1.13.9", "v1.13.8"));
        done(&room.up().await);
        assert_eq!(images(&room), ["talos-v1.13.9-e187c9b90f77", "talos-v1.13.8-e187c9b90f77"]);
        done(&room.down().await);
        assert!(images(&room).is_empty());
    });
}

#[test]
fn where_disks_cannot_be_linked_they_are_copied() {
    in_virtual_time(async |clock| {
        let mut blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
        for storage in blueprint.storages.iter_mut().filter(|storage| storage.name == "local-lvm") {
            storage.kind = castle_datacenter::blueprint::StorageKind::Lvm;
        }
        let room = Room::new(blueprint, &small(), door(clock));
        done(&room.up().await);
        let look = room.datacenter.look();
        assert!(look.volumes.values().all(|volume| volume.parent.is_none()), "nothing is linked: {look}");
        done(&room.plan(true).await);
        done(&room.down().await);
    });
}
