//! What goes wrong, classed by what may be done about it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a failed call leaves behind, and so what may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing was done; the same call may be made again.
    RefusedBeforeEffect,
    /// It may have been done or not: only looking tells.
    EffectUnknown,
    /// Nothing was done, and the other side says to come back, perhaps when.
    RetryableAfter(Option<Duration>),
    /// It will not work, however often.
    Final,
}

/// A failure, with what a person needs: what it is about, what was seen, what to do next.
///
/// No part of it ever holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What may follow.
    pub class: Class,
    /// What it is about: a node, an object.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do about it, if castle cannot: a command, a place to look.
    pub next: String,
    /// Whether the other side had too much to do: fewer at once may help.
    pub contention: bool,
    /// Whether it is castle itself that will not go on, because that would not be safe: something is not its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guarded: bool,
}

impl Fault {
    /// A fault of this class.
    pub fn new(class: Class, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        let (subject, evidence) = (subject.into(), evidence.into());
        Self { class, subject, evidence, next: String::new(), contention: false, guarded: false }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Says that the other side had too much to do.
    #[must_use]
    pub fn contended(mut self) -> Self {
        self.contention = true;
        self
    }

    /// A fault that castle raises itself rather than touch what may not be its own.
    pub fn guard(subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { guarded: true, ..Self::new(Class::Final, subject, evidence) }
    }

    /// That castle itself is at fault: what cannot be has come to be. It goes no further rather than pass over it.
    pub fn defect(what: &str) -> Self {
        Self::new(Class::Final, "castle", format!("a defect of castle: {what}")).next(
            "please report it, with what was printed; running the same command again changes nothing that is done",
        )
    }

    /// Whether trying again can help at all.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.class == Class::Final
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.evidence)
    }
}

impl std::error::Error for Fault {}
