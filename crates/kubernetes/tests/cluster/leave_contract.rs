//! What every step must hold, on a node that leaves: run twice, failed at every call in every way, killed at every effect. In the end it
//! is always empty and forgotten, and no Pod was asked to go twice.

use std::sync::Arc;

use castle_engine::{Graph, Outcome, Place, Report};
use castle_kubernetes::steps::{Drain, Empty, Left};
use castle_testbed::contract::converge;
use castle_testbed::{Call, ModelDisk, Moment, Pulse};
use serde_json::json;

use crate::contract::Weaver;
use crate::room::{Room, id, in_room, well};

const PODS: [&str; 2] = ["a", "b"];

/// A node with two Pods on it, and somebody who watches what is asked of the cluster.
async fn prepare(room: &Room) -> Arc<Weaver> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w"}});
    assert_eq!(room.made_by("kubelet", "/api/v1/nodes", &node).await, 201);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    assert_eq!(room.edited_by("kubelet", "/api/v1/nodes/w/status", &ready).await, 200);
    for name in PODS {
        let spec = json!({"nodeName": "w", "containers": [{"name": "x", "image": "x:1"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        assert_eq!(room.made_by("kubectl", "/api/v1/namespaces/default/pods", &pod).await, 201);
    }
    let weaver = Arc::new(Weaver::default());
    room.datacenter().watch(weaver.clone());
    weaver
}

fn graph(room: &Room) -> Graph {
    room.graph(|graph, api| {
        let drained = graph.step(id("drain"), Place::default(), (api.clone(),), Drain::new("blue", "w", None));
        graph.gate(id("empty"), Place::default(), (api.clone(), drained), Empty::new("w"));
        let left = Left::new("blue", ["cp".to_owned()], vec!["w".to_owned()]);
        graph.step(id("left"), Place::default(), (api.clone(),), left);
        graph.after(id("left"), id("empty"));
    })
}

/// Runs as a process that dies at this pulse's last beat; its memory is lost, for what is there must be enough.
async fn run(room: &Room, weaver: &Weaver, pulse: &Pulse) -> Option<Report> {
    *weaver.pulse.lock().unwrap() = pulse.clone();
    converge(&graph(room), &ModelDisk::new(&Pulse::new()), pulse, &room.clock, 1).await
}

/// Holds that the node is gone, and that each Pod was asked to go once.
async fn hold(room: &Room, weaver: &Weaver, when: &str) {
    assert!(room.get("v1", "Node", "", "w").await.is_none(), "{when}: it is still known");
    for name in PODS {
        assert!(room.get("v1", "Pod", "default", name).await.is_none(), "{when}: {name} is still there");
    }
    let effects = weaver.effects.lock().unwrap();
    let evictions = effects.iter().filter(|(method, _)| method.contains("/eviction"));
    let counts: Vec<u32> = evictions.map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 1], "{when}: {effects:?}");
}

#[test]
fn run_twice_the_second_time_changes_nothing() {
    in_room(async |room| {
        let weaver = prepare(room).await;
        well(&run(room, &weaver, &Pulse::new()).await.unwrap());
        hold(room, &weaver, "once").await;
        let effects = weaver.effects.lock().unwrap().clone();
        well(&run(room, &weaver, &Pulse::new()).await.unwrap());
        assert_eq!(*weaver.effects.lock().unwrap(), effects);
    });
}

#[test]
fn failed_at_every_call_in_every_way() {
    let mut calls = 0;
    in_room(async |room| {
        let weaver = prepare(room).await;
        well(&run(room, &weaver, &Pulse::new()).await.unwrap());
        calls = *weaver.calls.lock().unwrap();
    });
    assert!(calls >= 10, "{calls}");
    for number in 0..calls {
        for how in [Call::Refused, Call::Busy, Call::LostBefore, Call::LostAfter] {
            in_room(async |room| {
                let weaver = prepare(room).await;
                *weaver.failing.lock().unwrap() = Some((number, how));
                let report = run(room, &weaver, &Pulse::new()).await.unwrap();
                let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
                assert!(failed.is_empty(), "call {number} ends with {how:?}: {failed:?}");
                hold(room, &weaver, &format!("call {number} ends with {how:?}")).await;
            });
        }
    }
}

#[test]
fn killed_at_every_effect() {
    let mut beats = 0;
    in_room(async |room| {
        let weaver = prepare(room).await;
        let pulse = Pulse::new();
        well(&run(room, &weaver, &pulse).await.unwrap());
        beats = pulse.beats();
    });
    assert!(beats >= 4, "{beats}");
    for beat in 0..beats {
        for moment in [Moment::Before, Moment::After] {
            in_room(async |room| {
                let weaver = prepare(room).await;
                let killed = run(room, &weaver, &Pulse::killed_at(beat, moment)).await;
                assert!(killed.is_none(), "killed {moment:?} effect {beat}: it lived on");
                well(&run(room, &weaver, &Pulse::new()).await.unwrap());
                hold(room, &weaver, &format!("killed {moment:?} effect {beat}")).await;
            });
        }
    }
}
