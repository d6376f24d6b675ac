//! What every step must hold, on the steps and gates that make a cluster: run twice, failed at every call, killed at every effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::{Asked, Called, Datacenter, Fate, Latencies, Reply, Version, Witness};
use castle_engine::{Decision, Fault, Graph, GraphBuilder, Layer, Operation, Place, Report, Step, StepId};
use castle_layers::cluster::{self, Plan, Rolling};
use castle_layers::place;
use castle_layers::platform::{self, Design};
use castle_seams::{BoxFuture, Clock};
use castle_talos::client::Hush;
use castle_talos::steps::{Keys, Wire};
use castle_testbed::contract::{self, Outside, Subject};
use castle_testbed::{Call, ModelDisk, Moment, Pulse, in_virtual_time};

use crate::castle::{bundle, doors, quick};
use crate::room::{Room, blueprint, done, snapshot};

/// Counts calls of nodes, makes one of them end badly, and lets a process die at an effect.
struct Weaver {
    pulse: Pulse,
    /// Whether what is done to machines is an effect to die at, beside what is done to nodes.
    counts_machines: bool,
    calls: Mutex<u64>,
    failing: Mutex<Option<(u64, Call)>>,
}

impl Witness for Weaver {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        if asked.is_change && self.counts_machines { self.pulse.effect(handle) } else { Some(handle()) }
    }

    fn call(&self, called: &Called) -> Fate {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        let failing = self.failing.lock().unwrap().filter(|(which, _)| *which == number);
        match failing.map(|(_, how)| how) {
            Some(Call::Refused) => return Fate::Refused(9, "bootstrap is not available yet".to_owned()),
            Some(Call::Busy) => return Fate::Refused(8, "too many requests".to_owned()),
            Some(Call::Never) => return Fate::Refused(7, "not authorized".to_owned()),
            Some(Call::LostBefore) => return Fate::LostBefore,
            Some(Call::LostAfter) | None => {}
        }
        let mut is_had = !called.is_change;
        let is_alive = !called.is_change || self.pulse.effect(|| is_had = true).is_some();
        match (is_had, is_alive && failing.is_none()) {
            (false, _) => Fate::LostBefore,
            (true, false) => Fate::LostAfter,
            (true, true) => Fate::Handled,
        }
    }
}

/// What was given before: a step that finds it.
struct Given(Keys);

impl Step for Given {
    type Needs = ();
    type Observed = ();
    type Action = ();
    type Output = Keys;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn decide(&self, (): &(), (): &()) -> Decision {
        Decision::Nothing
    }

    fn act<'a>(&'a self, (): &'a (), (): &'a (), (): &'a (), _: &'a Operation) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn output(&self, (): &(), (): &()) -> Keys {
        self.0.clone()
    }
}

/// A cluster of so many nodes, whose keys were made before.
struct Cluster {
    keys: Keys,
    control_planes: u32,
    workers: u32,
    latencies: Latencies,
    counts_machines: bool,
}

impl Cluster {
    fn of(control_planes: u32, workers: u32) -> Self {
        let keys = in_virtual_time(async |clock| Keys::issue(bundle(clock).await, doors(clock)).await.unwrap());
        Self { keys, control_planes, workers, latencies: Latencies::none(), counts_machines: true }
    }
}

struct ClusterRoom {
    room: Room,
    weaver: Arc<Weaver>,
}

impl ClusterRoom {
    fn watched(room: Room, pulse: &Pulse, counts_machines: bool) -> Self {
        let (pulse, calls, failing) = (pulse.clone(), Mutex::default(), Mutex::default());
        let weaver = Arc::new(Weaver { pulse, counts_machines, calls, failing });
        room.datacenter.unwatch();
        room.datacenter.watch(weaver.clone());
        Self { room, weaver }
    }
}

/// What became of the guests, without what is drawn.
fn clusters(datacenter: &Datacenter) -> String {
    let (nodes, mut text) = (datacenter.talos_nodes(), String::new());
    for node in &nodes {
        let (name, stage) = (&node.hostname, node.stage.map(castle_datacenter::Stage::word));
        writeln!(text, "node {name} at {:?}: {stage:?}, configured {}", node.addresses, node.is_configured).unwrap();
    }
    for cluster in datacenter.clusters().iter().filter(|_| !nodes.is_empty()) {
        writeln!(text, "cluster {}: names {}, addresses {:?}", cluster.name, cluster.has_dns, cluster.vips.keys())
            .unwrap();
        for etcd in &cluster.etcds {
            let mut members: Vec<_> = etcd.iter().map(|it| (&it.hostname, it.is_learner, it.is_up)).collect();
            members.sort();
            writeln!(text, "etcd {members:?}").unwrap();
        }
        for (name, node) in &cluster.nodes {
            writeln!(text, "member {name}: ready {}", node.is_ready).unwrap();
        }
    }
    text
}

impl Outside for ClusterRoom {
    fn snapshot(&self) -> String {
        snapshot(&self.room.datacenter) + &clusters(&self.room.datacenter)
    }

    fn effects(&self) -> BTreeMap<String, u32> {
        self.room.datacenter.effects()
    }

    fn calls(&self) -> u64 {
        *self.weaver.calls.lock().unwrap()
    }

