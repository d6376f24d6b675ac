//! What looking costs: counted, not timed.

use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::room::{Room, done, file};

#[test]
fn five_guests_and_a_hundred_cost_the_same_number_of_requests() {
    let cost = |workers: u32| {
        in_virtual_time(async |clock| {
            let text = file(1, workers, "nodes: [pve]");
            let mut blueprint = crate::room::blueprint(&["pve"], castle_datacenter::Version::Nine);
            blueprint.hosts[0].memory = 16 << 40;
            blueprint.storages.iter_mut().for_each(|storage| storage.total = 1 << 50);
            let blueprint = blueprint.with_latencies(castle_datacenter::Latencies::none());
            let room = Room::new(blueprint, &text, crate::room::door(clock));
            done(&room.up().await);
            // Of guests that are new, the list alone tells too little.
            clock.sleep(std::time::Duration::from_secs(601)).await;
            room.requests();
            done(&room.plan(false).await);
            room.requests()
        })
    };
    let (few, many) = (cost(4), cost(99));
    assert_eq!(few, many);
    assert!(few.values().sum::<u32>() <= 6, "{few:?}");
}

/// What a raise with drawn latencies comes to, to the last request and the last moment.
fn trace(seed: u64) -> String {
    in_virtual_time(async |clock| {
        let blueprint = crate::room::blueprint(&["pve"], castle_datacenter::Version::Nine).with_seed(seed);
        let room = Room::new(blueprint, &file(3, 2, "nodes: [pve]"), crate::room::door(clock));
        let report = room.up().await;
        done(&report);
        let took: Vec<_> =
            report.timeline.critical_path.iter().map(|span| (span.step.to_string(), span.worked)).collect();
        format!("{:?}\n{took:?}\n{:?}\n{}", clock.monotonic(), room.requests(), room.datacenter.look())
    })
}

#[test]
fn the_same_seed_gives_the_same_raise() {
    let first = trace(1);
    assert_eq!(first, trace(1));
    assert_ne!(first, trace(2));
}
