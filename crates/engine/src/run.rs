//! The scheduler: everything whose needs are met runs, the longest remaining path first, as far as lanes allow.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use castle_seams::{BoxFuture, Clock, Entropy, Signals};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;

use crate::converge::Shared;
use crate::event::{Listener, Outcome, What};
use crate::fault::Fault;
use crate::fence::Fence;
use crate::graph::Graph;
use crate::id::{CastleId, Layer, StepId};
use crate::journal::Journal;
use crate::lanes::Lanes;
use crate::queues::Queues;
use crate::retry::Retry;
use crate::shelves::Work;
use crate::timeline::{StepTime, Timeline};
use crate::value::Outputs;

/// What a run works with.
pub struct Tools<'r> {
    /// Time.
    pub clock: &'r dyn Clock,
    /// Chance, for waits that spread.
    pub entropy: &'r dyn Entropy,
    /// Asked before every effect.
    pub fence: &'r dyn Fence,
    /// Hears what happens.
    pub listener: &'r dyn Listener,
    /// The operator's hand; without it a run cannot be interrupted.
    pub signals: Option<&'r dyn Signals>,
    /// Where intents are noted. Without a journal the run only looks.
    pub journal: Option<&'r Mutex<Journal>>,
}

/// The layers that may be changed, while the others are looked at: those that somebody has named, or all.
#[derive(Clone, Debug, Default)]
pub struct Chosen(Vec<Layer>);

impl Chosen {
    /// These layers, or all, if there is none.
    pub fn of(layers: impl IntoIterator<Item = Layer>) -> Self {
        Self(layers.into_iter().collect())
    }

    /// Those that somebody has named.
    #[must_use]
    pub fn named(&self) -> &[Layer] {
        &self.0
    }

    /// Whether a layer may be changed.
    #[must_use]
    pub fn contains(&self, layer: &Layer) -> bool {
        self.0.is_empty() || self.0.contains(layer)
    }
}

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The castle.
    pub castle: CastleId,
    /// What may be changed.
    pub layers: Chosen,
    /// How to wait for what may pass.
    pub retry: Retry,
    /// How long effects that are under way may take to end once the run is interrupted.
    pub grace: Duration,
    /// How long the run may take in all: nothing is begun after that, and what is under way has the same grace as in an interrupted run. Without it
    /// only steps and gates have bounds.
    pub within: Option<Duration>,
}

impl Wanted {
    /// All layers, with the usual patience.
    #[must_use]
    pub fn all(castle: CastleId) -> Self {
        Self {
            castle,
            layers: Chosen::default(),
            retry: Retry::default(),
            grace: Duration::from_secs(30),
            within: None,
        }
    }
}

/// Failures that are not further apart have nothing to do with each other's order.
const SAME_MOMENT: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// How each step ended, each after what it needs.
    pub outcomes: Vec<(StepId, Outcome)>,
    /// The steps of a plan that nobody could look at, each with what it lacks: what is planned of them is foreseen, not seen.
    pub foreseen: BTreeMap<StepId, StepId>,
    /// Whether it was asked to stop.
    pub interrupted: bool,
    /// What took how long.
    pub timeline: Timeline,
}