    fn fail_call(&self, number: u64, how: Call) {
        *self.weaver.failing.lock().unwrap() = Some((number, how));
    }
}

impl Subject for Cluster {
    type World = ClusterRoom;
    const FORGIVES: bool = true;

    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> ClusterRoom {
        let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(self.latencies.clone());
        ClusterRoom::watched(
            Room::unjudged(blueprint, &quick(self.control_planes, self.workers), clock),
            pulse,
            self.counts_machines,
        )
    }

    fn met_again(&self, world: &ClusterRoom, pulse: &Pulse, _: Arc<dyn Clock>) -> ClusterRoom {
        ClusterRoom::watched(world.room.again(), pulse, self.counts_machines)
    }

    fn graph(&self, world: &ClusterRoom) -> Graph {
        let (room, survey) = (&world.room, world.room.told());
        let placed = place(&room.site, &survey, &room.nodes).unwrap();
        let mut graph = GraphBuilder::new();
        let given = StepId::new(&Layer::new("secrets"), "bundle", "blue");
        let keys = graph.step(given, Place::default(), (), Given(self.keys.clone()));
        let (castle, nodes, site) = (&room.castle, room.nodes.as_slice(), &room.site);
        let design = Design {
            castle,
            nodes,
            placed: &placed,
            site,
            survey: &survey,
            after: None,
            checked: None,
            rolling: &Rolling::at_once(),
        };
        platform::raise(&mut graph, &room.ground(false), design);
        let patience = Duration::from_secs(600);
        let wire = Wire {
            dial: room.datacenter.dial(),
            clock: room.clock.clone(),
            is_plain: true,
            patience,
            hush: Hush::default(),
            third: None,
        };
        let (castle, nodes) = (Arc::new(castle.clone()), Arc::new(nodes.to_vec()));
        let machines = cluster::machines(&nodes, &survey);
        let plan = Plan {
            castle,
            nodes,
            machines,
            wire: Arc::new(wire),
            referred: Arc::default(),
            remembered: castle_talos::steps::Remembered::default(),
            rolling: Rolling::at_once(),
            leaving: Vec::new(),
            uuids: platform::uuids(&room.ground(false)),
        };
        cluster::form(&mut graph, &plan, &keys);
        graph.build().unwrap()
    }

    fn undo(&self, world: &ClusterRoom) -> Graph {
        world.room.razing()
    }
}

#[test]
fn run_twice_and_undone_twice() {
    contract::hold_when_repeated(&Cluster::of(3, 1));
}

#[test]
fn failed_at_every_call_in_every_way() {
    let cases = contract::hold_when_failed(&Cluster::of(1, 0));
    assert!(cases >= 50, "{cases}");
}

#[test]
fn killed_at_every_effect() {
    let cases = contract::hold_when_killed(&Cluster::of(1, 0));
    assert!(cases >= 200, "{cases}");
}

/// Goal: whichever effect of a whole raise is a process' last, the next one ends where an undisturbed one does. Method: every effect on
/// machines and nodes is one to die at, on either side of it; the disk keeps what it has, for what it may lose is shown above.
fn hold_when_raise_is_killed(subject: &Cluster) {
    let raise = async |clock: &castle_testbed::VirtualClock, world: &ClusterRoom| -> Option<Report> {
        let disk = ModelDisk::new(&Pulse::new());
        contract::converge(&subject.graph(world), &disk, &world.weaver.pulse, clock, 1).await
    };
    let (usual, effects, beats) = in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let world = subject.world(&pulse, Arc::new(*clock));
        done(&raise(clock, &world).await.unwrap());
        (world.snapshot(), world.effects(), pulse.beats())
    });
    let had =
        |kind: &str| effects.iter().filter(|(effect, _)| effect.starts_with(kind)).map(|(_, count)| count).sum::<u32>();
    assert_eq!((had("apply "), had("bootstrap ")), (subject.control_planes + subject.workers, 1), "{effects:?}");
    for beat in 0..beats {
        for moment in [Moment::Before, Moment::After] {
            in_virtual_time(async |clock| {
                let world = subject.world(&Pulse::killed_at(beat, moment), Arc::new(*clock));
                assert!(raise(clock, &world).await.is_none(), "killed {moment:?} effect {beat}: it lived on");
                let world = subject.met_again(&world, &Pulse::new(), Arc::new(*clock));
                done(&raise(clock, &world).await.unwrap());
                assert_eq!(world.snapshot(), usual, "killed {moment:?} effect {beat}");
                assert_eq!(world.effects(), effects, "killed {moment:?} effect {beat}");
            });
        }
    }
}

#[test]
fn a_raise_that_is_killed_anywhere_is_ended_by_the_next() {
    hold_when_raise_is_killed(&Cluster::of(3, 1));
}

/// With latencies what was begun goes on when its process is dead; what that means for machines is shown by their own tests.
#[test]
fn a_slow_raise_that_is_killed_at_any_node_is_ended_by_the_next() {
    let (latencies, counts_machines) = (Latencies::default(), false);
    hold_when_raise_is_killed(&Cluster { latencies, counts_machines, ..Cluster::of(3, 1) });
}
