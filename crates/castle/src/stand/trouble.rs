//! Why a verb does not come to its end, and how that is told.

use crate::keeping::{Denied, Unreferred};
use crate::output::{Exit, Printer};

/// Why a verb does not come to its end.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It has been said.
    Said(Exit),
    /// What was asked for cannot be.
    Invalid(String),
    /// It did not work.
    Failed(String),
    /// It would not be safe.
    Refused(String),
    /// Somebody wanted no more, while nothing was being changed.
    Interrupted,
}

impl Trouble {
    /// It did not work, as somebody else says: what others say is masked, whatever it is.
    pub(crate) fn of(error: &dyn std::fmt::Display) -> Self {
        Self::Failed(crate::masking::text(&error.to_string()))
    }

    /// Why, for people; nothing if it has been said.
    pub(crate) fn told(&self) -> &str {
        match self {
            Self::Said(_) => "",
            Self::Interrupted => "it was interrupted",
            Self::Invalid(why) | Self::Failed(why) | Self::Refused(why) => why,
        }
    }
}

impl From<Exit> for Trouble {
    fn from(exit: Exit) -> Self {
        Self::Said(exit)
    }
}

impl From<Denied> for Trouble {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Busy(why) => Self::Refused(why),
            Denied::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<Unreferred> for Trouble {
    fn from(unreferred: Unreferred) -> Self {
        match unreferred {
            Unreferred::Refused(why) => Self::Invalid(why),
            Unreferred::Patch(why) | Unreferred::Credential(why) => Self::Failed(why),
        }
    }
}

/// A fault with what to do about it.
pub(crate) fn with_next(fault: &castle_engine::Fault) -> String {
    let fault = crate::masking::fault(fault);
    let next = if fault.next.is_empty() { String::new() } else { format!("\n  next: {}", fault.next) };
    format!("{fault}{next}")
}

impl From<castle_engine::Fault> for Trouble {
    fn from(fault: castle_engine::Fault) -> Self {
        let text = with_next(&fault);
        if fault.guarded { Self::Refused(text) } else { Self::Failed(text) }
    }
}

impl From<castle_proxmox::model::Refusal> for Trouble {
    fn from(refusal: castle_proxmox::model::Refusal) -> Self {
        castle_engine::Fault::from(refusal).into()
    }
}

/// The exit code of a verb; says why it did not come to its end, unless that has been said.
pub(crate) fn end(verb: &str, ended: Result<Exit, Trouble>, printer: &mut Printer) -> Exit {
    if ended.is_err() {
        // It may have been part of another verb, which did not come to tell it.
        printer.held_result();
    }
    match ended {
        Ok(exit) | Err(Trouble::Said(exit)) => exit,
        Err(Trouble::Invalid(why)) => printer.invalid(verb, &why),
        Err(Trouble::Failed(why)) => printer.failed(verb, &why),
        Err(Trouble::Refused(why)) => printer.refused(verb, &why),
        Err(Trouble::Interrupted) => printer.interrupted(verb),
    }
}
