//! The operator's hand: being asked to stop.

use std::future::poll_fn;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::signal::unix::{self, SignalKind};

use crate::BoxFuture;

/// The door to signals.
pub trait Signals: Send + Sync {
    /// The next signal. Signals that arrive while nobody waits are kept, but equal ones may be merged into one.
    ///
    /// One waiter at a time: with several, any one of them is woken. Dropping the future loses nothing.
    fn next(&self) -> BoxFuture<'_, Signal>;
}

/// A request to stop.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Signal {
    /// SIGINT: Ctrl-C at the terminal.
    Interrupt,
    /// SIGTERM or SIGHUP: the system or a supervisor asks, or the terminal is gone.
    Terminate,
}

/// The signals of this process.
#[derive(Debug)]
pub struct SystemSignals {
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl SystemSignals {
    /// Takes over SIGINT, SIGTERM and SIGHUP, for the rest of the process's life: from here on they no longer end it, also
    /// after this value is dropped.
    ///
    /// # Errors
    ///
    /// If there is no tokio runtime here, or the operating system refuses the handler.
    pub fn install() -> io::Result<Self> {
        // Asked first because tokio panics where there is none.
        Handle::try_current().map_err(|error| context("signals", &io::Error::other(error)))?;
        let listen = |kind, name| unix::signal(kind).map_err(|error| context(name, &error));
        let interrupt = listen(SignalKind::interrupt(), "SIGINT")?;
        let terminate = listen(SignalKind::terminate(), "SIGTERM")?;
        let hangup = listen(SignalKind::hangup(), "SIGHUP")?;
        Ok(Self { streams: Mutex::new(Streams { interrupt, terminate, hangup }) })
    }
}

/// Asks another process of this machine to stop, as a supervisor does (SIGTERM).
///
/// # Errors
///
/// If there is no such process, or it is not ours to ask.
pub fn terminate(process: u32) -> io::Result<()> {
    let asked = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    let pid = asked.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{process} is no process")))?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}

fn context(subject: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen for {subject}: {error}"))
}

impl Streams {
    /// All are polled each time, so that whichever comes first wakes the waiter.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        if self.interrupt.poll_recv(context) == Poll::Ready(Some(())) {
            return Poll::Ready(Signal::Interrupt);
        }
        for ending in [&mut self.terminate, &mut self.hangup] {
            if ending.poll_recv(context) == Poll::Ready(Some(())) {
                return Poll::Ready(Signal::Terminate);
            }
        }
        Poll::Pending
    }
}

impl Signals for SystemSignals {
    fn next(&self) -> BoxFuture<'_, Signal> {
        Box::pin(poll_fn(|context| {
            // Locked for one poll, never across a wait. The streams stay usable whatever a panicking holder did.
            self.streams.lock().unwrap_or_else(PoisonError::into_inner).poll_next(context)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Duration;

    use super::*;
    use crate::{SystemClock, deadline};

    /// How long a signal that this process sends itself may take: generous, only reached when something is broken.
    const BOUND: Duration = Duration::from_secs(30);

    fn raise(signal: &str) {
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// One test for everything, because signals belong to the whole process.
    #[tokio::test]
    async fn signals_arrive_whether_or_not_someone_waits() {
        let clock = SystemClock::new();
        let signals = SystemSignals::install().unwrap();
        let next = || deadline(&clock, BOUND, signals.next());

        raise("INT");
        assert_eq!(next().await, Ok(Signal::Interrupt));
        for ending in ["TERM", "HUP"] {
            raise(ending);
            assert_eq!(next().await, Ok(Signal::Terminate));
        }

        let waiting_then_raised = async {
            let mut waiting = std::pin::pin!(next());
            let first = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
            assert_eq!(first, Poll::Pending, "every signal was raised once and received once");
            raise("INT");
            waiting.await
        };
        assert_eq!(waiting_then_raised.await, Ok(Signal::Interrupt));
    }

    #[test]
    fn outside_a_runtime_is_an_error_and_not_a_panic() {
        let error = SystemSignals::install().unwrap_err();
        assert!(error.to_string().starts_with("cannot listen for signals: "), "{error}");
    }
}
