//! Webhooks: the ways to fail, and to have a say.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Bench;
use crate::kubernetes::webhooks::served::{Asked, Verdict, Webhook};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

fn webhook(name: &str, bundle: &str) -> Value {
    let service = json!({ "name": "hook", "namespace": "default", "path": "/judge" });
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"] });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } });
    json!({
        "name": name, "clientConfig": { "service": service, "caBundle": STANDARD.encode(bundle) }, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": selector,
    })
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "w" }, "webhooks": webhooks,
    })
}

fn judging(bundle: &str) -> Value {
    configuration("ValidatingWebhookConfiguration", &[webhook("judge.example.com", bundle)])
}

fn make(bench: &mut Bench, name: &str) -> (u16, String) {
    let (code, status) =
        bench.post(MAPS, &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } }));
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

fn issue(bench: &mut Bench, names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let issued = bench.kube.issue_certificate(&names).unwrap();
    (issued.authority, issued.certificate)
}

/// A cluster with a service `hook` that leads to a pod that is ready.
fn with_service() -> Bench {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post("/api/v1/namespaces/default/services", &json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": 443 }], "selector": { "app": "hook" } },
    }));
    bench.post("/apis/apps/v1/namespaces/default/deployments", &super::deployment("hook", 1));
    bench
}

/// Serves behind the service in this way from now on.
fn serve(bench: &mut Bench, certificate: &str, handler: impl Fn(&Asked<'_>) -> Verdict + Send + Sync + 'static) {
    let webhook = Webhook::new(handler);
    webhook.listen(certificate);
    bench.kube.hooks.insert("default/hook".to_owned(), webhook);
}

const PREFIX: &str = "Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post \
                      \"https://hook.default.svc:443/judge?timeout=10s\": ";

#[test]
fn a_webhook_fails_in_every_way_and_then_decides() {
    let mut bench = Bench::new();
    bench.node("n1");
    let (authority, certificate) = issue(&mut bench, &["hook.default.svc"]);
    assert_eq!(bench.post(VALIDATING, &judging(&authority)).0, 201);
    assert_eq!(make(&mut bench, "a"), (500, format!("{PREFIX}service \"hook\" not found")));
    bench.post("/api/v1/namespaces/default/services", &json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": 443 }], "selector": { "app": "hook" } },
    }));
    assert_eq!(make(&mut bench, "a"), (500, format!("{PREFIX}no endpoints available for service \"hook\"")));
    bench.post("/apis/apps/v1/namespaces/default/deployments", &super::deployment("hook", 1));
    let is_refused = |(code, told): (u16, String)| {
        let is_so = code == 500 && told.starts_with(&format!("{PREFIX}dial tcp 10.96."));
        assert!(is_so && told.ends_with("connect: connection refused"), "{told}");
    };
    is_refused(make(&mut bench, "a"));
    // The pod is ready and its endpoint is, but nothing listens yet.
    let hook = Webhook::new(|asked| {
        assert_eq!((asked.path, asked.request["operation"].as_str()), ("/judge", Some("CREATE")));
        match asked.request["name"].as_str() {
            Some("slow") => Verdict::Silence,
            Some("broken") => Verdict::Fail(500),
            Some("bad") => Verdict::Deny { code: 403, message: "no".to_owned() },
            _ => Verdict::Allow,
        }
    });
    bench.kube.hooks.insert("default/hook".to_owned(), hook.clone());
    is_refused(make(&mut bench, "a"));
    let (_, strange) = issue(&mut bench, &["hook.default.svc"]);
    hook.listen(&strange);
    let told = |why: &str| (500, format!("{PREFIX}tls: failed to verify certificate: x509: {why}"));
    assert_eq!(make(&mut bench, "a"), told("certificate signed by unknown authority"));
    hook.listen(&certificate);
    assert_eq!(make(&mut bench, "slow"), (500, format!("{PREFIX}context deadline exceeded")));
    let failed = "Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: an error on the server \
                  (\"unknown\") has prevented the request from succeeding";
    assert_eq!(make(&mut bench, "broken"), (500, failed.to_owned()));
    let denied = "admission webhook \"judge.example.com\" denied the request: no";
    assert_eq!(make(&mut bench, "bad"), (403, denied.to_owned()));
    assert_eq!(make(&mut bench, "a").0, 201);
    hook.close();
    is_refused(make(&mut bench, "b"));
}

#[test]
fn a_certificate_for_somebody_else_or_of_another_time_convinces_nobody() {
    let mut bench = with_service();
    let (authority, certificate) = issue(&mut bench, &["other.default.svc"]);
    bench.post(VALIDATING, &judging(&authority));
    serve(&mut bench, &certificate, |_| Verdict::Allow);
    let told = |why: &str| (500, format!("{PREFIX}tls: failed to verify certificate: x509: {why}"));
    let names = "certificate is valid for other.default.svc, not hook.default.svc";
    assert_eq!(make(&mut bench, "a"), told(names));
    bench.kube.now += std::time::Duration::from_secs(11 * 365 * 24 * 60 * 60);
    let (_, message) = make(&mut bench, "a");
    assert!(message.contains("certificate has expired or is not yet valid: current time 2037-"), "{message}");
}

