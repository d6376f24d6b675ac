//! What ends a verb before its end: the operator's hand, and the time that it was given. Whoever works listens to both, and of those that work inside of each
//! other the innermost does.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_seams::{BoxFuture, Clock, Signal, Signals};

/// How long whoever is left has to bring to its end what was begun: to give back a lease, to note down and to tell what was done.
const GRACE: Duration = Duration::from_secs(60);

/// The operator's hand, for one verb. Until somebody takes it, a signal ends the process.
#[derive(Default)]
pub(crate) struct Hand {
    taken: OnceLock<Arc<dyn Signals>>,
    listening: AtomicUsize,
    time: Mutex<Option<Time>>,
}

/// The time of a verb.
#[derive(Clone, Copy)]
struct Time {
    /// Since when it counts.
    since: Duration,
    /// When it has to end.
    until: Duration,
    /// When whoever listens then is ended.
    ends: Duration,
}

/// Why work ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There was a signal.
    Interrupted,
    /// Its time was up: after so long.
    Late(Duration),
}

/// Somebody who listens, until this is dropped.
struct Turn {
    hand: Arc<Hand>,
    depth: usize,
}

/// Somebody who is told of every signal, and whoever is outside of them of none.
pub(crate) struct Listener {
    signals: Arc<dyn Signals>,
    _turn: Turn,
}

impl Hand {
    /// Takes the hand, if nobody has yet, and listens to it.
    pub(crate) fn listen(
        self: &Arc<Self>,
        take: impl FnOnce() -> io::Result<Arc<dyn Signals>>,
    ) -> io::Result<Listener> {
        let signals = match self.taken.get() {
            Some(signals) => signals.clone(),
            None => {
                let signals = take()?;
                self.taken.get_or_init(|| signals).clone()
            }
        };
        Ok(Listener { signals, _turn: self.turn() })
    }

    /// Gives the verb so long in all, from now on, or as long as it takes. A verb that is part of another began with that.
    pub(crate) fn within(&self, now: Duration, timeout: Option<Duration>) {
        let mut time = self.time();
        let since = time.map_or(now, |time| time.since);
        *time = timeout.map(|timeout| Time { since, until: now + timeout, ends: now + timeout });
    }

    /// Since when the time counts, and when it is up, if it ever is.
    pub(crate) fn bounds(&self) -> Option<(Duration, Duration)> {
        self.time().map(|time| (time.since, time.until))
    }

    /// Something has been done: whoever is left may note it down and tell it, also where the time is up.
    pub(crate) fn grant(&self, now: Duration) {
        if let Some(time) = self.time().as_mut() {
            time.ends = time.ends.max(now + GRACE);
        }
    }

