//! The journal on a disk that fails in every way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_engine::{CastleId, Damage, Impact, Journal, JournalError, Layer, OperationId, StepId};
use castle_seams::Disk;
use castle_testbed::{ModelDisk, Pulse};

const PATH: &str = "/state/journal";

fn castle() -> CastleId {
    CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 }
}

fn step(name: &str) -> StepId {
    StepId::new(&Layer::new("platform"), "vm", name)
}

fn open(disk: &ModelDisk, castle: &CastleId) -> Result<(Journal, castle_engine::Recovery), JournalError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(&disk, Path::new(PATH), castle)
}

fn intend(journal: &mut Journal, name: &str) -> Result<OperationId, JournalError> {
    let operation = OperationId::of(&castle(), &step(name), "create");
    journal.intent(&operation, &step(name), Impact::Create, "create", 1).map(|()| operation)
}

/// A journal with three ended intents and one open.
fn written() -> ModelDisk {
    let disk = ModelDisk::new(&Pulse::new());
    let (mut journal, _) = open(&disk, &castle()).unwrap();
    for name in ["a", "b", "c"] {
        let operation = intend(&mut journal, name).unwrap();
        journal.did(&operation).unwrap();
        journal.commit(&operation).unwrap();
    }
    intend(&mut journal, "d").unwrap();
    disk
}

fn bytes(disk: &ModelDisk) -> Vec<u8> {
    disk.contents()[Path::new(PATH)].clone()
}

fn names(recovery: &castle_engine::Recovery) -> Vec<String> {
    recovery.open.iter().map(|intent| intent.step.name.to_string()).collect()
}

#[test]
fn what_is_open_is_found_again() {
    let disk = written();
    let (mut journal, recovery) = open(&disk, &castle()).unwrap();
    assert_eq!((names(&recovery), recovery.damage), (vec!["d".to_owned()], None));
    let operation = OperationId::of(&castle(), &step("d"), "create");
    assert_eq!(recovery.open[0].operation, operation, "the same after any crash");
    journal.abandon(&operation, "it was not there").unwrap();
    journal.sync().unwrap();
    assert_eq!(names(&open(&disk, &castle()).unwrap().1), [] as [String; 0]);
}

#[test]
fn cut_at_any_byte_it_is_mended_and_goes_on() {
    let whole = bytes(&written());
    for length in 0..whole.len() {
        let disk = written();
        disk.tamper(Path::new(PATH), whole[..length].to_vec());
        let (mut journal, recovery) = open(&disk, &castle()).unwrap();
        assert!(names(&recovery).len() <= 1, "cut at {length}: {recovery:?}");
        intend(&mut journal, "e").unwrap();
        let (_, again) = open(&disk, &castle()).unwrap();
        assert_eq!((again.damage.clone(), again.dropped_bytes), (None, 0), "cut at {length}");
        assert!(names(&again).contains(&"e".to_owned()), "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let whole = bytes(&written());
    for at in 0..whole.len() {
        let disk = written();
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        disk.tamper(Path::new(PATH), flipped);
        let (_, recovery) = open(&disk, &castle()).unwrap();
        assert!(recovery.damage.is_some() && recovery.dropped_bytes > 0, "bit at {at}: {recovery:?}");
        let aside = disk.contents()[&PathBuf::from("/state/journal.damaged")].len() as u64;
        assert_eq!(aside, recovery.dropped_bytes, "what is set aside is kept for people");
    }
}

#[test]
fn records_out_of_order_or_of_another_castle_are_found() {
    let whole = bytes(&written());
    let head = |at: usize| 32 + u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let (first, second) = (head(0), head(head(0)));
    let swapped = [&whole[..first], &whole[first + second..], &whole[first..first + second]].concat();
    let missing = [&whole[..first], &whole[first + second..]].concat();
    let doubled = [&whole[..first], &whole[..first], &whole[first..]].concat();
    for content in [swapped, missing, doubled] {
        let disk = ModelDisk::new(&Pulse::new());
        disk.tamper(Path::new(PATH), content);
        assert_eq!(open(&disk, &castle()).unwrap().1.damage, Some(Damage::OutOfOrder));
    }
    for other in [CastleId { name: "green".into(), ..castle() }, CastleId { generation: 2, ..castle() }] {
        let disk = written();
        let (_, recovery) = open(&disk, &other).unwrap();
        assert_eq!((recovery.damage.clone(), names(&recovery)), (Some(Damage::Foreign), Vec::new()));
    }
}

#[test]
fn a_newer_format_is_left_alone() {
    let disk = written();
    let text = bytes(&disk);
    // The first payload names the format; write one from the future with a right checksum.
    let length = u32::from_le_bytes(text[0..4].try_into().unwrap()) as usize;
    let payload = String::from_utf8(text[32..32 + length].to_vec()).unwrap().replace("\"format\":1", "\"format\":9");
    let mut record = text[..32].to_vec();
    record.extend(payload.as_bytes());
    let checksum = crc32fast::hash(&record[8..]);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
    disk.tamper(Path::new(PATH), record.clone());
    let error = open(&disk, &castle()).map(|_| ()).unwrap_err();
    assert!(matches!(error, JournalError::Newer { found: 9, known: 1 }), "{error}");
    assert_eq!(bytes(&disk), record, "nothing of it is touched");
}

#[test]
fn a_full_disk_refuses_the_intent_and_goes_on_when_there_is_room() {
    let disk = written();
    let (mut journal, _) = open(&disk, &castle()).unwrap();
    disk.limit(Some(50));
    let error = intend(&mut journal, "e").unwrap_err();
    assert!(error.to_string().contains("journal cannot be used"), "{error}");
    disk.limit(None);
    intend(&mut journal, "f").unwrap();
    let (_, recovery) = open(&disk, &castle()).unwrap();
    assert_eq!((names(&recovery), recovery.damage), (vec!["d".to_owned(), "f".to_owned()], None));
}

#[test]
fn after_a_failed_sync_nothing_more_is_taken() {
    let disk = written();
    let (mut journal, _) = open(&disk, &castle()).unwrap();
    disk.fail_sync(0);
    assert!(matches!(intend(&mut journal, "e"), Err(JournalError::Disk(_))));
    assert!(matches!(intend(&mut journal, "f"), Err(JournalError::Stopped(_))));
}

#[test]
fn files_are_private_from_birth() {
    let disk = written();
    let doors: &dyn Disk = &disk;
    assert_eq!(doors.metadata(Path::new(PATH)).unwrap().mode, 0o600);
}
