//! The race that cost others weeks: a webhook whose endpoint is ready before anybody listens, and which then shows a
//! certificate of an authority that nobody has told yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use castle_datacenter::{Verdict, Webhook};
use castle_engine::Place;
use castle_kubernetes::model::Object;
use castle_kubernetes::steps::{Authority, Expect, Ready};
use castle_seams::Clock;
use serde_json::json;

use crate::room::{Room, apply, fault, id, in_room, object, well};

const SERVICE: &str = "hook";
const NAME: &str = "hook.default.svc";

fn behind() -> [Object; 2] {
    let labels = json!({"app": "hook"});
    [
        object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": SERVICE, "namespace": "default"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "hook", "image": "hook:1", "ports": [{"containerPort": 9443}]}],
                    },
                },
            },
        })),
        object(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": "default"},
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": 9443}]},
        })),
    ]
}

fn configuration() -> Object {
    object(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{
            "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"service": {"name": SERVICE, "namespace": "default", "path": "/judge"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {"judged": "yes"}},
        }],
    }))
}

/// The object that comes next.
fn next() -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "next", "namespace": "default", "labels": {"judged": "yes"}}, "data": {"a": "1"},
    }))
}

/// Tells the authority of the webhook, as its own controller does.
async fn inject(room: &Room, authority: &str) {
    use base64::Engine;
    let bundle = base64::engine::general_purpose::STANDARD.encode(authority);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hook";
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{"name": "hook.example.com", "clientConfig": {"caBundle": bundle}}],
    });
    assert_eq!(room.as_other("hook", path, &body).await, 200);
}

async fn prepare(room: &Room) {
    well(&room.apply("hook", &behind()).await);
    well(&room.apply("hook", &[configuration()]).await);
}

/// All that must hold before the next object, and the object after it.
async fn go_on(room: &Room, within: Duration) -> castle_engine::Report {
    room.run(|graph, api| {
        let nothing = apply(graph, api, "nothing", "nothing", Vec::new());
        let injected = Expect::Injected {
            kind: "ValidatingWebhookConfiguration".to_owned(),
            name: "hook".to_owned(),
            authority: None,
        };
        let expects = vec![injected, Expect::Accepted(Box::new(next()))];
        graph.gate(id("usable"), Place::default(), (api.clone(), nothing), Ready::new(expects, within));
        apply(graph, api, "next", "next", vec![next()]);
        graph.after(id("next"), id("usable"));
    })
    .await
}

#[test]
fn the_next_object_is_applied_exactly_once_and_only_after_it_is_served() {
    in_room(async |room| {
        prepare(room).await;
        let judged = Arc::new(AtomicUsize::new(0));
        let count = judged.clone();
        let webhook = Webhook::new(move |asked| {
            let is_dry = asked.request["dryRun"] == true;
            count.fetch_add(usize::from(!is_dry), Ordering::Relaxed);
            Verdict::Allow
        });
        assert!(room.datacenter().serve_webhook("blue", &format!("default/{SERVICE}"), Some(webhook.clone())));
        let wrong = room.datacenter().issue_certificate("blue", &[NAME]).unwrap();
        let right = room.datacenter().issue_certificate("blue", &[NAME]).unwrap();
        let begun = room.clock.monotonic();
        let unfolds = async {
            let pause = Duration::from_secs(10);
            // The endpoint is ready from the beginning; ten seconds nobody listens, nor has an authority been told.
            room.clock.sleep(pause).await;
            inject(room, &wrong.authority).await;
            // Connections are refused.
            room.clock.sleep(pause).await;
            webhook.listen(&right.certificate);
            // Served, by a certificate of another authority than was told.
            room.clock.sleep(pause).await;
            inject(room, &right.authority).await;
            room.clock.monotonic()
        };
        let (report, served) = tokio::join!(go_on(room, Duration::from_secs(120)), unfolds);
        well(&report);
        assert!(served - begun >= Duration::from_secs(30));
        assert!(room.clock.monotonic() - served <= Duration::from_secs(2), "and soon after it is served");
        assert_eq!(judged.load(Ordering::Relaxed), 1, "injected exactly once");
        assert!(room.get("v1", "ConfigMap", "default", "next").await.is_some());
    });
}

