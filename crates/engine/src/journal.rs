//! The journal: what castle is about to do is on disk before it is done.
//!
//! `Intent -> Did -> Commit | Abandon`. The intent is synced before the effect; the others ride on the next sync, for losing
//! them only costs another look. After any crash the journal tells what may have been done without being noted, and whoever
//! looks there first never does it twice. It holds ids and words, never values: no secret can enter it.
//!
//! A record is `length, checksum, sequence, link, payload`; the link is a digest of the record before, so that a record that
//! is torn, missing, out of order or of another castle is found. Everything behind the first such record is set aside and
//! observed anew.

mod record;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_seams::{AppendFile, Disk, DiskError, DiskErrorKind};
use thiserror::Error;

use crate::change::Impact;
use crate::id::{CastleId, OperationId, StepId};

use record::{Chain, decode};
pub use record::{Damage, Entry};

/// A castle of a thousand nodes, raised a hundred times without a rest, has less.
const MAX_BYTES: u64 = 256 << 20;
/// Beyond this a finished journal is begun anew.
const ROTATE_BYTES: u64 = 4 << 20;

/// Why there is no journal, and so no effect.
#[derive(Debug, Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("the journal cannot be used: {0}")]
    Disk(#[from] DiskError),
    /// A newer castle wrote it.
    #[error("the journal was written by a newer castle (format {found}; this one knows {known}): use that one")]
    Newer {
        /// The format found.
        found: u64,
        /// The newest known.
        known: u64,
    },
    /// An earlier write failed, so nothing that follows could be trusted.
    #[error("the journal stopped at an earlier failure: {0}")]
    Stopped(String),
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Intents without an end: what they name may have been done.
    pub open: Vec<OpenIntent>,
    /// What was wrong with the end of the journal, if anything was.
    pub damage: Option<Damage>,
    /// How many bytes were set aside because of that.
    pub dropped_bytes: u64,
}

/// An intent whose end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIntent {
    /// The effect.
    pub operation: OperationId,
    /// The step.
    pub step: StepId,
    /// Which writer.
    pub epoch: u64,
}

/// An open journal.
pub struct Journal {
    path: PathBuf,
    file: Box<dyn AppendFile>,
    chain: Chain,
    /// How much of the file is known to be good.
    length: u64,
    /// Written but not synced.
    unsynced: bool,
    stopped: Option<String>,
}

impl Journal {
    /// Opens the journal of a castle, making it if there is none, and says what it held.
    ///
    /// # Errors
    ///
    /// See [`JournalError`]. A damaged journal is none: it is mended, and [`Recovery`] tells.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path, castle: &CastleId) -> Result<(Self, Recovery), JournalError> {
        let bytes = match disk.read(path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind == DiskErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let read = decode(&bytes, castle);
        if let Some(Damage::Newer { found, known }) = read.damage {
            return Err(JournalError::Newer { found, known });
        }
        let open = open_intents(&read.entries);
        let good = read.good_bytes;
        let dropped_bytes = bytes.len() as u64 - good;
        if dropped_bytes > 0 {
            // Kept for people; nothing reads it.
            disk.replace(&path.with_extension("damaged"), &bytes[usize::try_from(good).unwrap_or_default()..], 0o600)?;
        }
        let begin_anew = good == 0 || (open.is_empty() && good > ROTATE_BYTES);
        if begin_anew {
            disk.replace(path, &[], 0o600)?;
        }
        let mut file = disk.append(path, 0o600)?;
        if dropped_bytes > 0 && !begin_anew {
            file.truncate(good)?;
            file.sync()?;
        }
        let (chain, length) = if begin_anew { (Chain::new(castle), 0) } else { (read.chain, good) };
        let mut journal = Self { path: path.to_owned(), file, chain, length, unsynced: false, stopped: None };
        if begin_anew {
            journal.write(&Entry::opening(castle))?;
            journal.sync()?;
        }
        Ok((journal, Recovery { open, damage: read.damage, dropped_bytes }))
    }

    /// Notes that an effect is about to be, and returns once that is on disk. Only then may it be.
    ///
    /// # Errors
    ///
    /// On any, there must be no effect.
    pub fn intent(
        &mut self,
        operation: &OperationId,
        step: &StepId,
        impact: Impact,
        verb: &str,
        epoch: u64,
    ) -> Result<(), JournalError> {
        let (operation, step, verb) = (operation.clone(), step.clone(), verb.to_owned());
        self.write(&Entry::Intent { operation, step, impact, verb, epoch })?;
        self.sync()
    }

    /// Notes that the call for the effect returned well.
    ///
    /// # Errors
    ///
    /// On any, no further effect may be; this one stands.
    pub fn did(&mut self, operation: &OperationId) -> Result<(), JournalError> {
        self.write(&Entry::Did { operation: operation.clone() })
    }

    /// Notes that the effect has been seen.
    ///
    /// # Errors
    ///
    /// As for [`Journal::did`].
    pub fn commit(&mut self, operation: &OperationId) -> Result<(), JournalError> {
        self.write(&Entry::Commit { operation: operation.clone() })
    }

    /// Notes that the effect has been seen not to be, and will not be tried on.
    ///
    /// # Errors
    ///
    /// As for [`Journal::did`].
    pub fn abandon(&mut self, operation: &OperationId, why: &str) -> Result<(), JournalError> {
        self.write(&Entry::Abandon { operation: operation.clone(), why: why.to_owned() })
    }

    /// Brings everything written to disk.
    ///
    /// # Errors
    ///
    /// After any, the journal takes nothing more: what a failed sync left on disk cannot be known without reading it anew.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        if self.unsynced {
            self.file.sync().map_err(|error| self.stop(error))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, entry: &Entry) -> Result<(), JournalError> {
        self.usable()?;
        let (bytes, chain) = self.chain.encode(entry);
        if let Err(error) = self.file.append(&bytes) {
            // Half a record may stand there. If it can be cut off, the journal goes on when there is room again.
            return match self.file.truncate(self.length) {
                Ok(()) => Err(error.into()),
                Err(_) => Err(self.stop(error)),
            };
        }
        self.chain = chain;
        self.length += bytes.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    fn usable(&self) -> Result<(), JournalError> {
        self.stopped.clone().map_or(Ok(()), |why| Err(JournalError::Stopped(why)))
    }

    fn stop(&mut self, error: DiskError) -> JournalError {
        self.stopped = Some(error.to_string());
        error.into()
    }
}

fn open_intents(entries: &[Entry]) -> Vec<OpenIntent> {
    let mut open: Vec<OpenIntent> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Intent { operation, step, epoch, .. } => {
                open.retain(|intent| intent.operation != *operation);
                open.push(OpenIntent { operation: operation.clone(), step: step.clone(), epoch: *epoch });
            }
            Entry::Commit { operation } | Entry::Abandon { operation, .. } => {
                open.retain(|intent| intent.operation != *operation);
            }
            Entry::Opening { .. } | Entry::Did { .. } => {}
        }
    }
    open
}