#[test]
fn what_may_fail_is_ignored() {
    let mut bench = Bench::new();
    let mut wanted = webhook("judge.example.com", "");
    wanted["failurePolicy"] = json!("Ignore");
    bench.post(VALIDATING, &configuration("ValidatingWebhookConfiguration", &[wanted]));
    assert_eq!(make(&mut bench, "a").0, 201);
}

#[test]
fn an_address_that_nobody_answers_at_is_named() {
    let mut bench = Bench::new();
    let mut wanted = webhook("judge.example.com", "");
    wanted["clientConfig"] = json!({ "url": "https://127.0.0.1:9443/judge" });
    bench.post(MUTATING, &configuration("MutatingWebhookConfiguration", &[wanted]));
    let told = "Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post \
                \"https://127.0.0.1:9443/judge?timeout=10s\": dial tcp 127.0.0.1:9443: connect: connection refused";
    assert_eq!(make(&mut bench, "a"), (500, told.to_owned()));
}

#[test]
fn webhooks_that_change_an_object_are_followed_and_asked_again_where_they_wish() {
    let mut bench = with_service();
    let (authority, certificate) = issue(&mut bench, &["hook.default.svc"]);
    let [mut first, mut second] = ["first.example.com", "second.example.com"].map(|name| webhook(name, &authority));
    first["reinvocationPolicy"] = json!("IfNeeded");
    first["clientConfig"]["service"]["path"] = json!("/first");
    second["clientConfig"]["service"]["path"] = json!("/second");
    bench.post(MUTATING, &configuration("MutatingWebhookConfiguration", &[first, second]));
    serve(&mut bench, &certificate, |asked| {
        let data = asked.request["object"]["data"].as_object().cloned().unwrap_or_default();
        let at = |key: &str| format!("/data/{key}");
        match (asked.path, data.contains_key("b")) {
            ("/first", false) => Verdict::Patch(json!([{ "op": "add", "path": at("a"), "value": "1" }])),
            ("/first", true) => Verdict::Patch(json!([{ "op": "add", "path": at("a"), "value": "2" }])),
            _ => Verdict::Patch(json!([{ "op": "add", "path": at("b"), "value": "1" }])),
        }
    });
    let body = json!({ "metadata": { "name": "a" }, "data": { "own": "x" } });
    let (code, object) = bench.post(MAPS, &body);
    assert_eq!((code, &object["data"]), (201, &json!({ "own": "x", "a": "2", "b": "1" })));
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"]["f:data"], json!({ ".": {}, "f:own": {} }));
}

#[test]
fn a_webhook_may_look_at_what_there_is_and_warn() {
    let mut bench = with_service();
    let (authority, certificate) = issue(&mut bench, &["hook.default.svc"]);
    bench.post(VALIDATING, &judging(&authority));
    serve(&mut bench, &certificate, |asked| {
        let count = asked.objects("configmaps", "default").count();
        Verdict::Warn(format!("{count} were there before"))
    });
    let body = json!({ "metadata": { "name": "a" } }).to_string();
    let (code, _, warnings) = bench.told("POST", MAPS, "application/json", &body);
    assert_eq!((code, warnings), (201, vec!["1 were there before".to_owned()]));
}

#[test]
fn a_namespace_stays_while_a_webhook_that_judges_its_end_is_not_reached() {
    let mut bench = Bench::new();
    bench.post("/api/v1/namespaces", &json!({ "metadata": { "name": "stuck" } }));
    bench.post("/api/v1/namespaces/stuck/configmaps", &json!({ "metadata": { "name": "a" } }));
    let mut wanted = webhook("judge.example.com", "");
    wanted["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": "stuck" } });
    wanted["rules"][0]["operations"] = json!(["DELETE"]);
    bench.post(VALIDATING, &configuration("ValidatingWebhookConfiguration", &[wanted]));
    bench.delete("/api/v1/namespaces/stuck");
    let (_, namespace) = bench.get("/api/v1/namespaces/stuck");
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let told =
        conditions.iter().find(|it| it["type"] == "NamespaceDeletionContentFailure").cloned().unwrap_or_default();
    let why = "Failed to delete all resource types, 1 remaining: Internal error occurred: failed calling webhook \"judge.example.com\": failed to \
               call webhook: Post \"https://hook.default.svc:443/judge?timeout=10s\": service \"hook\" not found";
    assert_eq!((told["status"].as_str(), told["message"].as_str()), (Some("True"), Some(why)));
    bench.delete(&format!("{VALIDATING}/w"));
    bench.pass(10.0);
    assert_eq!(bench.get("/api/v1/namespaces/stuck").0, 404);
}

#[test]
fn a_webhook_is_asked_only_where_its_conditions_hold() {
    let mut bench = with_service();
    let (authority, certificate) = issue(&mut bench, &["hook.default.svc"]);
    let mut wanted = webhook("judge.example.com", &authority);
    wanted["matchConditions"] = json!([{ "name": "not-mine", "expression": "object.metadata.name != 'mine'" }]);
    bench.post(VALIDATING, &configuration("ValidatingWebhookConfiguration", &[wanted]));
    serve(&mut bench, &certificate, |_| Verdict::Deny { code: 403, message: "no".to_owned() });
    assert_eq!(make(&mut bench, "mine").0, 201);
    assert_eq!(make(&mut bench, "other").0, 403);
}
