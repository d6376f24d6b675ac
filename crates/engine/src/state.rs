//! What castle remembers of each layer: sealed, in generations, written by one writer at a time.
//!
//! It is a cache of what the marks in the world say, and can be rebuilt from them; what it saves is time, and what it keeps is
//! history. A record is one object, `CASTLE/state/LAYER/SERIAL`, that is only ever created: of two writers of one serial exactly
//! one succeeds. Inside of what is sealed stand castle, layer, lineage and serial, so that no record can take another's place.

mod seal;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use castle_seams::{Clock, Entropy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::id::{CastleId, Layer, hex};
use crate::store::{Expect, Store, StoreError, StoreErrorKind};

pub use seal::{Locksmith, Opened, Seal, SealError};

/// The newest format this castle reads and writes.
const FORMAT: u64 = 1;
/// How many generations are kept; the issue of losing one is then another's.
const KEPT: usize = 10;

/// Why there is no state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// It cannot be opened or sealed.
    #[error("{subject}: {error}")]
    Seal {
        /// Which record.
        subject: String,
        /// Why.
        error: SealError,
    },
    /// A newer castle wrote it.
    #[error("{subject} was written by a newer castle (format {found}; this one knows {FORMAT}): use that one")]
    Newer {
        /// Which record.
        subject: String,
        /// Its format.
        found: u64,
    },
    /// It is not the record it should be: another castle's, another layer's, another serial's.
    #[error("{subject} is not what its name says: {evidence}")]
    Mistaken {
        /// Which record.
        subject: String,
        /// What it is instead.
        evidence: String,
    },
    /// Someone else wrote the next record first: whoever writes now is not alone.
    #[error("{subject} was written by someone else in the meantime: look at it, then run the command again")]
    Overtaken {
        /// Which record.
        subject: String,
    },
    /// The newest record is older than one seen before: someone put an old one back, or removed the newer ones.
    #[error(
        "{layer} is at serial {found}, but {remembered} has been seen: the store has lost or been given back older records"
    )]
    RolledBack {
        /// Which layer.
        layer: String,
        /// The newest there is.
        found: u64,
        /// The newest there was.
        remembered: u64,
    },
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The layer.
    pub layer: Layer,
    /// Counts the records of the layer, from one.
    pub serial: u64,
    /// Under which lease it was written.
    pub epoch: u64,
    /// Who wrote it.
    pub writer: String,
    /// When, by the writer's clock.
    pub written: SystemTime,
    /// What is remembered.
    pub payload: Value,
}

/// A record as it stands inside of the seal.
#[derive(Serialize, Deserialize)]
struct Inside {
    format: u64,
    castle: CastleId,
    layer: Layer,
    serial: u64,
    epoch: u64,
    writer: String,
    written_unix: u64,
    /// The castle's key, see [`seal`].
    key: String,
    payload: Value,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// What has been seen of a castle's state, remembered on this machine: a store cannot go back on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// A digest of the castle's key.
    pub key: Option<String>,
    /// The newest serial seen of each layer.
    pub serials: std::collections::BTreeMap<String, u64>,
}

/// The state of one castle.
pub struct State {
    store: Arc<dyn Store>,
    seal: Seal,
    castle: CastleId,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    writer: String,
    memory: Memory,
    key: Option<Zeroizing<String>>,
    proven: bool,
}

