//! Each thing that can be in the way, and what is found then.

use castle_datacenter::blueprint::{GIB, Storage, StorageKind, Stranger};
use castle_datacenter::{Blueprint, EMBEDDED_TOKEN_ID, Version};
use castle_engine::CastleId;
use castle_layers::doctor::Verdict;
use castle_testbed::in_virtual_time;

use super::practice::{POOL, Practice, TWO, embedded, file, ill};

/// What is found in an embedded datacenter of one host that was changed a little.
fn found(more: &[&str], change: impl FnOnce(&mut Blueprint), then: impl FnOnce(&mut Practice)) -> Vec<String> {
    in_virtual_time(async |clock| {
        let mut blueprint = embedded(&["pve"]);
        change(&mut blueprint);
        let mut practice = Practice::new(blueprint, &file(2, more), clock);
        then(&mut practice);
        let findings = practice.examine().await;
        assert!(
            findings.iter().filter(|it| it.verdict == Verdict::Wrong).all(|it| !it.evidence.is_empty()),
            "{findings:?}"
        );
        ill(&findings)
    })
}

#[test]
fn a_castle_that_can_be_raised_is_well() {
    for version in [Version::Eight, Version::Nine] {
        for (hosts, more) in [(&["pve"][..], "bridge: vmbr0"), (&["pve1", "pve2"], TWO)] {
            in_virtual_time(async |clock| {
                let practice = Practice::new(embedded(hosts).on(version), &file(2, &[more]), clock);
                let findings = practice.examine().await;
                assert_eq!(ill(&findings), [""; 0]);
                let checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
                let expected = [
                    "reachable",
                    "certificate",
                    "token",
                    "version",
                    "quorum",
                    "hosts",
                    "privileges",
                    "storage",
                    "storage",
                    "linked-clones",
                    "bridge",
                    "placement",
                    "vmids",
                    "addresses",
                ];
                assert_eq!(checks, expected);
            });
        }
    }
}

#[test]
fn who_is_not_let_in_learns_why_and_no_more() {
    let unreachable = found(&[POOL], |_| {}, |practice| practice.entry = "nowhere".into());
    assert_eq!(unreachable.len(), 14, "{unreachable:?}");
    assert!(
        unreachable[0].starts_with("wrong reachable : cannot connect to nowhere:8006: the name did not resolve"),
        "{unreachable:?}"
    );
    assert!(unreachable[1..].iter().all(|line| line.starts_with("unknown ") && line.contains("not asked: ")));

    let down = found(&[], |_| {}, |practice| practice.datacenter.host_down("pve"));
    assert!(down[0].contains("connection refused"), "{down:?}");

    for change in [
        (|practice: &mut Practice| practice.token = format!("{EMBEDDED_TOKEN_ID}=wrong")) as fn(&mut Practice),
        |practice| practice.datacenter.expire_token(EMBEDDED_TOKEN_ID),
    ] {
        let refused = found(&[], |_| {}, change);
        assert!(
            refused[0].starts_with("wrong token : it is wrong, expired or disabled: Authentication failed!"),
            "{refused:?}"
        );
        assert!(refused[1..].iter().all(|line| line.contains("not asked: ")), "{refused:?}");
    }
}

#[test]
fn hosts_that_are_not_there_are_named() {
    let absent = found(&["nodes: [pve, pve9]"], |_| {}, |_| {});
    assert_eq!(absent, ["wrong hosts pve9: there is no such host: the cluster has pve"]);
    in_virtual_time(async |clock| {
        let practice = Practice::new(embedded(&["pve1", "pve2", "pve3"]), &file(2, &[TWO]), clock);
        practice.datacenter.host_down("pve2");
        assert_eq!(ill(&practice.examine().await), ["wrong hosts pve2: is not online"]);
        practice.datacenter.set_quorum(false);
        let findings = ill(&practice.examine().await);
        assert_eq!(findings[0], "wrong quorum : too few hosts of the cluster are there: nothing can be changed");
    });
}

#[test]
fn storages_that_will_not_do_are_named() {
    let without_import = found(&[], |it| it.storages[0].content.retain(|word| word != "import"), |_| {});
    assert_eq!(without_import, ["wrong storage local on pve: does not take `import`; it takes backup, iso, vztmpl"]);
    let absent = found(&["storage: {disks: fast, images: local}"], |_| {}, |_| {});
    assert_eq!(absent[0], "wrong storage fast on pve: there is no such storage; that host has local, local-lvm");
    let full = found(&[], |_| {}, |practice| practice.datacenter.fill_storage("pve", "local", GIB));
    assert_eq!(full, ["wrong storage local on pve: 1.0 GiB are free, and the image takes up to 2.0 GiB"]);
    let thick = |blueprint: &mut Blueprint| {
        blueprint.storages[1] = Storage::new("local-lvm", StorageKind::Lvm, &["images"], 100 * GIB);
    };
    let slow = found(&[], thick, |practice| practice.datacenter.fill_storage("pve", "local-lvm", 50 * GIB));
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert!(slow[0].starts_with("warning linked-clones local-lvm: lvm cannot"), "{slow:?}");
    // Room for the disks, and none for the image beside them.
    let tight = found(&[], thick, |practice| practice.datacenter.fill_storage("pve", "local-lvm", 41 * GIB));
    assert_eq!(tight[0], "wrong storage local-lvm on pve: 41.0 GiB are free, and the disks take 42.0 GiB at once");
}

