//! What is due, in the order of time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::locks::LockName;
use super::tasks::TaskId;
use crate::kubernetes::kube::Due;
use crate::talos::Happening;

/// Something that happens of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A task goes on.
    Resume(TaskId),
    /// A task has waited long enough for a lock. The number tells one wait from the next.
    GiveUp(TaskId, LockName, u64),
    /// A host tells the others what its guests do.
    Broadcast(String),
    /// A daemon has seen that a guest stopped that was to be rebooted, and starts it.
    Restart(u32),
    /// High availability looks after a guest.
    Managed(u32),
    /// A guest has come up, if it is still the same power-on.
    Booted(u32, u64),
    /// Something happens among the nodes.
    Talos(Happening),
    /// Something happens in a cluster of Kubernetes, if its objects are still in this etcd.
    Kubernetes(String, u64, Due),
}

/// The queue: by time, then by the order in which things were planned.
#[derive(Debug, Default)]
pub(crate) struct Events {
    planned: u64,
    due: BTreeMap<(Duration, u64), Event>,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Duration, event: Event) {
        self.due.insert((at, self.planned), event);
        self.planned += 1;
    }

    /// The next event that is due by `now`.
    pub(crate) fn take(&mut self, now: Duration) -> Option<(Duration, Event)> {
        let entry = self.due.first_entry()?;
        let (at, _) = *entry.key();
        (at <= now).then(|| (at, entry.remove()))
    }

    /// When the next thing happens.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.due.keys().next().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_planning() {
        let mut events = Events::default();
        let second = Duration::from_secs(1);
        events.plan(2 * second, Event::Booted(3, 0));
        events.plan(second, Event::Booted(1, 0));
        events.plan(second, Event::Booted(2, 0));
        assert_eq!(events.next(), Some(second));
        let taken: Vec<Event> = std::iter::from_fn(|| events.take(second)).map(|(_, event)| event).collect();
        assert_eq!(taken, [Event::Booted(1, 0), Event::Booted(2, 0)]);
        assert_eq!(events.take(second), None);
        assert_eq!(events.take(2 * second), Some((2 * second, Event::Booted(3, 0))));
    }
}
