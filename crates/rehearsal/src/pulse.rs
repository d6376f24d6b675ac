//! The heartbeat of a process that can be made to stop at any beat.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// On which side of an effect the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The effect is not.
    Before,
    /// The effect is, but nobody hears of it.
    After,
}

#[derive(Debug, Default)]
struct State {
    beats: u64,
    kill: Option<(u64, Moment)>,
    dead: bool,
}

/// Counts effects, and kills at a chosen one. After that there is no effect any more.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    state: Arc<Mutex<State>>,
    killed: Arc<Notify>,
}

impl Pulse {
    /// A pulse that goes on for ever.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A pulse that stops at the beat of this number, counted from zero.
    #[must_use]
    pub fn killed_at(beat: u64, moment: Moment) -> Self {
        let pulse = Self::new();
        pulse.state().kill = Some((beat, moment));
        pulse
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many effects there have been.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.state().beats
    }

    /// Whether the process has been killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Has an effect, if the process lives to have it; returns nothing if it does not live to hear of it.
    pub fn effect<T>(&self, effect: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.state();
        if state.dead {
            return None;
        }
        let beat = state.beats;
        state.beats += 1;
        let kill = state.kill.filter(|(at, _)| *at == beat).map(|(_, moment)| moment);
        let result = (kill != Some(Moment::Before)).then(effect);
        if kill.is_none() {
            return result;
        }
        state.dead = true;
        self.killed.notify_one();
        None
    }

    /// Kills the process now.
    pub fn kill(&self) {
        self.state().dead = true;
        self.killed.notify_one();
    }

    /// Completes when the process is killed.
    pub async fn death(&self) {
        if !self.is_dead() {
            self.killed.notified().await;
        }
    }
}
