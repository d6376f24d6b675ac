//! What the patches of the nodes' configurations bring into the cluster before Flux begins, or let it serve.

use std::collections::BTreeSet;

use castle_gitops::World;
use castle_kubernetes::model::manifest;
use castle_secrets::Secret;
use castle_yaml as yaml;
use serde_json::Value;

/// The argument by which an API server is told what else to serve.
const RUNTIME_CONFIG: &str = "runtime-config";
/// Where a configuration names manifests by their addresses, which nobody reads here.
const NAMED: [&str; 3] =
    ["/cluster/extraManifests", "/cluster/network/cni/urls", "/cluster/externalCloudProvider/manifests"];

/// What patches of configurations switch on at the API server: `runtime-config` among its arguments, wherever a contract has them.
pub(super) fn runtime_config(patches: &[Secret]) -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    each(patches, |document| gather(document, &mut entries));
    entries
}

fn gather(value: &Value, entries: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, entries)),
        Value::Object(fields) => {
            for (key, value) in fields {
                gather(value, entries);
                if key == RUNTIME_CONFIG {
                    let texts = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                    let texts = texts.iter().filter_map(Value::as_str).flat_map(|text| text.split(','));
                    let on = texts.filter_map(|entry| match entry.trim().split_once('=') {
                        Some((name, "true")) => Some(name.to_owned()),
                        Some(_) => None,
                        None => Some(entry.trim().to_owned()),
                    });
                    entries.extend(on);
                }
            }
        }
        _ => {}
    }
}

/// Adds the objects that Talos applies once its API server serves, and that there are others, which only the nodes will read.
pub(super) fn bring(world: &mut World, patches: &[Secret]) {
    each(patches, |document| {
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        match document["kind"].as_str() {
            Some("KubeInlineManifestConfig") => inline(world, &text(document, "name"), &text(document, "manifest")),
            Some("KubeExternalManifestConfig") => named(world, "KubeExternalManifestConfig"),
            _ => {
                let manifests = document.pointer("/cluster/inlineManifests").and_then(Value::as_array);
                for manifest in manifests.into_iter().flatten() {
                    inline(world, &text(manifest, "name"), &text(manifest, "contents"));
                }
                let has = |pointer: &&&str| {
                    document.pointer(pointer).and_then(Value::as_array).is_some_and(|all| !all.is_empty())
                };
                for pointer in NAMED.iter().filter(has) {
                    named(world, &pointer.trim_start_matches('/').replace('/', "."));
                }
            }
        }
    });
}

fn inline(world: &mut World, name: &str, contents: &str) {
    match manifest(contents) {
        Ok(objects) => objects.iter().for_each(|object| world.find_object(object.value().clone())),
        Err(_) => world.unread.push(format!("the manifest {name} of the nodes' configurations, which cannot be read")),
    }
}

/// Addresses may hold passwords: where they are written is told, and not what is.
fn named(world: &mut World, place: &str) {
    world.unread.push(format!("the manifests that {place} of the nodes' configurations names"));
}

/// Looks at each document of the patches. What is wrong with them is told elsewhere.
fn each(patches: &[Secret], mut look: impl FnMut(&Value)) {
    for patch in patches {
        let mut documents = yaml::parse(patch.expose()).unwrap_or_default();
        documents.iter().for_each(&mut look);
        documents.iter_mut().for_each(yaml::wipe);
    }
}
