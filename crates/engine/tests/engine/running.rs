//! Interrupts, fences, gates, and disks that fail in the middle of a run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Class, Closed, Deaf, Fault, Fence, Gate, Graph, GraphBuilder, Journal, Layer, Outcome, Place,
    Report, StepId, Tools, Verdict, Wanted, run,
};
use castle_seams::{BoxFuture, Clock, Disk, Signal, Signals};
use castle_testbed::{Chance, ModelDisk, ModelWorld, Pulse, Thing, ThingStep, VirtualClock, Weather, in_virtual_time};

fn castle() -> CastleId {
    CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 }
}

fn id(kind: &str, name: &str) -> StepId {
    StepId::new(&Layer::new("platform"), kind, name)
}

/// A chain of things, each of which takes up to `slowest_ms` a call.
fn chain(world: &ModelWorld, count: usize) -> Graph {
    let mut builder = GraphBuilder::new();
    let mut before = Vec::new();
    for index in 0..count {
        let step = ThingStep { world: world.clone(), name: index.to_string(), wanted: Some(Thing::default()) };
        before = vec![builder.step(id("thing", &index.to_string()), Place::default(), (before,), step)];
    }
    builder.build().unwrap()
}

struct Setting<'s> {
    fence: &'s dyn Fence,
    signals: Option<&'s dyn Signals>,
}

async fn go(graph: &Graph, disk: &ModelDisk, clock: &VirtualClock, setting: Setting<'_>) -> Report {
    let doors: Arc<dyn Disk> = Arc::new(disk.clone());
    let journal = Mutex::new(Journal::open(&doors, std::path::Path::new("/journal"), &castle()).unwrap().0);
    let chance = Chance::new(1);
    let Setting { fence, signals } = setting;
    let tools = Tools { clock, entropy: &chance, fence, listener: &Deaf, signals, journal: Some(&journal) };
    run(graph, tools, &Wanted::all(castle())).await
}

const ALONE: Setting<'static> = Setting { fence: &Alone { epoch: 1 }, signals: None };

/// Signals at chosen times.
struct Hands {
    clock: VirtualClock,
    at: Mutex<VecDeque<Duration>>,
}

impl Signals for Hands {
    fn next(&self) -> BoxFuture<'_, Signal> {
        let next = self.at.lock().unwrap().pop_front();
        Box::pin(async move {
            match next {
                Some(at) => self.clock.sleep(at.saturating_sub(self.clock.monotonic())).await,
                None => std::future::pending().await,
            }
            Signal::Interrupt
        })
    }
}

fn slow_world(clock: &VirtualClock, pulse: &Pulse) -> ModelWorld {
    ModelWorld::new(pulse, Arc::new(*clock), 3, Weather { failing: 0, slowest_ms: 4000, lag_ms: 0 })
}

#[test]
fn the_first_interrupt_lets_effects_end_and_begins_none() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
        let graph = chain(&world, 10);
        let hands = Hands { clock: *clock, at: Mutex::new([Duration::from_secs(12)].into()) };
        let report = go(&graph, &disk, clock, Setting { signals: Some(&hands), ..ALONE }).await;
        assert!(report.interrupted);
        let done = report.ended(Outcome::is_done).count();
        let remaining = report.ended(|outcome| *outcome == Outcome::Remaining).count();
        assert!(done > 0 && remaining > 0 && done + remaining == 10, "{done} done, {remaining} remain");
        assert!(clock.monotonic() < Duration::from_secs(12 + 30), "{:?}", clock.monotonic());
        assert_eq!(world.effects().len(), done, "every effect that was begun was seen to its end");
        let report = go(&graph, &disk, clock, ALONE).await;
        assert!(report.is_done());
        assert!(world.effects().values().all(|&count| count == 1));
    });
}

#[test]
fn the_second_interrupt_ends_at_once_and_loses_nothing() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
        let graph = chain(&world, 10);
        let hands = Hands { clock: *clock, at: Mutex::new([10_000, 10_001].map(Duration::from_millis).into()) };
        let report = go(&graph, &disk, clock, Setting { signals: Some(&hands), ..ALONE }).await;
        assert!(report.interrupted);
        assert!(clock.monotonic() <= Duration::from_millis(10_010), "{:?}", clock.monotonic());
        assert!(go(&graph, &disk, clock, ALONE).await.is_done());
        assert!(world.effects().values().all(|&count| count == 1));
    });
}

