//! Writes one record of a castle's state: `remember FOLDER KEYS TEXT`. Reads what is there, says `ready`, waits for a line, then
//! writes, and says which record it wrote or that someone else was first. `cargo xtask peers` lets several race.
#![allow(clippy::disallowed_methods, reason = "an example stands outside")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use castle_engine::{DirectoryStore, Layer, Memory, Seal, State, StateError, Store, StoreErrorKind, lineage};
use castle_seams::{Disk, SystemClock, SystemDisk, SystemEntropy};
use serde_json::json;
use zeroize::Zeroizing;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, keys, text] = args.as_slice() else { panic!("usage: remember FOLDER KEYS TEXT") };
    let keys = Zeroizing::new(std::fs::read_to_string(keys).unwrap());
    let identities: Vec<Zeroizing<String>> =
        keys.lines().filter(|line| line.starts_with("AGE-")).map(|line| Zeroizing::new(line.to_owned())).collect();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(disk, Path::new(folder)));
    let castle = loop {
        match lineage::find_or_found(store.as_ref(), "blue/proxmox", &SystemEntropy).await {
            Ok(castle) => break castle,
            Err(lineage::LineageError::Store(error)) if error.kind == StoreErrorKind::Unavailable => {}
            Err(error) => panic!("{error}"),
        }
    };
    let seal = Seal::own(&identities).unwrap();
    seal.prove().unwrap();
    let doors = (Arc::new(SystemClock::new()) as _, Arc::new(SystemEntropy) as _);
    let mut state = State::new(store, seal, castle, doors, "me@here", Memory::default());
    let layer = Layer::new("platform");
    state.latest(&layer).await.unwrap();
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    loop {
        match state.write(&layer, json!({"text": text}), 1).await {
            Ok(serial) => return println!("wrote {serial}"),
            Err(StateError::Overtaken { .. }) => return println!("overtaken"),
            // Someone else has the folder's lock for a moment.
            Err(StateError::Store(error)) if error.kind == StoreErrorKind::Unavailable => {}
            Err(error) => panic!("{error}"),
        }
    }
}
