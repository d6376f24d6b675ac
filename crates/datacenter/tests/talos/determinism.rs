//! The same seed and the same calls at the same times give the same nodes.

use castle_datacenter::Blueprint;
use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::castle::Wanted;
use crate::wire::Nodes;

fn story(seed: u64) -> String {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]).with_seed(seed), 4).await;
        nodes.bring_up(&Wanted::default()).await;
        let members = nodes.admin(1).members().await.unwrap();
        let status = nodes.admin(2).resource("runtime", "MachineStatuses.runtime.talos.dev", "machine").await.unwrap();
        let datacenter = nodes.datacenter();
        format!(
            "{:?}\n{members:?}\n{status}\n{:?}\n{:?}\n{:?}",
            nodes.clock.monotonic(),
            datacenter.clusters(),
            datacenter.talos_nodes(),
            datacenter.effects()
        )
    })
}

#[test]
fn the_same_seed_tells_the_same_story() {
    assert_eq!(story(1), story(1));
}

#[test]
fn another_seed_tells_another() {
    assert_ne!(story(1), story(2));
}

/// Goal: whatever is drawn, a cluster comes up. Method: many seeds, with first boots that fail often.
#[test]
fn every_seed_brings_a_cluster_up() {
    for seed in 0..12 {
        in_virtual_time(async |clock| {
            let mut blueprint = Blueprint::embedded(&[]).with_seed(seed);
            blueprint.latencies.talos.failed_first_boot = 0.3;
            let nodes = Nodes::raise(clock, blueprint, 5).await;
            nodes.bring_up(&Wanted::default()).await;
        });
    }
}
