//! A guest: its configuration, and whether it runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::stores::Volume;
use crate::talos::node::Disk;

/// A change that waits until the guest is switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Set(String),
    Delete,
}

/// Whether a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    Stopped,
    Running { since: Duration },
}

/// A guest.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) vmid: u32,
    pub(crate) host: String,
    /// What its file says, as it holds now.
    pub(crate) config: BTreeMap<String, String>,
    /// What its file says that holds from the next start on.
    pub(crate) pending: BTreeMap<String, Pending>,
    pub(crate) power: Power,
    /// Whether its processors stand still while it runs.
    pub(crate) is_paused: bool,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
}

/// A snapshot of a guest: its configuration, and its volumes as they were.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) description: String,
    /// When it was taken, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) parent: Option<String>,
    /// What is being done to it; nothing once it is whole.
    pub(crate) state: Option<&'static str>,
    /// By their names, what was in the volumes.
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// What a Talos node had on its disk.
    pub(crate) disk: Option<Arc<Disk>>,
}

impl Guest {
    pub(crate) fn new(vmid: u32, host: &str, config: BTreeMap<String, String>) -> Self {
        Self {
            vmid,
            host: host.to_owned(),
            config,
            pending: BTreeMap::new(),
            power: Power::Stopped,
            is_paused: false,
            snapshots: BTreeMap::new(),
        }
    }

    /// One that is being made: nothing but its lock is known of it.
    pub(crate) fn placeholder(vmid: u32, host: &str, lock: &str) -> Self {
        Self::new(vmid, host, BTreeMap::from([("lock".to_owned(), lock.to_owned())]))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    pub(crate) fn is_running(&self) -> bool {
        self.power != Power::Stopped
    }

    /// The word for what it does, as its monitor says it.
    pub(crate) fn status(&self) -> &'static str {
        match self.power {
            Power::Stopped => "stopped",
            Power::Running { .. } if self.is_paused => "paused",
            Power::Running { .. } => "running",
        }
    }

    pub(crate) fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.get("protection") == Some("1")
    }

    /// Refuses where the configuration is locked.
    pub(crate) fn check_lock(&self) -> Result<(), String> {
        self.lock().map_or(Ok(()), |lock| Err(format!("VM is locked ({lock})")))
    }

    /// The configuration as it will be.
    pub(crate) fn wanted(&self) -> BTreeMap<String, String> {
        let mut wanted = self.config.clone();
        for (key, change) in &self.pending {
            match change {
                Pending::Set(value) => drop(wanted.insert(key.clone(), value.clone())),
                Pending::Delete => drop(wanted.remove(key)),
            }
        }
        wanted
    }

    /// What changes whenever the file does. The vendor takes SHA-1 of the file; clients may only compare it, so the first
    /// 160 bits of SHA-256 do as well.
    pub(crate) fn digest(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.config {
            let _ = writeln!(text, "{key}: {value}");
        }
        for (key, change) in &self.pending {
            let _ = writeln!(text, "[PENDING] {key} {change:?}");
        }
        for (name, snapshot) in &self.snapshots {
            let _ = writeln!(text, "[{name}] {} {:?} {}", snapshot.time, snapshot.state, snapshot.description);
        }
        hex(&Sha256::digest(text)[..20])
    }
}

/// Bytes as small hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_shows_only_in_what_is_wanted() {
        let mut guest = Guest::placeholder(421, "pve", "clone");
        let before = guest.digest();
        guest.pending.insert("cores".into(), Pending::Set("4".into()));
        guest.pending.insert("lock".into(), Pending::Delete);
        assert_ne!(guest.digest(), before);
        assert_eq!((guest.get("cores"), guest.wanted().get("lock")), (None, None));
        assert_eq!(guest.wanted().get("cores").map(String::as_str), Some("4"));
    }

    #[test]
    fn a_lock_is_told() {
        let guest = Guest::placeholder(421, "pve", "clone");
        assert_eq!(guest.check_lock(), Err("VM is locked (clone)".to_owned()));
        assert_eq!(guest.digest().len(), 40);
    }
}
