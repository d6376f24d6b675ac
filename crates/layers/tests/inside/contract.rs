//! Goal: whichever write is the last of a process, the next one ends where an undisturbed one does, and nothing is written twice. Method:
//! a castle with all components is furnished by a process that dies at a write, before or after it; every so many writes, for each costs
//! a castle.

use std::sync::{Arc, Mutex};

use castle_datacenter::{Asked, Called, Fate, Reply, Witness};
use castle_engine::Report;
use castle_testbed::{ModelDisk, Moment, Pulse, VirtualClock, contract, in_virtual_time};

use crate::keep::{BLUE, Keep, full, inside_only};
use crate::room::{done, door};
use crate::stands::fallen;

/// How many deaths are tried.
const DEATHS: u64 = 12;

/// Lets a process die at a write, and notes the writes that were had.
struct Reaper {
    pulse: Pulse,
    had: Arc<Mutex<Vec<String>>>,
}

impl Witness for Reaper {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        if !called.is_change || !called.method.contains(" /api") {
            return Fate::Handled;
        }
        let mut is_had = false;
        let is_alive = self.pulse.effect(|| is_had = true).is_some();
        if is_had {
            self.had.lock().unwrap().push(called.method.clone());
        }
        match (is_had, is_alive) {
            (false, _) => Fate::LostBefore,
            (true, false) => Fate::LostAfter,
            (true, true) => Fate::Handled,
        }
    }
}

/// A process that furnishes the castle; nothing if it died.
async fn process(keep: &Keep, clock: &VirtualClock, pulse: &Pulse, had: &Arc<Mutex<Vec<String>>>) -> Option<Report> {
    keep.datacenter().unwatch();
    keep.datacenter().watch(Arc::new(Reaper { pulse: pulse.clone(), had: had.clone() }));
    let graph = keep.inner(keep.access().await);
    contract::converge(&graph, &ModelDisk::new(&Pulse::new()), pulse, clock, 1).await
}

/// The objects whose names are not drawn.
fn objects(keep: &Keep) -> Vec<(String, String)> {
    const DRAWN: [&str; 6] = [
        "pods",
        "replicasets.apps",
        "events",
        "endpointslices.discovery.k8s.io",
        "secrets",
        "controllerrevisions.apps",
    ];
    let all = keep.datacenter().look().objects.into_keys().map(|(_, collection, place)| (collection, place));
    all.filter(|(collection, _)| !DRAWN.contains(&collection.as_str())).collect()
}

/// What a castle comes to whose process dies at this write: its objects, and the writes that were had, in order of their names.
fn furnished(death: Option<(u64, Moment)>) -> (Vec<(String, String)>, Vec<String>, u64) {
    in_virtual_time(async |clock| {
        let keep = Keep::new(inside_only(3), &full(1, 1), door(clock));
        keep.found().await;
        let had = Arc::default();
        if let Some((beat, moment)) = death {
            let lived = process(&keep, clock, &Pulse::killed_at(beat, moment), &had).await;
            assert!(lived.is_none(), "killed {moment:?} write {beat}: it lived on");
        }
        let pulse = Pulse::new();
        done(&process(&keep, clock, &pulse, &had).await.unwrap());
        assert_eq!(fallen(&keep), None, "{death:?}");
        assert!(keep.datacenter().object(BLUE, "configmaps", "default", "word").is_some());
        let mut had = had.lock().unwrap().clone();
        had.sort();
        (objects(&keep), had, pulse.beats())
    })
}

#[test]
fn whoever_dies_at_a_write_is_followed_by_one_who_ends_it() {
    let (usual, writes, beats) = furnished(None);
    assert!(beats > 100, "{beats} writes");
    for death in 0..DEATHS {
        let beat = death * beats / DEATHS + death % 3;
        let moment = if death % 2 == 0 { Moment::Before } else { Moment::After };
        let (objects, had, _) = furnished(Some((beat, moment)));
        assert_eq!(had, writes, "killed {moment:?} write {beat} of {beats}");
        assert_eq!(objects, usual, "killed {moment:?} write {beat} of {beats}");
    }
}