    fn time(&self) -> MutexGuard<'_, Option<Time>> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until that is done, until there is a signal, or until the time is up, where nobody inside listens to that: what is `ended` is told while
    /// it is still known what it was at.
    pub(crate) async fn heed<T, E>(
        self: &Arc<Self>,
        clock: &dyn Clock,
        ended: impl Fn(Ended) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let turn = self.turn();
        let mut work = pin!(work);
        let mut waiting = None;
        let mut timer: Option<(Duration, BoxFuture<'static, ()>)> = None;
        let is_innermost = || self.listening.load(Ordering::Relaxed) == turn.depth;
        poll_fn(|context| {
            let late = || self.time().filter(|time| is_innermost() && time.ends <= clock.monotonic());
            // Before it is worked on: what would come next is not what took so long.
            if let Some(time) = late() {
                self.grant(clock.monotonic());
                return Poll::Ready(Err(ended(Ended::Late(clock.monotonic().saturating_sub(time.since)))));
            }
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let time = *self.time();
            timer = time.filter(|_| is_innermost()).map(|Time { ends, .. }| match timer.take() {
                Some((at, sleep)) if at == ends => (at, sleep),
                _ => (ends, clock.sleep(ends.saturating_sub(clock.monotonic()))),
            });
            if let Some((_, sleep)) = &mut timer
                && sleep.as_mut().poll(context).is_ready()
            {
                timer = None;
                // It may have been granted more since.
                context.waker().wake_by_ref();
            }
            match self.taken.get().filter(|_| is_innermost()) {
                Some(signals) => {
                    let signal = waiting.get_or_insert_with(|| signals.next()).as_mut().poll(context);
                    signal.map(|_| Err(ended(Ended::Interrupted)))
                }
                None => {
                    waiting = None;
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn turn(self: &Arc<Self>) -> Turn {
        Turn { hand: self.clone(), depth: self.listening.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.hand.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Signals for Listener {
    fn next(&self) -> BoxFuture<'_, Signal> {
        self.signals.next()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use castle_rehearsal::in_virtual_time;
    use futures_util::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    /// A hand that gives up what nobody waits for, as a listener that is made anew each time does.
    #[derive(Default)]
    struct Raised(Notify);

    impl Signals for Raised {
        fn next(&self) -> BoxFuture<'_, Signal> {
            Box::pin(self.0.notified().map(|()| Signal::Interrupt))
        }
    }

    const NEVER: fn(Ended) -> Ended = |ended| ended;

    #[test]
    fn only_the_innermost_listens_and_between_two_of_them_the_one_outside() {
        in_virtual_time(async |clock| {
            let (hand, raised) = (Arc::new(Hand::default()), Arc::new(Raised::default()));
            let listen = || hand.listen(|| Ok(raised.clone()));

            raised.0.notify_one();
            let inside = hand.heed(clock, NEVER, async {
                let listener = listen().unwrap();
                let innermost = hand.heed(clock, NEVER, pending::<Result<(), Ended>>()).await;
                Ok((innermost, listener.next().now_or_never().is_some()))
            });
            assert_eq!(inside.await, Ok((Err(Ended::Interrupted), false)));

            let between = hand.heed(clock, NEVER, async {
                drop(listen().unwrap());
                raised.0.notify_one();
                pending::<Result<(), Ended>>().await
            });
            assert_eq!(between.await, Err(Ended::Interrupted));
        })
        .unwrap();
    }

    #[test]
    fn a_hand_that_nobody_has_taken_is_not_listened_to() {
        in_virtual_time(async |clock| {
            assert_eq!(Arc::new(Hand::default()).heed(clock, NEVER, async { Ok(1) }).await, Ok(1));
            let never = Arc::new(Hand::default());
            assert!(never.heed(clock, NEVER, pending::<Result<(), Ended>>()).now_or_never().is_none());
        })
        .unwrap();
    }

    /// Goal: whoever is cut off leaves those outside time to end, and a run that looks after the time itself is not cut off.
    #[test]
    fn the_innermost_ends_when_the_time_is_up_and_the_others_have_a_while_more() {
        in_virtual_time(async |clock| {
            let (hand, raised) = (Arc::new(Hand::default()), Arc::new(Raised::default()));
            let seconds = Duration::from_secs;
            hand.within(clock.monotonic(), Some(seconds(100)));
            let outside = hand.heed(clock, NEVER, async {
                let inside = hand.heed(clock, NEVER, pending::<Result<(), Ended>>()).await;
                assert_eq!((inside, clock.monotonic()), (Err(Ended::Late(seconds(100))), seconds(100)));
                // A lease is given back.
                clock.sleep(GRACE - seconds(1)).await;
                let listener = hand.listen(|| Ok(raised.clone())).unwrap();
                clock.sleep(seconds(300)).await;
                hand.grant(clock.monotonic());
                drop(listener);
                clock.sleep(GRACE - seconds(1)).await;
                let noted = clock.monotonic();
                clock.sleep(seconds(2)).await;
                Ok::<_, Ended>(noted)
            });
            let whole = seconds(100) + GRACE - seconds(1) + seconds(300) + GRACE;
            assert_eq!((outside.await, clock.monotonic()), (Err(Ended::Late(whole)), whole));
            hand.within(clock.monotonic(), None);
            hand.heed(clock, NEVER, async {
                clock.sleep(seconds(500)).await;
                Ok(())
            })
            .await
            .unwrap();
        })
        .unwrap();
    }
}
