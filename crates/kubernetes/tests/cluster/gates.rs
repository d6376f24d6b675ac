//! Gates open when things truly work, and say what is missing when they do not.

use std::time::Duration;

use castle_datacenter::PodFault;
use castle_kubernetes::model::{Kind, Object};
use castle_kubernetes::steps::Expect;
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::room::{Room, fault, in_room, object, well};

const SOON: Duration = Duration::from_secs(60);

fn deployment(replicas: u32) -> Object {
    workload("Deployment", json!({"replicas": replicas}))
}

fn workload(kind: &str, mut spec: Value) -> Object {
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    spec["template"] = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "web", "image": "web:1"}]},
    });
    object(json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": spec,
    }))
}

fn serving(kind: &str) -> Expect {
    Expect::Serving(Kind::new("apps/v1", kind), "default".to_owned(), "web".to_owned())
}

#[test]
fn workloads_open_their_gate_when_they_serve() {
    in_room(async |room| {
        well(&room.apply("x", &[deployment(2)]).await);
        well(&room.expect(vec![serving("Deployment")], SOON).await);
        let live = room.get("apps/v1", "Deployment", "default", "web").await.unwrap();
        assert_eq!(live.number("/status/availableReplicas"), Some(2));
    });
}

#[test]
fn a_workload_of_which_nothing_is_wanted_serves_nobody() {
    in_room(async |room| {
        well(&room.apply("x", &[deployment(0)]).await);
        let current = Expect::Current(Kind::new("apps/v1", "Deployment"), "default".to_owned(), "web".to_owned());
        well(&room.expect(vec![current], SOON).await);
        let closed = fault(&room.expect(vec![serving("Deployment")], SOON).await);
        assert_eq!(closed.to_string(), "Deployment default/web: no Pod is wanted of it yet (waited 60 s)");
    });
}

#[test]
fn a_gate_is_woken_by_what_happens_and_does_not_ask_in_between() {
    in_room(async |room| {
        well(&room.apply("x", &[deployment(1)]).await);
        room.datacenter().fail_pods("blue", "default", "web-", Some(PodFault::NotReady));
        room.seen.take();
        let begun = room.clock.monotonic();
        let mend = async {
            room.clock.sleep(Duration::from_secs(100)).await;
            room.datacenter().fail_pods("blue", "default", "web-", None);
            room.clock.monotonic()
        };
        let (report, mended) = tokio::join!(room.expect(vec![serving("Deployment")], Duration::from_secs(300)), mend);
        well(&report);
        assert!(mended - begun >= Duration::from_secs(100));
        let late = room.clock.monotonic() - mended;
        assert!(late <= Duration::from_secs(15), "{late:?}");
        let asked = room.seen.take();
        let looks = asked.iter().filter(|method| method.contains("/deployments")).count();
        assert!(looks < 30, "{looks} looks in 100 seconds");
    });
}

#[test]
fn what_keeps_a_workload_is_told_down_to_its_pod_and_event() {
    let cases = [
        (PodFault::ImagePull, "ImagePullBackOff"),
        (PodFault::CrashLoop, "CrashLoopBackOff"),
        (PodFault::Unschedulable, "Unschedulable"),
        (PodFault::NotReady, "is Running"),
    ];
    for (wrong, words) in cases {
        in_room(async |room| {
            room.datacenter().fail_pods("blue", "default", "web-", Some(wrong));
            well(&room.apply("x", &[deployment(1)]).await);
            let closed = fault(&room.expect(vec![serving("Deployment")], SOON).await);
            assert_eq!(closed.subject, "Deployment default/web");
            assert!(closed.evidence.contains("Pod web-"), "{closed}");
            assert!(closed.evidence.contains(words), "{closed}");
            assert_eq!(closed.next, "kubectl describe --namespace default deployment.apps web");
        });
    }
}

fn definition(name: &str) -> Object {
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": format!("{name}s"), "singular": name, "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
}

fn established() -> Expect {
    Expect::Established { names: vec!["things.example.com".to_owned()], labels: String::new() }
}

fn thing() -> Object {
    object(json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"a": 1},
    }))
}

#[test]
fn a_definition_is_served_before_its_objects_are_sent() {
    in_room(async |room| {
        well(&room.apply("x", &[definition("thing")]).await);
        well(&room.expect(vec![established()], SOON).await);
        well(&room.apply("x", &[thing()]).await);
    });
}

