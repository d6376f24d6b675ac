//! Where nodes go: spread, within what the hosts have, and explained.

use castle_datacenter::{Latencies, Version};
use castle_layers::{Why, place, survey};
use castle_testbed::in_virtual_time;

use crate::room::{Room, blueprint, done, door, file};

const THREE: &str = "nodes: [pve1, pve2, pve3]";

fn three(clock: &castle_testbed::VirtualClock, file: &str) -> Room {
    let blueprint = blueprint(&["pve1", "pve2", "pve3"], Version::Nine).with_latencies(Latencies::none());
    Room::new(blueprint, file, door(clock))
}

#[test]
fn each_role_is_spread_over_the_hosts() {
    in_virtual_time(async |clock| {
        let room = three(clock, &file(3, 4, THREE));
        let survey = survey(&room.ground(false), &room.site).await.unwrap();
        let placed = place(&room.site, &survey, &room.nodes).unwrap();
        let hosts: Vec<&str> = placed.iter().map(|placed| placed.host.as_str()).collect();
        assert_eq!(hosts, ["pve1", "pve2", "pve3", "pve1", "pve2", "pve3", "pve1"]);
        assert!(placed.iter().all(|placed| placed.why == Why::Spread));
    });
}

#[test]
fn on_hosts_without_shared_storage_each_has_its_own_image() {
    in_virtual_time(async |clock| {
        let room = three(clock, &file(3, 0, THREE));
        done(&room.up().await);
        let look = room.datacenter.look();
        let images: Vec<(u32, &str)> = look
            .guests
            .values()
            .filter(|guest| guest.config.contains_key("template"))
            .map(|guest| (guest.vmid, guest.host.as_str()))
            .collect();
        assert_eq!(images, [(994, "pve3"), (996, "pve2"), (998, "pve1")]);
        assert_eq!(look.guests[&422].host, "pve2");
        done(&room.plan(true).await);
        done(&room.down().await);
        assert!(room.datacenter.look().guests.keys().all(|vmid| *vmid < 421));
    });
}

#[test]
fn the_file_decides_and_a_host_that_is_down_carries_nothing() {
    in_virtual_time(async |clock| {
        let pinned = file(3, 0, THREE)
            .replace("nodes:\n  controlPlanes", "nodes:\n  overrides: {blue-cp-1: {host: pve3}}\n  controlPlanes");
        let room = three(clock, &pinned);
        room.datacenter.host_down("pve2");
        let survey = survey(&room.ground(false), &room.site).await.unwrap();
        let placed = place(&room.site, &survey, &room.nodes).unwrap();
        let hosts: Vec<(&str, &Why)> = placed.iter().map(|placed| (placed.host.as_str(), &placed.why)).collect();
        assert_eq!(hosts, [("pve3", &Why::File), ("pve1", &Why::Spread), ("pve1", &Why::Spread)]);
    });
}

#[test]
fn what_fits_nowhere_is_named_with_what_is_missing() {
    in_virtual_time(async |clock| {
        let mut blueprint = blueprint(&["pve1", "pve2"], Version::Nine).with_latencies(Latencies::none());
        blueprint.hosts.iter_mut().for_each(|host| host.memory = 24 << 30);
        let room = Room::new(blueprint, &file(3, 4, "nodes: [pve1, pve2]"), door(clock));
        let survey = survey(&room.ground(false), &room.site).await.unwrap();
        let crowded = place(&room.site, &survey, &room.nodes).unwrap_err();
        let said: Vec<String> = crowded.iter().map(ToString::to_string).collect();
        assert!(!said.is_empty() && said[0].contains("blue-worker-") && said[0].contains("memory left"), "{said:?}");
    });
}
