//! The bytes of what is kept, as castles have written them. Each format has its version. What an earlier castle has written is read as it
//! is here, for ever; what a newer one has written is named, and neither read, set aside nor written over.

use std::path::Path;
use std::sync::Arc;

use castle_engine::{
    Applicant, CastleId, DirectoryStore, Impact, Journal, Layer, Lease, LeaseError, Memory, OperationId, Seal, State,
    StateError, StepId, Store, Taking, lineage, look, note,
};
use castle_seams::{Clock, Disk};
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};
use serde_json::json;
use zeroize::Zeroizing;

fn castle() -> CastleId {
    CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 2 }
}

fn disk_with(path: &str, bytes: &[u8]) -> ModelDisk {
    let disk = ModelDisk::new(&Pulse::new());
    disk.tamper(Path::new(path), bytes.to_vec());
    disk
}

fn doors(disk: &ModelDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn store(disk: &ModelDisk) -> Arc<dyn Store> {
    Arc::new(DirectoryStore::new(doors(disk), Path::new("/state")))
}

fn bytes(disk: &ModelDisk, path: &str) -> Vec<u8> {
    disk.contents()[Path::new(path)].clone()
}

/// Which castle this is.
const BIRTH: &str = r#"{"format":1,"castle":{"name":"blue/proxmox","lineage":"0123456789abcdef","generation":2},"digest":"70c59b7d7fa687204053746702664920"}"#;
const BIRTH_AT: &str = "/state/blue/proxmox/castle";

#[test]
fn the_recorded_birth_is_written_and_read() {
    in_virtual_time(async |_| {
        let disk = ModelDisk::new(&Pulse::new());
        lineage::adopt(store(&disk).as_ref(), &castle()).await.unwrap();
        assert_eq!(String::from_utf8(bytes(&disk, BIRTH_AT)).unwrap(), BIRTH);
        let disk = disk_with(BIRTH_AT, BIRTH.as_bytes());
        assert_eq!(lineage::find(store(&disk).as_ref(), "blue/proxmox").await, Ok(Some(castle())));
    });
}

#[test]
fn a_birth_of_a_newer_castle_is_named_and_stays() {
    in_virtual_time(async |_| {
        let newer = note::bytes(2, &json!({"castle": {"name": "blue/proxmox", "descent": "0123456789abcdef"}}));
        let disk = disk_with(BIRTH_AT, &newer);
        let (store, name) = (store(&disk), "blue/proxmox");
        let told = lineage::LineageError::Newer("blue/proxmox/castle".to_owned(), 2);
        assert_eq!(lineage::find(store.as_ref(), name).await, Err(told.clone()));
        assert_eq!(lineage::find_or_found(store.as_ref(), name, &Chance::new(1)).await, Err(told.clone()));
        assert_eq!(lineage::adopt(store.as_ref(), &castle()).await, Err(told.clone()));
        assert_eq!(lineage::next_life(store.as_ref(), &castle()).await, Err(told.clone()));
        assert_eq!(lineage::go_back(store.as_ref(), &castle(), 1).await, Err(told));
        assert_eq!(bytes(&disk, BIRTH_AT), newer);
    });
}

/// Each of these bytes with one bit that is another.
fn flipped(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + use<'_> {
    (0..bytes.len() * 8).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

/// One bit makes a castle of another name, lineage or life of it, or a birth of a newer castle.
#[test]
fn a_birth_of_which_one_bit_is_another_is_damaged() {
    in_virtual_time(async |_| {
        let unversioned = BIRTH.split(",\"digest\"").next().unwrap().to_owned() + "}";
        for bytes in flipped(BIRTH.as_bytes()).chain([unversioned.into_bytes()]) {
            let disk = disk_with(BIRTH_AT, &bytes);
            let found = lineage::find(store(&disk).as_ref(), "blue/proxmox").await;
            let told = String::from_utf8_lossy(&bytes);
            assert!(matches!(found, Err(lineage::LineageError::Damaged(..))), "{told}: {found:?}");
        }
    });
}

#[test]
fn the_birth_of_another_castle_is_not_taken_for_ones_own() {
    in_virtual_time(async |_| {
        let disk = disk_with("/state/green/proxmox/castle", BIRTH.as_bytes());
        let found = lineage::find(store(&disk).as_ref(), "green/proxmox").await;
        let told = "green/proxmox/castle does not say which castle this is: it is that of blue/proxmox";
        assert_eq!(found.unwrap_err().to_string(), told);
    });
}

/// One bit makes another epoch of it, or a time that is long gone or yet to come.
#[test]
fn a_lease_of_which_one_bit_is_another_is_damaged() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let applicant = Applicant { owner: "ann@desk".to_owned(), machine: "desk".to_owned(), seen_epoch: 6 };
        let (chance, doors): (_, Arc<dyn Clock>) = (Chance::new(1), Arc::new(*clock));
        let taken = Lease::take(store(&disk), "blue", (doors, &chance), &applicant, Taking::Politely).await;
        assert_eq!(taken.unwrap().epoch(), 7);
        for bytes in flipped(&bytes(&disk, "/state/blue/lease")) {
            let disk = disk_with("/state/blue/lease", &bytes);
            let found = look(store(&disk).as_ref(), "blue").await;
            let told = String::from_utf8_lossy(&bytes);
            assert!(matches!(found, Err(LeaseError::Damaged(_))), "{told}: {found:?}");
        }
    });
}

/// A journal with an intent that has ended and one that has not.
const JOURNAL: &[u8] = include_bytes!("recorded/journal");
const JOURNAL_AT: &str = "/journal";

