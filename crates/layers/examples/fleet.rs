//! What it costs to raise and to look at many machines: against the embedded datacenter, without latencies where castle itself is
//! measured, and with them where the whole is.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this measures real time")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]
#![allow(dead_code, reason = "the room has more than is measured")]

#[path = "../tests/platform/room.rs"]
mod room;

use std::sync::Arc;
use std::time::Instant;

use castle_datacenter::{Blueprint, Latencies, Version};
use castle_seams::{Clock, SystemClock};
use castle_testbed::in_virtual_time;

use crate::room::{Room, blueprint, done, file};

/// A host that is large enough for everything.
fn large() -> Blueprint {
    let mut blueprint = blueprint(&["pve"], Version::Nine);
    blueprint.hosts[0].memory = 16 << 40;
    blueprint.storages.iter_mut().for_each(|storage| storage.total = 1 << 50);
    blueprint
}

/// Raises so many machines without latencies, and then plans; returns milliseconds and requests of the plan.
async fn plan(count: u32) -> (f64, u32) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let room = Room::unjudged(large().with_latencies(Latencies::none()), &file(1, count - 1, "nodes: [pve]"), clock);
    done(&room.up().await);
    room.requests();
    let start = Instant::now();
    done(&room.plan(false).await);
    (start.elapsed().as_secs_f64() * 1e3, room.requests().values().sum())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("planning a castle that stands, against the datacenter without latencies");
    let few = runtime.block_on(plan(5));
    let many = runtime.block_on(plan(500));
    println!("  5 machines       {:7.1} ms, {} requests", few.0, few.1);
    println!(
        "  500 machines     {:7.1} ms, {} requests; wanted: at most 1000 ms, and as many requests",
        many.0, many.1
    );
    println!("raising machines with the published latencies, in virtual time");
    for (control_planes, workers) in [(3, 2), (3, 17)] {
        in_virtual_time(async |clock| {
            let room = Room::unjudged(large(), &file(control_planes, workers, "nodes: [pve]"), Arc::new(*clock));
            let report = room.up().await;
            done(&report);
            let path: f64 = report.timeline.critical_path.iter().map(|span| span.worked.as_secs_f64()).sum();
            let total = clock.monotonic().as_secs_f64();
            let count = control_planes + workers;
            println!("  {count:<3} machines     {total:7.1} s, of which the critical path {path:.1} s");
        });
    }
}
