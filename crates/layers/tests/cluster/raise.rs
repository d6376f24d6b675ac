//! From nothing to a cluster, and nothing to do after that.

use castle_datacenter::{Latencies, Version};
use castle_engine::Outcome;
use castle_testkit::in_virtual_time;

use crate::castle::{Castle, quick};
use crate::room::{Room, blueprint, done, door};

#[test]
fn three_and_two_become_a_cluster() {
    in_virtual_time(async |clock| {
        let castle = Castle::new(Room::new(blueprint(&["pve"], Version::Nine), &quick(3, 2), door(clock)));
        let planned = castle.plan().await.ended(|outcome| matches!(outcome, Outcome::Planned { .. })).count();
        assert_eq!(planned, 1 + 1 + 5 + 5 + 5 + 1, "a bundle, an image, machines, starts, configurations, a bootstrap");
        let report = castle.up().await;
        done(&report);
        let again = castle.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        let plan = castle.plan().await;
        done(&plan);
    });
}

#[test]
fn one_node_is_enough() {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
        let castle = Castle::new(Room::new(blueprint, &quick(1, 0), door(clock)));
        done(&castle.up().await);
    });
}
