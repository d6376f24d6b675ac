//! Which version a resource has: it changes whenever what it says does.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What was last told of each resource. Never shown: configurations are among them.
#[derive(Default)]
pub(crate) struct Ledger {
    told: BTreeMap<(String, String), Entry>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("resources", &self.told.len()).finish_non_exhaustive()
    }
}

/// One resource in its version.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) created: Duration,
    pub(crate) updated: Duration,
    text: String,
}

impl Ledger {
    /// Notes what a resource says now, and tells its version.
    pub(crate) fn note(&mut self, now: Duration, kind: &str, id: &str, text: &str) -> Entry {
        let fresh = || Entry { version: 1, created: now, updated: now, text: text.to_owned() };
        let entry = self.told.entry((kind.to_owned(), id.to_owned())).or_insert_with(fresh);
        if entry.text != text {
            text.clone_into(&mut entry.text);
            entry.version += 1;
            entry.updated = now;
        }
        entry.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_follows_the_text() {
        let mut ledger = Ledger::default();
        let second = Duration::from_secs(1);
        assert_eq!(ledger.note(Duration::ZERO, "a", "x", "1").version, 1);
        assert_eq!(ledger.note(second, "a", "x", "1").version, 1);
        let changed = ledger.note(second, "a", "x", "2");
        assert_eq!((changed.version, changed.created, changed.updated), (2, Duration::ZERO, second));
        assert_eq!(ledger.note(second, "b", "x", "2").version, 1);
    }
}
