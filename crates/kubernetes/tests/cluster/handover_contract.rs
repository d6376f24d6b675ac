//! What every step must hold, on a component that changes its owner: run twice, failed at every call in every way, killed at every
//! effect. In the end it is always the same, and nothing of the component was ever changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use castle_engine::{Graph, Outcome, Report};
use castle_kubernetes::model::{Key, Object};
use castle_kubernetes::steps::{Proof, give, install, prove, take};
use castle_testbed::contract::converge;
use castle_testbed::{Call, ModelDisk, Moment, Pulse};
use serde_json::json;

use crate::contract::Weaver;
use crate::flux;
use crate::room::{Room, in_room, mark, object, well};

fn objects() -> Vec<Object> {
    let labels = json!({"app": "x"});
    vec![
        object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})),
        object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "one"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "x", "image": "x:1", "ports": [{"containerPort": 80}]}],
                    },
                },
            },
        })),
    ]
}

fn keys() -> BTreeSet<Key> {
    objects().iter().map(Object::key).collect()
}

/// A move, from a world in which it can be made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    Give,
    /// While the tree still declares the component.
    TakeFirst,
    /// When the tree declares it no more.
    TakeLast,
}

impl Move {
    const ALL: [Self; 3] = [Self::Give, Self::TakeFirst, Self::TakeLast];

    /// The world before it.
    async fn prepare(self, room: &Room) -> Proof {
        if self == Self::Give {
            well(&room.run(|graph, api| drop(install(graph, api, &objects(), &mark("x")))).await);
        }
        flux::applies(room, &objects()).await;
        if self == Self::TakeLast {
            well(&room.run(|graph, api| take(graph, api, &objects(), &mark("x"))).await);
            flux::lists(room, &[], &json!({})).await;
        }
        prove(&room.api, &keys()).await.unwrap()
    }

    fn graph(self, room: &Room) -> Graph {
        room.graph(|graph, api| match self {
            Self::Give => give(graph, api, &mark("x")),
            Self::TakeFirst | Self::TakeLast => take(graph, api, &objects(), &mark("x")),
        })
    }

    /// Holds that it is made, that Flux and castle have what they should, and that the component is as it was.
    async fn hold(self, room: &Room, before: &Proof, when: &str) {
        let after = prove(&room.api, &keys()).await.unwrap();
        assert_eq!(before.disturbed(&after), Vec::<String>::new(), "{self:?}, {when}");
        assert_eq!(before.pods.len(), 2, "there are Pods to be disturbed");
        let has_inventory = room.get("v1", "ConfigMap", "kube-system", "castle-networking-x").await.is_some();
        assert_eq!(has_inventory, self != Self::Give, "{self:?}, {when}");
        for wanted in objects() {
            let live = room.api.get(&wanted.kind(), wanted.namespace(), wanted.name()).await.unwrap().unwrap();
            let managers = &after.objects[&wanted.key()].managers;
            let has = |name: &str| managers.contains(name);
            let label = |name: &str| live.label(name).is_some();
            let is_paused = live.annotation("kustomize.toolkit.fluxcd.io/reconcile").is_some()
                && live.annotation("kustomize.toolkit.fluxcd.io/prune").is_some();
            // Of a namespace Flux says nothing but its labels.
            let is_bare = wanted.text("/kind") == "Namespace";
            let told = (
                (has("castle"), label("castle.dev/castle")),
                (has("kustomize-controller"), label("kustomize.toolkit.fluxcd.io/name")),
                is_paused,
            );
            let wanted = match self {
                Self::Give => ((false, false), (true, true), false),
                Self::TakeFirst => ((true, true), (!is_bare, false), true),
                Self::TakeLast => ((true, true), (false, false), false),
            };
            assert_eq!(told, wanted, "{self:?}, {when}: {live:?}");
        }
    }
}

