//! Embedded nodes, held against what a real one of Talos 1.13.9 answered: every line of the recordings is asked again of a node
//! in the same state, and what differs stands in a list, with the reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod base;
mod configurations;
mod differences;
mod probes;
mod replay;
mod told;

#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/castle.rs"]
mod castle;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../behaviour/site.rs"]
mod site;
mod tls;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/wire.rs"]
mod wire;

use std::path::Path;

/// A recording; nothing and a word about it where it is absent.
#[expect(clippy::disallowed_methods, reason = "recordings are on disk")]
fn recording(name: &str) -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/recordings").join(name);
    if !file.is_file() {
        castle_testkit::skipped(&format!("the recording {name} is not here"));
        return None;
    }
    Some(std::fs::read_to_string(file).unwrap())
}