#[test]
fn a_run_with_a_bound_ends_then_and_what_it_left_is_done_by_the_next() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
        let graph = chain(&world, 10);
        let doors: Arc<dyn Disk> = Arc::new(disk.clone());
        let journal = Mutex::new(Journal::open(&doors, std::path::Path::new("/journal"), &castle()).unwrap().0);
        let (chance, fence) = (Chance::new(1), Alone { epoch: 1 });
        let tools =
            Tools { clock, entropy: &chance, fence: &fence, listener: &Deaf, signals: None, journal: Some(&journal) };
        let wanted = Wanted { within: Some(Duration::from_secs(10)), ..Wanted::all(castle()) };
        let report = run(&graph, tools, &wanted).await;
        assert!(!report.interrupted && clock.monotonic() == Duration::from_secs(10), "{:?}", clock.monotonic());
        let (done, left) =
            (report.ended(Outcome::is_done).count(), report.ended(|it| *it == Outcome::Remaining).count());
        assert!(done > 0 && left > 0 && done + left == 10, "{done} done, {left} remain");
        drop(journal);
        assert!(go(&graph, &disk, clock, ALONE).await.is_done());
        assert!(world.effects().values().all(|&count| count == 1));
    });
}

/// A fence that is lost after so many effects.
struct Lost {
    left: Mutex<u32>,
}

impl Fence for Lost {
    fn check(&self) -> BoxFuture<'_, Result<u64, Fault>> {
        let mut left = self.left.lock().unwrap();
        let answer = match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Ok(4)
            }
            None => Err(Fault::new(Class::Final, "the lease", "held by someone@elsewhere under epoch 5")),
        };
        Box::pin(std::future::ready(answer))
    }
}

#[test]
fn a_writer_that_lost_its_lease_stops_before_its_next_effect() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
        let lost = Lost { left: Mutex::new(3) };
        let report = go(&chain(&world, 10), &disk, clock, Setting { fence: &lost, signals: None }).await;
        assert_eq!(world.effects().len(), 3);
        let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
        assert_eq!(failed.len(), 1);
        assert!(format!("{failed:?}").contains("someone@elsewhere"));
    });
}

/// A fence that says once that the lease is lost, when it is asked for the time after so many, and never again.
struct LostOnce {
    left: Mutex<i32>,
}

impl Fence for LostOnce {
    fn check(&self) -> BoxFuture<'_, Result<u64, Fault>> {
        let mut left = self.left.lock().unwrap();
        let is_lost = *left == 0;
        *left -= 1;
        let lost = || Fault::new(Class::Final, "the lease", "held by someone@elsewhere under epoch 5");
        Box::pin(std::future::ready(if is_lost { Err(lost()) } else { Ok(4) }))
    }
}

/// One word is enough for all: steps that wait for nobody do nothing more either, whatever they would be told.
#[test]
fn a_lost_lease_stops_steps_that_do_not_depend_on_each_other() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
        let mut builder = GraphBuilder::new();
        for index in 0..10 {
            let step = ThingStep { world: world.clone(), name: index.to_string(), wanted: Some(Thing::default()) };
            builder.step(id("thing", &index.to_string()), Place::default(), (Vec::new(),), step);
        }
        let lost = LostOnce { left: Mutex::new(3) };
        let report = go(&builder.build().unwrap(), &disk, clock, Setting { fence: &lost, signals: None }).await;
        assert_eq!(world.effects().len(), 3, "{:?}", world.effects());
        let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
        assert!(failed.len() == 1 && format!("{failed:?}").contains("someone@elsewhere"), "{failed:?}");
        assert_eq!(report.ended(|outcome| matches!(outcome, Outcome::Remaining)).count(), 6);
    });
}

/// Whatever the room: before an intent, in the middle of it, or just behind it.
#[test]
fn a_full_disk_stops_the_run_and_nothing_is_done_twice() {
    let mut stopped = 0;
    for room in (250..3500).step_by(17) {
        in_virtual_time(async |clock| {
            let pulse = Pulse::new();
            let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
            disk.limit(Some(room));
            let graph = chain(&world, 10);
            let report = go(&graph, &disk, clock, ALONE).await;
            let failed: Vec<_> = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).collect();
            if let [(_, Outcome::Failed { fault })] = failed.as_slice() {
                assert_eq!(fault.subject, "the journal", "{fault}");
                stopped += 1;
            }
            assert_eq!(
                world.effects().len(),
                report.ended(Outcome::is_done).count(),
                "nothing was done that was not noted"
            );
            disk.limit(None);
            assert!(go(&graph, &disk, clock, ALONE).await.is_done());
            assert!(world.effects().values().all(|&count| count == 1));
        });
    }
    assert!(stopped > 100, "{stopped}");
}

