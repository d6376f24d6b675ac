use castle_engine::{Layer, StepId};

use super::*;

/// A mark of format 1. These bytes stand on machines of others: they are read by every castle from here on.
const RECORDED: &str = "Made by castle; changes by hand will be found and undone.

mark: 1
castle: blue/proxmox
lineage: 0123456789abcdef
generation: 2
name: blue-cp-1
role: control-plane
vmid: 421
cluster: rack
operation: f4e098bda7fa873f067c
epoch: 3
etcd: began on blue-cp-1";

/// A mark from before there was a format.
const UNVERSIONED: &str = "Made by castle; changes by hand will be found and undone.

castle: blue/proxmox
lineage: 0123456789abcdef
generation: 2
name: blue-cp-1
operation: f4e098bda7fa873f067c
epoch: 3";

fn castle() -> CastleId {
    CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 2 }
}

fn here() -> Place {
    Place { vmid: 421, cluster: Some("rack".into()) }
}

fn mark() -> Mark {
    let step = StepId::new(&Layer::new("platform"), "vm", "blue-cp-1");
    let operation = OperationId::of(&castle(), &step, "clone");
    let mark = Mark::new(&castle(), "blue-cp-1", Role::ControlPlane, here(), &operation, 3);
    Mark { etcd: Some(Etcd { first: "blue-cp-1".to_owned(), has_begun: true }), ..mark }
}

#[test]
fn the_recorded_mark_is_written_and_read() {
    assert_eq!(mark().to_string(), RECORDED);
    assert_eq!(Mark::read(RECORDED), Ok(Some(mark())));
}

#[test]
fn a_mark_is_read_again_whatever_proxmox_and_people_add() {
    for mark in [
        mark(),
        Mark { etcd: Some(Etcd::to_begin_on("blue-cp-1")), ..mark() },
        Mark { etcd: None, ..mark() },
        Mark { place: Place { vmid: 7, cluster: None }, role: Role::Worker, ..mark() },
        Mark { role: Role::Image, ..mark() },
    ] {
        let text = mark.to_string();
        for description in [
            text.clone(),
            format!("{text}\n"),
            text.replace('\n', "\r\n"),
            format!("my notes: none\n{text}\n\nask me first\n"),
        ] {
            assert_eq!(Mark::read(&description), Ok(Some(mark.clone())), "{description}");
        }
    }
}

#[test]
fn what_is_not_wholly_marked_is_a_strangers() {
    // Without these a mark is whole as well, and says less.
    let optional = ["cluster: ", "etcd: ", "mark: "];
    for line in RECORDED.lines().filter(|line| !line.is_empty() && !optional.iter().any(|key| line.starts_with(key))) {
        let without: Vec<&str> = RECORDED.lines().filter(|other| *other != line).collect();
        assert_eq!(Mark::owner(&castle(), &here(), &without.join("\n")), Owner::Stranger, "without {line}");
    }
    for text in ["", "castle: blue/proxmox", "blue-cp-1", &format!("{RECORDED}\ncastle: green/proxmox")] {
        assert_eq!(Mark::owner(&castle(), &here(), text), Owner::Stranger, "{text}");
    }
}

#[test]
fn other_formats_are_recognised() {
    assert_eq!(Mark::owner(&castle(), &here(), UNVERSIONED), Owner::Unreadable(Format::Unversioned));
    let later = RECORDED.replace("mark: 1", "mark: 2");
    assert_eq!(Mark::owner(&castle(), &here(), &later), Owner::Unreadable(Format::Later(2)));
}

#[test]
fn lives_and_castles_are_told_apart() {
    let seen_from = |castle: CastleId| Mark::owner(&castle, &here(), RECORDED);
    assert_eq!(seen_from(castle()), Owner::Ours(mark()));
    assert_eq!(seen_from(CastleId { generation: 3, ..castle() }), Owner::Earlier(mark()));
    assert_eq!(seen_from(CastleId { lineage: "other".into(), ..castle() }), Owner::Other(mark()), "of the same name");
    assert_eq!(seen_from(CastleId { name: "green/proxmox".into(), ..castle() }), Owner::Other(mark()));
}

#[test]
fn a_mark_elsewhere_is_on_a_copy() {
    let at = |vmid, cluster: Option<&str>| {
        Mark::owner(&castle(), &Place { vmid, cluster: cluster.map(str::to_owned) }, RECORDED)
    };
    assert_eq!(at(422, Some("rack")), Owner::Copy(mark()));
    assert_eq!(at(421, Some("attic")), Owner::Copy(mark()), "restored into another cluster");
    assert_eq!(at(421, None), Owner::Ours(mark()), "the token may not see the cluster's name");
    let alone = RECORDED.replace("cluster: rack\n", "");
    let joined = Mark::owner(&castle(), &here(), &alone);
    assert!(matches!(joined, Owner::Ours(_)), "the host has joined a cluster since: {joined:?}");
}

#[test]
fn that_etcd_has_begun_is_written_among_what_people_wrote() {
    let before = Mark { etcd: Some(Etcd::to_begin_on("blue-cp-1")), ..mark() };
    let text = Mark::with_begun_etcd(&format!("mine\n\n{before}\nask me first\n"));
    assert_eq!(Mark::read(&text), Ok(Some(mark())));
    assert!(text.starts_with("mine\n\n") && text.ends_with("\nask me first"), "{text}");
    assert_eq!(Mark::with_begun_etcd(&text), text);
}

#[test]
fn tags_are_as_proxmox_keeps_them() {
    let tags: Vec<String> = Mark::tags_of(&castle()).into_iter().collect();
    assert_eq!(tags.join(";"), "castle;castle-blue-proxmox");
}
