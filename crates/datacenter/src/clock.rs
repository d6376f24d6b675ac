//! Time that runs faster or slower than another.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use castle_seams::{BoxFuture, Clock};

/// A clock on which `factor` seconds pass in one second of another clock.
#[derive(Clone)]
pub struct ScaledClock {
    inner: Arc<dyn Clock>,
    factor: f64,
    start: Duration,
    wall: SystemTime,
}

impl std::fmt::Debug for ScaledClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScaledClock").field("factor", &self.factor).finish_non_exhaustive()
    }
}

impl ScaledClock {
    /// A clock that runs `factor` times as fast, beginning at the other's time. A factor that is not above zero counts as
    /// one.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>, factor: f64) -> Self {
        let factor = if factor.is_finite() && factor > 0.0 { factor } else { 1.0 };
        let (start, wall) = (inner.monotonic(), inner.wall());
        Self { inner, factor, start, wall }
    }

    fn passed(&self) -> Duration {
        self.inner.monotonic().saturating_sub(self.start).mul_f64(self.factor)
    }
}

impl Clock for ScaledClock {
    fn monotonic(&self) -> Duration {
        self.start + self.passed()
    }

    fn wall(&self) -> SystemTime {
        self.wall + self.passed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Rounded up: who wakes must find the time passed.
        self.inner.sleep(duration.div_f64(self.factor) + Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use castle_testbed::in_virtual_time;

    use super::*;

    #[test]
    fn time_is_compressed_by_the_factor() {
        in_virtual_time(async |clock| {
            let fast = ScaledClock::new(Arc::new(*clock), 10.0);
            let (before, wall) = (clock.monotonic(), fast.wall());
            fast.sleep(Duration::from_secs(30)).await;
            let outside = clock.monotonic() - before;
            assert!(outside >= Duration::from_secs(3) && outside < Duration::from_millis(3_010), "{outside:?}");
            assert!(fast.wall().duration_since(wall).unwrap() >= Duration::from_secs(30));
        });
    }

    #[test]
    fn a_factor_that_is_none_changes_nothing() {
        in_virtual_time(async |clock| {
            let same = ScaledClock::new(Arc::new(*clock), 0.0);
            clock.sleep(Duration::from_secs(5)).await;
            assert_eq!(same.monotonic(), clock.monotonic());
        });
    }
}
