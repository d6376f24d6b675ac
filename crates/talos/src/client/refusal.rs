//! Why a node did not do what it was asked, and what that means.

use std::error::Error;

use castle_engine::{Class, Fault};
use castle_seams::Elapsed;
use thiserror::Error;
use tonic::{Code, Status};

use super::clocks::Lead;
use super::link::{Unconnected, causes};
use super::sentence::sentence;

/// The kinds of refusal, each with what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// Nobody could be reached; nothing was asked.
    Unreachable,
    /// Its certificate is not valid at this time: a clock is wrong, here or there.
    Untimely,
    /// Its certificate is of this castle and not for this address.
    Misnamed,
    /// This castle's authority does not vouch for it: a node of another castle, or one in maintenance mode.
    Stranger,
    /// It does not accept the certificate that castle shows, or wants one where none was shown.
    Unwelcome,
    /// The answer was lost on its way, or did not come in time.
    Lost,
    /// A part of the node is not there at the moment.
    Unavailable,
    /// The node has too much to do.
    Busy,
    /// What it needs for that is not given yet, or something else is under way.
    NotYet,
    /// It is there already.
    Exists,
    /// It is not there.
    Missing,
    /// What was sent is not accepted.
    Invalid,
    /// What was sent is not taken up as it runs, but only when it starts.
    NotAtOnce,
    /// In maintenance mode a node does not do this.
    InMaintenance,
    /// Castle may not do this.
    Forbidden,
    /// There is no such call, or no such way of it: another version of Talos.
    Unsupported,
    /// The answer is none that Talos gives, or far too long.
    Unreadable,
    /// Something else.
    Other,
}

/// How Talos begins to say that it would have to restart for a configuration. What follows are lines of both configurations.
const NOT_AT_ONCE: &str = "this config change can't be applied in immediate mode";

/// What is asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Its name in Talos' API.
    pub(super) name: &'static str,
    /// Whether it is to change something.
    pub(super) changes: bool,
}

/// A refusal, ready for the engine. No part of it holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{node}: {call}: {sentence}")]
pub struct Refusal {
    /// What kind.
    pub class: ErrorClass,
    /// The name of the node.
    pub node: String,
    /// Where it was looked for.
    pub host: String,
    /// What was asked, as Talos calls it.
    pub call: &'static str,
    /// What was said or seen.
    pub sentence: String,
    /// Whether the call was to change something.
    pub changes: bool,
    /// How far the node's clock is ahead of the one here, where that is why and it is known.
    pub lead: Option<Lead>,
}

/// What went wrong with a call, before it is known whose call it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) class: ErrorClass,
    pub(super) sentence: String,
    /// Whether the connection is of no use any more.
    pub(super) ends_connection: bool,
    /// How far the node's clock is ahead, where that is why and it is known.
    pub(super) lead: Option<Lead>,
}

impl Trouble {
    pub(super) fn new(class: ErrorClass, sentence: impl Into<String>) -> Self {
        Self { class, sentence: sentence.into(), ends_connection: false, lead: None }
    }

    /// Nothing came in time.
    pub(super) fn silence(elapsed: Elapsed) -> Self {
        Self { ends_connection: true, ..Self::new(ErrorClass::Lost, elapsed.to_string()) }
    }

    /// Reads what came instead of an answer. `sent` is what must not be told again.
    pub(super) fn read(status: &Status, sent: &str) -> Self {
        // A status that something lies beneath was made at this end: the node said nothing.
        if let Some(beneath) = status.source() {
            return Self { ends_connection: true, ..Self::beneath(beneath) };
        }
        let class = class_of(status.code(), status.message());
        let message = if class == ErrorClass::NotAtOnce { NOT_AT_ONCE } else { status.message() };
        Self::new(class, sentence(message, sent))
    }

