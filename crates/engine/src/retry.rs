//! How long to wait before looking again.

use std::time::Duration;

use castle_seams::Entropy;

use crate::fault::{Class, Fault};

/// How often, and how long in between. Waits double from `first` to `longest`, each shortened by chance to spread callers.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// How many times in a row without progress.
    pub attempts: u32,
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Retry {
    /// About two minutes in all: longer than any lock that Proxmox holds, shorter than anyone's patience.
    fn default() -> Self {
        Self { attempts: 10, first: Duration::from_millis(125), longest: Duration::from_secs(30) }
    }
}

/// The shortest wait between two looks.
const SHORTEST: Duration = Duration::from_millis(30);

/// How long to wait before the next look at what takes as long as it takes: an eighth of the time that it was waited for. So little is
/// lost when it is over, be that after a second or after minutes, and few looks are in vain.
#[must_use]
pub fn pace(waited: Duration, longest: Duration) -> Duration {
    (waited / 8).max(SHORTEST).min(longest)
}

impl Retry {
    /// The wait before attempt number `attempt`, counted from one.
    pub(crate) fn wait(&self, attempt: u32, fault: &Fault, entropy: &dyn Entropy) -> Duration {
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(self.longest);
        let mut draw = [0; 4];
        // Without chance all callers wait alike, which is worse but not wrong.
        let share = entropy.fill(&mut draw).map_or(1.0, |()| f64::from(u32::from_le_bytes(draw)) / f64::from(u32::MAX));
        let jittered = doubled.mul_f64(0.5 + share / 2.0);
        match fault.class {
            Class::RetryableAfter(Some(told)) => jittered.max(told),
            _ => jittered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whenever it is over, no more than an eighth is lost; and a minute's wait costs few looks.
    #[test]
    fn looks_keep_pace_with_what_they_wait_for() {
        let longest = Duration::from_secs(2);
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(60) {
            let wait = pace(waited, longest);
            assert!(wait <= longest && wait <= (waited / 8).max(SHORTEST), "{wait:?} after {waited:?}");
            waited += wait;
            looks += 1;
        }
        assert!(looks < 70, "{looks}");
    }
}
