//! The lives of objects: finalizers, owners, namespaces, definitions.

use serde_json::{Value, json};

use super::{Bench, deployment};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn config(name: &str, metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["name"] = json!(name);
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

pub(super) fn definition() -> Value {
    let spec = json!({ "type": "object", "required": ["cron"], "properties": {
        "cron": { "type": "string" }, "replicas": { "type": "integer", "default": 1 },
        "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": { "type": "object", "properties": { "phase": { "type": "string" } } } } });
    let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" });
    let version = json!({ "name": "v1", "served": true, "storage": true, "subresources": { "status": {}, "scale": scale }, "schema": { "openAPIV3Schema": schema } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "crons.x.io" },
        "spec": { "group": "x.io", "scope": "Namespaced", "names": { "plural": "crons", "kind": "Cron" }, "versions": [version] },
    })
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_taken_away() {
    let mut bench = Bench::new();
    bench.post(MAPS, &config("a", &json!({ "finalizers": ["example.com/hold"] })));
    let (code, object) = bench.delete(&format!("{MAPS}/a"));
    assert_eq!((code, object["kind"].as_str()), (200, Some("ConfigMap")));
    assert!(object["metadata"]["deletionTimestamp"].is_string());
    let (code, status) = bench.merge(
        &format!("{MAPS}/a"),
        &json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } }),
    );
    assert_eq!(code, 422);
    assert!(
        status["message"].as_str().unwrap().contains("no new finalizers can be added if the object is being deleted"),
        "{status}"
    );
    bench.merge(&format!("{MAPS}/a"), &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(bench.get(&format!("{MAPS}/a")).0, 404);
}

#[test]
fn dependents_follow_their_owner_unless_they_are_orphaned() {
    let mut bench = Bench::new();
    let own = |bench: &mut Bench, owner: &str, dependent: &str| {
        let (_, made) = bench.post(MAPS, &config(owner, &json!({})));
        let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": made["metadata"]["uid"], "blockOwnerDeletion": true }]);
        bench.post(MAPS, &config(dependent, &json!({ "ownerReferences": reference })));
    };
    own(&mut bench, "a", "of-a");
    let (_, status) = bench.delete(&format!("{MAPS}/a"));
    assert_eq!((status["status"].as_str(), status["details"]["name"].as_str()), (Some("Success"), Some("a")));
    assert_eq!(bench.get(&format!("{MAPS}/of-a")).0, 404);
    own(&mut bench, "b", "of-b");
    bench.delete(&format!("{MAPS}/b?propagationPolicy=Orphan"));
    assert_eq!(bench.get(&format!("{MAPS}/b")).0, 404);
    assert_eq!(bench.get(&format!("{MAPS}/of-b")).1["metadata"].get("ownerReferences"), None);
    own(&mut bench, "c", "of-c");
    let reply = bench.ask("DELETE", &format!("{MAPS}/c?propagationPolicy=Foreground"), "", "");
    assert!(format!("{reply:?}").contains("foregroundDeletion"));
    bench.settle();
    assert_eq!((bench.get(&format!("{MAPS}/c")).0, bench.get(&format!("{MAPS}/of-c")).0), (404, 404));
}

#[test]
fn a_precondition_that_does_not_hold_keeps_an_object() {
    let mut bench = Bench::new();
    let (_, made) = bench.post(MAPS, &config("a", &json!({})));
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let (code, status, _) =
        bench.told("DELETE", &format!("{MAPS}/a"), "application/json", r#"{"preconditions":{"uid":"x"}}"#);
    let told = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match the UID in record ({uid}). The object \
         might have been deleted and then recreated"
    );
    assert_eq!((code, status["message"].as_str()), (409, Some(told.as_str())));
}

