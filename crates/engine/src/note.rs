//! Small files that castle keeps: a format, what they say, and last a digest of all that stands before it. Of what is damaged by as little as one bit nothing is
//! believed, and its format neither: what stands in it could be the name, the life or the epoch of something else.
//!
//! Every format ends with that digest, later ones too: so one of a newer castle is told from one that is damaged. One without it is damaged.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::id::hex;

/// How many bytes of the digest are written.
const DIGEST_BYTES: usize = 16;

/// Why a note says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// It is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// A newer castle wrote it, in this format.
    #[error("a newer castle wrote it (format {0})")]
    Newer(u64),
}

impl Unreadable {
    /// That its digest is not that of what it says.
    fn altered() -> Self {
        Self::Damaged("it is not what was written".to_owned())
    }
}

#[derive(Serialize, Deserialize)]
struct Written<T> {
    format: u64,
    #[serde(flatten)]
    content: T,
}

/// What stands last, after these bytes.
fn ending(said: &[u8]) -> Vec<u8> {
    let digest = hex(&Sha256::digest(said)[..DIGEST_BYTES]);
    format!(r#","digest":"{digest}"}}"#).into_bytes()
}

/// The bytes of a note in this format.
pub fn bytes<T: Serialize>(format: u64, content: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(&Written { format, content }).unwrap_or_default();
    // The end of the object comes after the digest.
    bytes.pop();
    let ending = ending(&bytes);
    bytes.extend(ending);
    bytes
}

/// What the bytes of a note say, to whoever knows this format.
///
/// # Errors
///
/// See [`Unreadable`].
pub fn read<T: DeserializeOwned>(known: u64, bytes: &[u8]) -> Result<T, Unreadable> {
    let (said, end) = bytes.split_at(bytes.len().saturating_sub(ending(&[]).len()));
    if ending(said) != end {
        return Err(Unreadable::altered());
    }
    let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
    let note: Value = serde_json::from_slice(bytes).map_err(damaged)?;
    match note["format"].as_u64() {
        Some(format) if format > known => Err(Unreadable::Newer(format)),
        _ => serde_json::from_value(note).map(|Written { content, .. }| content).map_err(damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Count {
        epoch: u64,
    }

    const RECORDED: &str = r#"{"format":1,"epoch":7,"digest":"e4da02389814cc720f3ea368d7ef1523"}"#;

    #[test]
    fn the_recorded_note_is_written_and_read() {
        assert_eq!(String::from_utf8(bytes(1, &Count { epoch: 7 })).unwrap(), RECORDED);
        assert_eq!(read(1, RECORDED.as_bytes()), Ok(Count { epoch: 7 }));
    }

    #[test]
    fn of_what_is_not_as_it_was_written_nothing_is_believed() {
        let is_damaged = |bytes: &[u8]| matches!(read::<Count>(1, bytes), Err(Unreadable::Damaged(_)));
        for bit in 0..RECORDED.len() * 8 {
            let mut bytes = RECORDED.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damaged(&bytes), "bit {bit}: {}", String::from_utf8_lossy(&bytes));
        }
        for length in 0..RECORDED.len() {
            assert!(is_damaged(&RECORDED.as_bytes()[..length]), "{length} bytes");
        }
        assert!(is_damaged(br#"{"format":1,"epoch":7}"#), "one that has no digest");
        assert!(is_damaged(&bytes(1, &serde_json::json!({"epoch": "seven"}))), "one that says something else");
    }

    #[test]
    fn one_of_a_newer_castle_is_told_from_one_that_is_damaged() {
        let newer = bytes(2, &serde_json::json!({"epochs": [7]}));
        assert_eq!(read::<Count>(1, &newer), Err(Unreadable::Newer(2)));
        let cut = String::from_utf8(newer).unwrap().replace("[7]", "[8]");
        assert!(matches!(read::<Count>(1, cut.as_bytes()), Err(Unreadable::Damaged(_))));
    }
}
