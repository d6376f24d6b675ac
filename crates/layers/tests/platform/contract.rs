//! What every step must hold, on the steps of the platform: run twice, failed at every call, killed at every effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_datacenter::{Asked, Latencies, Reply, Version, Witness};
use castle_engine::{Graph, GraphBuilder};
use castle_layers::Survey;
use castle_layers::platform::{self, Doomed, Whose};
use castle_proxmox::model::{Host, Mark, Owner, Storage};
use castle_proxmox::steps::Reach;
use castle_seams::Clock;
use castle_testkit::contract::{self, Outside, Subject};
use castle_testkit::{Call, Pulse};

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

    /// The survey as Proxmox would tell it, without asking: the harness wants its graphs at once.
    fn survey(&self) -> Survey {
        let host = Host { name: "pve".into(), is_online: true, memory: None, memory_used: None, cpus: None };
        let storage = |name: &str, kind: &str| Storage {
            name: name.into(),
            kind: kind.into(),
            content: ["images", "import"].map(str::to_owned).into(),
            is_active: true,
            is_shared: false,
            total: None,
            free: None,
        };
        let guests = self.room.datacenter.look().guests.into_values().map(|guest| {
            let row = castle_proxmox::model::Guest {
                vmid: guest.vmid,
                host: guest.host,
                is_machine: true,
                name: None,
                status: None,
                is_template: false,
                tags: [].into(),
                pool: None,
                lock: None,
                memory: None,
                cpus: None,
            };
            (row.vmid, row)
        });
        Survey {
            hosts: [("pve".to_owned(), host)].into(),
            storages: [("pve".to_owned(), vec![storage("local-lvm", "lvmthin"), storage("local", "dir")])].into(),
            guests: Arc::new(guests.collect()),
        }
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
        world.room.graph(&world.room.ground(false), &world.survey())
    }

    fn undo(&self, world: &SmallRoom) -> Graph {
        let (room, look) = (&world.room, world.room.datacenter.look());
        let ours = look.guests.values().filter_map(|guest| {
            let description = guest.config.get("description").cloned().unwrap_or_default();
            let Owner::Ours(mark) = Mark::owner(&room.id, &description) else { return None };
            let is_template = guest.config.get("template").is_some_and(|template| template == "1");
            Some(Doomed {
                vmid: guest.vmid,
                name: mark.name,
                host: guest.host.clone(),
                is_template,
                whose: Whose::Ours,
            })
        });
        let mut graph = GraphBuilder::new();
        let doomed: Vec<Doomed> = ours.collect();
        platform::raze(&mut graph, &room.ground(false), &room.site, &doomed, Reach::Marked, &room.site.hosts);
        graph.build().unwrap()
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
