//! What every step must hold, on the steps of the platform: run twice, failed at every call, killed at every effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_datacenter::{Asked, Latencies, Reply, Version, Witness};
use castle_engine::Graph;
use castle_seams::Clock;
use castle_testbed::contract::{self, Outside, Subject};
use castle_testbed::{Call, Pulse};

use crate::room::{Room, blueprint, file, snapshot};

/// Counts requests, makes one of them end badly, and lets a process die at an effect.
struct Fate {
    pulse: Pulse,
    calls: Mutex<u64>,
    failing: Mutex<Option<(u64, Call)>>,
}

impl Witness for Fate {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        let failing = self.failing.lock().unwrap().filter(|(which, _)| *which == number);
        let mut handle = || if asked.is_change { self.pulse.effect(&mut *handle) } else { Some(handle()) };
        match failing.map(|(_, how)| how) {
            None => handle(),
            Some(Call::Refused) => Some(Reply::failure(500, "got no worker upid - start worker failed")),
            Some(Call::Busy) => {
                Some(Reply::failure(500, "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout"))
            }
            Some(Call::LostBefore) => None,
            Some(Call::LostAfter) => {
                handle();
                None
            }
            Some(Call::Never) => Some(Reply::failure(403, "Permission check failed (/vms/421, VM.Audit)")),
        }
    }
}

/// One node with everything that a node can have.
fn one_node() -> String {
    file(1, 0, "nodes: [pve]").replace("disk: 16GiB}", "disk: 16GiB, dataDisk: 20GiB}")
}

struct Small {
    version: Version,
}

struct SmallRoom {
    room: Room,
    fate: Arc<Fate>,
}

impl SmallRoom {
    fn watched(room: Room, pulse: &Pulse) -> Self {
        let fate = Arc::new(Fate { pulse: pulse.clone(), calls: Mutex::default(), failing: Mutex::default() });
        room.datacenter.unwatch();
        room.datacenter.watch(fate.clone());
        room.watch();
        Self { room, fate }
    }
}

impl Outside for SmallRoom {
    fn snapshot(&self) -> String {
        snapshot(&self.room.datacenter)
    }

    fn effects(&self) -> BTreeMap<String, u32> {
        self.room.datacenter.effects()
    }

    fn calls(&self) -> u64 {
        *self.fate.calls.lock().unwrap()
    }

    fn fail_call(&self, number: u64, how: Call) {
        *self.fate.failing.lock().unwrap() = Some((number, how));
    }
}

impl Subject for Small {
    type World = SmallRoom;
    const FORGIVES: bool = true;

    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> SmallRoom {
        let blueprint = blueprint(&["pve"], self.version).with_latencies(Latencies::none());
        SmallRoom::watched(Room::new(blueprint, &one_node(), clock), pulse)
    }

    fn met_again(&self, world: &SmallRoom, pulse: &Pulse, _: Arc<dyn Clock>) -> SmallRoom {
        SmallRoom::watched(world.room.again(), pulse)
    }

    fn graph(&self, world: &SmallRoom) -> Graph {
        world.room.graph(&world.room.ground(false), &world.room.told())
    }

    fn undo(&self, world: &SmallRoom) -> Graph {
        world.room.razing()
    }
}

#[test]
fn run_twice_and_undone_twice() {
    contract::hold_when_repeated(&Small { version: Version::Nine });
    contract::hold_when_repeated(&Small { version: Version::Eight });
}

#[test]
fn failed_at_every_call_in_every_way() {
    assert!(contract::hold_when_failed(&Small { version: Version::Nine }) > 100);
}

#[test]
fn killed_at_every_effect() {
    assert!(contract::hold_when_killed(&Small { version: Version::Nine }) > 200);
}
