//! What looking at a castle that stands costs: counted, not timed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Asked, Called, Fate, Reply, Witness};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;

use crate::keep::{Keep, full, inside_only};
use crate::room::{done, door};

/// Counts what is asked, by who is.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<&'static str, u32>>);

impl Tally {
    fn note(&self, whom: &'static str) {
        *self.0.lock().unwrap().entry(whom).or_default() += 1;
    }

    fn take(&self) -> BTreeMap<&'static str, u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Witness for Tally {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        self.note("Proxmox");
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        self.note(if called.method.contains('/') { "Kubernetes" } else { "Talos" });
        Fate::Handled
    }
}

/// What a second `up` of a castle with so many workers asks, and in how many rounds: every answer takes one second, and nothing else
/// takes any time.
fn cost(workers: u32) -> (u64, BTreeMap<&'static str, u32>) {
    in_virtual_time(async |clock| {
        let one = Span::new(1.0, 1.0);
        let mut blueprint = inside_only(1);
        (blueprint.latencies.rest, blueprint.latencies.talos.call) = (one, one);
        blueprint.latencies.talos.kubernetes_call = one;
        let keep = Keep::new(blueprint, &full(3, workers), door(clock));
        done(&keep.up().await);
        // Of guests that are new more is asked: what the list says of them may be of those that had their numbers before.
        clock.sleep(Duration::from_secs(11 * 60)).await;
        let tally = Arc::new(Tally::default());
        keep.datacenter().watch(tally.clone());
        let begun = clock.monotonic();
        let again = keep.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        let rounds = (clock.monotonic() - begun + Duration::from_millis(500)).as_secs();
        (rounds, tally.take())
    })
}

#[test]
fn a_second_up_asks_little_and_few_things_one_after_the_other() {
    let (rounds, asked) = cost(2);
    assert!(rounds <= 37, "{rounds} rounds: {asked:?}");
    assert!(asked["Proxmox"] <= 13 && asked["Talos"] <= 46 && asked["Kubernetes"] <= 150, "{asked:?}");
    // Eight more workers are asked at the same time as the others.
    let (more_rounds, asked_of_more) = cost(10);
    assert_eq!(more_rounds, rounds);
    assert_eq!((asked_of_more["Proxmox"], asked_of_more["Kubernetes"]), (asked["Proxmox"], asked["Kubernetes"]));
}
