//! One datacenter, whoever looks at it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use castle_seams::{Clock, Dial};

use crate::blueprint::Blueprint;
use crate::machines::Machine;
use crate::snapshot::Snapshot;
use crate::transport::pipes::Pipes;
use crate::witness::Witness;
use crate::world::World;

mod interventions;

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
        let (world, witnesses) = (Mutex::new(world), Mutex::default());
        Self { shared: Arc::new(Shared { clock, world, witnesses, requests: AtomicU64::new(0) }) }
    }

    /// The way in over pipes in memory, without TLS: by the names of the hosts, port 8006. Needs a tokio runtime, in which
    /// the connections are served.
    #[must_use]
    pub fn dial(&self) -> Arc<dyn Dial> {
        Arc::new(Pipes { datacenter: self.clone() })
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
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let now = self.shared.clock.monotonic();
        let mut world = self.shared.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(now);
        world
    }
}