impl Report {
    /// The steps that ended in some way.
    pub fn ended<'a>(&'a self, how: impl Fn(&Outcome) -> bool + 'a) -> impl Iterator<Item = (&'a StepId, &'a Outcome)> {
        self.outcomes.iter().map(|(step, outcome)| (step, outcome)).filter(move |(_, outcome)| how(outcome))
    }

    /// The steps that failed, and why. The one that failed first comes first: others may have failed because of it. What failed in the
    /// same moment is in the order of the graph: who of them was quicker tells nothing.
    #[must_use]
    pub fn failures(&self) -> Vec<(&StepId, &Fault)> {
        let spans = self.timeline.spans.iter();
        let ends: BTreeMap<&StepId, Duration> =
            spans.map(|span| (&span.step, span.ready + span.waited + span.worked)).collect();
        let mut failures: Vec<(&StepId, &Fault)> = Vec::new();
        for (step, outcome) in &self.outcomes {
            if let Outcome::Failed { fault } = outcome {
                failures.push((step, fault));
            }
        }
        let end = |step: &StepId| ends.get(step).copied().unwrap_or(Duration::MAX);
        let places: BTreeMap<&StepId, usize> =
            failures.iter().enumerate().map(|(place, (step, _))| (*step, place)).collect();
        failures.sort_by_key(|(step, _)| end(step));
        for moment in failures.chunk_by_mut(|one, next| end(next.0).saturating_sub(end(one.0)) < SAME_MOMENT) {
            moment.sort_by_key(|(step, _)| places[step]);
        }
        failures
    }

    /// How a step ended.
    #[must_use]
    pub fn outcome(&self, step: &StepId) -> Option<&Outcome> {
        self.outcomes.iter().find(|(id, _)| id == step).map(|(_, outcome)| outcome)
    }

    /// Whether all is as wanted.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| outcome.is_done())
    }

    /// Whether all of a layer is as wanted.
    #[must_use]
    pub fn has_done(&self, layer: &Layer) -> bool {
        self.outcomes.iter().filter(|(step, _)| step.layer == *layer).all(|(_, outcome)| outcome.is_done())
    }

    /// How many effects there were.
    #[must_use]
    pub fn effects(&self) -> u32 {
        let effects = |outcome: &Outcome| if let Outcome::Done { effects } = outcome { *effects } else { 0 };
        self.outcomes.iter().map(|(_, outcome)| effects(outcome)).sum()
    }
}

/// Runs a graph until every step has ended, or the operator wants no more.
pub async fn run(graph: &Graph, tools: Tools<'_>, wanted: &Wanted) -> Report {
    let Tools { clock, entropy, fence, listener, signals, journal } = tools;
    let shared = Shared {
        graph,
        clock,
        entropy,
        fence,
        listener,
        journal,
        castle: &wanted.castle,
        retry: wanted.retry,
        lanes: Mutex::new(Lanes::new(graph.lanes.len())),
        outputs: Outputs::new(graph.nodes.len()),
        stopping: watch::Sender::new(false),
        failed: OnceLock::new(),
        start: clock.monotonic(),
    };
    shared.tell(|| What::RunStarted { steps: graph.nodes.len(), predicted: graph.predicted() });
    let mut scheduler = Scheduler::new(graph, &shared, wanted);
    let interrupted = scheduler.drive(signals).await;
    // Notes that rode along are worth a sync, though nothing depends on it.
    if let Some(journal) = journal {
        let _ = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).sync();
    }
    shared.tell(|| What::RunEnded);
    scheduler.report(interrupted)
}

type Running<'s> = FuturesUnordered<BoxFuture<'s, (u32, Outcome)>>;

/// How a step ended; small, for most end well.
enum Ended {
    NotYet,
    Well { effects: u32 },
    Otherwise(Box<Outcome>),
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done { effects } => Self::Well { effects },
            other => Self::Otherwise(Box::new(other)),
        }
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::NotYet => Self::Remaining,
            Ended::Well { effects } => Self::Done { effects },
            Ended::Otherwise(outcome) => *outcome,
        }
    }
}

/// Knows steps by rank: the smaller, the more urgent.
struct Scheduler<'s> {
    graph: &'s Graph,
    shared: &'s Shared<'s>,
    wanted: &'s Wanted,
    /// Needs not met yet.
    waits: Vec<u32>,
    queues: Queues,
    running: Running<'s>,
    outcomes: Vec<Ended>,
    /// What stands on something that is only planned.
    promised: Vec<bool>,
    /// What each waits for that is promised and will not be there in this run: the first such.
    lacks: Vec<Option<u32>>,
    /// What was foreseen instead of looked at, and what it lacks.
    foreseen: BTreeMap<StepId, StepId>,
    times: Vec<StepTime>,
}

