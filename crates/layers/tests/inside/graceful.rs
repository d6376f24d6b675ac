//! Castles that come to rest before they go: what is calmed, what is told where that cannot be, and the way back.

use std::time::Duration;

use castle_datacenter::{Component, ComponentFault};
use castle_engine::{Outcome, Report};
use castle_layers::graceful::{Way, quiet};
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::castle::faults;
use crate::day::Said;
use crate::keep::{BLUE, Keep, inside_only, only};
use crate::person::Person;
use crate::room::{done, door};

/// A database that Flux keeps, with a volume.
const DATABASE: &str = "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: longhorn, resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: default}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: 'example.com/db:1', volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";

/// A castle with a database that runs.
async fn inhabited(keep: &Keep) {
    keep.push(&[("clusters/blue/db.yaml", DATABASE)]);
    done(&keep.up().await);
    for _ in 0..100 {
        if states(keep) == ["attached"] {
            return;
        }
        keep.castle.room.clock.sleep(Duration::from_secs(5)).await;
    }
    panic!("the database has no volume: {:?}, {:?}", states(keep), pods(keep));
}

/// The states of Longhorn's volumes.
fn states(keep: &Keep) -> Vec<String> {
    let world = keep.datacenter();
    let names = world.object_names(BLUE, "volumes.longhorn.io");
    let volume =
        |name: &String| world.object(BLUE, "volumes.longhorn.io", "longhorn-system", name.split_once('/').unwrap().1);
    names.iter().map(|name| volume(name).unwrap()["status"]["state"].as_str().unwrap().to_owned()).collect()
}

/// The nodes of the Pods in the default namespace; null for those that have none.
fn pods(keep: &Keep) -> Vec<Value> {
    let world = keep.datacenter();
    let names = world.object_names(BLUE, "pods");
    let own = names.iter().filter_map(|name| name.strip_prefix("default/"));
    own.map(|name| world.object(BLUE, "pods", "default", name).unwrap()["spec"]["nodeName"].clone()).collect()
}

/// What is closed or suspended.
fn closed(keep: &Keep) -> [bool; 3] {
    let world = keep.datacenter();
    let node = |name: &str| world.object(BLUE, "nodes", "", name).unwrap()["spec"]["unschedulable"] == true;
    let flux = world.object(BLUE, "kustomizations.kustomize.toolkit.fluxcd.io", "flux-system", "flux-system").unwrap();
    [node("blue-cp-1"), node("blue-worker-1"), flux["spec"]["suspend"] == true]
}

/// What `castle down --graceful` does inside of the cluster.
async fn rest(keep: &Keep, within: u64) -> Report {
    let room = &keep.castle.room;
    let way = Way { access: keep.access().await, dial: room.datacenter.dial(), clock: room.clock.clone() };
    room.run(&quiet(way, Duration::from_secs(within)).unwrap(), true).await
}

fn day(happens: impl AsyncFnOnce(&Keep)) {
    in_virtual_time(async |clock| {
        let keep = Keep::new(inside_only(5), &only(&["storage", "gitops"]), door(clock));
        inhabited(&keep).await;
        happens(&keep).await;
    });
}

#[test]
fn flux_holds_still_and_volumes_are_detached() {
    day(async |keep| {
        done(&rest(keep, 300).await);
        assert_eq!((states(keep), closed(keep)), (vec!["detached".to_owned()], [true; 3]));
        assert_eq!(pods(keep), [Value::Null], "whoever keeps the database has made it anew, and it waits");
        keep.castle.room.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!((states(keep), pods(keep)), (vec!["detached".to_owned()], vec![Value::Null]));
        let again = rest(keep, 300).await;
        done(&again);
        assert_eq!(again.effects(), 0);
    });
}

