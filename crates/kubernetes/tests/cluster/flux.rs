//! Flux's part, played by hand where a test wants to decide what it does and when.

use std::collections::BTreeSet;

use castle_kubernetes::model::{Key, Object};
use serde_json::{Value, json};

use crate::room::{Room, object};

pub(crate) const KUSTOMIZATION: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/apps";

/// Where an object is.
pub(crate) async fn path(room: &Room, object: &Object) -> String {
    let served = room.api.discover().await.unwrap();
    let resource = served.resource(&object.kind()).unwrap_or_else(|| panic!("{object:?} is not served"));
    let kind = &resource.kind;
    let base = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let space = if resource.is_namespaced { format!("/namespaces/{}", object.namespace()) } else { String::new() };
    format!("{base}/{}{space}/{}/{}", kind.version, resource.plural, object.name())
}

/// Applies objects as the Kustomization `default/apps` does: by force, with its labels, unless it is kept from them.
pub(crate) async fn applies(room: &Room, objects: &[Object]) {
    for wanted in objects {
        let live = room.api.get(&wanted.kind(), wanted.namespace(), wanted.name()).await.unwrap();
        if live.is_some_and(|live| live.annotation("kustomize.toolkit.fluxcd.io/reconcile") == Some("disabled")) {
            continue;
        }
        let mut body = wanted.value().clone();
        body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("apps");
        body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/namespace"] = json!("default");
        let status = room.as_other("kustomize-controller", &path(room, wanted).await, &body).await;
        assert!(status < 300, "{wanted:?}: {status}");
    }
    lists(room, objects, &json!({})).await;
}

/// Tells in the status of the Kustomization that it has applied these objects, and more.
pub(crate) async fn lists(room: &Room, objects: &[Object], more: &Value) {
    if room.api.discover().await.unwrap().called("kustomizations").is_none() {
        let status = room.as_other("somebody", &path(room, &definition()).await, definition().value()).await;
        assert_eq!(status, 201);
    }
    let keys: BTreeSet<Key> = objects.iter().map(Object::key).collect();
    let id = |key: &Key| json!({"id": format!("{}_{}_{}_{}", key.namespace, key.name, key.group, key.kind), "v": "v1"});
    let mut body = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "apps"},
        "spec": {"suspend": false},
    });
    let mut status = json!({
        "conditions": [{"type": "Ready", "status": "True", "message": "Applied"}],
        "inventory": {"entries": keys.iter().map(id).collect::<Vec<_>>()},
        "lastAppliedRevision": "main@sha1:1", "lastAttemptedRevision": "main@sha1:1",
    });
    let mut is_seen = true;
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "suspend" => body["spec"]["suspend"] = value.clone(),
            "seen" => is_seen = value == true,
            field => status[field] = value.clone(),
        }
    }
    assert!(room.as_other("somebody", KUSTOMIZATION, &body).await < 300);
    let live = room.get("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "default", "apps").await.unwrap();
    let generation = live.number("/metadata/generation").unwrap();
    status["observedGeneration"] = json!(if is_seen { generation } else { generation - 1 });
    body["status"] = status;
    assert!(room.as_other("kustomize-controller", &format!("{KUSTOMIZATION}/status"), &body).await < 300);
}

/// Kustomizations of which nobody but the test takes care.
fn definition() -> Object {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "kustomizations.kustomize.toolkit.fluxcd.io"},
        "spec": {
            "group": "kustomize.toolkit.fluxcd.io", "scope": "Namespaced",
            "names": {
                "plural": "kustomizations", "singular": "kustomization", "kind": "Kustomization", "listKind": "KustomizationList",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}, "subresources": {"status": {}},
            }],
        },
    }))
}
