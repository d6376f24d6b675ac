//! The same promises with upstream's manifests, where a mirror has them.

use castle_testbed::in_virtual_time;

use crate::keep::{Keep, full, inside_only, mirror};
use crate::room::door;
use crate::seeds::hold;

/// Holds the promises with upstream's manifests.
fn upstream(seed: u64, control_planes: u32, workers: u32) {
    let Some(folder) = mirror() else { return };
    in_virtual_time(async |clock| {
        let file = full(control_planes, workers);
        let keep = Keep::supplied(inside_only(seed), &file, door(clock), Some(&folder));
        hold(&keep, &format!("seed {seed}, upstream's manifests")).await;
    });
}

#[test]
fn a_small_castle_of_upstreams_manifests() {
    upstream(1, 1, 1);
}

#[test]
fn a_full_castle_of_upstreams_manifests() {
    upstream(2, 3, 2);
}

#[test]
fn a_castle_without_workers_of_upstreams_manifests() {
    upstream(3, 1, 0);
}
