//! The model's own steps hold the contract that every step must hold; so does a graph of all kinds of change.

use std::collections::BTreeMap;
use std::sync::Arc;

use castle_engine::{Graph, GraphBuilder, Lane, Layer, Place, StepId};
use castle_seams::Clock;
use castle_testbed::contract::{Outside, Subject, hold_when_failed, hold_when_killed, hold_when_repeated};
use castle_testbed::{Call, ModelWorld, Pulse, Thing, ThingStep, Weather};

struct World(ModelWorld);

impl Outside for World {
    fn snapshot(&self) -> String {
        self.0.snapshot()
    }

    fn effects(&self) -> BTreeMap<String, u32> {
        self.0.effects()
    }

    fn calls(&self) -> u64 {
        self.0.calls()
    }

    fn fail_call(&self, number: u64, how: Call) {
        self.0.fail_call(number, how);
    }
}

/// Four things, one of each kind of change, each needing the one before; beside them one that is not ours.
struct AllKinds;

const NAMES: [&str; 4] = ["made", "changed", "replaced", "rolled"];

impl AllKinds {
    fn chain(world: &World, wanted: impl Fn(usize) -> Option<Thing>, backwards: bool) -> Graph {
        let mut builder = GraphBuilder::new();
        let mut before = Vec::new();
        let mut order: Vec<usize> = (0..NAMES.len()).collect();
        if backwards {
            order.reverse();
        }
        for index in order {
            let step = ThingStep { world: world.0.clone(), name: NAMES[index].to_owned(), wanted: wanted(index) };
            let place = Place { lane: Some(Lane::new("host", 2)), ..Place::default() };
            let id = StepId::new(&Layer::new("platform"), "thing", NAMES[index]);
            let handle = builder.step(id, place, (std::mem::take(&mut before),), step);
            // Two at a time, so that crashes meet steps that run beside each other.
            if index % 2 == 1 {
                before.push(handle);
            }
        }
        builder.build().unwrap()
    }
}

impl Subject for AllKinds {
    type World = World;

    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> World {
        let world = ModelWorld::new(pulse, clock, 7, Weather { failing: 0, slowest_ms: 30, lag_ms: 0 });
        world.put("stranger", Thing { kind: 9, ..Thing::default() }, "someone else");
        World(world)
    }

    fn met_again(&self, world: &World, pulse: &Pulse, clock: Arc<dyn Clock>) -> World {
        World(world.0.after_crash(pulse, clock))
    }

    fn graph(&self, world: &World) -> Graph {
        // What is there already differs from what is wanted, so that every kind of change is needed.
        let wanted = [
            Thing { kind: 1, size: 1, firmware: 1, members: 0 },
            Thing { kind: 1, size: 2, firmware: 2, members: 0 },
            Thing { kind: 2, size: 1, firmware: 1, members: 1 },
            Thing { kind: 1, size: 1, firmware: 1, members: 3 },
        ];
        Self::chain(world, |index| Some(wanted[index].clone()), false)
    }

    fn undo(&self, world: &World) -> Graph {
        Self::chain(world, |_| None, true)
    }
}

/// The same, met with things of ours that are not as wanted.
struct Drifted;

impl Subject for Drifted {
    type World = World;

    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> World {
        let world = AllKinds.world(pulse, clock);
        for name in &NAMES[1..] {
            world.0.put(name, Thing { kind: 1, size: 1, firmware: 1, members: 0 }, "ours");
        }
        world
    }

    fn met_again(&self, world: &World, pulse: &Pulse, clock: Arc<dyn Clock>) -> World {
        AllKinds.met_again(world, pulse, clock)
    }

    fn graph(&self, world: &World) -> Graph {
        AllKinds.graph(world)
    }

    fn undo(&self, world: &World) -> Graph {
        AllKinds.undo(world)
    }
}

#[test]
fn a_second_run_changes_nothing_and_undoing_twice_is_undoing_once() {
    hold_when_repeated(&AllKinds);
}

#[test]
fn whichever_call_fails_nothing_is_done_twice() {
    assert!(hold_when_failed(&AllKinds) > 50);
    assert!(hold_when_failed(&Drifted) > 50);
}

#[test]
fn killed_at_any_effect_the_next_run_makes_it_good() {
    assert!(hold_when_killed(&AllKinds) > 300);
    assert!(hold_when_killed(&Drifted) > 300);
}