#[test]
fn an_end_that_is_called_off_is_undone_by_up_and_what_a_person_closed_stays_closed() {
    day(async |keep| {
        let person = Person::at(keep).await;
        person.edit("/api/v1/nodes/blue-cp-1", &json!({"spec": {"unschedulable": true}})).await;
        done(&rest(keep, 300).await);
        let planned = keep.plan().await;
        let planned: Vec<_> = planned.ended(|outcome| matches!(outcome, Outcome::Planned { .. })).collect();
        assert!(planned.iter().any(|(step, _)| step.to_string() == "platform/nodes/open"), "{planned:#?}");
        done(&keep.up().await);
        assert_eq!(closed(keep), [true, false, false]);
        keep.castle.room.clock.sleep(Duration::from_secs(120)).await;
        assert_eq!((states(keep), pods(keep)), (vec!["attached".to_owned()], vec![json!("blue-worker-1")]));
        let again = keep.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        // Had all been closed before: Flux is let go on all the same.
        person.edit("/api/v1/nodes/blue-worker-1", &json!({"spec": {"unschedulable": true}})).await;
        done(&rest(keep, 300).await);
        let up = keep.castle.up().await;
        done(&up);
        assert_eq!((up.effects(), closed(keep)), (1, [true, true, false]));
        person.edit("/api/v1/nodes/blue-worker-1", &json!({"spec": {"unschedulable": null}})).await;
    });
}

/// The labels as clusters have them that another castle program has brought to rest. They have no version: what is not `before` was closed by castle.
#[test]
fn the_recorded_labels_are_written_and_read() {
    const NODES: &str = "/api/v1/nodes";
    const FLUX: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/flux-system";
    let labelled = |whose: &str| json!({"labels": {"castle.dev/going-down": whose}});
    day(async |keep| {
        let person = Person::at(keep).await;
        let nodes = [("blue-cp-1", "before"), ("blue-worker-1", "by-castle")];
        for (node, whose) in nodes {
            let closed = json!({"metadata": labelled(whose), "spec": {"unschedulable": true}});
            person.edit(&format!("{NODES}/{node}"), &closed).await;
        }
        person.edit(FLUX, &json!({"metadata": labelled("by-castle"), "spec": {"suspend": true}})).await;
        done(&keep.up().await);
        assert_eq!(closed(keep), [true, false, false]);
        let label = |node: &str| {
            let node = keep.datacenter().object(BLUE, "nodes", "", node).unwrap();
            node["metadata"]["labels"].get("castle.dev/going-down").cloned()
        };
        assert_eq!(nodes.map(|(node, _)| label(node)), [None, None]);
        done(&rest(keep, 300).await);
        assert_eq!(nodes.map(|(node, _)| label(node)), nodes.map(|(_, whose)| Some(json!(whose))));
    });
}

/// The one thing that went wrong, and how long it took to say so.
async fn wrong(keep: &Keep, within: u64) -> (Said, Duration) {
    let clock = &keep.castle.room.clock;
    let begun = clock.monotonic();
    let report = rest(keep, within).await;
    let faults = faults(&report);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    (Said::of(faults[0]), clock.monotonic() - begun)
}

#[test]
fn an_api_that_is_dead_is_not_waited_for() {
    day(async |keep| {
        let control_plane = keep.castle.room.nodes.iter().find(|node| node.name.value == "blue-cp-1").unwrap();
        keep.datacenter().switch(control_plane.vmid.0, false);
        let (said, took) = wrong(keep, 300).await;
        said.may_pass().is("https://10.0.255.1:6443", "does not answer: ", "castle status");
        assert!(took < Duration::from_secs(60), "{took:?}");
    });
}

#[test]
fn a_volume_that_is_never_let_go_is_named_in_time() {
    day(async |keep| {
        keep.datacenter().fail_component(BLUE, Component::Longhorn, ComponentFault::StuckVolume, true);
        let (said, took) = wrong(keep, 90).await;
        assert!(said.subject.starts_with("PersistentVolume pvc-"), "{}", said.subject);
        let (subject, next) = (said.subject.clone(), "kubectl describe persistentvolume pvc-");
        said.may_pass().is(&subject, "is still attached to blue-worker-1 (waited 90 s)", next);
        assert!((90..110).contains(&took.as_secs()), "{took:?}");
        assert_eq!(closed(keep), [true; 3]);
    });
}

#[test]
fn nodes_that_cannot_be_closed_keep_the_rest_from_being_begun() {
    day(async |keep| {
        // Without a webhook that answers no node can be changed, and Pods that end would begin elsewhere.
        keep.datacenter().fail_component(BLUE, Component::Longhorn, ComponentFault::DeadWebhook, true);
        keep.castle.room.clock.sleep(Duration::from_secs(5)).await;
        let (said, _) = wrong(keep, 60).await;
        assert!(said.subject.starts_with("Node blue-"), "{}", said.subject);
        assert_eq!((states(keep), closed(keep)), (vec!["attached".to_owned()], [false; 3]));
    });
}
