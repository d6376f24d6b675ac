//! What is refused, and in which words: as a real server of 1.36 said them.

use serde_json::json;

use super::Bench;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn check(method: &str, path: &str, kind: &str, body: &str, code: u16, message: &str) {
    let mut bench = Bench::new();
    bench.post(
        MAPS,
        &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": "1" } }),
    );
    let (got, status, _) = bench.told(method, path, kind, body);
    let told = status.get("message").cloned().unwrap_or(status);
    assert_eq!((got, told.as_str().unwrap_or_default()), (code, message), "{method} {path} {body}");
}

const JSON: &str = "application/json";

#[test]
fn paths_that_lead_nowhere() {
    let resource = "the server could not find the requested resource";
    check("GET", "/api/v1/foo", "", "", 404, resource);
    check("GET", "/apis/apps/v1/nope", "", "", 404, resource);
    check("GET", "/apis/foo/v1/bars", "", "", 404, "404 page not found\n");
    check("GET", "/foo", "", "", 404, "404 page not found\n");
    check("GET", &format!("{MAPS}/none"), "", "", 404, "configmaps \"none\" not found");
    let method = "the server does not allow this method on the requested resource";
    check("DELETE", "/api/v1/namespaces", "", "", 405, method);
    check("POST", &format!("{MAPS}/a"), JSON, "{}", 405, method);
}

#[test]
fn bodies_that_are_no_object_of_the_kind() {
    let object = |text: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",{text}}}");
    check("POST", MAPS, JSON, &object("\"metadata\":{\"name\":\"a\"}"), 409, "configmaps \"a\" already exists");
    check(
        "POST",
        "/api/v1/namespaces/nons/configmaps",
        JSON,
        &object("\"metadata\":{\"name\":\"a\"}"),
        404,
        "namespaces \"nons\" not found",
    );
    let told = "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion";
    check("POST", MAPS, JSON, r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#, 400, told);
    let told = "the namespace of the provided object does not match the namespace sent on the request";
    check("POST", MAPS, JSON, &object("\"metadata\":{\"name\":\"b\",\"namespace\":\"kube-system\"}"), 400, told);
    let told = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    check("POST", MAPS, JSON, &object("\"metadata\":{}"), 422, told);
    let told = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid \
                character 'g' looking for beginning of value (67617262616765)";
    check("POST", MAPS, JSON, "garbage", 400, told);
    let told = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf";
    check("POST", MAPS, "text/plain", "x", 415, told);
    let told = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"metadata.foo\", duplicate \
                field \"data.x\", unknown field \"bar\"";
    let body = object("\"metadata\":{\"name\":\"s\",\"foo\":1},\"data\":{\"x\":\"1\",\"x\":\"2\"},\"bar\":1");
    check("POST", &format!("{MAPS}?fieldValidation=Strict"), JSON, &body, 400, told);
    let told =
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"foo\"]: supported values: \"All\"";
    check("POST", &format!("{MAPS}?dryRun=foo"), JSON, &object("\"metadata\":{\"name\":\"b\"}"), 422, told);
}

#[test]
fn changes_that_do_not_fit() {
    let path = format!("{MAPS}/a");
    let told = "the name of the object (b) does not match the name on the URL (a)";
    check("PUT", &path, JSON, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}"#, 400, told);
    let told = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version \
                and try again";
    check(
        "PUT",
        &path,
        JSON,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"}}"#,
        409,
        told,
    );
    let told = "the server rejected our request due to an error in our request";
    check("PATCH", &path, "application/json-patch+json", r#"[{"op":"test","path":"/data/x","value":"9"}]"#, 422, told);
    check("PATCH", &path, "application/foo", "{}", 415, "415: Unsupported Media Type");
}

#[test]
fn lists_that_cannot_be_told() {
    let told = "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    check("GET", &format!("{MAPS}?fieldSelector=data.x%3D1"), "", "", 400, told);
    check("GET", &format!("{MAPS}?fieldSelector=foo"), "", "", 400, "invalid selector: 'foo'; can't understand 'foo'");
    let told = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    check("GET", &format!("{MAPS}?resourceVersion=abc"), "", "", 400, told);
    let told = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion \
                is provided";
    check("GET", &format!("{MAPS}?resourceVersionMatch=Exact"), "", "", 422, told);
}

#[test]
fn objects_that_are_wrong_in_themselves() {
    let told = "Deployment.apps \"d\" is invalid: [spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` \
                does not match template `labels`, spec.template.spec.containers: Required value]";
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2}}"#;
    check("POST", "/apis/apps/v1/namespaces/default/deployments", JSON, body, 422, told);
    let told = "Secret \"s\" is invalid: [data[tls.crt]: Required value, data[tls.key]: Required value]";
    let body =
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"kubernetes.io/tls","data":{"a":"eA=="}}"#;
    check("POST", "/api/v1/namespaces/default/secrets", JSON, body, 422, told);
    let told = "PersistentVolumeClaim \"w\" is invalid: [spec.accessModes: Required value: at least 1 access mode is required, \
                spec.resources[storage]: Required value]";
    let body = r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"w"},"spec":{}}"#;
    check("POST", "/api/v1/namespaces/default/persistentvolumeclaims", JSON, body, 422, told);
    let told = "Job.batch \"j\" is invalid: spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"";
    let body = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"template":{"spec":{"containers":[{"name":"a","image":"x"}]}}}}"#;
    check("POST", "/apis/batch/v1/namespaces/default/jobs", JSON, body, 422, told);
}

#[test]
fn an_object_that_is_too_large() {
    let mut bench = Bench::new();
    let schema = json!({ "type": "object", "description": "a".repeat(2_000_000) });
    let versions = json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]);
    let (code, status) = bench.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "xs.x.io" },
        "spec": { "group": "x.io", "scope": "Namespaced", "names": { "plural": "xs", "kind": "X" }, "versions": versions },
    }));
    assert_eq!(
        (code, status["message"].as_str(), status.get("reason")),
        (500, Some("etcdserver: request is too large"), None)
    );
    let big = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "big" }, "data": { "x": "a".repeat(1_100_000) } });
    let (code, status) = bench.post(MAPS, &big);
    assert_eq!(
        (code, status["message"].as_str()),
        (422, Some("ConfigMap \"big\" is invalid: []: Too long: may not be more than 1048576 bytes"))
    );
}

#[test]
fn pods_that_their_namespace_does_not_allow() {
    let mut bench = Bench::new();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "hostNetwork": true, "containers": [{ "name": "a", "image": "x" }] } });
    let (code, status) = bench.post("/api/v1/namespaces/default/pods", &pod);
    let told = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!((code, status["message"].as_str()), (403, Some(told)));
    bench.merge(
        "/api/v1/namespaces/default",
        &json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } }),
    );
    let (code, _, warnings) = bench.told("POST", "/api/v1/namespaces/default/pods", JSON, &pod.to_string());
    assert_eq!(code, 201);
    assert!(
        warnings[0].starts_with("would violate PodSecurity \"restricted:latest\": host namespaces"),
        "{warnings:?}"
    );
}
