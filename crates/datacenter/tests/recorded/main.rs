//! The embedded hypervisor held against what real ones answered: every recorded request is sent again, in its order, and every
//! difference is either mended or stands in a list with its reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod compare;
mod differences;
mod probes;
mod replay;

use castle_datacenter::Version;
use castle_testbed::in_virtual_time;

use compare::Difference;
use differences::{LISTED, Listed};
use probes::Probe;
use replay::Hypervisor;

/// How many requests each recording has.
const RECORDED: usize = 179;

/// What differs without being listed, and what is listed without differing.
fn judged(found: &[Difference]) -> Vec<String> {
    let new = found.iter().filter(|difference| !LISTED.iter().any(|entry| entry.covers(difference)));
    let new = new.map(|it| format!("{} {}: recorded {}, here {}", it.probe, it.place, it.recorded, it.here));
    let pairs = LISTED.iter().flat_map(|entry| entry.probes.split(' ').map(move |probe| (probe, entry)));
    let differs = |probe: &str, entry: &Listed| found.iter().any(|it| it.probe == probe && entry.covers(it));
    let idle = pairs.filter(|(probe, entry)| !differs(probe, entry));
    new.chain(idle.map(|(probe, entry)| format!("{probe} {} is listed, but does not differ", entry.place))).collect()
}

fn replayed(version: Version, recording: &str) {
    let probes: Vec<Probe> = serde_json::from_str(recording).unwrap();
    assert_eq!(probes.len(), RECORDED);
    in_virtual_time(async |clock| {
        let hypervisor = Hypervisor::new(version, clock);
        let mut found = Vec::new();
        for probe in &probes {
            let answered: Probe = hypervisor.answer(probe).await;
            found.extend(compare::differences(probe, &answered));
        }
        let wrong = judged(&found);
        assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    });
}

#[test]
fn what_8_4_21_answered_is_answered() {
    replayed(Version::Eight, include_str!("../recordings/pve-8.4.21.json"));
}

#[test]
fn what_9_2_11_answered_is_answered() {
    replayed(Version::Nine, include_str!("../recordings/pve-9.2.11.json"));
}
