//! An API that restarts, forgets, is busy, or does not know castle.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Fate, PodFault};
use castle_engine::Class;
use castle_kubernetes::client::{Api, Event, Scope};
use castle_kubernetes::model::Kind;
use castle_kubernetes::steps::Expect;
use castle_seams::Clock;
use serde_json::json;

use crate::room::{fault, in_room, object, well};

fn config(name: &str) -> castle_kubernetes::model::Object {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "1"}}),
    )
}

#[test]
fn an_api_that_is_busy_is_asked_again_and_each_object_applied_once() {
    in_room(async |room| {
        for _ in 0..3 {
            room.seen
                .next("PATCH", Fate::Refused(14, "the server is currently unable to handle the request".to_owned()));
        }
        well(&room.apply("x", &[config("a"), config("b")]).await);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(live.number("/metadata/generation").unwrap_or(1), 1);
    });
}

#[test]
fn too_many_requests_are_made_fewer() {
    in_room(async |room| {
        room.seen.next("PATCH", Fate::Refused(8, "too many requests, please try again later".to_owned()));
        well(&room.apply("x", &[config("a")]).await);
        room.seen.next("configmaps", Fate::Refused(8, "too many requests, please try again later".to_owned()));
        let trouble = room.api.list(&Kind::new("v1", "ConfigMap"), &Scope::default()).await.unwrap_err();
        assert!(matches!(trouble.class(), Class::RetryableAfter(_)), "{trouble:?}");
        assert!(trouble.fault(&config("a").key()).contention);
    });
}

#[test]
fn an_api_that_never_comes_back_fails_within_a_bound() {
    in_room(async |room| {
        for _ in 0..200 {
            room.seen.next("configmaps", Fate::LostBefore);
        }
        let begun = room.clock.monotonic();
        let lost = fault(&room.apply("x", &[config("a")]).await);
        assert!(lost.subject.contains("ConfigMap"), "{lost:?}");
        assert_eq!(lost.next, "kubectl get --raw /readyz?verbose");
        assert!(room.clock.monotonic() - begun < Duration::from_secs(600));
    });
}

#[test]
fn a_gate_outlives_a_restart_of_the_api() {
    in_room(async |room| {
        let web = object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "web", "image": "web:1"}]},
                },
            },
        }));
        room.datacenter().fail_pods("blue", "default", "web-", Some(PodFault::NotReady));
        well(&room.apply("x", &[web]).await);
        let serving = Expect::Serving(Kind::new("apps/v1", "Deployment"), "default".to_owned(), "web".to_owned());
        let day = async {
            room.clock.sleep(Duration::from_secs(20)).await;
            room.datacenter().restart_node(421);
            room.clock.sleep(Duration::from_secs(5)).await;
            room.datacenter().compact_objects("blue");
            room.datacenter().fail_pods("blue", "default", "web-", None);
        };
        let (report, ()) = tokio::join!(room.expect(vec![serving], Duration::from_secs(600)), day);
        well(&report);
    });
}

#[test]
fn a_watch_tells_what_happens_and_that_it_cannot_go_on() {
    in_room(async |room| {
        let kind = Kind::new("v1", "ConfigMap");
        let scope = Scope::within("default");
        let listed = room.api.list(&kind, &scope).await.unwrap();
        let mut watch = room.api.watch(&kind, &scope, &listed.version).await.unwrap();
        well(&room.apply("x", &[config("a")]).await);
        match watch.next().await.unwrap() {
            Some(Event::Is(object)) => assert_eq!(object.name(), "a"),
            other => panic!("{other:?}"),
        }
        well(&room.apply("x", &[config("b"), config("c")]).await);
        room.datacenter().compact_objects("blue");
        // From before the last compaction nothing can be told any more.
        let mut old = room.api.watch(&kind, &scope, "1").await;
        let expired = match &mut old {
            Ok(watch) => watch.next().await.unwrap_err(),
            Err(trouble) => trouble.clone(),
        };
        assert!(expired.is_expired(), "{expired:?}");
    });
}

#[test]
fn whoever_the_api_does_not_know_is_told_so_and_does_not_try_again() {
    in_room(async |room| {
        let mut access = room.access();
        access.certificate = "AAAA".to_owned();
        let api = Api::new(&access, room.datacenter().dial(), Arc::new(room.clock)).unwrap();
        let trouble = api.discover().await.unwrap_err();
        assert_eq!(trouble.class(), Class::Final, "{trouble:?}");
        let fault = trouble.fault(&config("a").key());
        assert!(fault.next.contains("certificate is not accepted"), "{fault:?}");
    });
}

#[test]
fn what_pod_security_forbids_is_told_with_the_way_out() {
    in_room(async |room| {
        let pod = object(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bold", "namespace": "default"},
            "spec": {"hostNetwork": true, "containers": [{"name": "bold", "image": "bold:1"}]},
        }));
        let refused = fault(&room.apply("x", &[pod]).await);
        assert!(refused.is_final() && refused.evidence.contains("violates PodSecurity"), "{refused:?}");
        assert!(refused.next.contains("pod-security.kubernetes.io/enforce=privileged"), "{}", refused.next);
    });
}

#[test]
fn a_secret_is_in_no_fault() {
    in_room(async |room| {
        let secret = object(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
            "type": "kubernetes.io/tls", "data": {"token": "cGxhbnRlZA=="},
        }));
        let refused = fault(&room.apply("x", &[secret]).await);
        assert_eq!(refused.subject, "Secret default/s");
        assert!(
            refused.is_final() && refused.evidence.starts_with("the API answers 422 Invalid of data"),
            "{refused:?}"
        );
        assert!(!format!("{refused:?}").contains("cGxhbnRlZA"), "{refused:?}");
    });
}
