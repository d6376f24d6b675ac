//! What happened, as one number.

use std::sync::{Mutex, PoisonError};

use castle_engine::{Event, Listener};
use sha2::{Digest, Sha256};

/// Hears all events and keeps them, for a digest or for looking at.
#[derive(Debug, Default)]
pub struct Trace {
    events: Mutex<Vec<Event>>,
}

impl Trace {
    /// A trace of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A digest of all events so far: equal traces have equal digests.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for event in self.events() {
            hash.update(serde_json::to_vec(&event).unwrap_or_default());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Listener for Trace {
    fn hear(&self, event: &Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}
