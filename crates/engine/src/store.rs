//! Where records are kept: a folder, or a bucket that several machines share.
//!
//! Every write names what it expects to find, so that of two writers exactly one succeeds and the other knows.

mod directory;

use std::fmt;

use castle_seams::BoxFuture;

use crate::fault::{Class, Fault};

pub use directory::DirectoryStore;

/// Tells one version of a record from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// A record as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Which version it is.
    pub tag: Tag,
}

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect<'a> {
    /// Nothing: the record is new.
    Nothing,
    /// This version.
    Version(&'a Tag),
}

/// Why a store did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Someone else wrote in between: what was expected is not what is there. Nothing was written.
    Conflict,
    /// It may have been written or not: reading tells.
    Unknown,
    /// It cannot be reached, or wants to be asked later. Nothing was written.
    Unavailable,
    /// It will not do it: no permission, no such bucket, no room, not writable.
    Refused,
}

/// A failure of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What kind.
    pub kind: StoreErrorKind,
    /// Which record, and where.
    pub subject: String,
    /// What was seen. Never holds a secret.
    pub evidence: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.evidence)
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let class = match error.kind {
            StoreErrorKind::Conflict | StoreErrorKind::Refused => Class::Final,
            StoreErrorKind::Unknown => Class::EffectUnknown,
            StoreErrorKind::Unavailable => Class::RetryableAfter(None),
        };
        Self::new(class, error.subject, error.evidence)
    }
}

/// What a store answers.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Keeps records by key. A key is made of `[a-z0-9-]` and `/`.
pub trait Store: Send + Sync {
    /// The record, if there is one.
    fn get<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Found>>;

    /// Writes the record if what is there is what is expected, and returns its new version.
    fn put<'a>(&'a self, key: &'a str, bytes: &'a [u8], expect: Expect<'a>) -> Stored<'a, Tag>;

    /// The keys that begin so, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<String>>;

    /// Removes a record; one that is not there is removed already.
    fn delete<'a>(&'a self, key: &'a str) -> Stored<'a, ()>;
}
