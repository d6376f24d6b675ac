//! The upstream manifests, applied by castle as a layer does.

use std::path::Path;

use castle_kubernetes::model::{Object, manifest};
use castle_kubernetes::steps::install;
use castle_seams::{Disk, SystemDisk};
use serde_json::json;

use crate::room::{Room, in_room, mark, object, well};

const FILES: [(&str, &str); 4] = [
    ("external-secrets", "external-secrets-v2.9.0.yaml"),
    ("metallb", "metallb-native-v0.16.1.yaml"),
    ("longhorn", "longhorn-v1.12.1.yaml"),
    ("flux", "flux-v2.9.0-components.yaml"),
];

/// The objects of a file of the mirror, or nothing where there is none (never in CI).
fn read(file: &str) -> Option<Vec<Object>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/mirror").join(file);
    match SystemDisk.read(&path, 16 << 20) {
        Ok(bytes) => Some(manifest(&String::from_utf8(bytes).unwrap()).unwrap()),
        Err(_) if std::env::var_os("CI").is_none() => None,
        Err(error) => panic!("{} cannot be read: {error}", path.display()),
    }
}

async fn converge(room: &Room, component: &str, objects: &[Object]) {
    well(&room.run(|graph, api| drop(install(graph, api, objects, &mark(component)))).await);
}

#[test]
fn everything_is_applied_once_and_a_second_time_changes_nothing() {
    let mut count = 0;
    in_room(async |room| {
        let namespace =
            object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "external-secrets"}}));
        for (component, file) in FILES {
            let Some(mut objects) = read(file) else {
                eprintln!("skipped: there is no mirror with {file}");
                return;
            };
            if component == "external-secrets" {
                objects.push(namespace.clone());
            }
            count += objects.len();
            converge(room, component, &objects).await;
            let kinds: std::collections::BTreeSet<String> =
                objects.iter().map(|object| object.kind().to_string()).collect();
            room.seen.take();
            converge(room, component, &objects).await;
            let asked = room.seen.take();
            let (looks, others): (Vec<String>, Vec<String>) =
                asked.into_iter().partition(|method| method.starts_with("GET"));
            assert!(others.iter().all(|method| method.starts_with("TRY")), "{component}: {others:?}");
            let lists = looks.iter().filter(|method| !method.ends_with("/api") && !method.ends_with("/apis")).count();
            // One list of each kind; beside them the inventory is read before and after, and the definitions for their gate.
            assert!(lists <= kinds.len() + 3, "{component}: {lists} looks at {} kinds", kinds.len());
        }
    });
    assert!(count == 0 || count == 154, "{count}");
}
