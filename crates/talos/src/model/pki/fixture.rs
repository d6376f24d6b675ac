//! Doors for tests: time that stands still, randomness that counts.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use castle_seams::{BoxFuture, Clock, Entropy, EntropyError, KeyMint, SystemKeyMint};

use super::Doors;

/// A day in September 2026.
pub(crate) const NOW: Duration = Duration::from_secs(1_790_000_000);

#[derive(Debug)]
pub(crate) struct Still {
    now: SystemTime,
    next: AtomicU8,
}

impl Still {
    pub(crate) fn at(now: Duration) -> Self {
        Self { now: SystemTime::UNIX_EPOCH + now, next: AtomicU8::new(0) }
    }

    /// Draws so many bytes for nothing.
    pub(crate) fn skip(&self, bytes: u8) {
        self.next.fetch_add(bytes, Ordering::Relaxed);
    }

    /// With the keys of the real mint.
    pub(crate) fn doors(&self) -> Doors<'_> {
        self.with(&SystemKeyMint)
    }

    pub(crate) fn with<'d>(&'d self, mint: &'d dyn KeyMint) -> Doors<'d> {
        Doors { mint, entropy: self, clock: self }
    }
}

impl Clock for Still {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> SystemTime {
        self.now
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Entropy for Still {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        bytes.fill_with(|| self.next.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
}
