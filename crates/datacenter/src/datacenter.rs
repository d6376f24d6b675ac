//! One datacenter, whoever looks at it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use castle_seams::{Clock, Dial};
use tokio::sync::watch;

use crate::blueprint::Blueprint;
use crate::machines::Machine;
use crate::snapshot::Snapshot;
use crate::transport::pipes::Pipes;
use crate::witness::Witness;
use crate::world::World;

mod interventions;

/// How long nobody looks where nothing is due.
const IDLE: Duration = Duration::from_secs(60);

/// A datacenter. Clones are the same one.
#[derive(Clone)]
pub struct Datacenter {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    world: Mutex<World>,
    witnesses: Mutex<Vec<Arc<dyn Witness>>>,
    requests: AtomicU64,
    /// Tells those who wait that something happened.
    changes: watch::Sender<u64>,
    /// The calendar of certificates where it is not the datacenter's own: clients on loopback live in real time.
    calendar: OnceLock<Arc<dyn Clock>>,
    /// The way to what is outside of the datacenter.
    outside: OnceLock<Arc<dyn Dial>>,
}

/// The world, held by one. Those who wait for a change are told when it is let go.
pub(crate) struct Held<'a> {
    world: MutexGuard<'a, World>,
    revision: u64,
    changes: &'a watch::Sender<u64>,
}

impl Deref for Held<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.world.revision != self.revision {
            self.changes.send_replace(self.world.revision);
        }
    }
}

impl fmt::Debug for Datacenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datacenter").finish_non_exhaustive()
    }
}

impl Datacenter {
    /// Builds it. Time begins with the clock's.
    #[must_use]
    pub fn new(blueprint: Blueprint, clock: Arc<dyn Clock>) -> Self {
        let calendar = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let world = World::new(blueprint, clock.monotonic(), calendar);
        let (world, witnesses, requests) = (Mutex::new(world), Mutex::default(), AtomicU64::new(0));
        let (changes, calendar, outside) = (watch::Sender::new(0), OnceLock::new(), OnceLock::new());
        Self { shared: Arc::new(Shared { clock, world, witnesses, requests, changes, calendar, outside }) }
    }

    /// The way in over pipes in memory, without TLS: by the names of the hosts, port 8006, by those of vaults, port 80,
    /// and by the addresses of nodes, ports 50000 and 6443. Needs a tokio runtime, in which the connections are served.
    #[must_use]
    pub fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(Pipes { datacenter: self.clone() })
    }

    /// Lets clusters reach what is outside of the datacenter, such as webhooks, in this way. Without it they reach nothing, and
    /// once the datacenter listens ([`Datacenter::serve`]) what listens on this machine. The first way that is given stays.
    pub fn reach_outside(&self, dial: Arc<dyn Dial>) {
        // Whoever comes later finds the way that there is.
        let _ = self.shared.outside.set(dial);
    }

    /// The way out: into the datacenter itself where there is none.
    pub(crate) fn outside(&self) -> Arc<dyn Dial> {
        self.shared.outside.get().cloned().unwrap_or_else(|| self.dial())
    }

    /// Lets `witness` see every request from now on, inside of those who watch already.
    pub fn watch(&self, witness: Arc<dyn Witness>) {
        self.shared.witnesses.lock().unwrap_or_else(PoisonError::into_inner).push(witness);
    }

    /// Lets nobody watch any more.
    pub fn unwatch(&self) {
        self.shared.witnesses.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What there is now.
    #[must_use]
    pub fn look(&self) -> Snapshot {
        Snapshot::of(&self.world())
    }

    /// How often which change took effect: `clone 421`, `start 421`, `download local:import/x.qcow2`.
    #[must_use]
    pub fn effects(&self) -> BTreeMap<String, u32> {
        self.world().effects.clone()
    }

    /// What changes whenever the file of a guest does; nothing if there is no such guest.
    #[must_use]
    pub fn digest_of(&self, vmid: u32) -> Option<String> {
        self.world().guests.get(&vmid).map(crate::world::guest::Guest::digest)
    }

    /// The guests that are switched on.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        self.world().machines.all().cloned().collect()
    }

    /// How many requests there have been.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn witnesses(&self) -> Vec<Arc<dyn Witness>> {
        self.shared.witnesses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The world, caught up with the clock.
    pub(crate) fn world(&self) -> Held<'_> {
        let now = self.shared.clock.monotonic();
        let world = self.shared.world.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = Held { revision: world.revision, world, changes: &self.shared.changes };
        held.advance(now);
        held
    }

    /// Looks at the world whenever something may have happened, until there is something to tell.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut(&mut World) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            let wait = {
                let mut world = self.world();
                if let Some(told) = look(&mut world) {
                    return told;
                }
                // An event that is due this very moment is taken by the next look.
                let next = world.events.next().map(|next| next.saturating_sub(world.now));
                next.map_or(IDLE, |next| next.clamp(Duration::from_millis(1), IDLE))
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = self.shared.clock.sleep(wait) => {}
            }
        }
    }

    /// What the calendar says for certificates.
    pub(crate) fn calendar(&self) -> SystemTime {
        self.shared.calendar.get().unwrap_or(&self.shared.clock).wall()
    }

    /// The clock of those who reach it from outside; that of the world if nobody does.
    pub(crate) fn clients_clock(&self) -> Arc<dyn Clock> {
        self.shared.calendar.get().unwrap_or(&self.shared.clock).clone()
    }

    /// Lets certificates follow another calendar than the datacenter's own.
    pub(crate) fn follow_calendar(&self, clock: Arc<dyn Clock>) {
        // The first to serve decides; whoever comes later lives in the same time.
        let _ = self.shared.calendar.set(clock);
        self.world().clients = self.shared.calendar.get().cloned();
    }
}
