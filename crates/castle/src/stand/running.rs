//! Graphs that are run where a verb stands: to change something while a lease is held, or only to look.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_engine::{Alone, CastleId, Chosen, Event, Graph, Lease, Listener, Report, Seal, Tools, Wanted, run};

use super::{Stand, Trouble};
use crate::drive::{Driven, QUIET, Running, Setting, drive, line};
use crate::hand::Hand;
use crate::masking;
use crate::output::Printer;

/// What a run is held to.
#[derive(Default)]
pub(crate) struct Bounds<'b> {
    /// What may be changed.
    pub(crate) layers: Chosen,
    /// What the state is sealed with, for whoever writes it.
    pub(crate) seal: Option<&'b Seal>,
    /// How long it may take in all.
    pub(crate) within: Option<Duration>,
    /// Whether it goes on from another run of the same verb.
    pub(crate) goes_on: bool,
}

impl Stand {
    /// Runs a graph for a verb, under a lease.
    pub(crate) async fn drive(
        &self,
        verb: &str,
        graph: Graph,
        castle: &CastleId,
        layers: Chosen,
        lease: &Lease,
        printer: &mut Printer,
    ) -> Result<Driven, Trouble> {
        let seal = self.kept.seal().map_err(Trouble::Failed)?;
        let bounds = Bounds { layers, seal: Some(&seal), ..Bounds::default() };
        self.drive_with(verb, graph, castle, bounds, lease, printer).await
    }

    /// The same for whoever writes no state, and needs no key to it.
    pub(crate) async fn drive_with(
        &self,
        verb: &str,
        graph: Graph,
        castle: &CastleId,
        Bounds { layers, seal, within, goes_on }: Bounds<'_>,
        lease: &Lease,
        printer: &mut Printer,
    ) -> Result<Driven, Trouble> {
        let signals = self.kept.doors.signals().map_err(|error| Trouble::of(&error))?;
        let doors = &self.kept.doors;
        let within = [within, self.left()].into_iter().flatten().min();
        let setting = Setting {
            verb,
            castle: castle.clone(),
            name: self.kept.name(),
            nodes: self.kept.nodes.iter().map(|node| node.name.value.clone()).collect(),
            layers,
            within,
            goes_on,
            folder: &self.kept.own_folder(),
            disk: doors.disk.clone(),
            clock: doors.clock.as_ref(),
            entropy: doors.entropy.as_ref(),
            fence: lease,
            seal,
            signals: &signals,
        };
        let before = self.since.map_or(Duration::ZERO, |begun| doors.clock.monotonic().saturating_sub(begun));
        Ok(Driven { before, ..drive(graph, setting, printer).await? })
    }

    /// How much of its time is left to a verb that was given one.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(self.kept.clock().monotonic()))
    }

    /// Works, and says every now and then what takes so long.
    pub(crate) async fn aloud<T>(&self, what: impl Fn(Duration) -> Option<String>, work: impl Future<Output = T>) -> T {
        let clock = self.kept.clock();
        let begun = clock.monotonic();
        let mut breaking_silence = pin!(async {
            loop {
                clock.sleep(QUIET).await;
                if let Some(what) = what(clock.monotonic().saturating_sub(begun)) {
                    self.aside.say(&what);
                }
            }
        });
        let mut work = pin!(work);
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => {
                // It never ends.
                let _: Poll<()> = breaking_silence.as_mut().poll(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Runs a graph without changing anything.
    pub(crate) async fn look(&self, graph: &Graph, castle: &CastleId) -> Report {
        let (clock, entropy) = (self.kept.doors.clock.as_ref(), self.kept.doors.entropy.as_ref());
        let (fence, attentive) = (Alone { epoch: 0 }, Attentive::default());
        let tools = Tools { clock, entropy, fence: &fence, listener: &attentive, signals: None, journal: None };
        // Whoever only looks does not wait for long.
        let retry =
            castle_engine::Retry { attempts: 3, first: Duration::from_millis(300), longest: Duration::from_secs(2) };
        let wanted = Wanted { retry, within: self.left(), ..Wanted::all(castle.clone()) };
        masking::report(self.aloud(|now| attentive.longest(now), run(graph, tools, &wanted)).await)
    }
}

/// Remembers what is looked at, for whoever wonders why that takes so long.
#[derive(Default)]
struct Attentive(Mutex<Running>);

impl Attentive {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn longest(&self, now: Duration) -> Option<String> {
        line(&self.running().longest(now)?, false).map(|line| format!("Still looking: {line}"))
    }
}

impl Listener for Attentive {
    fn hear(&self, event: &Event) {
        self.running().hear(&masking::event(event));
    }
}

/// Works while a lease is held: its heart beats meanwhile, and a signal that no run hears ends the work. That the lease is lost is for the fence to
/// say, before the next effect.
pub(crate) async fn while_held<T>(
    hand: &Arc<Hand>,
    lease: &Lease,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let (mut work, mut beating) = (pin!(hand.heed(work)), pin!(lease.keep()));
    let mut is_lost = false;
    poll_fn(|context| {
        if !is_lost && beating.as_mut().poll(context).is_ready() {
            is_lost = true;
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(done.unwrap_or(Err(Trouble::Interrupted))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