fn intend(journal: &mut Journal, name: &str) -> OperationId {
    let step = StepId::new(&Layer::new("platform"), "vm", name);
    let operation = OperationId::of(&castle(), &step, "clone");
    journal.intent(&operation, &step, Impact::Create, "clone", 7).unwrap();
    operation
}

/// That a newer one stays is held by `journal::a_newer_format_is_left_alone`.
#[test]
fn the_recorded_journal_is_written_and_read() {
    let disk = ModelDisk::new(&Pulse::new());
    let (mut journal, _) = Journal::open(&doors(&disk), Path::new(JOURNAL_AT), &castle()).unwrap();
    let ended = intend(&mut journal, "blue-cp-1");
    journal.did(&ended).unwrap();
    journal.commit(&ended).unwrap();
    let given_up = intend(&mut journal, "blue-cp-2");
    journal.abandon(&given_up, "it was not to be").unwrap();
    intend(&mut journal, "blue-cp-3");
    drop(journal);
    assert_eq!(bytes(&disk, JOURNAL_AT), JOURNAL, "{}", hex(&bytes(&disk, JOURNAL_AT)));
    let disk = disk_with(JOURNAL_AT, JOURNAL);
    let (_, recovery) = Journal::open(&doors(&disk), Path::new(JOURNAL_AT), &castle()).unwrap();
    let open: Vec<&str> = recovery.open.iter().map(|intent| intent.step.name.as_ref()).collect();
    assert_eq!(open, ["blue-cp-3"]);
}

/// A sealed record, and what opens it. The key is for this test alone.
const RECORD: &[u8] = include_bytes!("recorded/record.age");
const RECORD_AT: &str = "/state/blue/proxmox/state/platform/000000000001";
const IDENTITY: &str = "AGE-SECRET-KEY-1M0KLVVVSKRRCTD9PQ6CUSDPDFE9L62X2TZJMN0FVY95WATKM3F6QSU9N58";
/// What is inside of the seal.
const INSIDE: &str = r#"{"format":1,"castle":{"name":"blue/proxmox","lineage":"0123456789abcdef","generation":2},"layer":"platform","serial":1,"epoch":7,"writer":"me@here","written_unix":1790000000,"key":"c15c0289ec2d0a9167ec8e65a18debbe5e5532fbeea293f80bc942ee9086c171","payload":{"generation":2,"nodes":[]}}"#;

fn state(disk: &ModelDisk, clock: &VirtualClock) -> State {
    let clock: Arc<dyn Clock> = Arc::new(*clock);
    let doors = (clock, Arc::new(Chance::new(1)) as _);
    State::new(store(disk), seal(), castle(), doors, "me@here", Memory::default())
}

fn seal() -> Seal {
    Seal::own(&[Zeroizing::new(IDENTITY.to_owned())]).unwrap()
}

#[test]
fn the_recorded_record_is_read_and_one_like_it_is_written() {
    in_virtual_time(async |clock| {
        let layer = Layer::new("platform");
        let disk = disk_with(RECORD_AT, RECORD);
        let mut reader = state(&disk, clock);
        let record = reader.latest(&layer).await.unwrap().unwrap();
        assert_eq!((record.serial, record.epoch, record.writer.as_str()), (1, 7, "me@here"));
        assert_eq!(record.payload, json!({"generation": 2, "nodes": []}));
        assert_eq!(String::from_utf8_lossy(&seal().open(RECORD).unwrap().plain), INSIDE);

        let disk = ModelDisk::new(&Pulse::new());
        state(&disk, clock).write(&layer, json!({"generation": 2, "nodes": []}), 7).await.unwrap();
        let written = bytes(&disk, RECORD_AT);
        assert_eq!(String::from_utf8_lossy(&seal().open(&written).unwrap().plain), INSIDE);
        // Whoever goes on from an earlier one writes the next, and leaves it where it is.
        let disk = disk_with(RECORD_AT, RECORD);
        let mut next = state(&disk, clock);
        next.latest(&layer).await.unwrap();
        assert_eq!(next.write(&layer, json!({"generation": 2, "nodes": [1]}), 8).await, Ok(2));
        assert_eq!(bytes(&disk, RECORD_AT), RECORD);
    });
}

#[test]
fn a_record_of_a_newer_castle_is_named_and_nothing_is_written_after_it() {
    in_virtual_time(async |clock| {
        let layer = Layer::new("platform");
        let newer = INSIDE.replace("\"format\":1", "\"format\":2").replace("payload", "content");
        let sealed = seal().seal(newer.as_bytes(), b"key").unwrap();
        let disk = disk_with(RECORD_AT, &sealed);
        let before = disk.contents();
        let mut state = state(&disk, clock);
        let error = state.latest(&layer).await.unwrap_err();
        assert!(matches!(error, StateError::Newer { found: 2, .. }), "{error}");
        // Whoever would write all the same is told that somebody was faster.
        assert!(state.write(&layer, json!({}), 8).await.is_err());
        // What the lock leaves behind is no record.
        let mut after = disk.contents();
        after.retain(|path, _| !path.ends_with(".lock"));
        assert_eq!(after, before);
    });
}

/// What a machine has seen of a castle's state.
#[test]
fn the_recorded_memory_is_written_and_read() {
    const MEMORY: &str = r#"{"key":"ab12","serials":{"platform":3,"secrets":1}}"#;
    let memory = Memory {
        key: Some("ab12".to_owned()),
        serials: [("platform".to_owned(), 3), ("secrets".to_owned(), 1)].into(),
    };
    assert_eq!(serde_json::to_string(&memory).unwrap(), MEMORY);
    assert_eq!(serde_json::from_str::<Memory>(MEMORY).unwrap(), memory);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
