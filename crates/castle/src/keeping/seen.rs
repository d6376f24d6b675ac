//! `.seen.json`: what this machine has seen of a castle's state, which a store cannot go back on.

use castle_engine::Memory;
use castle_engine::note::{self, Unreadable};

/// The newest format that this castle reads and writes.
const FORMAT: u64 = 1;

pub(super) fn read(bytes: &[u8]) -> Result<Memory, Unreadable> {
    note::read(FORMAT, bytes)
}

pub(super) fn write(memory: &Memory) -> Vec<u8> {
    note::bytes(FORMAT, memory)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RECORDED: &str =
        r#"{"format":1,"key":"ab12","serials":{"platform":3,"secrets":1},"digest":"a78e3995bfd33da6c9bfe2a53ecac9e0"}"#;

    fn memory() -> Memory {
        let serials = [("platform".to_owned(), 3), ("secrets".to_owned(), 1)].into();
        Memory { key: Some("ab12".to_owned()), serials }
    }

    #[test]
    fn the_recorded_bytes_are_written_and_read() {
        assert_eq!(String::from_utf8(write(&memory())).unwrap(), RECORDED);
        assert_eq!(read(RECORDED.as_bytes()), Ok(memory()));
    }

    #[test]
    fn what_a_newer_castle_has_written_is_not_taken_for_damaged() {
        assert_eq!(read(&note::bytes(2, &json!({"key": "ab12", "seen": 7}))), Err(Unreadable::Newer(2)));
        let (undigested, lower) = (RECORDED.split_once(",\"digest\"").unwrap().0, RECORDED.replace(":3", ":2"));
        for damaged in ["", "{", "[]", r#"{"format":1}"#, &format!("{undigested}}}"), &lower] {
            assert!(matches!(read(damaged.as_bytes()), Err(Unreadable::Damaged(_))), "{damaged}");
        }
    }
}
