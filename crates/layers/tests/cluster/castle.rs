//! A castle in a machine room, from nothing to a cluster.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{DirectoryStore, Fault, Graph, GraphBuilder, Memory, Outcome, Report, Seal, State, Store};
use castle_layers::cluster::{self, Formed, Plan, Referred, Rolling};
use castle_layers::platform::Uuids;
use castle_layers::platform::{self, Design};
use castle_layers::secrets::{self, Strongroom};
use castle_layers::vault::{self, Keeping};
use castle_layers::{place, survey};
use castle_seams::{Clock, Disk, KeyMint, SystemEntropy, SystemKeyMint};
use castle_secrets::vault::Vault;
use castle_secrets::vault::keep::Shelf;
use castle_talos::client::Hush;
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;
use castle_talos::steps::{Keys, Wire};
use castle_testbed::{ModelDisk, Pulse};
use tokio::sync::Mutex;

use crate::room::{Room, file};

/// A file whose secrets are quickly minted.
pub(crate) fn quick(control_planes: u32, workers: u32) -> String {
    file(control_planes, workers, "nodes: [pve]")
        .replace("{version: v1.13.9}", "{version: v1.13.9, serviceAccountKey: p256}")
}

/// What keys are made with, at this time.
pub(crate) fn doors(clock: &dyn Clock) -> Doors<'_> {
    Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock }
}

/// A bundle that is quickly minted.
pub(crate) async fn bundle(clock: &dyn Clock) -> Bundle {
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    Bundle::generate(options, doors(clock)).await.unwrap()
}

/// A room with a state to keep secrets in.
pub(crate) struct Castle {
    pub(crate) room: Room,
    pub(crate) referred: Arc<Referred>,
    /// What machines are known by, if not by what the hypervisor says.
    pub(crate) uuids: Option<Uuids>,
    /// Control planes of this life that nobody asks.
    pub(crate) others: Vec<String>,
    /// Where keys come from.
    pub(crate) mint: Arc<dyn KeyMint>,
    /// Where the castle keeps its secrets besides, if it has a vault.
    pub(crate) vault: Option<Arc<dyn Vault>>,
    store: Arc<dyn Store>,
    identity: zeroize::Zeroizing<String>,
}