#[test]
fn a_namespace_ends_with_all_that_is_in_it() {
    let mut bench = Bench::new();
    bench.post("/api/v1/namespaces", &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
    let maps = "/api/v1/namespaces/n/configmaps";
    assert_eq!(bench.get(&format!("{maps}/kube-root-ca.crt")).0, 200);
    assert_eq!(bench.get("/api/v1/namespaces/n/serviceaccounts/default").0, 200);
    bench.post(maps, &config("held", &json!({ "finalizers": ["example.com/hold"] })));
    bench.post(maps, &config("free", &json!({})));
    bench.delete("/api/v1/namespaces/n");
    let (_, namespace) = bench.get("/api/v1/namespaces/n");
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let said = |kind: &str| {
        let all = namespace["status"]["conditions"].as_array().unwrap();
        all.iter().find(|it| it["type"] == kind).map(|it| (it["status"].clone(), it["message"].clone())).unwrap()
    };
    assert_eq!(
        said("NamespaceContentRemaining"),
        (json!("True"), json!("Some resources are remaining: configmaps. has 1 resource instances"))
    );
    let told = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    assert_eq!(said("NamespaceFinalizersRemaining"), (json!("True"), json!(told)));
    let (code, status) = bench.post(maps, &config("late", &json!({})));
    let told =
        "configmaps \"late\" is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!((code, status["message"].as_str()), (403, Some(told)));
    bench.merge(&format!("{maps}/held"), &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(bench.get("/api/v1/namespaces/n").0, 404);
}

#[test]
fn a_definition_is_served_once_it_is_established_and_goes_with_its_objects() {
    let mut bench = Bench::with_factor(1.0);
    bench.pass(1.0);
    bench.post(DEFINITIONS, &definition());
    let crons = "/apis/x.io/v1/namespaces/default/crons";
    assert_eq!(bench.get(crons).1, json!("404 page not found\n"));
    bench.pass(5.0);
    let (_, established) = bench.get(&format!("{DEFINITIONS}/crons.x.io"));
    let types: Vec<&str> =
        established["status"]["conditions"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["NamesAccepted", "Established"]);
    let cron =
        |spec: Value| json!({ "apiVersion": "x.io/v1", "kind": "Cron", "metadata": { "name": "a" }, "spec": spec });
    let (code, status) = bench.post(crons, &cron(json!({})));
    assert_eq!(
        (code, status["message"].as_str()),
        (422, Some("Cron.x.io \"a\" is invalid: spec.cron: Required value"))
    );
    let (code, made, warnings) = bench.told(
        "POST",
        crons,
        "application/json",
        &cron(json!({ "cron": "1", "bad": 1, "any": { "q": 1 } })).to_string(),
    );
    assert_eq!((code, &made["spec"]), (201, &json!({ "cron": "1", "any": { "q": 1 }, "replicas": 1 })));
    assert_eq!(warnings, ["unknown field \"spec.bad\""]);
    let (_, status) =
        bench.merge(&format!("{crons}/a/status"), &json!({ "status": { "phase": "Run" }, "spec": { "cron": "7" } }));
    assert_eq!((status["spec"]["cron"].as_str(), status["status"]["phase"].as_str()), (Some("1"), Some("Run")));
    let (_, scale) = bench.merge(&format!("{crons}/a/scale"), &json!({ "spec": { "replicas": 5 } }));
    assert_eq!((scale["kind"].as_str(), &scale["spec"]), (Some("Scale"), &json!({ "replicas": 5 })));
    let (code, status) = bench.apply("m", &format!("{crons}/a"), &cron(json!({ "cron": "2", "foo": 1 })));
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "failed to create typed patch object (/a; x.io/v1, Kind=Cron): .spec.foo: field not declared in schema"
    );
    bench.delete(&format!("{DEFINITIONS}/crons.x.io"));
    bench.pass(5.0);
    assert_eq!(bench.get(&format!("{DEFINITIONS}/crons.x.io")).0, 404);
    assert_eq!(bench.get(crons).0, 404);
}

#[test]
fn a_deployment_that_is_deleted_takes_its_pods_along() {
    let mut bench = Bench::new();
    bench.node("n1");
    let path = "/apis/apps/v1/namespaces/default/deployments";
    bench.post(path, &deployment("d", 2));
    assert_eq!(bench.get("/api/v1/namespaces/default/pods").1["items"].as_array().unwrap().len(), 2);
    bench.delete(&format!("{path}/d"));
    assert_eq!(bench.get("/api/v1/namespaces/default/pods").1["items"], json!([]));
    assert_eq!(bench.get("/apis/apps/v1/replicasets").1["items"], json!([]));
}
