//! Nodes that become a cluster, in virtual time: machines, configurations, one bootstrap, voters, an API that serves, nodes that are
//! ready.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(dead_code, reason = "the room has more than a cluster needs")]

#[path = "../platform/room.rs"]
mod room;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Latencies, Version};
use castle_engine::{DirectoryStore, Graph, GraphBuilder, Memory, Outcome, Report, Seal, State, Store};
use castle_layers::cluster::{self, Plan};
use castle_layers::platform::{self, Design};
use castle_layers::secrets::{self, Strongroom};
use castle_layers::{place, survey};
use castle_seams::{Clock, Disk, SystemEntropy, SystemKeyMint};
use castle_talos::steps::Wire;
use castle_testkit::{ModelDisk, Pulse, in_virtual_time};
use tokio::sync::Mutex;

use crate::room::{Room, blueprint, done, door, file};

/// A file whose secrets are quickly minted.
fn quick(control_planes: u32, workers: u32) -> String {
    file(control_planes, workers, "nodes: [pve]")
        .replace("{version: v1.13.9}", "{version: v1.13.9, serviceAccountKey: p256}")
}

/// A room with a state to keep secrets in.
struct Castle {
    room: Room,
    store: Arc<dyn Store>,
    identity: zeroize::Zeroizing<String>,
}

impl Castle {
    fn new(room: Room) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let store = Arc::new(DirectoryStore::new(disk, Path::new("/state")));
        Self { room, store, identity: Seal::mint_identity() }
    }

    fn strongroom(&self) -> Arc<Strongroom> {
        let seal = Seal::own(std::slice::from_ref(&self.identity)).unwrap();
        let (clock, entropy): (Arc<dyn Clock>, _) = (self.room.clock.clone(), Arc::new(SystemEntropy));
        let doors = (clock.clone(), entropy.clone() as _);
        let state = State::new(self.store.clone(), seal, self.room.id.clone(), doors, "me@here", Memory::default());
        Arc::new(Strongroom {
            state: Some(Arc::new(Mutex::new(state))),
            generation: self.room.id.generation,
            given: None,
            mint: Arc::new(SystemKeyMint),
            entropy,
            clock,
        })
    }

    async fn graph(&self, patience: Duration) -> Graph {
        let (room, ground) = (&self.room, self.room.ground(false));
        let survey = survey(&ground, &room.site).await.unwrap();
        let placed = place(&room.site, &survey, &room.nodes).unwrap();
        let mut graph = GraphBuilder::new();
        let (bundle, keys) =
            secrets::bundle(&mut graph, &self.strongroom(), &room.castle, &room.id, &room.nodes, &survey);
        let (castle, nodes, site) = (&room.castle, room.nodes.as_slice(), &room.site);
        let design = Design { castle, nodes, placed: &placed, site, survey: &survey, after: Some(&bundle) };
        platform::raise(&mut graph, &ground, design);
        let wire = Wire { dial: room.datacenter.dial(), clock: room.clock.clone(), is_plain: true, patience };
        let machines = cluster::machines(nodes, &survey);
        let (castle, nodes) = (Arc::new(castle.clone()), Arc::new(nodes.to_vec()));
        cluster::form(&mut graph, &Plan { castle, nodes, machines, wire: Arc::new(wire) }, &keys);
        graph.build().unwrap()
    }

    async fn up(&self) -> Report {
        self.room.run(&self.graph(Duration::from_secs(600)).await, true).await
    }

    async fn plan(&self) -> Report {
        self.room.run(&self.graph(Duration::ZERO).await, false).await
    }
}

#[test]
fn three_and_two_become_a_cluster() {
    in_virtual_time(async |clock| {
        let castle = Castle::new(Room::new(blueprint(&["pve"], Version::Nine), &quick(3, 2), door(clock)));
        let planned = castle.plan().await.ended(|outcome| matches!(outcome, Outcome::Planned { .. })).count();
        assert_eq!(planned, 1 + 1 + 5 + 5 + 5 + 1, "a bundle, an image, machines, starts, configurations, a bootstrap");
        let report = castle.up().await;
        done(&report);
        let again = castle.up().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        let plan = castle.plan().await;
        done(&plan);
    });
}

#[test]
fn one_node_is_enough() {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
        let castle = Castle::new(Room::new(blueprint, &quick(1, 0), door(clock)));
        done(&castle.up().await);
    });
}
