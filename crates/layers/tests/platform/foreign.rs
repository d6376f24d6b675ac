//! Guests that somebody else made: what castle says of each, and that it changes nothing but their marks.

use castle_datacenter::blueprint::Stranger;
use castle_engine::{GraphBuilder, Impact, Layer, Place, Report, StepId};
use castle_layers::foreign::{self, Sight};
use castle_proxmox::model::{Mark, Place as At, Role};
use castle_testbed::in_virtual_time;

use crate::room::{Room, done, file};

const WORKER: u32 = 428;

fn small() -> String {
    file(1, 1, "nodes: [pve]")
}

/// Guests as somebody's script has made them: of the right names, numbers and addresses, and with notes of his own.
pub(crate) async fn scripted(room: &Room) {
    done(&room.up().await);
    let notes = [("description", Some("the lab, ask Ann\n")), ("tags", Some("lab;prod"))];
    for node in &room.nodes {
        assert!(room.datacenter.change_guest(node.vmid.0, &notes));
    }
}

async fn look(room: &Room) -> Sight {
    foreign::look(&room.ground(true), &room.site, &room.castle, &room.nodes).await.unwrap()
}

/// What `castle adopt --foreign` does, once somebody has said yes.
pub(crate) async fn mark(room: &Room) -> Report {
    let mut graph = GraphBuilder::new();
    let first = StepId::new(&Layer::new("secrets"), "bundle", "blue");
    graph.gate(
        first.clone(),
        Place::default(),
        (),
        castle_secrets::validate::SecretsValid { checks: Vec::new(), clock: room.clock.clone() },
    );
    foreign::mark(&mut graph, &room.ground(true), &room.site, &room.castle, &room.nodes, (&first, false));
    let report = room.run(&graph.build().unwrap(), true).await;
    room.check_strangers();
    report
}

/// Everything but what castle writes on guests.
fn unmarked(room: &Room) -> String {
    let kept = |line: &&str| !line.starts_with("  description: ") && !line.starts_with("  tags: ");
    room.snapshot().lines().filter(kept).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_as_the_file_says_is_marked_and_nothing_else_of_it_changes() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        scripted(&room).await;
        let sight = look(&room).await;
        assert!(sight.obstacles.is_empty(), "{:#?}", sight.obstacles);
        assert!(sight.candidates.iter().all(|it| it.differences.is_empty() && !it.is_marked), "{sight:#?}");
        let before = unmarked(&room);
        let report = mark(&room).await;
        done(&report);
        assert_eq!((report.effects(), unmarked(&room)), (2, before));
        let guest = &room.datacenter.look().guests[&WORKER];
        assert!(guest.config["description"].starts_with("the lab, ask Ann\n\nMade by castle; "), "{:?}", guest.config);
        let tags: Vec<&str> = guest.config["tags"].split(';').collect();
        assert!(["lab", "prod", "castle", "castle-blue-proxmox"].iter().all(|tag| tags.contains(tag)), "{tags:?}");
        assert_eq!(mark(&room).await.effects(), 0);
        assert!(look(&room).await.candidates.iter().all(|it| it.is_marked));
        // From now on they are this castle's.
        let up = room.up().await;
        done(&up);
        assert_eq!(up.effects(), 0);
        done(&room.down().await);
        assert!(!room.datacenter.look().guests.contains_key(&WORKER));
    });
}

#[test]
fn what_differs_is_told_and_left_until_up() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        scripted(&room).await;
        let other = [("memory", Some("6144")), ("scsi1", Some("other:vm-428-disk-9,size=20G")), ("onboot", None)];
        assert!(room.datacenter.change_guest(WORKER, &other));
        let sight = look(&room).await;
        let worker = sight.candidates.iter().find(|it| it.vmid == WORKER).unwrap();
        let told: Vec<(&str, Impact)> =
            worker.differences.iter().map(|(it, impact)| (it.field.as_str(), *impact)).collect();
        assert_eq!(told, [("memory", Impact::Reboot), ("onboot", Impact::InPlace), ("scsi1", Impact::Replace)]);
        let before = unmarked(&room);
        done(&mark(&room).await);
        assert_eq!(unmarked(&room), before);
        let plan = room.plan(false).await;
        let planned = plan.ended(|outcome| !outcome.is_done()).map(|(step, _)| step.to_string());
        assert_eq!(planned.collect::<Vec<_>>(), ["platform/vm/blue-worker-1"], "told honestly");
        // What would take a new machine is not done.
        let up = room.up().await;
        let failed: Vec<_> = up.ended(|outcome| !outcome.is_done()).collect();
        assert!(format!("{failed:?}").contains("castle does not do that to a node by itself"), "{failed:#?}");
        assert!(room.datacenter.look().guests[&WORKER].running);
    });
}

