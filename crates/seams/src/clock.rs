//! Time: how long things take, what the calendar says, and waiting.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use thiserror::Error;

use crate::BoxFuture;

/// The door to time.
pub trait Clock: Send + Sync {
    /// The time since an arbitrary start. Never goes back; only differences mean anything, and only in this process.
    fn monotonic(&self) -> Duration;

    /// What the calendar says. It may jump either way at any moment: fit for expiry dates and for showing to people,
    /// never for measuring.
    fn wall(&self) -> SystemTime;

    /// Completes once `duration` has passed, counted from this call and not from the first poll.
    ///
    /// It must complete even when polled by a task that has used up tokio's cooperative budget: [`deadline`] has to end
    /// a future that is always busy.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // A plain tokio sleep stays pending while the task's budget is used up, even when its time has come.
        Box::pin(tokio::task::coop::unconstrained(tokio::time::sleep(duration)))
    }
}

/// The time given to [`deadline`] passed before the future completed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("no result within {}", spoken(*after))]
pub struct Elapsed {
    /// The time that was given.
    pub after: Duration,
}

/// A time as people say it: `300 ms`, `45 s`, `10 min`, `1 h 30 min`.
#[must_use]
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    let with = |whole: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    match seconds {
        0 if !time.is_zero() => format!("{} ms", time.as_millis().max(1)),
        0..10 if time.subsec_millis() > 0 => format!("{:.1} s", time.as_secs_f64()),
        0..120 => format!("{seconds} s"),
        120..3600 => with(seconds / 60, "min", seconds % 60, "s"),
        _ => with(seconds / 3600, "h", seconds / 60 % 60, "min"),
    }
}

/// Runs `future` for at most `duration` of `clock`'s time.
///
/// The future is polled before the clock, always: an answer that arrives together with the deadline is kept, and a
/// simulated run makes the same choice every time. On `Err` the future has been dropped where it stood; what it did
/// until then is not undone.
///
/// # Errors
///
/// [`Elapsed`] if the time passed first.
pub async fn deadline<T>(clock: &dyn Clock, duration: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = clock.sleep(duration);
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        sleep.as_mut().poll(context).map(|()| Err(Elapsed { after: duration }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A clock on which every sleep is over at once, so that a deadline and an answer always coincide.
    struct Hasty;

    impl Clock for Hasty {
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(ready(()))
        }
    }

    #[tokio::test]
    async fn an_answer_arriving_with_the_deadline_is_kept() {
        assert_eq!(deadline(&Hasty, SECOND, ready(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn the_deadline_ends_a_future_that_never_answers() {
        let ended = deadline(&Hasty, SECOND, pending::<()>()).await;
        assert_eq!(ended, Err(Elapsed { after: SECOND }));
        assert_eq!(ended.unwrap_err().to_string(), "no result within 1 s");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_before_the_deadline_is_not_delayed() {
        let clock = SystemClock::new();
        let before = tokio::time::Instant::now();
        assert_eq!(deadline(&clock, 10 * SECOND, clock.sleep(SECOND)).await, Ok(()));
        assert_eq!(before.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_counts_from_the_call() {
        let clock = SystemClock::new();
        let before = tokio::time::Instant::now();
        let sleep = clock.sleep(3 * SECOND);
        clock.sleep(2 * SECOND).await;
        sleep.await;
        assert_eq!(before.elapsed(), 3 * SECOND);
    }

    /// Goal: a future that is never idle cannot outrun its deadline. Method: one that does nothing but spend the task's
    /// cooperative budget, under a deadline in real time.
    #[tokio::test]
    async fn the_deadline_ends_a_future_that_is_always_busy() {
        let clock = SystemClock::new();
        let busy = async {
            while clock.monotonic() < 30 * SECOND {
                tokio::task::coop::consume_budget().await;
            }
        };
        let after = Duration::from_millis(1);
        assert_eq!(deadline(&clock, after, busy).await, Err(Elapsed { after }));
    }

    #[test]
    fn the_system_clock_is_monotonic_and_past_the_epoch() {
        let clock = SystemClock::default();
        let first = clock.monotonic();
        assert!(clock.monotonic() >= first);
        assert!(clock.wall() > SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        let told = |milliseconds| spoken(Duration::from_millis(milliseconds));
        let all = [0, 300, 1_500, 2_000, 30_000, 90_000, 120_000, 300_000, 615_000, 3_600_000, 5_400_000].map(told);
        let said =
            ["0 s", "300 ms", "1.5 s", "2 s", "30 s", "90 s", "2 min", "5 min", "10 min 15 s", "1 h", "1 h 30 min"];
        assert_eq!(all, said);
    }
}
