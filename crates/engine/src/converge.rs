//! One step from wherever it is to where it is wanted, and one gate from closed to open.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_seams::{Clock, Entropy, spoken};
use tokio::sync::watch;

use crate::change::Change;
use crate::erased::{AnyGate, AnyStep, Seen};
use crate::event::{EVENT_VERSION, Event, Listener, Outcome, What};
use crate::fault::{Class, Fault};
use crate::fence::Fence;
use crate::graph::{Graph, Node};
use crate::id::{CastleId, OperationId};
use crate::journal::{Journal, JournalError};
use crate::lanes::Lanes;
use crate::retry::{Retry, pace};
use crate::step::{Closed, Operation};
use crate::value::Outputs;

/// How long a gate is waited for after something else has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5 * 60);
/// How long it is looked at what was done once the run is to stop: long enough for an answer, not for a machine that starts.
const SEEING: Duration = Duration::from_secs(5);
/// How long a look may take before it is asked what it waits for, and how often from then on.
const AWAITED: Duration = Duration::from_secs(2);
/// More effects than any step has; a step that wants more never settles.
const MOST_EFFECTS: u32 = 32;

/// What all steps of a run share.
pub(crate) struct Shared<'r> {
    pub(crate) graph: &'r Graph,
    pub(crate) clock: &'r dyn Clock,
    pub(crate) entropy: &'r dyn Entropy,
    pub(crate) fence: &'r dyn Fence,
    pub(crate) listener: &'r dyn Listener,
    /// Without a journal nothing is changed.
    pub(crate) journal: Option<&'r Mutex<Journal>>,
    pub(crate) castle: &'r CastleId,
    pub(crate) retry: Retry,
    pub(crate) lanes: Mutex<Lanes>,
    pub(crate) outputs: Outputs,
    pub(crate) stopping: watch::Sender<bool>,
    /// When a step has failed for the first time.
    pub(crate) failed: OnceLock<Duration>,
    pub(crate) start: Duration,
}

/// What an attempt to do something came to.
enum Acted {
    Well,
    /// Look again: it may or may not have been done.
    LookAgain(Fault),
    Ended(Outcome),
}

/// What was done last and has not been seen yet.
struct Pending {
    operation: OperationId,
    change: Change,
    well: bool,
}

