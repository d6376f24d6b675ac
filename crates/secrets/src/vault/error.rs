//! What goes wrong with a vault, and what that means.

use std::time::Duration;

use castle_engine::{Class, Fault};
use thiserror::Error;

/// The kinds of failure, each with what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaultErrorKind {
    /// Whoever castle says it is, is not believed.
    Unauthenticated,
    /// Castle is somebody who may not do this.
    Forbidden,
    /// There is no such thing.
    Missing,
    /// It is there, and castle may not see its value.
    Hidden,
    /// It was taken note of, and waits for somebody's approval.
    Waiting,
    /// It is larger than the vault takes.
    TooLarge,
    /// It asked for something that the vault does not accept.
    Invalid,
    /// The vault has too much to do, perhaps until then.
    Busy(Option<Duration>),
    /// Nobody could be reached; nothing was asked.
    Unreachable,
    /// Whoever answers is not who is expected.
    Untrusted,
    /// Whether it was done is unknown: no answer came, or one that says nothing.
    Unknown,
    /// What answered is no such vault.
    Unreadable,
}

/// A failure of a vault. No part of it holds a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{subject}: {evidence}")]
pub struct VaultError {
    /// What kind.
    pub kind: VaultErrorKind,
    /// What it is about.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do about it.
    pub next: String,
    /// Whether something was to be changed.
    pub changes: bool,
}

impl VaultError {
    /// A failure of this kind, of a look.
    pub fn new(kind: VaultErrorKind, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), evidence: evidence.into(), next: String::new(), changes: false }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }
}

impl From<VaultError> for Fault {
    fn from(error: VaultError) -> Self {
        let VaultError { kind, subject, evidence, next, changes } = error;
        let class = match kind {
            VaultErrorKind::Busy(until) => Class::RetryableAfter(until),
            VaultErrorKind::Unreachable => Class::RefusedBeforeEffect,
            VaultErrorKind::Unknown | VaultErrorKind::Unreadable if changes => Class::EffectUnknown,
            VaultErrorKind::Unknown => Class::RetryableAfter(None),
            VaultErrorKind::Unauthenticated
            | VaultErrorKind::Forbidden
            | VaultErrorKind::Missing
            | VaultErrorKind::Hidden
            | VaultErrorKind::Waiting
            | VaultErrorKind::TooLarge
            | VaultErrorKind::Invalid
            | VaultErrorKind::Untrusted
            | VaultErrorKind::Unreadable => Class::Final,
        };
        let fault = Self::new(class, subject, evidence).next(next);
        if matches!(kind, VaultErrorKind::Busy(_)) { fault.contended() } else { fault }
    }
}
