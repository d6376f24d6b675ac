//! Webhooks: the ways to fail, and to have a say.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Bench;
use crate::kubernetes::webhooks::{Webhook, WebhookFault};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

struct Says(Mutex<Result<Value, WebhookFault>>, Option<String>);

impl Webhook for Says {
    fn review(&self, path: &str, review: &Value) -> Result<Value, WebhookFault> {
        assert_eq!((path, review["request"]["operation"].as_str()), ("/judge", Some("CREATE")));
        let response = self.0.lock().unwrap().clone()?;
        Ok(json!({ "response": response }))
    }

    fn authority(&self) -> Option<String> {
        self.1.clone()
    }
}

fn configuration(kind: &str) -> Value {
    let service = json!({ "name": "hook", "namespace": "default", "path": "/judge" });
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "w" },
        "webhooks": [{
            "name": "judge.example.com", "clientConfig": { "service": service, "caBundle": STANDARD.encode("right") }, "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": selector,
        }],
    })
}

fn make(bench: &mut Bench, name: &str) -> (u16, String) {
    let (code, status) =
        bench.post(MAPS, &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } }));
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_webhook_fails_in_five_ways_and_then_decides() {
    let mut bench = Bench::new();
    bench.node("n1");
    assert_eq!(bench.post(VALIDATING, &configuration("ValidatingWebhookConfiguration")).0, 201);
    let prefix = "Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post \
                  \"https://hook.default.svc:443/judge?timeout=10s\": ";
    assert_eq!(make(&mut bench, "a"), (500, format!("{prefix}service \"hook\" not found")));
    bench.post("/api/v1/namespaces/default/services", &json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": 443 }], "selector": { "app": "hook" } },
    }));
    assert_eq!(make(&mut bench, "a"), (500, format!("{prefix}no endpoints available for service \"hook\"")));
    bench.post("/apis/apps/v1/namespaces/default/deployments", &super::deployment("hook", 1));
    let (code, told) = make(&mut bench, "a");
    assert!(
        code == 500
            && told.starts_with(&format!("{prefix}dial tcp 10.96."))
            && told.ends_with("connect: connection refused"),
        "{told}"
    );
    let serve = |bench: &mut Bench, says: Result<Value, WebhookFault>, authority: &str| {
        let hook = Says(Mutex::new(says), Some(authority.to_owned()));
        bench.kube.hooks.served.insert("default/hook".to_owned(), Arc::new(hook));
    };
    serve(&mut bench, Ok(json!({ "allowed": true })), "wrong");
    let told = format!("{prefix}tls: failed to verify certificate: x509: certificate signed by unknown authority");
    assert_eq!(make(&mut bench, "a"), (500, told));
    serve(&mut bench, Err(WebhookFault::Timeout), "right");
    assert_eq!(make(&mut bench, "a"), (500, format!("{prefix}context deadline exceeded")));
    serve(
        &mut bench,
        Ok(json!({ "allowed": false, "status": { "message": "no", "code": 403, "reason": "Forbidden" } })),
        "right",
    );
    assert_eq!(
        make(&mut bench, "a"),
        (403, "admission webhook \"judge.example.com\" denied the request: no".to_owned())
    );
    serve(&mut bench, Ok(json!({ "allowed": true })), "right");
    assert_eq!(make(&mut bench, "a").0, 201);
}

#[test]
fn what_may_fail_is_ignored() {
    let mut bench = Bench::new();
    let mut wanted = configuration("ValidatingWebhookConfiguration");
    wanted["webhooks"][0]["failurePolicy"] = json!("Ignore");
    bench.post(VALIDATING, &wanted);
    assert_eq!(make(&mut bench, "a").0, 201);
}

#[test]
fn a_webhook_that_changes_an_object_is_followed() {
    let mut bench = Bench::new();
    let mut wanted = configuration("MutatingWebhookConfiguration");
    wanted["webhooks"][0]["clientConfig"] = json!({ "url": "https://127.0.0.1:9443/judge" });
    bench.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &wanted);
    let told = "Internal error occurred: failed calling webhook \"judge.example.com\": failed to call webhook: Post \
                \"https://127.0.0.1:9443/judge?timeout=10s\": dial tcp 127.0.0.1:9443: connect: connection refused";
    assert_eq!(make(&mut bench, "a"), (500, told.to_owned()));
    let patch = STANDARD.encode(json!([{ "op": "add", "path": "/data", "value": { "x": "y" } }]).to_string());
    let says = Says(
        Mutex::new(Ok(json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["careful"] }))),
        None,
    );
    bench.kube.hooks.served.insert("https://127.0.0.1:9443".to_owned(), Arc::new(says));
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let (code, object, warnings) = bench.told("POST", MAPS, "application/json", &body.to_string());
    assert_eq!((code, &object["data"], warnings), (201, &json!({ "x": "y" }), vec!["careful".to_owned()]));
}