#[test]
fn a_webhook_that_never_serves_is_named_with_the_missing_link() {
    in_room(async |room| {
        prepare(room).await;
        let closed = fault(&go_on(room, Duration::from_secs(30)).await);
        assert_eq!(closed.subject, "ValidatingWebhookConfiguration hook");
        assert!(closed.evidence.contains("webhook hook.example.com has no caBundle yet"), "{closed}");
        let certificate = room.datacenter().issue_certificate("blue", &[NAME]).unwrap();
        inject(room, &certificate.authority).await;
        let closed = fault(&go_on(room, Duration::from_secs(30)).await);
        assert_eq!(closed.subject, "ConfigMap default/next");
        assert!(closed.evidence.contains("failed calling webhook \"hook.example.com\""), "{closed}");
        assert!(closed.evidence.contains("connection refused"), "{closed}");
        let webhook = Webhook::new(|_| Verdict::Allow);
        room.datacenter().serve_webhook("blue", &format!("default/{SERVICE}"), Some(webhook.clone()));
        let other = room.datacenter().issue_certificate("blue", &[NAME]).unwrap();
        webhook.listen(&other.certificate);
        let closed = fault(&go_on(room, Duration::from_secs(30)).await);
        assert!(closed.evidence.contains("certificate signed by unknown authority"), "{closed}");
        assert!(room.get("v1", "ConfigMap", "default", "next").await.is_none());
    });
}

#[test]
fn a_webhook_that_denies_is_not_asked_again() {
    in_room(async |room| {
        prepare(room).await;
        let webhook = Webhook::new(|_| Verdict::Deny { code: 403, message: "not in this house".to_owned() });
        room.datacenter().serve_webhook("blue", &format!("default/{SERVICE}"), Some(webhook.clone()));
        let certificate = room.datacenter().issue_certificate("blue", &[NAME]).unwrap();
        webhook.listen(&certificate.certificate);
        inject(room, &certificate.authority).await;
        let begun = room.clock.monotonic();
        let denied = fault(&go_on(room, Duration::from_secs(120)).await);
        assert!(denied.is_final() && denied.evidence.contains("not in this house"), "{denied:?}");
        assert!(room.clock.monotonic() - begun < Duration::from_secs(5), "at once");
    });
}

#[test]
fn an_authority_must_be_the_one_that_its_secret_tells() {
    use base64::Engine;
    in_room(async |room| {
        prepare(room).await;
        let [wrong, right] = [(); 2].map(|()| room.datacenter().issue_certificate("blue", &[NAME]).unwrap());
        let told = base64::engine::general_purpose::STANDARD.encode(&right.authority);
        let secret = object(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook-ca", "namespace": "default"}, "data": {"ca.crt": told},
        }));
        let injected = || Expect::Injected {
            kind: "ValidatingWebhookConfiguration".to_owned(),
            name: "hook".to_owned(),
            authority: Some(Authority {
                namespace: "default".to_owned(),
                name: "hook-ca".to_owned(),
                key: "ca.crt".to_owned(),
            }),
        };
        let closed = fault(&room.expect(vec![injected()], Duration::from_secs(30)).await);
        assert!(closed.evidence.starts_with("is not there yet"), "the Secret: {closed}");
        well(&room.apply("hook", &[secret]).await);
        inject(room, &wrong.authority).await;
        let closed = fault(&room.expect(vec![injected()], Duration::from_secs(30)).await);
        assert!(closed.evidence.contains("is not the authority of its Secret"), "{closed}");
        inject(room, &right.authority).await;
        well(&room.expect(vec![injected()], Duration::from_secs(30)).await);
    });
}