/// What the scheduler waits for.
enum Next {
    Ended(u32, Outcome),
    Signal,
    GraceOver,
    Idle,
}

impl<'s> Scheduler<'s> {
    fn new(graph: &'s Graph, shared: &'s Shared<'s>, wanted: &'s Wanted) -> Self {
        let count = graph.nodes.len();
        let waits = graph.nodes.iter().map(|node| graph.needs.of(node.slot).len() as u32).collect();
        let mut scheduler = Self {
            graph,
            shared,
            wanted,
            waits,
            queues: Queues::new(graph.lanes.len()),
            running: Running::new(),
            outcomes: (0..count).map(|_| Ended::NotYet).collect(),
            promised: vec![false; count],
            lacks: vec![None; count],
            foreseen: BTreeMap::new(),
            times: vec![StepTime::default(); count],
        };
        for &slot in graph.order.iter().take_while(|&&slot| graph.needs.of(slot).is_empty()) {
            scheduler.note_ready(graph.rank(slot));
        }
        for (rank, node) in (0..count as u32).zip(&graph.nodes).rev() {
            if scheduler.waits[rank as usize] == 0 {
                scheduler.queues.add_free(node.lane, rank);
            }
        }
        scheduler
    }

    fn note_ready(&mut self, rank: u32) {
        let node = &self.graph.nodes[rank as usize];
        self.times[rank as usize].ready_ns = self.shared.now_ns();
        self.shared.tell(|| What::StepReady { step: node.id.clone() });
    }

    fn make_ready(&mut self, rank: u32) {
        self.note_ready(rank);
        self.queues.add_freed(self.graph.nodes[rank as usize].lane, rank);
    }

    /// Runs to the end; returns whether the operator interrupted.
    async fn drive(&mut self, signals: Option<&dyn Signals>) -> bool {
        let (mut interrupted, mut is_ending) = (false, false);
        let mut grace = self.wanted.within.map(|within| self.shared.clock.sleep(within));
        let mut signal = signals.map(Signals::next);
        loop {
            self.start_ready();
            match next(&mut self.running, signal.as_mut(), grace.as_mut()).await {
                Next::Ended(rank, outcome) => self.ended(rank, outcome),
                // Its time is up: nothing new is begun, and what is under way may end.
                Next::GraceOver if !is_ending => {
                    is_ending = true;
                    self.shared.stopping.send_replace(true);
                    grace = Some(self.shared.clock.sleep(self.wanted.grace));
                }
                Next::Idle | Next::GraceOver => return interrupted,
                Next::Signal if interrupted => return true,
                Next::Signal => {
                    (interrupted, is_ending) = (true, true);
                    self.shared.stopping.send_replace(true);
                    self.shared.tell(|| What::Interrupted);
                    grace = Some(self.shared.clock.sleep(self.wanted.grace));
                    signal = signals.map(Signals::next);
                }
            }
        }
    }

    fn start_ready(&mut self) {
        if self.shared.is_stopping() {
            return;
        }
        let (shared, graph) = (self.shared, self.graph);
        let fits = |lane: u32, rank: u32| shared.lanes().enter(lane, || graph.width(&graph.nodes[rank as usize]));
        for rank in self.queues.take(fits) {
            self.start(rank);
        }
    }

    fn start(&mut self, rank: u32) {
        let (shared, node) = (self.shared, &self.graph.nodes[rank as usize]);
        let chosen = self.wanted.layers.contains(&node.id.layer);
        let may_act = chosen && shared.journal.is_some();
        self.times[rank as usize].started_ns = shared.now_ns();
        shared.tell(|| What::StepStarted { step: node.id.clone() });
        let work = self.graph.shelves.work(node.spot);
        self.running.push(Box::pin(async move {
            let outcome = match work {
                Work::Step(step) => shared.converge(node, step, may_act).await,
                Work::Gate(gate) => shared.pass(node, gate, may_act).await,
            };
            (rank, outcome)
        }));
    }