impl Castle {
    pub(crate) fn new(room: Room) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let store = Arc::new(DirectoryStore::new(disk, Path::new("/state")));
        let identity = Seal::mint_identity(&SystemEntropy).unwrap();
        let (referred, mint) = (Arc::default(), Arc::new(SystemKeyMint));
        Self { room, referred, uuids: None, others: Vec::new(), mint, vault: None, store, identity }
    }

    /// The sealed state.
    pub(crate) fn state(&self) -> State {
        let seal = Seal::own(std::slice::from_ref(&self.identity)).unwrap();
        let doors = (self.room.clock.clone(), Arc::new(SystemEntropy) as _);
        State::new(self.store.clone(), seal, self.room.id.clone(), doors, "me@here", Memory::default())
    }

    /// Puts this bundle into the state, as if it had been minted there.
    pub(crate) async fn keep_bundle(&self, text: &str) {
        let payload = serde_json::json!({"generation": self.room.id.generation, "bundle": text});
        let mut state = self.state();
        state.latest(&secrets::layer()).await.unwrap();
        state.write(&secrets::layer(), payload, 1).await.unwrap();
    }

    fn strongroom(&self) -> Arc<Strongroom> {
        Arc::new(Strongroom {
            state: Some(Arc::new(Mutex::new(self.state()))),
            generation: self.room.id.generation,
            etcd_begins_on: self.room.castle.first_control_plane(),
            given: None,
            saved: None,
            mint: self.mint.clone(),
            entropy: Arc::new(SystemEntropy),
            clock: self.room.clock.clone(),
        })
    }

    /// What the castle and its nodes know each other by, once that is minted.
    pub(crate) async fn keys(&self) -> Keys {
        let bundle = self.strongroom().bundle().await.unwrap().unwrap();
        Keys::issue(bundle, doors(self.room.clock.as_ref())).await.unwrap()
    }

    /// What a cluster is formed from, for someone of this patience.
    pub(crate) async fn design(&self, patience: Duration) -> Plan {
        let room = &self.room;
        let wire = Wire {
            dial: room.datacenter.dial(),
            clock: room.clock.clone(),
            is_plain: true,
            patience,
            hush: Hush::default(),
            third: None,
        };
        let (castle, nodes) = (Arc::new(room.castle.clone()), Arc::new(room.nodes.clone()));
        let survey = survey(&room.ground(false), &room.site).await.unwrap();
        let machines = cluster::machines(&nodes, &survey);
        Plan {
            castle,
            nodes,
            machines,
            wire: Arc::new(wire),
            referred: self.referred.clone(),
            remembered: self.remembered().await,
            rolling: Rolling::at_once(),
            leaving: Vec::new(),
            uuids: self.uuids.clone().unwrap_or_else(|| platform::uuids(&room.ground(false))),
        }
    }

    /// What is kept in the vault, if there is one.
    fn keeping(&self) -> Option<Keeping> {
        let shelf =
            Shelf { vault: self.vault.clone()?, path: "/castle/blue/proxmox".to_owned(), castle: self.room.id.clone() };
        Some(Keeping {
            shelf,
            seal: Some(Arc::new(Seal::own(std::slice::from_ref(&self.identity)).unwrap())),
            room: self.strongroom(),
            castle: Arc::new(self.room.castle.clone()),
            nodes: Arc::new(self.room.nodes.clone()),
        })
    }

    async fn remembered(&self) -> castle_talos::steps::Remembered {
        let (room, ground, strongroom) = (&self.room, self.room.ground(false), self.strongroom());
        let survey = survey(&ground, &room.site).await.unwrap();
        let remembered = castle_layers::beginning::remembered(&strongroom, &ground, &survey, &room.nodes, true);
        castle_talos::steps::Remembered { others: self.others.clone(), ..remembered.await.unwrap() }
    }

    async fn graph(&self, patience: Duration) -> Graph {
        let mut graph = GraphBuilder::new();
        self.found(&mut graph, patience).await;
        graph.build().unwrap()
    }

    /// Adds all that makes a cluster.
    pub(crate) async fn found(&self, graph: &mut GraphBuilder, patience: Duration) -> Formed {
        let (room, ground) = (&self.room, self.room.ground(false));
        let survey = survey(&ground, &room.site).await.unwrap();
        let placed = place(&room.site, &survey, &room.nodes).unwrap();
        let made = (room.nodes.as_slice(), &survey);
        let (bundle, keys) = secrets::bundle(graph, &self.strongroom(), &room.castle, &room.id, made, true);
        let (castle, nodes, site) = (&room.castle, room.nodes.as_slice(), &room.site);
        let sealed = match self.keeping() {
            Some(keeping) => vault::keep(graph, keeping, &keys),
            None => bundle,
        };
        let design = Design {
            castle,
            nodes,
            placed: &placed,
            site,
            survey: &survey,
            after: Some(&sealed),
            checked: None,
            rolling: &Rolling::at_once(),
        };
        platform::raise(graph, &ground, design);
        let plan = self.design(patience).await;
        let formed = cluster::form(graph, &plan, &keys);
        let has_begun = plan.remembered.began.is_some();
        castle_layers::beginning::forget(graph, (&ground, &plan.wire), (nodes, &survey), &keys, has_begun);
        castle_layers::beginning::note(graph, castle, nodes, (&ground, &self.strongroom()), &formed.quorum);
        formed
    }

    /// What `castle up` does.
    pub(crate) async fn up(&self) -> Report {
        self.room.run(&self.graph(Duration::from_secs(600)).await, true).await
    }

    /// What `castle plan` does.
    pub(crate) async fn plan(&self) -> Report {
        self.room.run(&self.graph(Duration::ZERO).await, false).await
    }
}

/// What failed, in the order of the graph.
pub(crate) fn faults(report: &Report) -> Vec<&Fault> {
    let failed = report.outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Failed { fault } => Some(fault),
        _ => None,
    });
    failed.collect()
}
