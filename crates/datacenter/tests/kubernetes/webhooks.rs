//! Webhooks of components that are served in this process, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Verdict, Webhook};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::castle::Wanted;
use crate::client::Client;
use crate::wire::Nodes;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn config(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

/// A service that leads to a pod that is ready, and what is to be asked behind it.
async fn component(api: &Client<'_>, authority: &str) {
    let labels = json!({ "app": "gate" });
    let container = json!({ "name": "main", "image": "example.com/gate:1" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container], "tolerations": [{ "operator": "Exists" }] } });
    let service = json!({ "name": "gate", "namespace": "default", "path": "/judge" });
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] });
    for (path, object) in [
        (
            "/api/v1/namespaces/default/services/gate",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "gate" },
                "spec": { "selector": labels, "ports": [{ "port": 443, "targetPort": 9443 }] },
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/gate",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "gate" },
                "spec": { "selector": { "matchLabels": labels }, "template": template },
            }),
        ),
        (
            &*format!("{HOOKS}/gate"),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": "gate" },
                "webhooks": [{
                    "name": "gate.castle.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 7, "rules": [rule],
                    "clientConfig": { "service": service, "caBundle": STANDARD.encode(authority) },
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
                }],
            }),
        ),
    ] {
        let (status, answer) = api.apply(path, &object).await.unwrap();
        assert_eq!(status, 201, "{answer}");
    }
}

#[test]
fn a_component_is_ready_before_it_serves_and_the_next_object_is_let_in_once_it_does() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let (admin, datacenter) = (nodes.castle.kubernetes_admin(), nodes.datacenter());
        let api = Client { datacenter, address: "10.0.0.1", certificate: &admin };
        let issue = || datacenter.issue_certificate("blue", &["gate.default.svc"]).unwrap();
        let (right, wrong) = (issue(), issue());
        component(&api, &right.authority).await;
        let told = async |name: &str| {
            let (status, answer) = api.apply(&format!("{MAPS}/{name}"), &config(name)).await.unwrap();
            (status, answer["message"].as_str().unwrap_or_default().to_owned())
        };
        nodes.until("an endpoint", async || !told("a").await.1.contains("no endpoints")).await;
        let (status, why) = told("a").await;
        assert!(status == 500 && why.ends_with("connect: connection refused"), "{why}");
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let gate = Webhook::new(move |asked| {
            counted.fetch_add(1, Ordering::Relaxed);
            if asked.request["name"] == "slow" { Verdict::Silence } else { Verdict::Allow }
        });
        assert!(datacenter.serve_webhook("blue", "default/gate", Some(gate.clone())));
        let (_, why) = told("a").await;
        assert!(why.ends_with("connect: connection refused"), "nothing listens yet: {why}");
        gate.listen(&wrong.certificate);
        let (_, why) = told("a").await;
        assert!(why.ends_with("x509: certificate signed by unknown authority"), "{why}");
        gate.listen(&right.certificate);
        assert_eq!(told("a").await.0, 201);
        assert_eq!(asked.load(Ordering::Relaxed), 1, "it was asked once, by whoever trusted it");
        let before = clock.monotonic();
        let (status, why) = told("slow").await;
        assert_eq!((status, why.ends_with("context deadline exceeded")), (500, true), "{why}");
        let took = clock.monotonic() - before;
        assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(8), "{took:?}");
        assert_eq!(api.get(&format!("{MAPS}/slow")).await.unwrap().0, 404);
    });
}

#[test]
fn who_waits_for_a_webhook_holds_up_nobody_else() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let (admin, datacenter) = (nodes.castle.kubernetes_admin(), nodes.datacenter());
        let api = Client { datacenter, address: "10.0.0.1", certificate: &admin };
        let issued = datacenter.issue_certificate("blue", &["gate.default.svc"]).unwrap();
        component(&api, &issued.authority).await;
        let gate = Webhook::new(|_| Verdict::Silence);
        gate.listen(&issued.certificate);
        datacenter.serve_webhook("blue", "default/gate", Some(gate));
        let path = format!("{MAPS}/a");
        let object = config("a");
        nodes
            .until("an endpoint", async || {
                !api.apply(&path, &object).await.unwrap().1["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("no endpoints")
            })
            .await;
        let (begun, other) = (clock.monotonic(), "/api/v1/namespaces/default/secrets/b");
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "b" } });
        let (first, second) = tokio::join!(api.apply(&path, &object), async {
            let answer = api.apply(other, &secret).await.unwrap();
            (answer.0, clock.monotonic() - begun)
        });
        assert_eq!((first.unwrap().0, second.0), (500, 201));
        assert!(second.1 < Duration::from_secs(1), "{:?}", second.1);
    });
}
