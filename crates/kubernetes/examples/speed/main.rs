//! How fast castle applies: the upstream manifests to the embedded API server, where nothing takes time, and once more when
//! nothing is to do.
//!
//! `cargo run --release -p castle-kubernetes --example speed -- PATH_OF_THE_MIRROR`
#![allow(clippy::print_stdout, reason = "it tells what it measured")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should say so and stop")]

#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../../../datacenter/tests/talos/castle.rs"]
mod castle;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../../tests/cluster/room.rs"]
mod room;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../../../datacenter/tests/behaviour/site.rs"]
mod site;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../../../datacenter/tests/talos/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::path::PathBuf;

use castle_kubernetes::model::{Object, Stage, manifest};
use castle_seams::{Clock, Disk, SystemClock, SystemDisk};
use serde_json::json;

use crate::room::{in_room, object, well};

const FILES: [&str; 4] = [
    "external-secrets-v2.9.0.yaml",
    "metallb-native-v0.16.1.yaml",
    "longhorn-v1.12.1.yaml",
    "flux-v2.9.0-components.yaml",
];

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder with upstream's manifests"));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "external-secrets"}});
    let mut objects = vec![object(namespace)];
    for file in FILES {
        let text = SystemDisk.read(&folder.join(file), 16 << 20).unwrap();
        objects.extend(manifest(&String::from_utf8(text).unwrap()).unwrap());
    }
    let kinds: BTreeSet<String> = objects.iter().map(|object| object.kind().to_string()).collect();
    println!("castle applies {} objects of {} kinds to the embedded API server", objects.len(), kinds.len());
    in_room(async |room| {
        for (round, wanted) in [("first", "wanted: at most 2"), ("again", "wanted: no change, a list of each kind")] {
            room.seen.take();
            let clock = SystemClock::new();
            let begun = clock.monotonic();
            for stage in Stage::ALL {
                let of_stage: Vec<Object> =
                    objects.iter().filter(|object| Stage::of(object) == stage).cloned().collect();
                well(&room.apply("all", &of_stage).await);
            }
            let took = (clock.monotonic() - begun).as_secs_f64();
            let asked = room.seen.take();
            let count = |words: &str| asked.iter().filter(|method| method.starts_with(words)).count();
            let lists = asked.iter().filter(|method| method.starts_with("GET /api") && method.matches('/').count() > 2);
            println!(
                "  {round}  {took:5.2} s  {} changes, {} tries, {} looks   {wanted}",
                count("PATCH"),
                count("TRY"),
                lists.count()
            );
        }
    });
}
