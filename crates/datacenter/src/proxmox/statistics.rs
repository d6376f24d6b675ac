//! Statistics over time. Nobody writes any down here, so that all but the latest moment is unknown, as it is of a new guest.

use serde_json::{Map, Value, json};

use super::api::Version;
use super::{Outcome, Request};
use crate::world::World;

/// The seconds between two rows of a time frame, and how many rows there are.
fn frame(version: Version, name: &str) -> (u64, u64) {
    match (version, name) {
        (Version::Eight, "day") => (60 * 30, 70),
        (Version::Eight, "week") => (60 * 180, 70),
        (Version::Eight, "month") => (60 * 720, 70),
        (Version::Eight, "year") => (60 * 10_080, 70),
        (Version::Nine, "hour" | "day") => (60, 1440),
        (Version::Nine, "week" | "month") => (60 * 30, 1440),
        (Version::Nine, "year") => (60 * 360, 1440),
        (Version::Nine, _) => (60 * 10_080, 570),
        _ => (60, 70),
    }
}

fn rows(world: &World, request: &Request, latest: &Map<String, Value>) -> Outcome {
    let (step, count) = frame(world.version, request.text("timeframe").unwrap_or("hour"));
    let last = world.epoch() / step * step;
    let rows = (0..count).map(|at| {
        let time = last.saturating_sub((count - 1 - at) * step);
        let mut row = if at + 1 == count { latest.clone() } else { Map::new() };
        row.insert("time".into(), json!(time));
        Value::from(row)
    });
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn of_node(world: &World, request: &Request) -> Outcome {
    let Some(host) = world.hosts.get(&request.host) else { return rows(world, request, &Map::new()) };
    let known = json!({
        "maxcpu": host.cores, "cpu": 0.02, "iowait": 0.0, "loadavg": 0.3, "memtotal": host.memory,
        "memused": world.memory_used(&host.name), "swaptotal": 0, "swapused": 0, "roottotal": 96_u64 << 30,
        "rootused": 8_u64 << 30, "netin": 0.0, "netout": 0.0,
    });
    rows(world, request, &known.as_object().cloned().unwrap_or_default())
}

pub(super) fn of_guest(world: &World, request: &Request) -> Outcome {
    // The vendor reads a file of statistics, whether there is such a guest or not.
    let guest = world.guests.get(&request.vmid());
    let known = guest.map(|guest| {
        let seen = world.observe(guest);
        json!({
            "maxcpu": seen.cores, "maxmem": seen.memory, "maxdisk": seen.disk, "disk": 0,
            "cpu": if seen.running { 0.01 } else { 0.0 }, "mem": if seen.running { seen.memory / 2 } else { 0 },
            "netin": 0.0, "netout": 0.0, "diskread": 0.0, "diskwrite": 0.0,
        })
    });
    rows(world, request, &known.and_then(|known| known.as_object().cloned()).unwrap_or_default())
}

pub(super) fn of_storage(world: &World, request: &Request) -> Outcome {
    let place = world.stores.place(&request.host, request.text("storage").unwrap_or_default())?;
    let (used, free) = (world.stores.used(&place), world.stores.free_bytes(&place));
    let known = Map::from_iter([("total".to_owned(), json!(used + free)), ("used".to_owned(), json!(used))]);
    rows(world, request, &known)
}
