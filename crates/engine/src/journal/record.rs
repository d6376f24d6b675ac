//! Records: how they are written, and how a bad one is told from a good one.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::change::Impact;
use crate::id::{CastleId, OperationId, StepId};

/// The newest format this castle reads and writes.
const FORMAT: u64 = 1;
/// length, checksum, sequence, link
const HEAD: usize = 4 + 4 + 8 + 16;
/// No record is longer; a length beyond is garbage.
const MAX_PAYLOAD: usize = 64 << 10;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Entry {
    /// The first: whose journal this is.
    Opening {
        /// The format of all that follows.
        format: u64,
        /// The castle.
        castle: CastleId,
    },
    /// An effect is about to be.
    Intent {
        /// The effect.
        operation: OperationId,
        /// The step.
        step: StepId,
        /// What it means for what exists.
        impact: Impact,
        /// What is done.
        verb: String,
        /// Which writer.
        epoch: u64,
    },
    /// The call for the effect returned well.
    Did {
        /// The effect.
        operation: OperationId,
    },
    /// The effect has been seen.
    Commit {
        /// The effect.
        operation: OperationId,
    },
    /// The effect has been seen not to be.
    Abandon {
        /// The effect.
        operation: OperationId,
        /// Why it was given up.
        why: String,
    },
}

impl Entry {
    pub(super) fn opening(castle: &CastleId) -> Self {
        Self::Opening { format: FORMAT, castle: castle.clone() }
    }
}

/// What is wrong with a journal from some record on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last record is not whole: a write was cut off.
    Torn,
    /// A record's bytes are not those that were written.
    Corrupt,
    /// A record does not follow the one before it.
    OutOfOrder,
    /// It is the journal of another castle, or of another life of this one.
    Foreign,
    /// A newer castle wrote it.
    Newer {
        /// The format found.
        found: u64,
        /// The newest known.
        known: u64,
    },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Torn => f.write_str("a write was cut off"),
            Self::Corrupt => f.write_str("other bytes than were written"),
            Self::OutOfOrder => f.write_str("a record is missing"),
            Self::Foreign => f.write_str("of another castle, or of another life of this one"),
            Self::Newer { found, known } => write!(f, "of a newer castle: format {found}, this one knows {known}"),
        }
    }
}

/// The end of a journal: what the next record follows.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    sequence: u64,
    link: [u8; 16],
}

impl Chain {
    /// The beginning of a castle's journal: its first record already names the castle by its link.
    pub(super) fn new(castle: &CastleId) -> Self {
        let CastleId { name, lineage, generation } = castle;
        Self { sequence: 0, link: digest(format!("journal\n{name}\n{lineage}\n{generation}").as_bytes()) }
    }

    /// The bytes of the next record, and the end of the journal once they are written.
    pub(super) fn encode(&self, entry: &Entry) -> (Vec<u8>, Self) {
        // Only strings and numbers: this cannot fail, and an empty payload would be found when read.
        let payload = serde_json::to_vec(entry).unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEAD + payload.len());
        bytes.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.link);
        bytes.extend(&payload);
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        let next = Self { sequence: self.sequence + 1, link: digest(&bytes) };
        (bytes, next)
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(bytes)[..16]);
    short
}

/// What could be read.
pub(super) struct Read {
    pub(super) entries: Vec<Entry>,
    pub(super) chain: Chain,
    /// How many bytes from the beginning are good.
    pub(super) good_bytes: u64,
    pub(super) damage: Option<Damage>,
}

/// Reads records up to the first bad one.
pub(super) fn decode(bytes: &[u8], castle: &CastleId) -> Read {
    let mut read = Read { entries: Vec::new(), chain: Chain::new(castle), good_bytes: 0, damage: None };
    let mut rest = bytes;
    while !rest.is_empty() {
        match next(rest, &read.chain) {
            Ok((entry, length)) => {
                read.chain = Chain { sequence: read.chain.sequence + 1, link: digest(&rest[..length]) };
                read.entries.push(entry);
                read.good_bytes += length as u64;
                rest = &rest[length..];
            }
            Err(damage) => {
                read.damage = Some(damage);
                break;
            }
        }
    }
    read
}

fn next(bytes: &[u8], chain: &Chain) -> Result<(Entry, usize), Damage> {
    let number = |from: usize| bytes.get(from..from + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    let length = number(0).ok_or(Damage::Torn)? as usize;
    let checksum = number(4).ok_or(Damage::Torn)?;
    if length > MAX_PAYLOAD {
        return Err(Damage::Corrupt);
    }
    let record = bytes.get(..HEAD + length).ok_or(Damage::Torn)?;
    if crc32fast::hash(&record[8..]) != checksum {
        return Err(Damage::Corrupt);
    }
    let entry: Result<Entry, _> = serde_json::from_slice(&record[HEAD..]);
    // A newer castle may write what this one cannot read; only the format tells.
    if let Some(found) = format_of(&record[HEAD..]).filter(|&found| found > FORMAT) {
        return Err(Damage::Newer { found, known: FORMAT });
    }
    if record[16..HEAD] != chain.link {
        return Err(if chain.sequence == 0 { Damage::Foreign } else { Damage::OutOfOrder });
    }
    if record[8..16] != chain.sequence.to_le_bytes() {
        return Err(Damage::OutOfOrder);
    }
    entry.map(|entry| (entry, record.len())).map_err(|_| Damage::Corrupt)
}

fn format_of(payload: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(payload).ok()?.get("format")?.as_u64()
}