    fn beneath(error: &(dyn Error + 'static)) -> Self {
        match Unconnected::find(error) {
            Some(unconnected) => unconnected.into(),
            None => Self::new(ErrorClass::Lost, causes(error)),
        }
    }
}

impl From<Unconnected> for Trouble {
    fn from(unconnected: Unconnected) -> Self {
        Self { lead: unconnected.lead, ..Self::new(unconnected.class, unconnected.sentence) }
    }
}

fn class_of(code: Code, message: &str) -> ErrorClass {
    match code {
        Code::Unavailable | Code::Aborted => ErrorClass::Unavailable,
        Code::DeadlineExceeded | Code::Cancelled => ErrorClass::Lost,
        Code::ResourceExhausted => ErrorClass::Busy,
        Code::FailedPrecondition => ErrorClass::NotYet,
        Code::AlreadyExists => ErrorClass::Exists,
        Code::NotFound => ErrorClass::Missing,
        Code::InvalidArgument if message.starts_with(NOT_AT_ONCE) => ErrorClass::NotAtOnce,
        Code::InvalidArgument => ErrorClass::Invalid,
        Code::PermissionDenied => ErrorClass::Forbidden,
        Code::Unauthenticated => ErrorClass::Unwelcome,
        Code::Unimplemented => ErrorClass::Unsupported,
        Code::DataLoss => ErrorClass::Unreadable,
        // Said at this end of what is longer than the limit.
        Code::OutOfRange if message.contains("too large") => ErrorClass::Unreadable,
        Code::Ok | Code::Unknown | Code::OutOfRange | Code::Internal => ErrorClass::Other,
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let Refusal { class, node, host, call, sentence, changes, .. } = refusal;
        let unknown = if changes { Class::EffectUnknown } else { Class::RetryableAfter(None) };
        let (engine, next) = match class {
            ErrorClass::Unreachable => {
                (Class::RefusedBeforeEffect, format!("is {node} up, and {host} its address? castle doctor"))
            }
            ErrorClass::Untimely => (
                Class::RetryableAfter(None),
                format!(
                    "compare the clocks: date -u here, and on the host of {node}, whose clock its machine begins with. {node} needs a time server that it can \
                     reach (network.timeServers); this machine's clock: timedatectl"
                ),
            ),
            ErrorClass::Misnamed => (
                Class::RetryableAfter(None),
                format!("does {host} belong to {node}? another node of the castle may have that address"),
            ),
            ErrorClass::Stranger => {
                let next = format!("find out who has {host}: talosctl version --insecure --nodes {host}");
                return Self::guard(node, format!("{call}: {sentence}")).next(next);
            }
            ErrorClass::Unwelcome => (
                Class::Final,
                "check this machine's clock, and that the castle's bundle is the one its nodes were made with"
                    .to_owned(),
            ),
            ErrorClass::Lost | ErrorClass::Unavailable | ErrorClass::Other => {
                (unknown, format!("if it stays so: talosctl --nodes {host} dmesg"))
            }
            ErrorClass::Busy => (Class::RetryableAfter(None), String::new()),
            ErrorClass::NotYet if sentence.contains("time is not in sync") => (
                Class::RetryableAfter(None),
                format!(
                    "{node} needs a time server that it can reach (network.timeServers): talosctl --nodes {host} get timestatus; talosctl --nodes {host} dmesg"
                ),
            ),
            ErrorClass::NotYet => {
                (Class::RetryableAfter(None), format!("if it stays so: talosctl --nodes {host} get diagnostics"))
            }
            ErrorClass::InMaintenance => {
                (Class::RetryableAfter(None), format!("{node} waits for its configuration: castle up"))
            }
            // Whether these are failures is for the step to say, which looks first.
            ErrorClass::Exists | ErrorClass::Missing | ErrorClass::NotAtOnce => {
                (Class::RefusedBeforeEffect, String::new())
            }
            ErrorClass::Invalid => (Class::Final, "correct what is named: castle check".to_owned()),
            ErrorClass::Forbidden => {
                (Class::Final, "the castle's certificate lacks the role os:admin: is the bundle its own?".to_owned())
            }
            ErrorClass::Unsupported => (Class::Final, format!("which Talos is it? talosctl --nodes {host} version")),
            // What was answered cannot be read, but it was answered: it may have been done.
            ErrorClass::Unreadable if changes => (Class::EffectUnknown, format!("is it Talos that answers at {host}?")),
            ErrorClass::Unreadable => (Class::Final, format!("is it Talos that answers at {host}?")),
        };
        let fault = Self::new(engine, node, format!("{call}: {sentence}")).next(next);
        if class == ErrorClass::Busy { fault.contended() } else { fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(class: ErrorClass, changes: bool) -> Fault {
        let (node, host, sentence) = ("cp-1".into(), "10.0.0.11".into(), "so it is".into());
        Fault::from(Refusal { class, node, host, call: "Bootstrap", sentence, changes, lead: None })
    }

    #[test]
    fn what_the_node_says_is_classed_by_its_code() {
        for (code, class) in [
            (Code::Unavailable, ErrorClass::Unavailable),
            (Code::Aborted, ErrorClass::Unavailable),
            (Code::DeadlineExceeded, ErrorClass::Lost),
            (Code::Cancelled, ErrorClass::Lost),
            (Code::ResourceExhausted, ErrorClass::Busy),
            (Code::FailedPrecondition, ErrorClass::NotYet),
            (Code::AlreadyExists, ErrorClass::Exists),
            (Code::NotFound, ErrorClass::Missing),
            (Code::InvalidArgument, ErrorClass::Invalid),
            (Code::PermissionDenied, ErrorClass::Forbidden),
            (Code::Unauthenticated, ErrorClass::Unwelcome),
            (Code::Unimplemented, ErrorClass::Unsupported),
            (Code::DataLoss, ErrorClass::Unreadable),
            (Code::Unknown, ErrorClass::Other),
            (Code::Internal, ErrorClass::Other),
        ] {
            let trouble = Trouble::read(&Status::new(code, "so it is"), "");
            assert_eq!(trouble, Trouble::new(class, "so it is"), "{code:?}");
        }
    }

    #[test]
    fn an_effect_is_unknown_only_where_one_was_wanted_and_the_answer_is_missing() {
        for class in [ErrorClass::Lost, ErrorClass::Unavailable, ErrorClass::Other] {
            assert_eq!(fault(class, true).class, Class::EffectUnknown, "{class:?}");
            assert_eq!(fault(class, false).class, Class::RetryableAfter(None), "{class:?}");
        }
        assert_eq!(fault(ErrorClass::Unreadable, true).class, Class::EffectUnknown);
        assert_eq!(fault(ErrorClass::Unreadable, false).class, Class::Final);
    }

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_not() {
        for class in [ErrorClass::NotYet, ErrorClass::Busy, ErrorClass::Untimely, ErrorClass::Misnamed] {
            assert_eq!(fault(class, true).class, Class::RetryableAfter(None), "{class:?}");
        }
        for class in [ErrorClass::Unreachable, ErrorClass::Exists, ErrorClass::Missing] {
            assert_eq!(fault(class, true).class, Class::RefusedBeforeEffect, "{class:?}");
        }
        for class in [ErrorClass::Invalid, ErrorClass::Forbidden, ErrorClass::Unsupported, ErrorClass::Unwelcome] {
            assert!(fault(class, true).is_final(), "{class:?}");
        }
        assert!(fault(ErrorClass::Busy, false).contention);
        assert_eq!(fault(ErrorClass::InMaintenance, true).class, Class::RetryableAfter(None));
    }

    #[test]
    fn a_node_that_waits_for_the_time_is_told_from_one_that_waits_for_something_else() {
        let waiting = |sentence: &str| {
            let (node, host, sentence) = ("cp-1".into(), "10.0.0.11".into(), sentence.to_owned());
            let (class, call) = (ErrorClass::NotYet, "Bootstrap");
            let refusal = Refusal { class, node, host, call, sentence, changes: true, lead: None };
            Fault::from(refusal).next
        };
        assert!(waiting("time is not in sync yet").starts_with("cp-1 needs a time server that it can reach"));
        assert_eq!(
            waiting("bootstrap is not available yet"),
            "if it stays so: talosctl --nodes 10.0.0.11 get diagnostics"
        );
    }

    #[test]
    fn a_stranger_is_left_alone() {
        let fault = fault(ErrorClass::Stranger, true);
        assert!(fault.guarded && fault.is_final());
        assert_eq!(fault.subject, "cp-1");
        assert_eq!(fault.evidence, "Bootstrap: so it is");
        assert!(fault.next.contains("10.0.0.11"), "{}", fault.next);
    }
}
