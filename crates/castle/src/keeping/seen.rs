//! `.seen.json`: what this machine has seen of a castle's state, which a store cannot go back on.

use castle_engine::Memory;
use serde_json::Value;

/// The newest format that this castle reads and writes. The first ones did not name it.
const FORMAT: u64 = 1;

/// Why it cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is not what was written.
    Damaged,
    /// A newer castle wrote it, in this format.
    Newer(u64),
}

pub(super) fn read(bytes: &[u8]) -> Result<Memory, Unreadable> {
    let seen: Value = serde_json::from_slice(bytes).map_err(|_| Unreadable::Damaged)?;
    match seen["format"].as_u64() {
        Some(format) if format > FORMAT => Err(Unreadable::Newer(format)),
        _ => serde_json::from_value(seen).map_err(|_| Unreadable::Damaged),
    }
}

pub(super) fn write(memory: &Memory) -> Vec<u8> {
    let mut seen = serde_json::Map::from_iter([("format".to_owned(), FORMAT.into())]);
    if let Ok(Value::Object(memory)) = serde_json::to_value(memory) {
        seen.extend(memory);
    }
    Value::Object(seen).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"format":1,"key":"ab12","serials":{"platform":3,"secrets":1}}"#;
    /// From before it named its format.
    const FIRST: &str = r#"{"key":"ab12","serials":{"platform":3,"secrets":1}}"#;

    fn memory() -> Memory {
        let serials = [("platform".to_owned(), 3), ("secrets".to_owned(), 1)].into();
        Memory { key: Some("ab12".to_owned()), serials }
    }

    #[test]
    fn the_recorded_bytes_are_written_and_read_and_those_before_them_are_read() {
        assert_eq!(String::from_utf8(write(&memory())).unwrap(), RECORDED);
        assert_eq!(read(RECORDED.as_bytes()), Ok(memory()));
        assert_eq!(read(FIRST.as_bytes()), Ok(memory()));
    }

    #[test]
    fn what_a_newer_castle_has_written_is_not_taken_for_damaged() {
        let newer = RECORDED.replace("\"format\":1", "\"format\":2").replace("serials", "seen");
        assert_eq!(read(newer.as_bytes()), Err(Unreadable::Newer(2)));
        for damaged in ["", "{", "[]", r#"{"format":1}"#] {
            assert_eq!(read(damaged.as_bytes()), Err(Unreadable::Damaged), "{damaged}");
        }
    }
}