#[test]
fn a_definition_that_never_establishes_is_named() {
    in_room(async |room| {
        room.datacenter().freeze_definition("blue", "things.example.com", true);
        well(&room.apply("x", &[definition("thing")]).await);
        let closed = fault(&room.expect(vec![established()], SOON).await);
        assert_eq!(closed.subject, "CustomResourceDefinition things.example.com");
        assert!(closed.evidence.contains("it is not established"), "{closed}");
    });
}

/// Goal: whoever counts objects does not take those of a kind that is not served for none. Method: no definition; one that is served; one that is there, and
/// never comes to be served; and one that serves other versions than the one that is asked for.
#[test]
fn a_kind_that_is_defined_and_not_served_is_not_taken_for_an_empty_one() {
    let visible = |version: &str| {
        Expect::Visible(vec![("things.example.com".to_owned(), Kind::new(&format!("example.com/{version}"), "Thing"))])
    };
    in_room(async |room| {
        well(&room.expect(vec![visible("v1")], SOON).await);
        well(&room.apply("x", &[definition("thing")]).await);
        well(&room.expect(vec![established(), visible("v1")], SOON).await);
        let closed = fault(&room.expect(vec![visible("v2")], SOON).await);
        assert_eq!(closed.subject, "CustomResourceDefinition things.example.com");
        assert!(closed.evidence.contains("is not served: what there is of it cannot be seen"), "{closed}");
    });
    in_room(async |room| {
        room.datacenter().freeze_definition("blue", "things.example.com", true);
        well(&room.apply("x", &[definition("thing")]).await);
        let closed = fault(&room.expect(vec![visible("v1")], SOON).await);
        assert!(closed.evidence.contains("is not served"), "{closed}");
    });
}

fn ready() -> Expect {
    Expect::Condition {
        kind: Kind::new("example.com/v1", "Thing"),
        namespace: "default".to_owned(),
        name: "one".to_owned(),
        condition: "Ready".to_owned(),
        reason: "Valid".to_owned(),
    }
}

async fn say(room: &Room, conditions: Value) {
    let path = "/apis/example.com/v1/namespaces/default/things/one/status";
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "status": {"conditions": conditions},
    });
    assert_eq!(room.as_other("controller", path, &body).await, 200);
}

#[test]
fn a_condition_counts_if_it_is_of_this_generation_and_for_this_reason() {
    in_room(async |room| {
        well(&room.apply("x", &[definition("thing")]).await);
        well(&room.expect(vec![established()], SOON).await);
        let closed = fault(&room.expect(vec![ready()], SOON).await);
        assert_eq!(closed.to_string(), "Thing default/one: is not there yet (waited 60 s)");
        well(&room.apply("x", &[thing()]).await);
        let closed = fault(&room.expect(vec![ready()], SOON).await);
        assert_eq!(closed.evidence, "has no condition Ready yet (waited 60 s)");
        let condition = |status: &str, reason: &str, generation: i64| json!([{"type": "Ready", "status": status, "reason": reason, "message": "m", "observedGeneration": generation}]);
        for (told, evidence) in [
            (condition("False", "InvalidProviderConfig", 1), "Ready is False (InvalidProviderConfig): m"),
            (condition("True", "ValidationUnknown", 1), "Ready is True (ValidationUnknown): m"),
            (condition("True", "Valid", 0), "Ready is of generation 0, not of 1"),
        ] {
            say(room, told).await;
            assert_eq!(fault(&room.expect(vec![ready()], SOON).await).evidence, format!("{evidence} (waited 60 s)"));
        }
        say(room, condition("True", "Valid", 1)).await;
        well(&room.expect(vec![ready()], SOON).await);
    });
}

#[test]
fn a_service_is_not_ready_before_it_has_an_address() {
    in_room(async |room| {
        let service = object(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]},
        }));
        well(&room.apply("x", &[service]).await);
        let addressed = || vec![Expect::Addressed("default".to_owned(), "web".to_owned())];
        let closed = fault(&room.expect(addressed(), SOON).await);
        assert_eq!(closed.to_string(), "Service default/web: no address is assigned (waited 60 s)");
        let path = "/api/v1/namespaces/default/services/web/status";
        let told = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.200"}]}},
        });
        assert_eq!(room.as_other("metallb", path, &told).await, 200);
        well(&room.expect(addressed(), SOON).await);
    });
}
