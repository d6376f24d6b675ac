//! Time that passes only when everybody waits for it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the clock that stands behind the seam"
)]

use std::io;
use std::time::{Duration, SystemTime};

use castle_seams::{BoxFuture, Clock};
use tokio::time::Instant;

/// The paused clock of a tokio runtime.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    start: Instant,
}

/// What the calendar says when virtual time begins: some day in 2026, the same in every run.
#[must_use]
pub fn dawn() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
}

impl Clock for VirtualClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> SystemTime {
        dawn() + self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::task::coop::unconstrained(tokio::time::sleep(duration)))
    }
}

/// Runs `work` on one thread in virtual time.
///
/// # Errors
///
/// If the machine cannot make a runtime.
pub fn in_virtual_time<T>(work: impl AsyncFnOnce(&VirtualClock) -> T) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        let clock = VirtualClock { start: Instant::now() };
        work(&clock).await
    }))
}