/// Holds that the guests cannot be adopted, and what is said about which; nothing of them is changed by looking, nor by who goes on.
fn refused(file: &str, happens: impl FnOnce(&Room), said: &[(&str, &str)]) {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        scripted(&room).await;
        happens(&room);
        room.rewrite(file);
        let before = room.snapshot();
        let sight = look(&room).await;
        let told: Vec<String> = sight.obstacles.iter().map(|fault| format!("{fault}; {}", fault.next)).collect();
        assert_eq!(told.len(), said.len(), "{told:#?}");
        for (fault, (subject, evidence)) in sight.obstacles.iter().zip(said) {
            assert!(fault.guarded && !fault.next.is_empty(), "{fault:?}");
            assert!(fault.subject == *subject && fault.evidence.contains(evidence), "{fault:?}");
        }
        assert_eq!(room.snapshot(), before);
    });
}

#[test]
fn a_guest_that_cannot_be_the_node_is_named_with_the_reason() {
    let small = small();
    let change = |what: &'static [(&'static str, Option<&'static str>)]| {
        move |room: &Room| assert!(room.datacenter.change_guest(WORKER, what))
    };
    let worker = "VM 428 (blue-worker-1)";
    refused(
        &small,
        change(&[("name", Some("printer"))]),
        &[("VM 428", "is called `printer`, and the file wants `blue-worker-1` there")],
    );
    refused(&small, change(&[("template", Some("1"))]), &[(worker, "is a template on pve, and no node")]);
    refused(
        &small,
        change(&[("ipconfig0", Some("ip=10.0.1.77/16,gw=10.0.0.1"))]),
        &[(worker, "has the address 10.0.1.77, and the file says 10.0.1.8")],
    );
    refused(&small, |room| room.datacenter.switch(WORKER, false), &[(worker, "does not run, so nobody can tell")]);
    refused(&small, |room| assert!(room.datacenter.remove_guest(WORKER)), &[(worker, "is not there")]);
    let twin = |room: &Room| room.datacenter.add_guest(Stranger::new(9000, "pve", "blue-worker-1", "local-lvm", 8));
    refused(&small, twin, &[(worker, "is not the only one of that name: VM 9000 on pve has it, too")]);
    let missing = |room: &Room| {
        twin(room);
        assert!(room.datacenter.remove_guest(WORKER));
    };
    refused(&small, missing, &[(worker, "is not there; VM 9000 on pve is called so")]);
    // Only some of them are there.
    refused(&file(1, 2, "nodes: [pve]"), |_| {}, &[("VM 429 (blue-worker-2)", "is not there")]);
    let others = |room: &Room| {
        let mut castle = room.id.clone();
        castle.name = "green/proxmox".into();
        let step = StepId::new(&Layer::new("platform"), "vm", "blue-worker-1");
        let operation = castle_engine::OperationId::of(&castle, &step, "clone");
        let place = At { vmid: WORKER, cluster: None };
        let mark = Mark::new(&castle, "blue-worker-1", Role::Worker, place, &operation, 1);
        assert!(room.datacenter.change_guest(WORKER, &[("description", Some(&mark.to_string()))]));
    };
    refused(&small, others, &[("VM 428", "belongs to another castle: `blue-worker-1` of green/proxmox")]);
}

#[test]
fn a_description_that_reads_like_a_mark_is_not_written_below() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        scripted(&room).await;
        for (text, evidence) in [
            ("name: Ann's", "lines in its description that read like castle's mark"),
            (&"x".repeat(8100), "so long a description"),
        ] {
            assert!(room.datacenter.change_guest(WORKER, &[("description", Some(text))]));
            let before = room.datacenter.digest_of(WORKER);
            let report = mark(&room).await;
            let failed: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
            assert!(failed.len() == 1 && format!("{failed:?}").contains(evidence), "{failed:#?}");
            assert_eq!(room.datacenter.digest_of(WORKER), before);
        }
    });
}