/// Runs as a process that dies at this pulse's last beat; its memory is lost, for what is there must be enough.
async fn run(room: &Room, weaver: &Weaver, which: Move, pulse: &Pulse) -> Option<Report> {
    *weaver.pulse.lock().unwrap() = pulse.clone();
    converge(&which.graph(room), &ModelDisk::new(&Pulse::new()), pulse, &room.clock, 1).await
}

fn watched(room: &Room) -> Arc<Weaver> {
    let weaver = Arc::new(Weaver::default());
    room.datacenter().watch(weaver.clone());
    weaver
}

#[test]
fn run_twice_the_second_time_changes_nothing() {
    for which in Move::ALL {
        in_room(async |room| {
            let before = which.prepare(room).await;
            let weaver = watched(room);
            well(&run(room, &weaver, which, &Pulse::new()).await.unwrap());
            which.hold(room, &before, "once").await;
            let effects = weaver.effects.lock().unwrap().clone();
            assert!(!effects.keys().any(|method| method.contains("force=true")), "{effects:?}");
            let deleted: Vec<&String> = effects.keys().filter(|method| method.starts_with("DELETE")).collect();
            assert_eq!(deleted.len(), usize::from(which == Move::Give), "nothing but the inventory: {deleted:?}");
            well(&run(room, &weaver, which, &Pulse::new()).await.unwrap());
            assert_eq!(*weaver.effects.lock().unwrap(), effects, "{which:?}");
        });
    }
}

fn hold_when_failed(which: Move) {
    let mut calls = 0;
    in_room(async |room| {
        which.prepare(room).await;
        let weaver = watched(room);
        well(&run(room, &weaver, which, &Pulse::new()).await.unwrap());
        calls = *weaver.calls.lock().unwrap();
    });
    assert!(calls >= 10, "{which:?}: {calls}");
    for number in 0..calls {
        for how in [Call::Refused, Call::Busy, Call::LostBefore, Call::LostAfter] {
            in_room(async |room| {
                let before = which.prepare(room).await;
                let weaver = watched(room);
                *weaver.failing.lock().unwrap() = Some((number, how));
                let report = run(room, &weaver, which, &Pulse::new()).await.unwrap();
                let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
                assert!(failed.is_empty(), "{which:?}, call {number} ends with {how:?}: {failed:?}");
                which.hold(room, &before, &format!("call {number} ends with {how:?}")).await;
            });
        }
    }
}

#[test]
fn given_with_every_call_failed_in_every_way() {
    hold_when_failed(Move::Give);
}

#[test]
fn first_taken_with_every_call_failed_in_every_way() {
    hold_when_failed(Move::TakeFirst);
}

#[test]
fn last_taken_with_every_call_failed_in_every_way() {
    hold_when_failed(Move::TakeLast);
}

#[test]
fn killed_at_every_effect() {
    for which in Move::ALL {
        let mut beats = 0;
        in_room(async |room| {
            which.prepare(room).await;
            let (weaver, pulse) = (watched(room), Pulse::new());
            well(&run(room, &weaver, which, &pulse).await.unwrap());
            beats = pulse.beats();
        });
        assert!(beats >= 3, "{which:?}: {beats}");
        for beat in 0..beats {
            for moment in [Moment::Before, Moment::After] {
                in_room(async |room| {
                    let when = format!("killed {moment:?} effect {beat}");
                    let before = which.prepare(room).await;
                    let weaver = watched(room);
                    let killed = run(room, &weaver, which, &Pulse::killed_at(beat, moment)).await;
                    assert!(killed.is_none(), "{which:?}, {when}: it lived on");
                    well(&run(room, &weaver, which, &Pulse::new()).await.unwrap());
                    which.hold(room, &before, &when).await;
                    let effects = weaver.effects.lock().unwrap().clone();
                    let twice = effects.iter().find(|(_, count)| **count > 2);
                    assert_eq!(twice, None, "{which:?}, {when}");
                });
            }
        }
    }
}
