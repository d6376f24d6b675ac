//! The vault: where a castle's secrets are kept, whoever makes it.
//!
//! [`Vault`] is what castle wants of one. [`Resolver`] reads many references with one look at each folder; [`keep`] has
//! the steps that save what a castle makes, find it again, and take it away.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use castle_seams::BoxFuture;

use crate::Secret;

mod error;
pub mod keep;
mod resolve;

pub use error::{VaultError, VaultErrorKind};
pub use resolve::{Reference, Resolver};

/// A secret in a vault.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its value, if castle may read it.
    pub value: Option<Secret>,
    /// What is noted at it, for people to read.
    pub note: String,
}

/// The secrets of one folder by name.
pub type Folder = BTreeMap<String, Entry>;

/// A vault in which castle is somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Which vault, in words: `Infisical (eu), project tazlab, environment prod`.
    pub place: String,
}

/// A vault. Folders are paths as `/castle/blue`; names are as people write them in castle.yaml.
pub trait Vault: Send + Sync {
    /// Logs in, and proves that what is to be used is there.
    fn whoami(&self) -> BoxFuture<'_, Result<Account, VaultError>>;

    /// All secrets of a folder, not of those below; nothing if there is no such folder.
    fn list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Folder>, VaultError>>;

    /// One secret; nothing if there is none of that name.
    fn get<'a>(&'a self, path: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Entry>, VaultError>>;

    /// Creates these secrets in a folder that exists, or gives them these values, and notes this at each.
    fn upsert<'a>(
        &'a self,
        path: &'a str,
        secrets: &'a BTreeMap<String, Secret>,
        note: &'a str,
    ) -> BoxFuture<'a, Result<(), VaultError>>;

    /// Makes a folder and those above it, where they are not there.
    fn ensure_folder<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), VaultError>>;

    /// Removes secrets that are there.
    fn remove<'a>(&'a self, path: &'a str, names: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), VaultError>>;

    /// What the vault makes of a value when it keeps it, so that what is read can be compared with what was written.
    fn kept<'a>(&self, value: &'a str) -> Cow<'a, str>;
}
