//! What castle wanted once is removed, last things first, and nothing else ever is.

use std::time::Duration;

use castle_kubernetes::model::Object;
use castle_kubernetes::steps::install;
use castle_seams::Clock;
use serde_json::json;

use crate::room::{Room, fault, in_room, mark, object, well};

fn namespace(name: &str) -> Object {
    object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}

fn config(space: &str, name: &str) -> Object {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": space}, "data": {"a": "1"}}),
    )
}

/// A component as a layer has it.
async fn converge(room: &Room, objects: &[Object]) -> castle_engine::Report {
    room.run(|graph, api| drop(install(graph, api, objects, &mark("x")))).await
}

fn names(asked: &[String]) -> Vec<String> {
    let deleted = asked.iter().filter_map(|method| method.strip_prefix("DELETE "));
    deleted.map(|path| path.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn what_is_wanted_no_more_goes_in_reverse_order() {
    in_room(async |room| {
        let all = [namespace("one"), config("one", "a"), config("default", "b"), config("default", "c")];
        well(&converge(room, &all).await);
        room.seen.take();
        well(&converge(room, &all[3..]).await);
        let gone = names(&room.seen.take());
        assert_eq!(gone, ["b", "a", "one"], "the namespace last");
        assert!(room.get("v1", "ConfigMap", "default", "c").await.is_some());
        let inventory = room.get("v1", "ConfigMap", "kube-system", "castle-networking-x").await.unwrap();
        assert_eq!(inventory.text("/data/objects"), "/ConfigMap/default/c");
        room.seen.take();
        well(&converge(room, &all[3..]).await);
        let asked = room.seen.take();
        assert!(asked.iter().all(|method| method.starts_with("GET")), "{asked:?}");
        // With nothing wanted, nothing is left, not even the inventory.
        well(&converge(room, &[]).await);
        assert!(room.get("v1", "ConfigMap", "default", "c").await.is_none());
        assert!(room.get("v1", "ConfigMap", "kube-system", "castle-networking-x").await.is_none());
    });
}

#[test]
fn what_has_lost_its_mark_or_was_never_listed_stays() {
    in_room(async |room| {
        well(&converge(room, &[config("default", "a"), config("default", "b")]).await);
        // Somebody took it over, labels and all.
        let path = "/api/v1/namespaces/default/configmaps/a";
        let theirs = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"castle.dev/castle": "theirs"}}, "data": {"a": "2"},
        });
        assert_eq!(room.as_other("kubectl", path, &theirs).await, 200);
        // And somebody made one with castle's mark that castle never heard of.
        let path = "/api/v1/namespaces/default/configmaps/stranger";
        let stranger = mark("x").on(config("default", "stranger"));
        assert_eq!(room.as_other("kubectl", path, stranger.value()).await, 201);
        room.seen.take();
        well(&converge(room, &[]).await);
        assert_eq!(names(&room.seen.take()), ["b", "castle-networking-x"]);
        assert!(room.get("v1", "ConfigMap", "default", "a").await.is_some());
        assert!(room.get("v1", "ConfigMap", "default", "stranger").await.is_some());
    });
}

#[test]
fn a_namespace_in_which_somebody_lives_is_not_removed() {
    in_room(async |room| {
        well(&converge(room, &[namespace("one")]).await);
        let path = "/api/v1/namespaces/one/configmaps/theirs";
        assert_eq!(room.as_other("kubectl", path, config("one", "theirs").value()).await, 201);
        let refused = fault(&converge(room, &[]).await);
        assert!(refused.guarded, "{refused:?}");
        assert_eq!(refused.to_string(), "Namespace one: ConfigMap one/theirs in it belongs to a person (kubectl)");
        assert!(!room.get("v1", "Namespace", "", "one").await.unwrap().is_ending());
    });
}

#[test]
fn what_will_not_die_is_named_with_what_holds_it_and_within_a_bound() {
    in_room(async |room| {
        let mut held = config("one", "held");
        held = object({
            let mut value = held.value().clone();
            value["metadata"]["finalizers"] = json!(["example.com/held"]);
            value
        });
        well(&converge(room, &[namespace("one"), held]).await);
        let begun = room.clock.monotonic();
        let stuck = fault(&converge(room, &[]).await);
        assert_eq!(stuck.to_string(), "ConfigMap one/held: is on its way out, held by example.com/held");
        assert!(stuck.next.contains("--namespace one configmap held"), "{}", stuck.next);
        assert!(room.clock.monotonic() - begun < Duration::from_secs(300));
    });
}

#[test]
fn a_namespace_that_hangs_is_explained_by_its_conditions() {
    in_room(async |room| {
        well(&converge(room, &[namespace("one")]).await);
        // Made by a controller, so nobody's; but it stays.
        let path = "/api/v1/namespaces/one/configmaps";
        let mut left = config("one", "left").value().clone();
        left["metadata"]["finalizers"] = json!(["example.com/held"]);
        assert_eq!(room.made_by("some-controller", path, &left).await, 201);
        let stuck = fault(&converge(room, &[]).await);
        assert_eq!(stuck.subject, "Namespace one");
        assert!(stuck.evidence.contains("NamespaceFinalizersRemaining"), "{stuck}");
        assert!(stuck.evidence.contains("example.com/held"), "{stuck}");
    });
}
