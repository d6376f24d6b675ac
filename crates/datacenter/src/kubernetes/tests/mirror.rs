//! The manifests that people really install.

use serde_json::Value;

use super::Bench;
use crate::kubernetes::body;

/// The documents of a file of the mirror; nothing where there is no mirror.
fn documents(file: &str) -> Option<Vec<Value>> {
    let text = castle_testbed::oracle_text(&format!("mirror/{file}"))?;
    let parts = text
        .split("\n---")
        .map(|part| part.trim_start_matches("---"))
        .filter(|part| part.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')));
    Some(parts.map(|part| body::yaml(part.as_bytes()).unwrap().value).filter(Value::is_object).collect())
}

/// Where an object is applied.
fn path(bench: &Bench, object: &Value) -> String {
    let text = |path: &str| crate::kubernetes::value::text(object, path).to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = bench.kube.resources().find(|it| it.group == group && it.version == version && it.kind == kind);
    let resource = resource.unwrap_or_else(|| panic!("{api_version} {kind} is not served"));
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = text("metadata.namespace");
    let place = if resource.is_namespaced {
        format!("/namespaces/{}", if namespace.is_empty() { "default" } else { &namespace })
    } else {
        String::new()
    };
    format!("{base}{place}/{}/{}", resource.plural, text("metadata.name"))
}

#[test]
fn all_of_it_is_applied_and_applying_it_again_changes_nothing() {
    let mut bench = Bench::new();
    let namespace =
        serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "external-secrets" } });
    bench.post("/api/v1/namespaces", &namespace);
    let files = [
        "metallb-native-v0.16.1.yaml",
        "external-secrets-v2.9.0.yaml",
        "longhorn-v1.12.1.yaml",
        "flux-v2.9.0-components.yaml",
    ];
    let mut all = Vec::new();
    for file in files {
        let Some(mut objects) = documents(file) else { return };
        objects.iter_mut().for_each(crate::kubernetes::value::without_nulls);
        all.append(&mut objects);
    }
    assert_eq!(all.len(), 153);
    // Who applies nothing but a name owns nothing, and finds somebody who does the second time: as on the real server.
    for round in 0..3 {
        let before = bench.kube.store.revision();
        for object in &all {
            let path = path(&bench, object);
            let (code, answer) = bench.apply("castle", &format!("{path}?fieldValidation=Strict"), object);
            assert_eq!(code, if round == 0 { 201 } else { 200 }, "{path}: {answer}");
            assert!(round < 2 || bench.kube.store.revision() == before, "{path} was changed by applying it again");
        }
    }
}
