//! What every step must hold, whatever it is: run twice, failed at every call, killed at every effect, undone twice.
//!
//! A crate with steps of its own describes how to set up a world, what is wanted of it and how to undo it; the harness does the
//! rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use castle_engine::{Alone, CastleId, Deaf, Graph, Journal, Outcome, Report, Tools, Wanted, run};
use castle_seams::{Clock, Disk};

use crate::world::Call;
use crate::{Chance, Loss, ModelDisk, Moment, Pulse, VirtualClock, in_virtual_time};

/// A world that can be looked at from outside and made to fail.
pub trait Outside {
    /// All that is there, in words.
    fn snapshot(&self) -> String;
    /// How often each effect was had.
    fn effects(&self) -> BTreeMap<String, u32>;
    /// How many calls there have been.
    fn calls(&self) -> u64;
    /// Makes the call of this number end badly.
    fn fail_call(&self, number: u64, how: Call);
}

/// What is put to the test.
pub trait Subject {
    /// Its world.
    type World: Outside;
    /// Whether some of its calls may fail for good without harm: a look at a task that is followed by another look.
    const FORGIVES: bool = false;
    /// A world before anything was done.
    fn world(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> Self::World;
    /// The same world, met by another process.
    fn met_again(&self, world: &Self::World, pulse: &Pulse, clock: Arc<dyn Clock>) -> Self::World;
    /// The steps that bring what is wanted.
    fn graph(&self, world: &Self::World) -> Graph;
    /// The steps that take it away again.
    fn undo(&self, world: &Self::World) -> Graph;
}

const JOURNAL: &str = "/state/journal";

/// Runs a graph over a disk, as a process that starts does: by opening the journal.
///
/// # Panics
///
/// If the journal cannot be opened by a process that lives.
pub async fn converge(
    graph: &Graph,
    disk: &ModelDisk,
    pulse: &Pulse,
    clock: &VirtualClock,
    seed: u64,
) -> Option<Report> {
    let castle = CastleId { name: "blue".into(), lineage: "model".into(), generation: 1 };
    let doors: Arc<dyn Disk> = Arc::new(disk.clone());
    let journal = match Journal::open(&doors, Path::new(JOURNAL), &castle) {
        Ok((journal, _)) => Mutex::new(journal),
        Err(_) if pulse.is_dead() => return None,
        Err(error) => panic!("the journal cannot be opened: {error}"),
    };
    let chance = Chance::new(seed);
    let tools = Tools {
        clock,
        entropy: &chance,
        fence: &Alone { epoch: 1 },
        listener: &Deaf,
        signals: None,
        journal: Some(&journal),
    };
    let wanted = Wanted::all(castle);
    let mut running = std::pin::pin!(run(graph, tools, &wanted));
    let mut death = std::pin::pin!(pulse.death());
    std::future::poll_fn(|context| {
        use std::task::Poll;
        if death.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // Killed by its very last effect, it did not live to report.
        running.as_mut().poll(context).map(|report| (!pulse.is_dead()).then_some(report))
    })
    .await
}

fn done(report: Option<Report>, when: &str) -> Report {
    let report = report.unwrap_or_else(|| panic!("{when}: the process was killed"));
    let undone: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
    assert!(undone.is_empty(), "{when}: {undone:?}");
    report
}

/// What an undisturbed run comes to.
struct Undisturbed {
    snapshot: String,
    effects: BTreeMap<String, u32>,
    calls: u64,
    beats: u64,
}

fn undisturbed<S: Subject>(subject: &S) -> Undisturbed {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), subject.world(&pulse, Arc::new(*clock)));
        done(converge(&subject.graph(&world), &disk, &pulse, clock, 0).await, "undisturbed");
        Undisturbed { snapshot: world.snapshot(), effects: world.effects(), calls: world.calls(), beats: pulse.beats() }
    })
}

