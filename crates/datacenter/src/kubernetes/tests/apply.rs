//! Who owns what.

use serde_json::{Value, json};

use super::Bench;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config(data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

fn at(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    entries.iter().map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone())).collect()
}

#[test]
fn a_field_of_another_is_a_conflict_unless_it_is_taken_by_force() {
    let mut bench = Bench::new();
    assert_eq!(bench.post(MAPS, &config(&json!({ "x": "1" }))).0, 201);
    let (code, status) = bench.apply("m", &at("a"), &config(&json!({ "x": "2" })));
    assert_eq!(code, 409);
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"test\" using v1: .data.x");
    let cause =
        json!([{ "reason": "FieldManagerConflict", "message": "conflict with \"test\" using v1", "field": ".data.x" }]);
    assert_eq!(status["details"], json!({ "causes": cause }));
    let (code, object) = bench.apply("m", &format!("{}?force=true", at("a")), &config(&json!({ "x": "2" })));
    assert_eq!((code, &object["data"]), (200, &json!({ "x": "2" })));
    let expected = [
        ("m".to_owned(), "Apply".to_owned(), json!({ "f:data": { "f:x": {} } })),
        ("test".to_owned(), "Update".to_owned(), json!({ "f:data": {} })),
    ];
    assert_eq!(owners(&object), expected);
}

#[test]
fn equal_values_are_shared_and_stay_with_the_other() {
    let mut bench = Bench::new();
    bench.apply("one", &at("a"), &config(&json!({ "x": "1", "y": "1" })));
    let (code, _) = bench.apply("two", &at("a"), &config(&json!({ "x": "1" })));
    assert_eq!(code, 200);
    let (_, object) = bench.apply("one", &at("a"), &config(&json!({})));
    assert_eq!(object["data"], json!({ "x": "1" }), "what is shared stays, what was one's own goes");
    let (_, object) = bench.apply("two", &at("a"), &config(&json!({})));
    assert_eq!(object.get("data"), None);
}

#[test]
fn the_same_again_changes_nothing() {
    let mut bench = Bench::new();
    let (code, first) = bench.apply("m", &at("a"), &config(&json!({ "x": "1" })));
    assert_eq!(code, 201);
    bench.pass(30.0);
    let (code, second) = bench.apply("m", &at("a"), &config(&json!({ "x": "1" })));
    assert_eq!((code, &second), (200, &first));
    let (_, third) = bench.merge(&at("a"), &json!({ "data": { "x": "1" } }));
    assert_eq!(third, first);
}

#[test]
fn who_first_applies_finds_what_was_there_before() {
    let mut bench = Bench::new();
    bench.post(MAPS, &config(&json!({ "x": "1" })));
    bench.merge(&at("a"), &json!({ "metadata": { "managedFields": [{}] } }));
    let (_, bare) = bench.get(&at("a"));
    assert_eq!(bare["metadata"].get("managedFields"), None);
    let (_, object) = bench.apply("m", &at("a"), &config(&json!({ "y": "1" })));
    let names: Vec<String> = owners(&object).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["m", "before-first-apply"]);
}

#[test]
fn a_dry_run_leaves_everything_as_it_is() {
    let mut bench = Bench::new();
    let (code, object) = bench.apply("m", &format!("{}?dryRun=All", at("a")), &config(&json!({ "x": "1" })));
    assert_eq!((code, object["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(bench.get(&at("a")).0, 404);
}

#[test]
fn what_the_schema_does_not_know_cannot_be_applied() {
    let mut bench = Bench::new();
    let mut object = config(&json!({ "x": 2 }));
    object["foo"] = json!(1);
    let (code, status) = bench.apply("m", &at("a"), &object);
    let told = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): errors:\n  .data.x: expected string, got \
                &value.valueUnstructured{Value:2}\n  .foo: field not declared in schema";
    assert_eq!((code, status["message"].as_str()), (500, Some(told)));
    let (code, status) = bench.told_apply_without_manager(&at("a"));
    assert_eq!(code, 422);
    let told = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(status["message"], told);
}

#[test]
fn defaults_belong_to_nobody_who_applies() {
    let mut bench = Bench::new();
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let (code, object) = bench.apply("m", path, &super::deployment("d", 1));
    assert_eq!(code, 201);
    let container = json!({ ".": {}, "f:image": {}, "f:name": {} });
    let expected = json!({ "f:spec": {
        "f:replicas": {}, "f:selector": {},
        "f:template": { "f:metadata": { "f:labels": { "f:app": {} } }, "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": container } } },
    } });
    assert_eq!(owners(&object)[0].2, expected);
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn who_creates_owns_the_defaults_too() {
    let mut bench = Bench::new();
    let (_, object) = bench.post("/api/v1/namespaces/default/services", &json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "selector": { "a": "b" } },
    }));
    let expected = json!({ "f:spec": {
        "f:allocateLoadBalancerNodePorts": {}, "f:externalTrafficPolicy": {}, "f:internalTrafficPolicy": {},
        "f:ports": { ".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {} } },
        "f:selector": {}, "f:sessionAffinity": {}, "f:type": {},
    } });
    assert_eq!(owners(&object)[0].2, expected);
    assert_eq!(object["status"], json!({ "loadBalancer": {} }));
    assert!(object["spec"]["ports"][0]["nodePort"].as_i64().unwrap() >= 30_000);
}

impl Bench {
    fn told_apply_without_manager(&mut self, path: &str) -> (u16, Value) {
        let (code, object, _) =
            self.told("PATCH", path, "application/apply-patch+yaml", &config(&json!({})).to_string());
        (code, object)
    }
}