#[test]
fn a_sync_that_fails_stops_the_run_before_the_effect() {
    for number in 0..6 {
        in_virtual_time(async |clock| {
            let pulse = Pulse::new();
            let (disk, world) = (ModelDisk::new(&pulse), slow_world(clock, &pulse));
            let graph = chain(&world, 10);
            disk.fail_sync(number + 1);
            go(&graph, &disk, clock, ALONE).await;
            assert_eq!(world.effects().len() as u64, number);
            assert!(go(&graph, &disk, clock, ALONE).await.is_done());
            assert!(world.effects().values().all(|&count| count == 1));
        });
    }
}

#[test]
fn an_effect_that_shows_late_is_waited_for_and_not_had_twice() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let weather = Weather { failing: 0, slowest_ms: 10, lag_ms: 9000 };
        let (disk, world) = (ModelDisk::new(&pulse), ModelWorld::new(&pulse, Arc::new(*clock), 3, weather));
        assert!(go(&chain(&world, 3), &disk, clock, ALONE).await.is_done());
        assert_eq!(world.effects().into_values().collect::<Vec<_>>(), [1, 1, 1]);
    });
}

/// However the machine dies, what was done is noted: at the moment of each effect a power cut would leave its intent.
#[test]
fn every_effect_finds_its_intent_on_disk() {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let disk = ModelDisk::new(&pulse);
        let seen = Arc::new(Mutex::new(0));
        let (looked, count) = (disk.clone(), seen.clone());
        let world = slow_world(clock, &pulse).witnessed(move |operation| {
            *count.lock().unwrap() += 1;
            assert!(looked.is_synced(operation.id.as_str()), "an effect whose intent is not on disk");
            assert_eq!(operation.epoch, 1);
        });
        assert!(go(&chain(&world, 10), &disk, clock, ALONE).await.is_done());
        assert_eq!(*seen.lock().unwrap(), 10);
    });
}

/// A gate that opens at a time.
struct OpensAt {
    clock: VirtualClock,
    at: Duration,
    asked: Arc<Mutex<u32>>,
    watches: bool,
}

impl Gate for OpensAt {
    type Needs = ();
    type Output = &'static str;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<&'static str>, Fault>> {
        *self.asked.lock().unwrap() += 1;
        let closed = Closed {
            subject: "blue-cp-1".into(),
            evidence: "etcd is a learner".into(),
            next: "talosctl etcd members".into(),
        };
        let open = self.clock.monotonic() >= self.at;
        Box::pin(std::future::ready(Ok(if open { Verdict::Open("voter") } else { Verdict::Closed(closed) })))
    }

    fn changed<'a>(&'a self, (): &'a ()) -> Option<BoxFuture<'a, ()>> {
        self.watches.then(|| self.clock.sleep(self.at.saturating_sub(self.clock.monotonic())))
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

fn gate(clock: &VirtualClock, at: u64, watches: bool) -> (Graph, Arc<Mutex<u32>>) {
    let asked = Arc::new(Mutex::new(0));
    let gate = OpensAt { clock: *clock, at: Duration::from_secs(at), asked: asked.clone(), watches };
    let mut builder = GraphBuilder::new();
    builder.gate(id("quorum", "etcd"), Place::default(), (), gate);
    (builder.build().unwrap(), asked)
}

#[test]
fn a_gate_is_asked_until_it_opens_and_a_watched_one_at_once() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let (graph, asked) = gate(clock, 11, false);
        assert!(go(&graph, &disk, clock, ALONE).await.is_done());
        let (late, asked) = (clock.monotonic() - Duration::from_secs(11), *asked.lock().unwrap());
        assert!(late <= Duration::from_secs(11) / 8 && asked < 50, "{late:?}, {asked} times");
    });
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let (graph, asked) = gate(clock, 1, true);
        assert!(go(&graph, &disk, clock, ALONE).await.is_done());
        assert_eq!((clock.monotonic(), *asked.lock().unwrap()), (Duration::from_secs(1), 2));
    });
}

#[test]
fn a_gate_that_stays_closed_fails_with_subject_evidence_and_the_next_command() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let (graph, _) = gate(clock, 600, false);
        let report = go(&graph, &disk, clock, ALONE).await;
        assert_eq!(clock.monotonic(), Duration::from_secs(60));
        let Outcome::Failed { fault } = report.outcome(&id("quorum", "etcd")).unwrap() else { panic!("{report:?}") };
        assert_eq!(
            (fault.subject.as_str(), fault.evidence.as_str(), fault.next.as_str()),
            ("blue-cp-1", "etcd is a learner (waited 60 s)", "talosctl etcd members")
        );
    });
}
