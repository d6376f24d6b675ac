//! The doors that verbs go through: everything outside of this process, or a room in memory that stands for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use castle_http::Trust;
use castle_seams::{
    Clock, Dial, Disk, Entropy, KeyMint, Signals, SystemClock, SystemDisk, SystemEntropy, SystemKeyMint, SystemSignals,
    TcpDial,
};

use crate::commands::plan::minutes;
use crate::embedded::{Foreseen, Serving, Way};
use crate::hand::{Ended, Hand, Listener};
use crate::stand::Trouble;
use crate::voice::{At, Voice};

/// All doors of a verb. Clones are the same doors.
#[derive(Clone)]
pub(crate) struct Doors {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) mint: Arc<dyn KeyMint>,
    pub(crate) variables: Variables,
    pub(crate) around: Around,
    /// The operator's hand.
    pub(crate) hand: Arc<Hand>,
    /// What tells what takes so long.
    pub(crate) voice: Arc<Voice>,
}

/// The environment variables.
#[derive(Clone)]
pub(crate) enum Variables {
    /// Those of this process.
    Process,
    /// These, and no others.
    These(Arc<BTreeMap<String, OsString>>),
}

/// What is around: who is dialled, who interrupts, and where the embedded datacenter is.
#[derive(Clone)]
pub(crate) enum Around {
    /// The network of this machine, its operator, and a datacenter in a process of its own.
    Machine,
    /// A room in memory.
    Room(Arc<Room>),
    /// This machine, and a datacenter that nobody has started: for whoever plans.
    Foreseen(Arc<Foreseen>),
}

/// A room in memory, in which everything is at hand and nobody can listen: TLS is not spoken there.
pub(crate) struct Room {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) signals: Arc<dyn Signals>,
    /// The embedded datacenter, if castles find one there.
    pub(crate) serving: Option<Serving>,
}

impl Variables {
    /// What a variable holds.
    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        match self {
            Self::Process => std::env::var_os(name),
            Self::These(all) => all.get(name).cloned(),
        }
    }

    /// What a variable holds, where an empty one is as good as none.
    pub(crate) fn filled(&self, name: &str) -> Option<OsString> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// What a variable holds, if that is text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.into_string().ok()
    }
}

impl Doors {
    /// The doors of this process.
    pub(crate) fn system() -> Self {
        Self {
            disk: Arc::new(SystemDisk),
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy),
            mint: Arc::new(SystemKeyMint),
            variables: Variables::Process,
            around: Around::Machine,
            hand: Arc::default(),
            voice: Arc::default(),
        }
    }

    /// The way to others, who may take so long to be reached.
    pub(crate) fn dial(&self, timeout: Duration) -> Arc<dyn Dial> {
        match &self.around {
            Around::Machine => Arc::new(TcpDial { timeout }),
            Around::Room(room) => room.dial.clone(),
            Around::Foreseen(foreseen) => Arc::new(Way { foreseen: foreseen.clone(), timeout }),
        }
    }

    /// Whether others are spoken to without TLS: in a room.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.around, Around::Room(_))
    }

    /// Whom to believe, where this is who should be believed.
    pub(crate) fn trust(&self, wanted: Trust) -> Trust {
        let is_in_memory = matches!(self.around, Around::Foreseen(_)) && Foreseen::is_meant_by(&wanted);
        if self.is_plain() || is_in_memory { Trust::Plain } else { wanted }
    }

    /// The same doors for one verb, which has a hand of its own to listen to, and a voice.
    pub(crate) fn of_one_verb(&self, voice: Arc<Voice>) -> Self {
        Self { hand: Arc::default(), voice, ..self.clone() }
    }

    /// From here on, until what is returned is dropped, the verb is at this: `asking the vault`.
    pub(crate) fn at(&self, doing: impl Into<String>) -> At {
        self.voice.at(self.clock.as_ref(), doing.into())
    }

    /// Gives the verb so long in all, from now on.
    pub(crate) fn within(&self, timeout: Option<Duration>) {
        self.hand.within(self.clock.monotonic(), timeout);
    }

    /// Works until that is done, or until the operator wants no more or the verb's time is up, where nobody inside looks after that.
    pub(crate) async fn heed<T>(&self, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let ended = |ended: Ended| match ended {
            Ended::Interrupted => Trouble::Interrupted,
            Ended::Late(spent) => {
                let doing = self.voice.doing(self.clock.monotonic());
                let doing = doing.map_or(String::new(), |doing| format!(": {doing}"));
                Trouble::of(&format!(
                    "stopped after {} (--timeout){doing}\n  next: run the same command again, with more time",
                    minutes(spent)
                ))
            }
        };
        self.hand.heed(self.clock.as_ref(), ended, work).await
    }

    /// Listens to the operator's hand; from here on it no longer ends the process by itself.
    pub(crate) fn signals(&self) -> io::Result<Listener> {
        self.hand.listen(|| match &self.around {
            Around::Machine | Around::Foreseen(_) => Ok(Arc::new(SystemSignals::install()?)),
            Around::Room(room) => Ok(room.signals.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use castle_seams::{BoxFuture, ByteStream, DialError, DialErrorKind, Signal, Target};

    use super::*;
    use crate::embedded;

    struct Nobody;

    impl Dial for Nobody {
        fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
            let refused = io::ErrorKind::ConnectionRefused.into();
            let error =
                DialError { target: target.clone(), kind: DialErrorKind::Refused, tried: Vec::new(), source: refused };
            Box::pin(async { Err(error) })
        }
    }

    impl Signals for Nobody {
        fn next(&self) -> BoxFuture<'_, Signal> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_room_knows_nothing_of_this_machine() {
        let own: Arc<BTreeMap<String, OsString>> = Arc::new([("HOME".to_owned(), "/home/someone".into())].into());
        let room = Room { dial: Arc::new(Nobody), signals: Arc::new(Nobody), serving: None };
        let doors = Doors { variables: Variables::These(own), around: Around::Room(Arc::new(room)), ..Doors::system() };
        assert_eq!(doors.variables.text("HOME").as_deref(), Some("/home/someone"));
        assert_eq!(doors.variables.get("PATH"), None);
        assert_eq!(doors.trust(Trust::PublicRoots), Trust::Plain);
        assert!(matches!(embedded::find(&doors), Ok(None)));
        assert!(doors.signals().is_ok(), "without a runtime");
        assert_eq!(Doors::system().trust(Trust::PublicRoots), Trust::PublicRoots);
    }
}
