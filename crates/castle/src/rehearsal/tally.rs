//! Who sees every request in a world: counts changes, remembers what was told where it can be read later, and kills.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use castle_datacenter::{Asked, Called, Fate, Reply, VaultAsked, VaultReply, Witness};
use castle_rehearsal::{Moment, Pulse};

/// Whether a change of this name is the one to be killed at.
pub(crate) type IsMeant = Box<dyn Fn(&str) -> bool + Send>;

/// What was seen since the last time somebody looked.
#[derive(Default)]
struct Seen {
    pulse: Pulse,
    changes: Vec<String>,
    told: BTreeSet<String>,
    kill: Option<(IsMeant, Moment)>,
}

/// Sees every request.
#[derive(Default)]
pub(crate) struct Tally {
    seen: Mutex<Seen>,
}

impl Tally {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on a process with this pulse works, which is killed at the first change that is meant, if one is.
    pub(crate) fn begin(&self, pulse: &Pulse, kill: Option<(IsMeant, Moment)>) {
        let mut seen = self.seen();
        (seen.pulse, seen.kill) = (pulse.clone(), kill);
    }

    /// The changes that were asked for since the last time: `POST /nodes/pve/qemu/421/status/start`.
    pub(crate) fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.seen().changes)
    }

    /// What is in logs of others since the last time: all that a hypervisor was told, and the addresses of all other requests.
    pub(crate) fn told(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.seen().told)
    }

    /// Has an effect of the process, unless it does not live to have it or to hear of it.
    fn effect<T>(&self, name: &str, effect: impl FnOnce() -> T) -> (Option<T>, bool) {
        let (pulse, kill) = {
            let mut seen = self.seen();
            seen.changes.push(name.to_owned());
            let kill = seen.kill.take_if(|(is_meant, _)| is_meant(name)).map(|(_, moment)| moment);
            (seen.pulse.clone(), kill)
        };
        if kill == Some(Moment::Before) {
            pulse.kill();
        }
        let mut is_had = false;
        let told = pulse.effect(|| {
            is_had = true;
            effect()
        });
        if kill == Some(Moment::After) {
            pulse.kill();
            return (None, is_had);
        }
        (told, is_had)
    }
}

impl Witness for Tally {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let mut told = format!("{} {}", asked.method, asked.path);
        for (name, value) in &asked.parameters {
            let _ = write!(told, "\n{name}={value}");
        }
        self.seen().told.insert(told);
        if !asked.is_change {
            return Some(handle());
        }
        self.effect(&format!("{} {}", asked.method, asked.path), handle).0
    }

    fn call(&self, called: &Called) -> Fate {
        self.seen().told.insert(called.method.clone());
        if !called.is_change {
            return Fate::Handled;
        }
        match self.effect(&format!("{} at {}", called.method, called.address), || ()) {
            (Some(()), _) => Fate::Handled,
            (None, true) => Fate::LostAfter,
            (None, false) => Fate::LostBefore,
        }
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        self.seen().told.insert(format!("{} {}", asked.method, asked.target));
        // Who logs in has changed nothing.
        if !asked.is_change || asked.target.contains("/auth/") {
            return Some(handle());
        }
        self.effect(&format!("{} {}", asked.method, asked.target), handle).0
    }
}
