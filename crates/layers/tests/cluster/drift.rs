//! What nodes live by, compared with the file: typed, and without a secret.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Latencies, Version};
use castle_layers::cluster::{self, Referred, configuration};
use castle_secrets::Secret;
use castle_talos::client::{Drift, ErrorClass};
use castle_talos::model::config::{Configuration, Difference};
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::castle::{Castle, bundle, quick};
use crate::room::{Room, blueprint, done, door};

fn small(clock: &VirtualClock) -> Castle {
    let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
    Castle::new(Room::new(blueprint, &quick(1, 1), door(clock)))
}

async fn drift(castle: &Castle) -> Vec<(String, Drift)> {
    let drift = cluster::drift(&castle.design(Duration::ZERO).await, &castle.keys().await).await.unwrap();
    drift.into_iter().map(|(whom, drift)| (whom.name, drift)).collect()
}

/// What the worker is given by whoever has the castle's keys.
async fn change_worker(castle: &Castle, patch: &str) {
    let (keys, room) = (castle.keys().await, &castle.room);
    let made = configuration(&room.castle, &room.nodes, &room.nodes[1], &keys.bundle, &Referred::default()).unwrap();
    let changed = made.merged(&Configuration::parse(patch).unwrap()).unwrap();
    room.datacenter.configure_node(room.nodes[1].vmid.0, changed.text().expose()).unwrap();
}

#[test]
fn a_castle_that_was_just_raised_has_none() {
    in_virtual_time(async |clock| {
        let castle = small(clock);
        done(&castle.up().await);
        let names = ["blue-cp-1", "blue-worker-1"].map(str::to_owned);
        assert_eq!(drift(&castle).await, names.map(|name| (name, Drift::None)));
    });
}

#[test]
fn what_someone_changed_is_told_by_its_path_and_secrets_are_not() {
    in_virtual_time(async |clock| {
        let castle = small(clock);
        done(&castle.up().await);
        change_worker(
            &castle,
            "machine:\n    token: abcdef.0123456789abcdef\n    certSANs:\n        - odd.lan\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: net0\nmtu: 9000\n",
        )
        .await;
        let drift = drift(&castle).await;
        assert_eq!(drift[0].1, Drift::None);
        let Drift::Differs(differences) = &drift[1].1 else { panic!("{drift:?}") };
        let told: Vec<String> = differences.iter().map(Difference::to_string).collect();
        assert_eq!(
            told,
            [
                "machine.token: differs",
                "machine.certSANs: is [\"10.0.1.8\",\"odd.lan\"], wanted [\"10.0.1.8\"]",
                "LinkConfig/net0.mtu: is 9000, wanted absent",
            ]
        );
        assert!(!format!("{drift:?}").contains("0123456789abcdef"));
        // The same command makes it good.
        done(&castle.up().await);
        assert_eq!(self::drift(&castle).await[1].1, Drift::None);
    });
}

#[test]
fn what_the_file_wants_now_is_compared_with_what_nodes_have() {
    in_virtual_time(async |clock| {
        let mut castle = small(clock);
        done(&castle.up().await);
        castle
            .room
            .rewrite(&quick(1, 1).replace("serviceAccountKey: p256", "serviceAccountKey: p256, patches: [all.yaml]"));
        let patch = Secret::from("machine: {sysctls: {vm.nr_hugepages: '16'}}\n".to_owned());
        castle.referred =
            Arc::new(Referred { patches: [("all.yaml".to_owned(), patch)].into(), ..Referred::default() });
        for (name, drift) in drift(&castle).await {
            let Drift::Differs(differences) = drift else { panic!("{name}") };
            let told: Vec<String> = differences.iter().map(Difference::to_string).collect();
            assert_eq!(told, ["machine.sysctls: is absent, wanted {\"vm.nr_hugepages\":\"16\"}"], "{name}");
        }
        done(&castle.up().await);
        assert!(drift(&castle).await.iter().all(|(_, drift)| *drift == Drift::None));
    });
}

#[test]
fn who_cannot_be_asked_is_told_apart() {
    in_virtual_time(async |clock| {
        let castle = small(clock);
        done(&castle.up().await);
        let (control_plane, worker) = (castle.room.nodes[0].vmid.0, castle.room.nodes[1].vmid.0);
        let foreign = bundle(clock).await;
        let (room, none) = (&castle.room, Referred::default());
        let made = configuration(&room.castle, &room.nodes, &room.nodes[0], &foreign, &none).unwrap();
        room.datacenter.configure_node(control_plane, made.text().expose()).unwrap();
        room.datacenter.occupy_address(room.nodes[1].address.value, true);
        let drift = drift(&castle).await;
        let Drift::Unknown(stranger) = &drift[0].1 else { panic!("{drift:?}") };
        assert_eq!(stranger.class, ErrorClass::Stranger, "{stranger}");
        let Drift::Unknown(silent) = &drift[1].1 else { panic!("{drift:?}") };
        assert_eq!(silent.class, ErrorClass::Unreachable, "{silent}");
        assert!(room.datacenter.look().guests[&worker].running);
    });
}
