//! Locks on guests and storages: who holds them, who waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::tasks::TaskId;

/// What is locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockName {
    /// The file lock of a guest.
    Guest(u32),
    /// The lock of a storage; with the host if the storage is not shared.
    Storage(String, Option<String>),
}

impl LockName {
    /// What whoever has waited in vain is told.
    pub(crate) fn timeout_text(&self) -> String {
        match self {
            Self::Guest(vmid) => format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout"),
            Self::Storage(name, Some(_)) => {
                format!("can't lock file '/var/lock/pve-manager/pve-storage-{name}' - got timeout")
            }
            Self::Storage(name, None) => format!("cfs-lock 'storage-{name}' error: got lock request timeout"),
        }
    }

    /// How long one waits for it, unless told otherwise.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

#[derive(Debug)]
struct Waiter {
    task: TaskId,
    shared: bool,
    ticket: u64,
}

#[derive(Debug, Default)]
struct Lock {
    holders: BTreeSet<TaskId>,
    shared: bool,
    waiting: VecDeque<Waiter>,
}

/// All locks that are held.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    tickets: u64,
    locks: BTreeMap<LockName, Lock>,
}

impl Locks {
    /// Takes the lock, or queues for it and returns the number of the wait.
    pub(crate) fn take(&mut self, name: &LockName, task: TaskId, shared: bool) -> Result<(), u64> {
        let lock = self.locks.entry(name.clone()).or_default();
        let is_free = lock.holders.is_empty() || (shared && lock.shared && lock.waiting.is_empty());
        if is_free {
            lock.holders.insert(task);
            lock.shared = shared;
            return Ok(());
        }
        self.tickets += 1;
        lock.waiting.push_back(Waiter { task, shared, ticket: self.tickets });
        Err(self.tickets)
    }

    /// Stops waiting. Says whether this wait was still on.
    pub(crate) fn give_up(&mut self, name: &LockName, ticket: u64) -> bool {
        let Some(lock) = self.locks.get_mut(name) else { return false };
        let before = lock.waiting.len();
        lock.waiting.retain(|waiter| waiter.ticket != ticket);
        lock.waiting.len() < before
    }

    /// Gives the lock back. Returns those who have it now.
    pub(crate) fn release(&mut self, name: &LockName, task: TaskId) -> Vec<TaskId> {
        let Some(lock) = self.locks.get_mut(name) else { return Vec::new() };
        if !lock.holders.remove(&task) || !lock.holders.is_empty() {
            return Vec::new();
        }
        let mut granted = Vec::new();
        while let Some(next) = lock.waiting.front() {
            let goes_along = next.shared && lock.shared;
            if !granted.is_empty() && !goes_along {
                break;
            }
            lock.shared = next.shared;
            lock.holders.insert(next.task);
            granted.push(next.task);
            lock.waiting.pop_front();
        }
        if lock.holders.is_empty() {
            self.locks.remove(name);
        }
        granted
    }

    /// Lets go of everything that the task holds or waits for. Returns those who have something now.
    pub(crate) fn drop_all(&mut self, task: TaskId) -> Vec<TaskId> {
        for lock in self.locks.values_mut() {
            lock.waiting.retain(|waiter| waiter.task != task);
        }
        let held = self.locks.iter().filter(|(_, lock)| lock.holders.contains(&task));
        let held: Vec<LockName> = held.map(|(name, _)| name.clone()).collect();
        held.iter().flat_map(|name| self.release(name, task)).collect()
    }

    /// Whether somebody holds it.
    pub(crate) fn is_held(&self, name: &LockName) -> bool {
        self.locks.get(name).is_some_and(|lock| !lock.holders.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: LockName = LockName::Guest(421);

    #[test]
    fn one_at_a_time_in_the_order_of_asking() {
        let mut locks = Locks::default();
        assert_eq!(locks.take(&LOCK, 1, false), Ok(()));
        let second = locks.take(&LOCK, 2, false).unwrap_err();
        locks.take(&LOCK, 3, false).unwrap_err();
        assert!(locks.give_up(&LOCK, second) && !locks.give_up(&LOCK, second));
        assert_eq!(locks.release(&LOCK, 1), [3]);
        assert_eq!(locks.release(&LOCK, 3), [0; 0]);
        assert!(!locks.is_held(&LOCK));
    }

    #[test]
    fn those_who_share_go_together_but_do_not_overtake() {
        let mut locks = Locks::default();
        assert_eq!(locks.take(&LOCK, 1, true), Ok(()));
        assert_eq!(locks.take(&LOCK, 2, true), Ok(()));
        locks.take(&LOCK, 3, false).unwrap_err();
        locks.take(&LOCK, 4, true).unwrap_err();
        locks.take(&LOCK, 5, true).unwrap_err();
        assert_eq!(locks.release(&LOCK, 1), [0; 0]);
        assert_eq!(locks.release(&LOCK, 2), [3]);
        assert_eq!(locks.drop_all(3), [4, 5]);
    }

    #[test]
    fn the_sentences_are_those_of_the_vendor() {
        let storage = |host: Option<&str>| LockName::Storage("x".into(), host.map(Into::into)).timeout_text();
        assert_eq!(LOCK.timeout_text(), "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout");
        assert_eq!(storage(Some("pve")), "can't lock file '/var/lock/pve-manager/pve-storage-x' - got timeout");
        assert_eq!(storage(None), "cfs-lock 'storage-x' error: got lock request timeout");
    }
}