/// Holds that a second run changes nothing, and that undoing twice is as undoing once.
///
/// # Panics
///
/// If it does not hold.
pub fn hold_when_repeated<S: Subject>(subject: &S) {
    in_virtual_time(async |clock| {
        let pulse = Pulse::new();
        let (disk, world) = (ModelDisk::new(&pulse), subject.world(&pulse, Arc::new(*clock)));
        let before = world.snapshot();
        done(converge(&subject.graph(&world), &disk, &pulse, clock, 0).await, "first run");
        let (snapshot, effects) = (world.snapshot(), world.effects());
        let again = done(converge(&subject.graph(&world), &disk, &pulse, clock, 0).await, "second run");
        assert_eq!(
            (again.effects(), world.snapshot(), world.effects()),
            (0, snapshot, effects),
            "a second run changed something"
        );
        done(converge(&subject.undo(&world), &disk, &pulse, clock, 0).await, "undoing");
        assert_eq!(world.snapshot(), before, "undoing leaves something behind, or takes too much");
        let again = done(converge(&subject.undo(&world), &disk, &pulse, clock, 0).await, "undoing again");
        assert_eq!(again.effects(), 0, "undoing again changed something");
    });
}

/// Holds that whichever call fails, and however, the result is the same, and nothing is done twice.
///
/// # Panics
///
/// If it does not hold.
pub fn hold_when_failed<S: Subject>(subject: &S) -> usize {
    let usual = undisturbed(subject);
    let mut cases = 0;
    for number in 0..usual.calls {
        for how in [Call::Refused, Call::LostBefore, Call::LostAfter, Call::Busy, Call::Never] {
            let when = format!("call {number} ends with {how:?}");
            in_virtual_time(async |clock| {
                let pulse = Pulse::new();
                let (disk, world) = (ModelDisk::new(&pulse), subject.world(&pulse, Arc::new(*clock)));
                world.fail_call(number, how);
                let mut report = converge(&subject.graph(&world), &disk, &pulse, clock, number).await;
                if how == Call::Never {
                    let failed = report
                        .as_ref()
                        .map(|report| report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).count());
                    let enough = if S::FORGIVES { 0..=1 } else { 1..=1 };
                    assert!(
                        failed.is_some_and(|failed| enough.contains(&failed)),
                        "{when}: one step fails, and only that one"
                    );
                    report = converge(&subject.graph(&world), &disk, &pulse, clock, number).await;
                }
                done(report, &when);
                assert_eq!(world.snapshot(), usual.snapshot, "{when}");
                assert_eq!(world.effects(), usual.effects, "{when}");
            });
            cases += 1;
        }
    }
    cases
}

/// Holds that a process killed at any effect, on either side of it, whatever the disk loses, up to all
/// of it, is made good by the next.
///
/// # Panics
///
/// If it does not hold.
pub fn hold_when_killed<S: Subject>(subject: &S) -> usize {
    let usual = undisturbed(subject);
    let losses = [Loss::None, Loss::All, Loss::PowerCut(1), Loss::PowerCut(2), Loss::PowerCut(3)];
    let mut cases = 0;
    for beat in 0..usual.beats {
        for moment in [Moment::Before, Moment::After] {
            for loss in losses {
                let when = format!("killed {moment:?} effect {beat}, {loss:?}");
                in_virtual_time(async |clock| {
                    let pulse = Pulse::killed_at(beat, moment);
                    let (disk, world) = (ModelDisk::new(&pulse), subject.world(&pulse, Arc::new(*clock)));
                    let report = converge(&subject.graph(&world), &disk, &pulse, clock, beat).await;
                    assert!(report.is_none() && pulse.is_dead(), "{when}: it lived on");
                    // And once more while it recovers, at a beat that moves along.
                    let pulse = Pulse::killed_at(beat % 7, moment);
                    let disk = disk.after_crash(loss, &pulse);
                    let world = subject.met_again(&world, &pulse, Arc::new(*clock));
                    converge(&subject.graph(&world), &disk, &pulse, clock, beat).await;
                    let pulse = Pulse::new();
                    let disk = disk.after_crash(loss, &pulse);
                    let world = subject.met_again(&world, &pulse, Arc::new(*clock));
                    done(converge(&subject.graph(&world), &disk, &pulse, clock, beat).await, &when);
                    assert_eq!(world.snapshot(), usual.snapshot, "{when}");
                    assert_eq!(world.effects(), usual.effects, "{when}");
                });
                cases += 1;
            }
        }
    }
    cases
}