    fn ended(&mut self, rank: u32, outcome: Outcome) {
        let (shared, node) = (self.shared, &self.graph.nodes[rank as usize]);
        self.times[rank as usize].ended_ns = shared.now_ns();
        let wider = shared.lanes().leave(node.lane, outcome.is_done());
        if let Some(width) = wider {
            shared.tell_width(node.lane, width);
        }
        self.queues.stir(node.lane);
        let fault = if let Outcome::Failed { fault } = &outcome { Some(fault) } else { None };
        if self.lacks[rank as usize].is_some() && fault.is_some_and(|fault| !fault.guarded) {
            // It was too early to look.
            let lacking = self.foretell(rank);
            return self.pass_on(rank, true, Some(lacking));
        }
        if fault.is_some() {
            shared.failed.get_or_init(|| shared.now());
        }
        shared.tell(|| What::StepEnded { step: node.id.clone(), outcome: outcome.clone() });
        // A plan goes on from what a step is expected to give, and by the detour of a closed gate.
        let is_planned = matches!(outcome, Outcome::Planned { .. });
        let is_expected =
            matches!(outcome, Outcome::Planned { .. } | Outcome::Waiting { .. }) && shared.outputs.is_given(node.slot);
        let (is_done, remains) = (outcome.is_done() || is_expected, outcome == Outcome::Remaining);
        let is_promised = fault.is_none() && (is_planned || self.promised[rank as usize]);
        self.outcomes[rank as usize] = outcome.into();
        match () {
            () if remains => {}
            () if is_done || is_promised => self.pass_on(rank, is_promised, (!is_done).then_some(rank)),
            () => self.skip_behind(rank),
        }
    }

    /// Something has come to be, or is promised: what waited for it may begin. In a plan, order alone is no reason not to look:
    /// whatever has all values that it needs does, and the rest says what it foresees.
    fn pass_on(&mut self, mut rank: u32, mut is_promised: bool, mut lacking: Option<u32>) {
        let mut foretold = Vec::new();
        loop {
            for &later in self.graph.needed_by.of(rank) {
                let at = later as usize;
                self.promised[at] |= is_promised;
                self.lacks[at] = self.lacks[at].or(lacking);
                self.waits[at] -= 1;
                match self.waits[at] {
                    0 if self.lacks[at].is_none() || self.may_look(later) => self.make_ready(later),
                    0 => foretold.push((later, self.foretell(later))),
                    _ => {}
                }
            }
            let Some((next, lacks)) = foretold.pop() else { return };
            (rank, is_promised, lacking) = (next, true, Some(lacks));
        }
    }

    /// Whether a step can be looked at although something that should come before it is not there.
    fn may_look(&self, rank: u32) -> bool {
        match self.graph.shelves.work(self.graph.nodes[rank as usize].spot) {
            Work::Step(step) => self.shared.journal.is_none() && step.is_fed(&self.shared.outputs),
            Work::Gate(_) => false,
        }
    }

    /// Says what a step foresees that cannot be looked at yet, if this is a plan; returns what it lacks.
    fn foretell(&mut self, rank: u32) -> u32 {
        let graph = self.graph;
        let lacking = self.lacks[rank as usize].unwrap_or(rank);
        let foreseen = match graph.shelves.work(graph.nodes[rank as usize].spot) {
            Work::Step(step) if self.shared.journal.is_none() => step.foresee(),
            Work::Step(_) | Work::Gate(_) => None,
        };
        let because = graph.nodes[lacking as usize].id.clone();
        let outcome = match foreseen {
            None => Outcome::Skipped { because },
            Some(change) => {
                self.foreseen.insert(graph.nodes[rank as usize].id.clone(), because);
                Outcome::Planned { change }
            }
        };
        self.conclude(rank, outcome);
        lacking
    }

