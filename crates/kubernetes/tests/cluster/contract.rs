//! What every step must hold, on a component: run twice, failed at every call in every way, killed at every effect, undone twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_datacenter::{Asked, Called, Fate, Reply, Witness};
use castle_engine::{Graph, GraphBuilder, Outcome, Place, Report};
use castle_kubernetes::model::Object;
use castle_kubernetes::steps::{install, remove};
use castle_testbed::contract::converge;
use castle_testbed::{Call, ModelDisk, Moment, Pulse, VirtualClock, in_virtual_time};
use serde_json::{Value, json};

use crate::castle;
use crate::room::{Reach, access, id, mark, object};
use crate::wire::Nodes;

/// Counts calls and effects, makes one call end badly, and lets a process die at an effect.
#[derive(Default)]
pub(crate) struct Weaver {
    pub(crate) pulse: Mutex<Pulse>,
    pub(crate) calls: Mutex<u64>,
    pub(crate) effects: Mutex<BTreeMap<String, u32>>,
    pub(crate) failing: Mutex<Option<(u64, Call)>>,
}

impl Witness for Weaver {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        let failing = self.failing.lock().unwrap().filter(|(which, _)| *which == number);
        match failing.map(|(_, how)| how) {
            Some(Call::Refused | Call::Never) => return Fate::Refused(14, "the server is not ready".to_owned()),
            Some(Call::Busy) => return Fate::Refused(8, "too many requests".to_owned()),
            Some(Call::LostBefore) => return Fate::LostBefore,
            Some(Call::LostAfter) | None => {}
        }
        let mut is_had = !called.is_change;
        let pulse = self.pulse.lock().unwrap().clone();
        let is_alive = !called.is_change || pulse.effect(|| is_had = true).is_some();
        if is_had && called.is_change {
            *self.effects.lock().unwrap().entry(called.method.clone()).or_default() += 1;
        }
        match (is_had, is_alive && failing.is_none()) {
            (false, _) => Fate::LostBefore,
            (true, false) => Fate::LostAfter,
            (true, true) => Fate::Handled,
        }
    }
}

/// A component with something of every stage that matters.
fn objects() -> Vec<Object> {
    vec![
        object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})),
        object(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })),
        object(json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "one"}, "spec": {"a": 1},
        })),
        object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "one"}, "data": {"a": "1"},
        })),
    ]
}

/// A cluster, and somebody who watches all that is asked of it.
struct World {
    nodes: Nodes,
    clock: VirtualClock,
    weaver: Arc<Weaver>,
}

impl World {
    async fn new(clock: &VirtualClock) -> Self {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&castle::Wanted { vip: None, ..castle::Wanted::default() }).await;
        let weaver = Arc::new(Weaver::default());
        nodes.datacenter().watch(weaver.clone());
        Self { nodes, clock: *clock, weaver }
    }

    fn graph(&self, is_wanted: bool) -> Graph {
        let mut graph = GraphBuilder::new();
        let reach = Reach::new(access(&self.nodes), self.nodes.datacenter().dial(), self.clock);
        let api = graph.gate(id("api"), Place::default(), (), reach);
        if is_wanted {
            install(&mut graph, &api, &objects(), &mark("x"));
        } else {
            remove(&mut graph, &api, &mark("x"));
        }
        graph.build().unwrap()
    }

    /// Runs as a process that dies at this pulse's last beat; its memory is lost, for what is there must be enough.
    async fn run(&self, is_wanted: bool, pulse: &Pulse) -> Option<Report> {
        *self.weaver.pulse.lock().unwrap() = pulse.clone();
        let disk = ModelDisk::new(&Pulse::new());
        converge(&self.graph(is_wanted), &disk, pulse, &self.clock, 1).await
    }

    async fn up(&self) {
        let report = self.run(true, &Pulse::new()).await.unwrap();
        let undone: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
        assert!(undone.is_empty(), "{undone:?}");
    }

    /// What castle has made, without what is drawn.
    fn snapshot(&self) -> BTreeMap<String, Value> {
        let datacenter = self.nodes.datacenter();
        let collections =
            ["namespaces", "configmaps", "customresourcedefinitions.apiextensions.k8s.io", "things.example.com"];
        let mut found = BTreeMap::new();
        for collection in collections {
            for name in datacenter.object_names("blue", collection) {
                let (space, own) = name.rsplit_once('/').unwrap_or(("", &name));
                let Some(live) = datacenter.object("blue", collection, space, own) else { continue };
                if !live["metadata"]["labels"]["castle.dev/castle"].is_null() {
                    let told = json!([live["metadata"]["labels"], live["spec"], live["data"]]);
                    found.insert(format!("{collection} {name}"), told);
                }
            }
        }
        found
    }

    fn effects(&self) -> BTreeMap<String, u32> {
        self.weaver.effects.lock().unwrap().clone()
    }
}

