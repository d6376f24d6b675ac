//! What a look waits for, for the people who wait with it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use castle_engine::Closed;

/// What is waited for, by whom it is about. Of several it is always the first that is told, so that nothing is told again and again.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<BTreeMap<String, String>>);

impl Awaited {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is waited for, and this is why.
    pub(super) fn wait_for(&self, subject: &str, evidence: &str) {
        self.all().insert(subject.to_owned(), evidence.to_owned());
    }

    /// Nobody is waited for any more.
    pub(super) fn end(&self) {
        self.all().clear();
    }

    /// He is not waited for any more.
    pub(super) fn end_of(&self, subject: &str) {
        self.all().remove(subject);
    }

    pub(super) fn told(&self) -> Option<Closed> {
        let (subject, evidence) = self.all().first_key_value().map(|(who, why)| (who.clone(), why.clone()))?;
        Some(Closed { subject, evidence, next: String::new() })
    }
}