impl State {
    /// The state of `castle` in `store`, written as `writer`. Nothing is read yet.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        seal: Seal,
        castle: CastleId,
        doors: (Arc<dyn Clock>, Arc<dyn Entropy>),
        writer: &str,
        memory: Memory,
    ) -> Self {
        let (clock, entropy) = doors;
        Self { store, seal, castle, clock, entropy, writer: writer.to_owned(), memory, key: None, proven: false }
    }

    /// What has been seen, to be remembered for the next time.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn folder(&self, layer: &Layer) -> String {
        format!("{}/state/{layer}/", self.castle.name)
    }

    fn name(&self, layer: &Layer, serial: u64) -> String {
        format!("{}{serial:012}", self.folder(layer))
    }

    /// The serials there are of a layer, oldest first.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn history(&self, layer: &Layer) -> Result<Vec<u64>, StateError> {
        let folder = self.folder(layer);
        let keys = self.store.list(&folder).await?;
        let mut serials: Vec<u64> = keys.iter().filter_map(|key| key.strip_prefix(&folder)?.parse().ok()).collect();
        serials.sort_unstable();
        Ok(serials)
    }

    /// The newest record of a layer, if there is one.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn latest(&mut self, layer: &Layer) -> Result<Option<Record>, StateError> {
        let newest = self.history(layer).await?.last().copied();
        let remembered = self.memory.serials.get(&layer.to_string()).copied().unwrap_or(0);
        if newest.unwrap_or(0) < remembered {
            let (layer, found) = (layer.to_string(), newest.unwrap_or(0));
            return Err(StateError::RolledBack { layer, found, remembered });
        }
        match newest {
            Some(serial) => self.read(layer, serial).await.map(Some),
            None => Ok(None),
        }
    }

    /// A record of a layer.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn read(&mut self, layer: &Layer, serial: u64) -> Result<Record, StateError> {
        let subject = self.name(layer, serial);
        let missing =
            || StateError::Mistaken { subject: subject.clone(), evidence: "there is no such record".to_owned() };
        let found = self.store.get(&subject).await?.ok_or_else(missing)?;
        let sealed = |error| StateError::Seal { subject: subject.clone(), error };
        let opened = self.seal.open(&found.bytes).map_err(sealed)?;
        let mistaken = |evidence: String| StateError::Mistaken { subject: subject.clone(), evidence };
        let raw: Value =
            serde_json::from_slice(&opened.plain).map_err(|_| mistaken("it is not a record".to_owned()))?;
        if let Some(found) = raw["format"].as_u64().filter(|&found| found > FORMAT) {
            return Err(StateError::Newer { subject, found });
        }
        let inside: Inside = serde_json::from_value(raw).map_err(|_| mistaken("it is not a record".to_owned()))?;
        let other = inside.castle.name != self.castle.name || inside.castle.lineage != self.castle.lineage;
        if other || inside.layer != *layer || inside.serial != serial {
            let evidence =
                format!("it is record {} of {} of the castle {}", inside.serial, inside.layer, inside.castle.name);
            return Err(mistaken(evidence));
        }
        opened.verify(inside.key.as_bytes()).map_err(sealed)?;
        let digest = hex(&Sha256::digest(&inside.key));
        if self.memory.key.as_ref().is_some_and(|known| *known != digest) {
            return Err(sealed(SealError::Damaged(
                "it was sealed by someone who does not know this castle".to_owned(),
            )));
        }
        self.memory.key = Some(digest);
        self.key = Some(Zeroizing::new(inside.key.clone()));
        let seen = self.memory.serials.entry(layer.to_string()).or_default();
        *seen = serial.max(*seen);
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(inside.written_unix);
        let (epoch, writer, payload) = (inside.epoch, inside.writer.clone(), inside.payload.clone());
        Ok(Record { layer: layer.clone(), serial, epoch, writer, written, payload })
    }

    /// Writes what is to be remembered of a layer, after the newest record that was read; returns its serial.
    ///
    /// The first time it is held that what is sealed can be opened again: to be called before the first effect.
    ///
    /// # Errors
    ///
    /// [`StateError::Overtaken`] if someone else wrote in between; nothing was written then.
    pub async fn write(&mut self, layer: &Layer, payload: Value, epoch: u64) -> Result<u64, StateError> {
        let after = self.memory.serials.get(&layer.to_string()).copied().unwrap_or(0);
        let serial = after + 1;
        let subject = self.name(layer, serial);
        let sealed = |error| StateError::Seal { subject: subject.clone(), error };
        if !self.proven {
            self.seal.prove().map_err(sealed)?;
            self.proven = true;
        }
        let key = self.key()?;
        let unix = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let inside = Inside {
            format: FORMAT,
            castle: self.castle.clone(),
            layer: layer.clone(),
            serial,
            epoch,
            writer: self.writer.clone(),
            written_unix: unix.as_secs(),
            key: key.to_string(),
            payload,
        };
        let plain = Zeroizing::new(serde_json::to_vec(&inside).unwrap_or_default());
        let bytes = self.seal.seal(&plain, key.as_bytes()).map_err(sealed)?;
        match self.store.put(&subject, &bytes, Expect::Nothing).await {
            Ok(_) => {}
            Err(error) if error.kind == StoreErrorKind::Conflict => return Err(StateError::Overtaken { subject }),
            // It may be there: it is ours if it is what we wrote, to the last byte of its chance.
            Err(error) if error.kind == StoreErrorKind::Unknown => match self.store.get(&subject).await? {
                Some(found) if found.bytes == bytes => {}
                Some(_) => return Err(StateError::Overtaken { subject }),
                None => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
        self.memory.key = Some(hex(&Sha256::digest(key.as_bytes())));
        self.memory.serials.insert(layer.to_string(), serial);
        self.prune(layer).await;
        Ok(serial)
    }

    /// The castle's key: that of its records, or a new one for its first.
    fn key(&mut self) -> Result<Zeroizing<String>, StateError> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let mut drawn = Zeroizing::new([0; 32]);
        self.entropy.fill(drawn.as_mut_slice()).map_err(|error| StateError::Seal {
            subject: self.castle.name.clone(),
            error: SealError::Damaged(error.to_string()),
        })?;
        let key = Zeroizing::new(hex(drawn.as_slice()));
        self.key = Some(key.clone());
        Ok(key)
    }

    /// Drops what is older than the generations kept. That it fails is no harm: the next write tries again.
    async fn prune(&self, layer: &Layer) {
        let Ok(serials) = self.history(layer).await else { return };
        for serial in serials.iter().take(serials.len().saturating_sub(KEPT)) {
            let _ = self.store.delete(&self.name(layer, *serial)).await;
        }
    }
}
