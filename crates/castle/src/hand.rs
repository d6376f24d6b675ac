//! The operator's hand: whoever works listens to it, and of those that work inside of each other the innermost does.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use castle_seams::{BoxFuture, Signal, Signals};

/// The operator's hand, for one verb. Until somebody takes it, a signal ends the process.
#[derive(Default)]
pub(crate) struct Hand {
    taken: OnceLock<Arc<dyn Signals>>,
    listening: AtomicUsize,
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

    /// Works until that is done, or until there is a signal that nobody inside listens to: nothing then.
    pub(crate) async fn heed<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> Option<T> {
        let turn = self.turn();
        let mut work = pin!(work);
        let mut waiting = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let is_innermost = self.listening.load(Ordering::Relaxed) == turn.depth;
            match self.taken.get().filter(|_| is_innermost) {
                Some(signals) => waiting.get_or_insert_with(|| signals.next()).as_mut().poll(context).map(|_| None),
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

    #[tokio::test]
    async fn only_the_innermost_listens_and_between_two_of_them_the_one_outside() {
        let (hand, raised) = (Arc::new(Hand::default()), Arc::new(Raised::default()));
        let listen = || hand.listen(|| Ok(raised.clone()));

        raised.0.notify_one();
        let inside = hand.heed(async {
            let listener = listen().unwrap();
            hand.heed(pending::<()>()).await.map_or_else(|| "the innermost", |()| "nobody").to_owned()
                + if listener.next().now_or_never().is_some() { ", and another" } else { "" }
        });
        assert_eq!(inside.await.as_deref(), Some("the innermost"));

        let between = hand.heed(async {
            drop(listen().unwrap());
            raised.0.notify_one();
            pending::<()>().await;
        });
        assert_eq!(between.await, None);
    }

    #[tokio::test]
    async fn a_hand_that_nobody_has_taken_is_not_listened_to() {
        assert_eq!(Arc::new(Hand::default()).heed(async { 1 }).await, Some(1));
        let never = Arc::new(Hand::default());
        assert!(never.heed(pending::<()>()).now_or_never().is_none());
    }
}
