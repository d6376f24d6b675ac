//! Graphs that are run where a verb stands: to change something while a lease is held, or only to look.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use castle_engine::{
    Alone, CastleId, Chosen, EVENT_VERSION, Event, Graph, Lease, Listener, Report, Seal, Tools, Wanted, run,
};

use super::{Stand, Trouble};
use crate::doors::Doors;
use crate::drive::{Driven, Running, Setting, drive, line};
use crate::masking;
use crate::output::Printer;
use crate::voice::Still;

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
        let before =
            doors.hand.bounds().map_or(Duration::ZERO, |(begun, _)| doors.clock.monotonic().saturating_sub(begun));
        let driven = drive(graph, setting, printer).await;
        // What was done is noted down and told, whatever the time.
        doors.hand.grant(doors.clock.monotonic());
        Ok(Driven { before, ..driven? })
    }

    /// How much of its time is left to a verb that was given one.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (_, until) = self.kept.doors.hand.bounds()?;
        Some(until.saturating_sub(self.kept.clock().monotonic()))
    }

    /// Runs a graph without changing anything.
    pub(crate) async fn look(&self, graph: &Graph, castle: &CastleId) -> Report {
        let (clock, entropy) = (self.kept.doors.clock.as_ref(), self.kept.doors.entropy.as_ref());
        let (fence, attentive) = (Alone { epoch: 0 }, Arc::<Attentive>::default());
        let tools = Tools { clock, entropy, fence: &fence, listener: &*attentive, signals: None, journal: None };
        let voice = &self.kept.doors.voice;
        let (heard, since, verb) = (attentive.clone(), clock.monotonic(), voice.begun());
        let _at = voice.tells(move |now| heard.still(now, since, verb));
        // Whoever only looks does not wait for long.
        let retry =
            castle_engine::Retry { attempts: 3, first: Duration::from_millis(300), longest: Duration::from_secs(2) };
        let wanted = Wanted { retry, within: self.left(), ..Wanted::all(castle.clone()) };
        masking::report(run(graph, tools, &wanted).await)
    }
}

/// Remembers what is looked at, for whoever wonders why that takes so long.
#[derive(Default)]
struct Attentive(Mutex<Running>);

impl Attentive {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What takes so long, of a look that began `since` in a verb that did before.
    fn still(&self, now: Duration, since: Duration, verb: Duration) -> Option<Still> {
        let what = self.running().longest(now.saturating_sub(since))?;
        let line = line(&what, false)?;
        let event = Event { version: EVENT_VERSION, at: now.saturating_sub(verb), what };
        Some(Still::Looking { event: Box::new(event), line })
    }
}

impl Listener for Attentive {
    fn hear(&self, event: &Event) {
        self.running().hear(&masking::event(event));
    }
}

/// Works while a lease is held: its heart beats meanwhile, and a signal that no run hears ends the work, as does the end of the verb's time. That the lease is lost is for the fence to
/// say, before the next effect.
pub(crate) async fn while_held<T>(
    doors: &Doors,
    lease: &Lease,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let (mut work, mut beating) = (pin!(doors.heed(work)), pin!(lease.keep()));
    let mut is_lost = false;
    poll_fn(|context| {
        if !is_lost && beating.as_mut().poll(context).is_ready() {
            is_lost = true;
        }
        work.as_mut().poll(context)
    })
    .await
}