#[test]
fn nodes_that_fit_nowhere_are_named() {
    let crowded = found(&[], |it| it.hosts[0].memory = 23 * GIB / 2, |_| {});
    assert_eq!(crowded.len(), 1, "{crowded:?}");
    assert!(crowded[0].starts_with("wrong placement blue-worker-2: fits on no host: pve has "), "{crowded:?}");
}

#[test]
fn a_bridge_and_a_pool_that_are_not_there_are_named() {
    let bridge = found(&["bridge: vmbr7"], |_| {}, |_| {});
    assert_eq!(bridge, ["wrong bridge vmbr7 on pve: there is no such bridge; that host has vmbr0"]);
    let pool = found(&[POOL], |_| {}, |_| {});
    assert_eq!(pool, ["wrong pool blue: there is no such pool"]);
}

#[test]
fn guests_of_others_among_the_numbers_are_named() {
    let stranger = |vmid, name: &str| Stranger::new(vmid, "pve", name, "local-lvm", 8);
    let foreign =
        found(&[], |it| it.guests.extend([stranger(421, "mail"), stranger(900, "web"), stranger(2000, "far")]), |_| {});
    assert_eq!(
        foreign,
        [
            "wrong vmids VM 421 (mail) on pve: is not castle's: it has no mark",
            "warning vmids VM 900 (web) on pve: is not castle's: it has no mark",
        ]
    );
    let marked = found(
        &[],
        |_| {},
        |practice| {
            let life =
                |lineage: &str, generation| CastleId { lineage: lineage.into(), generation, ..practice.id.clone() };
            let green = CastleId { name: "green/proxmox".into(), ..life("fedcba9876543210", 1) };
            practice.settle(421, "green-cp-1", &green);
            practice.settle(422, "blue-cp-2", &life("0123456789abcdef", 0));
            practice.settle(423, "blue-cp-7", &practice.id);
        },
    );
    assert_eq!(
        marked,
        [
            "wrong vmids VM 421 (green-cp-1) on pve: belongs to another castle: it is `green-cp-1` of green/proxmox (lineage fedcba9876543210)",
            "wrong vmids VM 422 (blue-cp-2) on pve: is `blue-cp-2` of an earlier life of this castle (life 0)",
            "wrong vmids VM 423 (blue-cp-7) on pve: is `blue-cp-7` of this castle, and the file wants `blue-cp-3` there",
        ]
    );
}

#[test]
fn a_castle_of_the_same_name_and_another_lineage_is_seen_through() {
    let namesakes = found(
        &[],
        |_| {},
        |practice| {
            let other = CastleId { lineage: "fedcba9876543210".into(), ..practice.id.clone() };
            for (vmid, name) in [(421, "blue-cp-1"), (422, "blue-cp-2")] {
                practice.settle(vmid, name, &other);
            }
        },
    );
    assert_eq!(namesakes.len(), 2, "{namesakes:?}");
    assert!(namesakes.iter().all(|line| line.contains("belongs to another castle")), "{namesakes:?}");
}

/// As many requests for five nodes as for five hundred, be they made or not.
#[test]
fn requests_do_not_grow_with_the_castle() {
    let count = |workers: u32, stands: bool| {
        in_virtual_time(async |clock| {
            let mut blueprint = embedded(&["pve1", "pve2"]);
            blueprint.hosts.iter_mut().for_each(|host| host.memory = 4096 * GIB);
            let practice = Practice::new(blueprint, &file(workers, &[TWO]), clock);
            for node in practice.nodes.iter().filter(|_| stands) {
                practice.settle(node.vmid.0, &node.name.value, &practice.id);
            }
            assert_eq!(ill(&practice.examine().await), [""; 0]);
            practice.datacenter.requests()
        })
    };
    assert_eq!((count(2, false), count(497, false)), (9, 9));
    assert_eq!((count(2, true), count(497, true)), (11, 11));
}

/// However many strangers there are, few are looked at.
#[test]
fn strangers_are_looked_at_within_bounds() {
    in_virtual_time(async |clock| {
        let practice = Practice::new(embedded(&["pve"]), &file(2, &[]), clock);
        for vmid in 430..830 {
            practice.datacenter.add_guest(Stranger::new(vmid, "pve", "other", "local-lvm", 1));
        }
        let findings = ill(&practice.examine().await);
        assert!(practice.datacenter.requests() <= 8 + 32, "{}", practice.datacenter.requests());
        assert!(findings.last().unwrap().contains("368 more guests have numbers of the castle"), "{findings:?}");
    });
}
