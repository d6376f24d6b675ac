//! The scheduler: everything whose needs are met runs, the longest remaining path first, as far as lanes allow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use castle_seams::{BoxFuture, Clock, Entropy, Signals};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;

use crate::converge::Shared;
use crate::event::{Listener, Outcome, What};
use crate::fence::Fence;
use crate::graph::{Graph, Work};
use crate::id::{CastleId, Layer, StepId};
use crate::journal::Journal;
use crate::lanes::Lanes;
use crate::retry::Retry;
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

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The castle.
    pub castle: CastleId,
    /// Only this layer may be changed; the others are looked at.
    pub layer: Option<Layer>,
    /// How to wait for what may pass.
    pub retry: Retry,
    /// How long effects that are under way may take to end once the run is interrupted.
    pub grace: Duration,
}

impl Wanted {
    /// All layers, with the usual patience.
    #[must_use]
    pub fn all(castle: CastleId) -> Self {
        Self { castle, layer: None, retry: Retry::default(), grace: Duration::from_secs(30) }
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// How each step ended, each after what it needs.
    pub outcomes: Vec<(StepId, Outcome)>,
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
        clock,
        entropy,
        fence,
        listener,
        journal,
        castle: &wanted.castle,
        retry: wanted.retry,
        lanes: Mutex::new(Lanes::default()),
        outputs: Outputs::new(graph.nodes.len()),
        stopping: watch::Sender::new(false),
        start: clock.monotonic(),
    };
    shared.tell(What::RunStarted { steps: graph.nodes.len(), predicted: graph.predicted() });
    let mut scheduler = Scheduler::new(graph, &shared, wanted);
    let interrupted = scheduler.drive(signals).await;
    // Notes that rode along are worth a sync, though nothing depends on it.
    if let Some(journal) = journal {
        let _ = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).sync();
    }
    shared.tell(What::RunEnded);
    scheduler.report(interrupted)
}

type Running<'s> = FuturesUnordered<BoxFuture<'s, (usize, Outcome)>>;

/// Orders steps: the longest remaining path first, then as they were added.
type Urgency = (Reverse<Duration>, usize);

struct Scheduler<'s> {
    graph: &'s Graph,
    shared: &'s Shared<'s>,
    wanted: &'s Wanted,
    /// Needs not met yet.
    waits: Vec<usize>,
    /// Steps whose needs are met, by lane; within a lane the longest remaining path first.
    ready: BTreeMap<Option<Arc<str>>, BTreeSet<Urgency>>,
    running: Running<'s>,
    outcomes: Vec<Option<Outcome>>,
    times: Vec<StepTime>,
}

/// What the scheduler waits for.
enum Next {
    Ended(usize, Outcome),
    Signal,
    GraceOver,
    Idle,
}

impl<'s> Scheduler<'s> {
    fn new(graph: &'s Graph, shared: &'s Shared<'s>, wanted: &'s Wanted) -> Self {
        let count = graph.nodes.len();
        let waits = graph.nodes.iter().map(|node| node.needs.len()).collect();
        let (outcomes, times) = (vec![None; count], vec![StepTime::default(); count]);
        let mut scheduler =
            Self { graph, shared, wanted, waits, ready: BTreeMap::new(), running: Running::new(), outcomes, times };
        (0..count).filter(|&index| graph.nodes[index].needs.is_empty()).for_each(|index| scheduler.make_ready(index));
        scheduler
    }

    fn make_ready(&mut self, index: usize) {
        let node = &self.graph.nodes[index];
        self.times[index].ready = self.shared.now();
        self.shared.tell(What::StepReady { step: node.id.clone() });
        let lane = node.lane.as_ref().map(|lane| lane.name.clone());
        self.ready.entry(lane).or_default().insert((Reverse(self.graph.remaining[index]), index));
    }