impl Shared<'_> {
    /// Tells the listener, if it listens.
    pub(crate) fn tell(&self, what: impl FnOnce() -> What) {
        if self.listener.listens() {
            self.listener.hear(&Event { version: EVENT_VERSION, at: self.now(), what: what() });
        }
    }

    pub(crate) fn tell_width(&self, lane: u32, width: usize) {
        let name = self.graph.lanes.iter().find(|&(_, &number)| number == lane).map(|(name, _)| name.to_string());
        self.tell(|| What::LaneChanged { lane: name.unwrap_or_default(), width });
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.start)
    }

    /// Nanoseconds last for five hundred years.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub(crate) fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journal(&self) -> Option<MutexGuard<'_, Journal>> {
        self.journal.map(|journal| journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks, decides and acts until there is nothing left to do.
    pub(crate) async fn converge(&self, node: &Node, step: &dyn AnyStep, may_act: bool) -> Outcome {
        let (mut effects, mut attempts) = (0, 0);
        let mut pending: Option<Pending> = None;
        loop {
            // Looking changes nothing: whoever is asked to stop meanwhile just stops. What was just done is worth another moment.
            let moment = if pending.is_some() { SEEING } else { Duration::ZERO };
            let looking = self.telling(node, step, step.observe(&self.outputs));
            let Some(seen) = Box::pin(self.unless_stopped(looking, moment)).await else {
                return Outcome::Remaining;
            };
            let mut seen = match seen {
                Ok(seen) => seen,
                Err(fault) => match Box::pin(self.wait_to_retry(node, fault, &mut attempts)).await {
                    None => continue,
                    Some(outcome) => return outcome,
                },
            };
            let output = seen.output.take();
            let Some(change) = &seen.change else {
                self.note_seen(pending.take());
                if let Some(output) = output {
                    self.outputs.give(node.slot, output);
                }
                return Outcome::Done { effects };
            };
            if !may_act {
                // Only where nothing is ever changed may what is not there yet be built upon.
                if let (None, Some(expected)) = (self.journal, output) {
                    self.outputs.give(node.slot, expected);
                }
                return Outcome::Planned { change: change.clone() };
            }
            match pending.take() {
                Some(last) if last.change == *change && last.well => {
                    // It was done and does not show. Doing it again could do it twice: look again instead.
                    let evidence = format!("{} was done and does not show", change.verb);
                    let hidden = Fault::new(Class::EffectUnknown, node.id.to_string(), evidence)
                        .next("look at it; then run the same command again");
                    pending = Some(last);
                    match Box::pin(self.wait_to_retry(node, hidden, &mut attempts)).await {
                        None => continue,
                        Some(outcome) => return outcome,
                    }
                }
                Some(last) if last.change != *change => {
                    self.note_seen(Some(last));
                    attempts = 0;
                }
                _ => {}
            }
            if self.is_stopping() {
                return Outcome::Remaining;
            }
            if effects >= MOST_EFFECTS {
                let evidence = format!("after {effects} effects it still wants to {}", change.verb);
                return Outcome::Failed { fault: Fault::new(Class::Final, node.id.to_string(), evidence) };
            }
            let operation = OperationId::of(self.castle, &node.id, &change.verb);
            match Box::pin(self.act(node, step, &seen, change, &operation, &mut effects)).await {
                Acted::Well => pending = Some(Pending { operation, change: change.clone(), well: true }),
                Acted::Ended(outcome) => return outcome,
                Acted::LookAgain(fault) => {
                    pending = Some(Pending { operation, change: change.clone(), well: false });
                    if let Some(outcome) = Box::pin(self.wait_to_retry(node, fault, &mut attempts)).await {
                        return outcome;
                    }
                }
            }
        }
    }

    /// Does one thing: asks the fence, notes the intent, and only then acts.
    async fn act(
        &self,
        node: &Node,
        step: &dyn AnyStep,
        seen: &Seen,
        change: &Change,
        operation: &OperationId,
        effects: &mut u32,
    ) -> Acted {
        let epoch = match self.fence.check().await {
            Ok(epoch) => epoch,
            Err(fault) if fault.is_final() => {
                self.stopping.send_replace(true);
                return Acted::Ended(Outcome::Failed { fault });
            }
            Err(fault) => return Acted::LookAgain(fault),
        };
        let noted =
            self.journal().map(|mut journal| journal.intent(operation, &node.id, change.impact, &change.verb, epoch));
        match noted {
            Some(Ok(())) => {}
            Some(Err(error)) => return Acted::Ended(self.unwritable(&error)),
            None => return Acted::Ended(Outcome::Planned { change: change.clone() }),
        }
        self.tell(|| What::StepActing { step: node.id.clone(), change: change.clone() });
        *effects += 1;
        let result = step.act(&self.outputs, seen, &Operation { id: operation.clone(), epoch }).await;
        match result {
            Ok(()) => {
                self.note(|journal| journal.did(operation));
                Acted::Well
            }
            Err(fault) if fault.is_final() => {
                self.note(|journal| journal.abandon(operation, &fault.evidence));
                Acted::Ended(Outcome::Failed { fault })
            }
            Err(fault) => Acted::LookAgain(fault),
        }
    }

    /// The intent could not be written: nothing is done, by this step or any other.
    fn unwritable(&self, error: &JournalError) -> Outcome {
        self.stopping.send_replace(true);
        let fault = Fault::new(Class::Final, "the journal", error.to_string())
            .next("make room or mend the disk, then run the same command again: nothing was done that is not noted");
        Outcome::Failed { fault }
    }

    fn note_seen(&self, pending: Option<Pending>) {
        if let Some(pending) = pending {
            self.note(|journal| journal.commit(&pending.operation));
        }
    }

    /// Notes what has happened. If that fails, what comes next is stopped by its own intent, which will fail too.
    fn note(&self, write: impl FnOnce(&mut Journal) -> Result<(), JournalError>) {
        if let Some(mut journal) = self.journal() {
            let _ = write(&mut journal);
        }
    }

    /// Waits before looking again; returns how the step ends if it is not worth it, or if the run is to stop.
    async fn wait_to_retry(&self, node: &Node, fault: Fault, attempts: &mut u32) -> Option<Outcome> {
        *attempts += 1;
        if fault.is_final() || *attempts > self.retry.attempts {
            return Some(Outcome::Failed { fault });
        }
        if fault.contention {
            let narrower = self.lanes().complain(node.lane);
            if let Some(width) = narrower {
                self.tell_width(node.lane, width);
            }
        }
        let after = self.retry.wait(*attempts, &fault, self.entropy);
        self.tell(|| What::StepRetrying { step: node.id.clone(), fault, after });
        self.sleep(after).await.then_some(Outcome::Remaining)
    }

    /// What looking tells; nothing if the run is to stop, and it takes longer than a moment after that.
    async fn unless_stopped<T>(&self, looking: impl Future<Output = T>, moment: Duration) -> Option<T> {
        let mut stopping = self.stopping.subscribe();
        let mut stop = pin!(async {
            let _ = stopping.wait_for(|stopping| *stopping).await;
            if !moment.is_zero() {
                self.clock.sleep(moment).await;
            }
        });
        let mut looking = pin!(looking);
        poll_fn(|context| match looking.as_mut().poll(context) {
            Poll::Ready(told) => Poll::Ready(Some(told)),
            Poll::Pending => stop.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Looks, and tells what a look waits for that takes long.
    async fn telling<T>(&self, node: &Node, step: &dyn AnyStep, looking: impl Future<Output = T>) -> T {
        let mut told: Option<Closed> = None;
        let mut telling = pin!(async {
            loop {
                self.clock.sleep(AWAITED).await;
                let awaited = step.awaits();
                if let Some(Closed { subject, evidence, .. }) = awaited.clone().filter(|_| awaited != told) {
                    self.tell(|| What::GateClosed { step: node.id.clone(), subject, evidence });
                }
                told = awaited;
            }
        });
        let mut looking = pin!(looking);
        poll_fn(|context| match looking.as_mut().poll(context) {
            Poll::Ready(seen) => Poll::Ready(seen),
            Poll::Pending => {
                // It never ends.
                let _: Poll<()> = telling.as_mut().poll(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Waits; returns whether the run is to stop.
    async fn sleep(&self, duration: Duration) -> bool {
        self.sleep_or(duration, std::future::pending()).await
    }

    /// Waits for the time, for `sooner`, or for the run to be stopped; returns whether it is.
    async fn sleep_or(&self, duration: Duration, sooner: impl Future<Output = ()>) -> bool {
        let mut stopping = self.stopping.subscribe();
        let mut sleep = self.clock.sleep(duration);
        let mut stop = pin!(stopping.wait_for(|stopping| *stopping));
        let mut sooner = pin!(sooner);
        poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            if sooner.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            sleep.as_mut().poll(context).map(|()| false)
        })
        .await
    }

    /// Asks until the gate is open or its time is up.
    pub(crate) async fn pass(&self, node: &Node, gate: &dyn AnyGate, may_wait: bool) -> Outcome {
        let start = self.now();
        let mut told: Option<Closed> = None;
        loop {
            let Some(checked) = Box::pin(self.unless_stopped(gate.check(&self.outputs), Duration::ZERO)).await else {
                return Outcome::Remaining;
            };
            let closed = match checked {
                Ok(Ok(output)) => {
                    self.outputs.give(node.slot, output);
                    return Outcome::Done { effects: 0 };
                }
                Ok(Err(closed)) => closed,
                Err(fault) if fault.is_final() => return Outcome::Failed { fault },
                // Whoever cannot be asked has not said yes.
                Err(fault) => Closed { subject: fault.subject, evidence: fault.evidence, next: fault.next },
            };
            if told.as_ref() != Some(&closed) {
                let (subject, evidence) = (closed.subject.clone(), closed.evidence.clone());
                self.tell(|| What::GateClosed { step: node.id.clone(), subject, evidence });
            }
            let left = gate.deadline().saturating_sub(self.now().saturating_sub(start));
            if !may_wait {
                if let Some(output) = gate.detour(&self.outputs).await {
                    self.outputs.give(node.slot, output);
                }
                let Closed { subject, evidence, .. } = closed;
                return Outcome::Waiting { subject, evidence };
            }
            // A run that has failed is to be run again anyway: whatever only waits does so no longer than usual.
            let begun = self.failed.get().map(|failed| start.max(*failed));
            if begun.is_some_and(|begun| self.now().saturating_sub(begun) >= AFTER_FAILURE) && !left.is_zero() {
                return Outcome::Remaining;
            }
            if left.is_zero() {
                let evidence = format!("{} (waited {})", closed.evidence, spoken(gate.deadline()));
                let fault = Fault::new(Class::RetryableAfter(None), closed.subject, evidence).next(closed.next);
                return Outcome::Failed { fault };
            }
            told = Some(closed);
            let waited = self.now().saturating_sub(start);
            let changed = async {
                if gate.changed(&self.outputs).await.is_none() {
                    self.clock.sleep(pace(waited, gate.period())).await;
                }
            };
            if Box::pin(self.sleep_or(gate.period().min(left), changed)).await {
                return Outcome::Remaining;
            }
        }
    }
}