    /// What needs a step that did not come to be is not begun. The first that failed is named, not the one in between.
    fn skip_behind(&mut self, rank: u32) {
        let graph = self.graph;
        let because = &graph.nodes[rank as usize].id;
        let mut behind = vec![rank];
        while let Some(rank) = behind.pop() {
            for &later in graph.needed_by.of(rank) {
                if matches!(self.outcomes[later as usize], Ended::NotYet) {
                    self.conclude(later, Outcome::Skipped { because: because.clone() });
                    behind.push(later);
                }
            }
        }
    }

    /// How one ends that was not begun.
    fn conclude(&mut self, rank: u32, outcome: Outcome) {
        let step = &self.graph.nodes[rank as usize].id;
        self.shared.tell(|| What::StepEnded { step: step.clone(), outcome: outcome.clone() });
        self.outcomes[rank as usize] = outcome.into();
    }

    fn report(self, interrupted: bool) -> Report {
        let Self { graph, outcomes: mut ended, times, foreseen, .. } = self;
        let mut timeline = Timeline::new(graph, &times);
        let mut outcomes = Vec::with_capacity(ended.len());
        // One walk for both: the names of many steps are far apart in memory.
        for &slot in &graph.order {
            let (rank, step) = (graph.rank(slot) as usize, graph.id(slot));
            timeline.add(step, &times[rank]);
            outcomes.push((step.clone(), std::mem::replace(&mut ended[rank], Ended::NotYet).into()));
        }
        Report { outcomes, foreseen, interrupted, timeline }
    }
}

/// The first of: a step that ends, a signal, the end of the grace.
async fn next(
    running: &mut Running<'_>,
    mut signal: Option<&mut BoxFuture<'_, castle_seams::Signal>>,
    mut grace: Option<&mut BoxFuture<'static, ()>>,
) -> Next {
    poll_fn(|context| {
        if signal.as_mut().is_some_and(|signal| signal.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Next::Signal);
        }
        match running.poll_next_unpin(context) {
            Poll::Ready(Some((rank, outcome))) => return Poll::Ready(Next::Ended(rank, outcome)),
            Poll::Ready(None) => return Poll::Ready(Next::Idle),
            Poll::Pending => {}
        }
        let over = grace.as_mut().map_or(Poll::Pending, |grace| grace.as_mut().poll(context));
        over.map(|()| Next::GraceOver)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::timeline::Span;

    /// Goal: what failed first is told first, wherever it is in the graph.
    #[test]
    fn failures_are_in_the_order_of_time() {
        let step = |name: &str| StepId::new(&Layer::new("gitops"), "gate", name);
        let failed = |name: &str| (step(name), Outcome::Failed { fault: Fault::new(Class::Final, name, "no") });
        let span = |name: &str, seconds: [u64; 3]| {
            let [ready, waited, worked] = seconds.map(Duration::from_secs);
            Span { step: step(name), ready, waited, worked }
        };
        let mut spans = vec![span("late", [1, 0, 900]), span("never", [0, 0, 5]), span("early", [5, 1, 1])];
        spans.push(Span { worked: Duration::from_millis(999), ..span("with early", [5, 1, 0]) });
        let timeline = Timeline { spans, critical_path: Vec::new() };
        let never = (step("never"), Outcome::Done { effects: 0 });
        let outcomes = vec![failed("late"), never, failed("early"), failed("with early")];
        let report = Report { outcomes, foreseen: BTreeMap::new(), interrupted: false, timeline };
        let told: Vec<&str> = report.failures().iter().map(|(step, _)| &*step.name).collect();
        assert_eq!(
            told,
            ["early", "with early", "late"],
            "what failed in the same moment is told in the order of the graph"
        );
    }
}
