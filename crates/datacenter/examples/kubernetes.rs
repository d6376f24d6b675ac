//! How fast the embedded API server is, and what it needs: the manifests of the mirror applied at zero latency, then 10,000
//! objects with 200 watches.
//!
//! `cargo run --release -p castle-datacenter --example kubernetes -- PATH_OF_THE_MIRROR`
#![allow(clippy::print_stdout, reason = "it tells what it measured")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should say so and stop")]

#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../tests/talos/castle.rs"]
mod castle;
#[allow(dead_code, reason = "shared with the tests of the API, which use more of it")]
#[path = "../tests/kubernetes/client.rs"]
mod client;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../tests/behaviour/site.rs"]
mod site;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../tests/talos/wire.rs"]
mod wire;

use std::path::Path;
use std::time::Duration;

use castle_seams::{Clock, Disk, SystemClock, SystemDisk};
use castle_testbed::in_virtual_time;
use serde_json::json;

use crate::castle::Wanted;
use crate::client::Client;
use crate::wire::Nodes;

/// How many objects are made.
const OBJECTS: u32 = 10_000;

/// The files, in the order in which they are applied.
const FILES: [&str; 4] = [
    "metallb-native-v0.16.1.yaml",
    "external-secrets-v2.9.0.yaml",
    "longhorn-v1.12.1.yaml",
    "flux-v2.9.0-components.yaml",
];

/// The plurals of the built-in kinds in these files that are not made by adding an `s`.
const PLURALS: [(&str, &str); 2] = [("NetworkPolicy", "networkpolicies"), ("PriorityClass", "priorityclasses")];

/// Kinds that are in no namespace.
const WIDE: [&str; 6] = [
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingWebhookConfiguration",
    "PriorityClass",
];

/// The first value of a key in a text of YAML, at this depth.
fn value<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(prefix)).map(|rest| rest.trim().trim_matches('"'))
}

/// Where an object is applied.
fn path(text: &str) -> Option<String> {
    let (version, kind, name) = (value(text, "apiVersion:")?, value(text, "kind:")?, value(text, "  name:")?);
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let known = PLURALS.iter().find(|(own, _)| *own == kind).map(|(_, plural)| (*plural).to_owned());
    let plural = known.unwrap_or_else(|| format!("{}s", kind.to_lowercase()));
    if WIDE.contains(&kind) {
        return Some(format!("{base}/{plural}/{name}"));
    }
    Some(format!("{base}/namespaces/{}/{plural}/{name}", value(text, "  namespace:").unwrap_or("default")))
}

/// The megabytes that this process has in memory.
fn memory() -> u64 {
    let status = SystemDisk.read(Path::new("/proc/self/status"), 1 << 16).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

async fn apply(api: &Client<'_>, folder: &Path) -> (usize, Duration) {
    let mut texts: Vec<String> =
        vec!["apiVersion: v1\nkind: Namespace\nmetadata:\n  name: external-secrets\n".to_owned()];
    for file in FILES {
        let text = SystemDisk.read(&folder.join(file), 8 << 20).unwrap();
        texts.extend(String::from_utf8(text).unwrap().split("\n---").map(|part| format!("{part}\n")));
    }
    let (clock, mut count) = (SystemClock::new(), 0);
    let begun = clock.monotonic();
    for text in &texts {
        let Some(path) = path(text) else { continue };
        let path = format!("{path}?fieldManager=bench&force=true");
        let (status, answer) = api.ask("PATCH", &path, "application/apply-patch+yaml", text).await.unwrap();
        assert!(status < 300, "{path}: {answer}");
        count += 1;
    }
    (count, clock.monotonic() - begun)
}

fn main() {
    let folder = std::env::args().nth(1).expect("the folder with upstream's manifests");
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let admin = nodes.castle.kubernetes_admin();
        let api = Client { datacenter: nodes.datacenter(), address: "10.0.0.1", certificate: &admin };
        for round in ["first", "second"] {
            let (count, took) = apply(&api, Path::new(&folder)).await;
            println!("{round} apply of {count} objects: {:.2} s; wanted: at most 2", took.as_secs_f64());
        }
        let before = memory();
        let maps = "/api/v1/namespaces/default/configmaps";
        let (_, list) = api.get(maps).await.unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let mut watches = Vec::new();
        for _ in 0..200 {
            let mut stream = api.watch(&format!("{maps}?watch=1&resourceVersion={version}")).await.unwrap();
            watches.push(tokio::spawn(async move {
                let mut seen = 0_u32;
                while seen < OBJECTS && stream.next().await.is_some() {
                    seen += 1;
                }
                seen
            }));
        }
        let real = SystemClock::new();
        let begun = real.monotonic();
        for number in 0..OBJECTS {
            let data = json!({ "key": "x".repeat(200) });
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") }, "data": data });
            let (status, answer) = api.ask("POST", maps, "application/json", &object.to_string()).await.unwrap();
            assert_eq!(status, 201, "{answer}");
        }
        let count = watches.len();
        for watch in watches {
            assert_eq!(watch.await.unwrap(), OBJECTS, "every watch is told everything");
        }
        println!("{OBJECTS} objects told to {count} watches: {:.2} s", (real.monotonic() - begun).as_secs_f64());
        println!("memory: {} MB before, {} MB after; wanted: at most 200", before, memory());
    });
}
