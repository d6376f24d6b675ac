//! Nodes that did not answer whoever only looks: each is waited for once, however many steps would ask it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use castle_seams::Target;

/// The nodes that were silent, and what was seen of each.
#[derive(Clone, Debug, Default)]
pub struct Hush(Arc<Mutex<BTreeMap<(String, u16), String>>>);

impl Hush {
    fn nodes(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, u16), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks everybody again.
    pub fn forget(&self) {
        self.nodes().clear();
    }

    pub(super) fn note(&self, target: &Target, why: &str) {
        self.nodes().insert((target.host.clone(), target.port), why.to_owned());
    }

    pub(super) fn told(&self, target: &Target) -> Option<String> {
        self.nodes().get(&(target.host.clone(), target.port)).cloned()
    }
}
