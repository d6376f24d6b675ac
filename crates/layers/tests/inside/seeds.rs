//! Goal: whatever time things take, every object is written once, none before the world is ready for it, none is refused, and a second
//! `up` finds nothing to do. Method: the cluster is there at once, and what happens inside of it takes drawn times; a scribe sees every
//! write and looks at the world when it comes.

use castle_testbed::in_virtual_time;

use crate::keep::{Keep, full, inside_only};
use crate::room::{done, door};
use crate::stands::fallen;

/// What a second `up` may ask of the API at most: of each component its inventory, one list of each kind, and its gates.
const FEW: u32 = 160;

/// Holds all of that for one castle, and that nothing is planned afterwards.
pub(crate) async fn hold(keep: &Keep, of: &str) {
    hold_twice(keep, of).await;
    done(&keep.foreseen().await);
}

/// Holds all of that for one castle.
async fn hold_twice(keep: &Keep, of: &str) {
    keep.found().await;
    keep.scribe.take();
    done(&keep.furnished().await);
    assert_eq!(fallen(keep), None, "{of}: `up` said done");
    let noted = keep.scribe.take();
    assert_eq!(noted.broken(), Vec::<String>::new(), "{of}");
    let objects: usize = keep.manifests.values().map(Vec::len).sum();
    assert!(noted.writes.len() >= objects, "{of}: {} writes for {objects} objects", noted.writes.len());
    let again = keep.furnished().await;
    done(&again);
    let noted = keep.scribe.take();
    assert_eq!((again.effects(), noted.writes.len()), (0, 0), "{of}: {:?}", noted.writes);
    assert!(noted.questions <= FEW, "{of}: {} questions", noted.questions);
}

fn seeds(seeds: std::ops::Range<u64>, control_planes: u32, workers: u32) {
    for seed in seeds {
        in_virtual_time(async |clock| {
            let keep = Keep::new(inside_only(seed), &full(control_planes, workers), door(clock));
            let of = format!("seed {seed}");
            // A plan asks what a second `up` asks: some of them are enough.
            if seed % 5 == 0 { hold(&keep, &of).await } else { hold_twice(&keep, &of).await }
        });
    }
}

// Five tests, for as many threads as there are.

#[test]
fn small_castles_of_twelve_seeds() {
    seeds(0..12, 1, 1);
}

#[test]
fn small_castles_of_twelve_more_seeds() {
    seeds(12..24, 1, 1);
}

#[test]
fn small_castles_of_eleven_seeds() {
    seeds(24..35, 1, 1);
}

#[test]
fn small_castles_of_eleven_more_seeds() {
    seeds(35..46, 1, 1);
}

/// In the first of these a definition takes almost ninety seconds to be established.
#[test]
fn full_castles_of_four_seeds() {
    seeds(100..104, 3, 2);
}
