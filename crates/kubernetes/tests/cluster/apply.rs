//! Objects are applied once, in stages, and never taken from anybody.

use std::collections::BTreeSet;

use castle_datacenter::Fate;
use castle_engine::Class;
use castle_kubernetes::steps::{Keeper, Known, tenures};
use serde_json::{Value, json};

use crate::room::{Room, fault, in_room, mark, object, well};

fn config(name: &str, value: &str) -> castle_kubernetes::model::Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": value},
    }))
}

/// How often an object was changed: every change has a version of its own.
async fn version(room: &Room, kind: &str, name: &str) -> String {
    let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    let live = room.get(api_version, kind, "default", name).await.unwrap();
    live.text("/metadata/resourceVersion").to_owned()
}

fn applies(asked: &[String]) -> usize {
    asked.iter().filter(|method| method.starts_with("PATCH")).count()
}

#[test]
fn what_is_as_wanted_is_left_alone_and_asked_for_once_a_kind() {
    in_room(async |room| {
        let wanted = [config("a", "1"), config("b", "2")];
        well(&room.apply("x", &wanted).await);
        assert_eq!(applies(&room.seen.take()), 2);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(live.label("castle.dev/component"), Some("x"));
        let before = version(room, "ConfigMap", "a").await;
        room.seen.take();

        well(&room.apply("x", &wanted).await);
        let asked = room.seen.take();
        assert_eq!(applies(&asked), 0, "{asked:?}");
        assert_eq!(asked.iter().filter(|method| method.contains("configmaps")).count(), 1, "{asked:?}");

        well(&room.apply("x", &[config("a", "1"), config("b", "3")]).await);
        assert_eq!(applies(&room.seen.take()), 1, "only what differs");
        assert_eq!(version(room, "ConfigMap", "a").await, before);
        assert_eq!(room.get("v1", "ConfigMap", "default", "b").await.unwrap().text("/data/a"), "3");
    });
}

#[test]
fn what_the_server_writes_otherwise_is_no_difference() {
    in_room(async |room| {
        let wanted = object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{
                        "name": "web", "image": "web:1", "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
                    }]},
                },
            },
        }));
        well(&room.apply("x", std::slice::from_ref(&wanted)).await);
        let before = version(room, "Deployment", "web").await;
        well(&room.apply("x", &[wanted]).await);
        assert_eq!(version(room, "Deployment", "web").await, before);
    });
}

#[test]
fn what_somebody_changed_is_put_right_and_what_somebody_added_stays() {
    in_room(async |room| {
        well(&room.apply("x", &[config("a", "1")]).await);
        let path = "/api/v1/namespaces/default/configmaps/a";
        let other =
            |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        assert_eq!(room.as_other("kubectl", path, &other(json!({"b": "theirs"}))).await, 200);
        well(&room.apply("x", &[config("a", "1")]).await);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(*live.at("/data"), json!({"a": "1", "b": "theirs"}));
        // By force, another becomes the manager of castle's own field: castle says so and does not fight.
        assert_eq!(room.as_other("helm", path, &other(json!({"a": "9"}))).await, 200);
        let refused = fault(&room.apply("x", &[config("a", "1")]).await);
        assert!(refused.guarded, "{refused:?}");
        let told = "ConfigMap default/a: .data.a is managed by helm: \"9\", and castle wants \"1\"";
        assert_eq!(refused.to_string(), told);
        assert_eq!(room.get("v1", "ConfigMap", "default", "a").await.unwrap().text("/data/a"), "9");
    });
}

#[test]
fn who_sets_back_what_they_changed_is_no_rival_any_more() {
    in_room(async |room| {
        well(&room.apply("x", &[config("a", "1")]).await);
        let path = "/api/v1/namespaces/default/configmaps/a";
        let said = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": value}});
        assert_eq!(room.as_other("kubectl", path, &said("9")).await, 200);
        let refused = fault(&room.apply("x", &[config("a", "1")]).await);
        assert!(refused.evidence.ends_with("is managed by kubectl: \"9\", and castle wants \"1\""), "{refused:?}");
        assert!(
            refused.next.starts_with("kubectl edit --namespace default configmap a, and set it back; or "),
            "{refused:?}"
        );
        assert_eq!(room.as_other("kubectl", path, &said("1")).await, 200);
        // Twice: the second time, both are managers of the same value.
        well(&room.apply("x", &[config("a", "1")]).await);
        well(&room.apply("x", &[config("a", "1")]).await);
        let known = Known { mark: mark("x"), keeper: Keeper::Castle, objects: BTreeSet::new(), name: None };
        let tenures = tenures(&room.api, &[known]).await.unwrap();
        assert_eq!(tenures[0].quarrel, None);
    });
}

#[test]
fn what_is_in_a_secret_is_not_told_even_if_it_is_contested() {
    in_room(async |room| {
        let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"a": value}});
        well(&room.apply("x", &[object(secret("b3du"))]).await);
        assert_eq!(room.as_other("kubectl", "/api/v1/namespaces/default/secrets/s", &secret("dGhlaXJz")).await, 200);
        let refused = fault(&room.apply("x", &[object(secret("b3du"))]).await);
        assert_eq!(refused.to_string(), "Secret default/s: .data.a is managed by kubectl");
    });
}

#[test]
fn what_belongs_to_somebody_is_not_taken_even_if_nobody_would_complain() {
    in_room(async |room| {
        let path = "/api/v1/namespaces/default/configmaps/a";
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2"}});
        assert_eq!(room.as_other("kubectl", path, &theirs).await, 201);
        room.seen.take();
        let refused = fault(&room.apply("x", &[config("a", "1")]).await);
        assert!(refused.guarded, "{refused:?}");
        assert_eq!(refused.evidence, "belongs to a person (kubectl)");
        assert_eq!(applies(&room.seen.take()), 0);
        // Nor what is another component's.
        well(&room.apply("x", &[config("b", "1")]).await);
        let refused = fault(&room.apply("y", &[config("b", "1")]).await);
        assert_eq!(refused.evidence, "belongs to networking/x of castle blue");
    });
}

#[test]
fn a_lost_answer_is_looked_for_and_the_object_applied_once() {
    in_room(async |room| {
        room.seen.next("PATCH", Fate::LostAfter);
        well(&room.apply("x", &[config("a", "1")]).await);
        let asked = room.seen.take();
        assert_eq!(applies(&asked), 1, "{asked:?}");
        room.seen.next("PATCH", Fate::LostBefore);
        well(&room.apply("x", &[config("a", "2")]).await);
        assert_eq!(room.get("v1", "ConfigMap", "default", "a").await.unwrap().text("/data/a"), "2");
    });
}

#[test]
fn what_the_api_never_accepts_is_final_and_told_by_name() {
    in_room(async |room| {
        let unknown = object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "dota": {"a": "1"},
        }));
        let refused = fault(&room.apply("x", &[unknown]).await);
        assert_eq!(refused.class, Class::Final, "{refused:?}");
        assert!(refused.evidence.contains(".dota: field not declared in schema"), "{refused}");
        let homeless = object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "nowhere"}, "data": {"a": "1"},
        }));
        let refused = fault(&room.apply("x", &[homeless]).await);
        assert_eq!(refused.to_string(), "ConfigMap nowhere/a: namespaces \"nowhere\" not found");
        let large = config("large", &"x".repeat(2 << 20));
        let refused = fault(&room.apply("x", &[large]).await);
        assert_eq!((refused.class, refused.subject.as_str()), (Class::Final, "ConfigMap default/large"), "{refused}");
    });
}