    /// Runs to the end; returns whether the operator interrupted.
    async fn drive(&mut self, signals: Option<&dyn Signals>) -> bool {
        let mut interrupted = false;
        let mut grace: Option<BoxFuture<'static, ()>> = None;
        let mut signal = signals.map(Signals::next);
        loop {
            self.start_ready();
            match next(&mut self.running, signal.as_mut(), grace.as_mut()).await {
                Next::Ended(index, outcome) => self.ended(index, outcome),
                Next::Idle | Next::GraceOver => return interrupted,
                Next::Signal if interrupted => return true,
                Next::Signal => {
                    interrupted = true;
                    self.shared.stopping.send_replace(true);
                    self.shared.tell(What::Interrupted);
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
        let mut starting: Vec<Urgency> = Vec::new();
        for ready in self.ready.values_mut() {
            while let Some(&first) = ready.first() {
                let fits = match &self.graph.nodes[first.1].lane {
                    Some(lane) => self.shared.lanes().enter(lane),
                    None => true,
                };
                if !fits {
                    break;
                }
                ready.remove(&first);
                starting.push(first);
            }
        }
        starting.sort_unstable();
        for (_, index) in starting {
            self.start(index);
        }
    }

    fn start(&mut self, index: usize) {
        let (shared, node) = (self.shared, &self.graph.nodes[index]);
        let chosen = self.wanted.layer.as_ref().is_none_or(|layer| *layer == node.id.layer);
        let may_act = chosen && shared.journal.is_some();
        self.times[index].started = shared.now();
        shared.tell(What::StepStarted { step: node.id.clone() });
        self.running.push(Box::pin(async move {
            let outcome = match &node.work {
                Work::Step(step) => shared.converge(node, step.as_ref(), may_act).await,
                Work::Gate(gate) => shared.pass(node, gate.as_ref(), may_act).await,
            };
            (index, outcome)
        }));
    }

    fn ended(&mut self, index: usize, outcome: Outcome) {
        let node = &self.graph.nodes[index];
        self.times[index].ended = self.shared.now();
        if let Some(lane) = &node.lane {
            let wider = self.shared.lanes().leave(lane, outcome.is_done());
            if let Some(width) = wider {
                self.shared.tell(What::LaneChanged { lane: lane.name.to_string(), width });
            }
        }
        self.shared.tell(What::StepEnded { step: node.id.clone(), outcome: outcome.clone() });
        let (is_done, remains) = (outcome.is_done(), outcome == Outcome::Remaining);
        self.outcomes[index] = Some(outcome);
        if is_done {
            for &later in &node.needed_by {
                self.waits[later] -= 1;
                if self.waits[later] == 0 {
                    self.make_ready(later);
                }
            }
        } else if !remains {
            self.skip_behind(index);
        }
    }

    /// What needs a step that did not come to be is not begun. The first that failed is named, not the one in between.
    fn skip_behind(&mut self, index: usize) {
        let because = self.graph.nodes[index].id.clone();
        let mut behind = vec![index];
        while let Some(index) = behind.pop() {
            for &later in &self.graph.nodes[index].needed_by {
                if self.outcomes[later].is_none() {
                    let outcome = Outcome::Skipped { because: because.clone() };
                    let step = self.graph.nodes[later].id.clone();
                    self.shared.tell(What::StepEnded { step, outcome: outcome.clone() });
                    self.outcomes[later] = Some(outcome);
                    behind.push(later);
                }
            }
        }
    }

    fn report(self, interrupted: bool) -> Report {
        let Self { graph, mut outcomes, times, .. } = self;
        let ended = |&index: &usize| {
            let outcome = outcomes[index].take().unwrap_or(Outcome::Remaining);
            (graph.nodes[index].id.clone(), outcome)
        };
        let outcomes = graph.order.iter().map(ended).collect();
        Report { outcomes, interrupted, timeline: Timeline::new(graph, &times) }
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
            Poll::Ready(Some((index, outcome))) => return Poll::Ready(Next::Ended(index, outcome)),
            Poll::Ready(None) => return Poll::Ready(Next::Idle),
            Poll::Pending => {}
        }
        let over = grace.as_mut().map_or(Poll::Pending, |grace| grace.as_mut().poll(context));
        over.map(|()| Next::GraceOver)
    })
    .await
}
