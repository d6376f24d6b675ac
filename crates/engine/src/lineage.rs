//! Which castle this is: drawn once, kept in its store, the same for everyone who works on it.

use castle_seams::Entropy;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{CastleId, hex};
use crate::note::{self, Unreadable};
use crate::store::{Expect, Store, StoreError, StoreErrorKind};

/// The newest format this castle reads and writes.
const FORMAT: u64 = 1;

/// What to do where something of a later life of a castle is found than the one that its state knows.
pub const OUTDATED: &str =
    "bring the newer state back; or, if this is an old copy of it, move it away and run castle adopt (docs/state.md)";

/// Why it is not known which castle this is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineageError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The record is not one.
    #[error("{0} does not say which castle this is: {1}")]
    Damaged(String, String),
    /// The record is of a newer castle.
    #[error("{0} does not say which castle this is: a newer castle wrote it (format {1})")]
    Newer(String, u64),
    /// It has moved on since it was read.
    #[error("the castle {} is of lineage {} and in life {} by now: somebody else has written that", .0.name, .0.lineage, .0.generation)]
    Moved(CastleId),
    /// There is no chance to be had.
    #[error("{0}")]
    Entropy(String),
    /// The store writes whatever it is told to expect: two operators could not keep out of each other's way.
    #[error(
        "{0} was written over although it was there: this store does not know conditional writes, and cannot be used"
    )]
    Unconditional(String),
}

#[derive(Serialize, Deserialize)]
struct Birth {
    castle: CastleId,
}

impl Birth {
    fn bytes(castle: &CastleId) -> Vec<u8> {
        note::bytes(FORMAT, &Self { castle: castle.clone() })
    }
}

fn key_of(name: &str) -> String {
    format!("{name}/castle")
}

/// Which castle `name` is in this store; nothing if it was never raised.
///
/// # Errors
///
/// If the record cannot be read.
pub async fn find(store: &dyn Store, name: &str) -> Result<Option<CastleId>, LineageError> {
    let key = key_of(name);
    let Some(found) = store.get(&key).await? else { return Ok(None) };
    match note::read(FORMAT, &found.bytes) {
        Ok(Birth { castle }) if castle.name == name => Ok(Some(castle)),
        Ok(Birth { castle }) => Err(LineageError::Damaged(key, format!("it is that of {}", castle.name))),
        Err(Unreadable::Damaged(why)) => Err(LineageError::Damaged(key, why)),
        Err(Unreadable::Newer(format)) => Err(LineageError::Newer(key, format)),
    }
}

/// Which castle `name` is in this store; it is born now if it was never raised.
///
/// # Errors
///
/// If the record cannot be read or written.
pub async fn find_or_found(store: &dyn Store, name: &str, entropy: &dyn Entropy) -> Result<CastleId, LineageError> {
    if let Some(castle) = find(store, name).await? {
        return Ok(castle);
    }
    let mut drawn = [0; 8];
    entropy.fill(&mut drawn).map_err(|error| LineageError::Entropy(error.to_string()))?;
    let castle = CastleId { name: name.to_owned(), lineage: hex(&drawn), generation: 1 };
    let bytes = Birth::bytes(&castle);
    match store.put(&key_of(name), &bytes, Expect::Nothing).await {
        // Asked once, at the birth of a castle: a store that takes the same again as new would take anything.
        Ok(_) => match store.put(&key_of(name), &bytes, Expect::Nothing).await {
            Err(error) if error.kind == StoreErrorKind::Conflict => Ok(castle),
            Ok(_) => Err(LineageError::Unconditional(key_of(name))),
            Err(error) => Err(error.into()),
        },
        // Someone else was first, or the answer was lost: what is there is what it is.
        Err(error) if matches!(error.kind, StoreErrorKind::Conflict | StoreErrorKind::Unknown) => {
            find(store, name).await?.ok_or(LineageError::Store(error))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes down which castle `castle` is, in a store that has never heard of it: found by its marks, for instance.
///
/// # Errors
///
/// If the store knows another castle of that name, or fails.
pub async fn adopt(store: &dyn Store, castle: &CastleId) -> Result<(), LineageError> {
    let bytes = Birth::bytes(castle);
    match store.put(&key_of(&castle.name), &bytes, Expect::Nothing).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind, StoreErrorKind::Conflict | StoreErrorKind::Unknown) => {
            match find(store, &castle.name).await? {
                Some(found) if found == *castle => Ok(()),
                _ => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Goes back to an earlier life of a castle, whose secrets were brought back.
///
/// # Errors
///
/// If the store fails, or knows another castle of that name.
pub async fn go_back(store: &dyn Store, castle: &CastleId, generation: u64) -> Result<CastleId, LineageError> {
    replace(store, castle, generation).await
}

/// Begins the next life of a castle that was taken down. Begun twice, it is begun once.
///
/// # Errors
///
/// If the store fails, or knows another castle of that name.
pub async fn next_life(store: &dyn Store, castle: &CastleId) -> Result<CastleId, LineageError> {
    replace(store, castle, castle.generation + 1).await
}

/// Writes down that a castle is in this life. Written twice, it is written once.
async fn replace(store: &dyn Store, castle: &CastleId, generation: u64) -> Result<CastleId, LineageError> {
    let key = key_of(&castle.name);
    let next = CastleId { generation, ..castle.clone() };
    let gone = || LineageError::Damaged(key.clone(), "it is gone".to_owned());
    let found = store.get(&key).await?.ok_or_else(gone)?;
    match find(store, &castle.name).await? {
        Some(found) if found == next => return Ok(next),
        // What was written since by somebody who knows more stays.
        Some(found) if found != *castle => return Err(LineageError::Moved(found)),
        _ => {}
    }
    let bytes = Birth::bytes(&next);
    match store.put(&key, &bytes, Expect::Version(&found.tag)).await {
        Ok(_) => Ok(next),
        Err(error) if error.kind == StoreErrorKind::Unknown => match find(store, &castle.name).await? {
            Some(found) if found == next => Ok(next),
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}