#[test]
fn run_twice_and_undone_twice() {
    in_virtual_time(async |clock| {
        let world = World::new(clock).await;
        world.up().await;
        let (snapshot, effects) = (world.snapshot(), world.effects());
        assert_eq!(snapshot.len(), 5, "four objects and their inventory: {snapshot:?}");
        world.up().await;
        assert_eq!((world.snapshot(), world.effects()), (snapshot, effects));
        for _ in 0..2 {
            let report = world.run(false, &Pulse::new()).await.unwrap();
            assert!(report.is_done(), "{report:?}");
            assert!(world.snapshot().is_empty(), "{:?}", world.snapshot());
        }
    });
}

#[test]
fn failed_at_every_call_in_every_way() {
    let (usual, effects, calls) = in_virtual_time(async |clock| {
        let world = World::new(clock).await;
        world.up().await;
        let calls = *world.weaver.calls.lock().unwrap();
        (world.snapshot(), world.effects(), calls)
    });
    assert!(calls >= 20, "{calls}");
    for number in 0..calls {
        for how in [Call::Refused, Call::Busy, Call::LostBefore, Call::LostAfter] {
            in_virtual_time(async |clock| {
                let world = World::new(clock).await;
                *world.weaver.failing.lock().unwrap() = Some((number, how));
                let report = world.run(true, &Pulse::new()).await.unwrap();
                let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
                assert!(failed.is_empty(), "call {number} ends with {how:?}: {failed:?}");
                assert_eq!(
                    (world.snapshot(), world.effects()),
                    (usual.clone(), effects.clone()),
                    "call {number}: {how:?}"
                );
            });
        }
    }
}

#[test]
fn killed_at_every_effect() {
    for is_wanted in [true, false] {
        let beats = in_virtual_time(async |clock| {
            let world = World::new(clock).await;
            if !is_wanted {
                world.up().await;
            }
            let pulse = Pulse::new();
            world.run(is_wanted, &pulse).await.unwrap();
            pulse.beats()
        });
        assert!(beats >= 5, "{beats}");
        for beat in 0..beats {
            for moment in [Moment::Before, Moment::After] {
                in_virtual_time(async |clock| {
                    let world = World::new(clock).await;
                    if !is_wanted {
                        world.up().await;
                    }
                    let killed = world.run(is_wanted, &Pulse::killed_at(beat, moment)).await;
                    assert!(killed.is_none(), "killed {moment:?} effect {beat}: it lived on");
                    let report = world.run(is_wanted, &Pulse::new()).await.unwrap();
                    assert!(report.is_done(), "killed {moment:?} effect {beat}: {report:?}");
                    let left = world.snapshot().len();
                    assert_eq!(left, if is_wanted { 5 } else { 0 }, "killed {moment:?} effect {beat}");
                    let twice =
                        world.effects().into_iter().find(|(method, count)| method.starts_with("PATCH") && *count > 2);
                    assert_eq!(twice, None, "killed {moment:?} effect {beat}");
                });
            }
        }
    }
}
