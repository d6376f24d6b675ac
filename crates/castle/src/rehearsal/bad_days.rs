//! Bad days through the verbs, in virtual time and over several seeds: each is told with what it is about, what was seen and what to do; nothing of
//! others is touched; and `up` ends where an undisturbed one does.

mod losses;
mod of_beginnings;
mod of_castle;
mod of_clocks;
mod of_ends;
mod of_etcd;
mod of_files;
mod of_identity;
mod of_looking;
mod of_quorum;
mod of_records;
mod of_remains;
mod of_restarts;
mod of_sight;
mod of_silence;
mod of_the_site;
mod of_traits;
mod of_versions;
mod of_waiting;
mod races;

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use castle_engine::note;
use castle_rehearsal::in_virtual_time;
use futures_util::future::{Either, join, select};
use serde_json::Value;

use super::fixture::{hold, written};
use super::life::{Life, Told};
use super::picture::Picture;
use super::promises::Others;
use super::script::Script;
use crate::output::Exit;

/// Three worlds a day.
const SEEDS: [u64; 3] = [11, 22, 33];
/// A verb needs more than the thread of a test has.
const STACK: usize = 16 << 20;

const SMALL: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9, serviceAccountKey: p256}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB, dataDisk: 100GiB}
storage: none
secrets: embedded
";

fn small() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(SMALL));
    SCRIPT.clone()
}

/// The small castle as it is raised undisturbed: in every world the same, for nothing that is drawn is in a picture.
fn small_undisturbed() -> &'static Picture {
    static PICTURE: LazyLock<Picture> = LazyLock::new(|| undisturbed(&small()));
    &PICTURE
}

/// A small file of castle's own that says something else in this format, whole as castle would have written it.
fn reworded(bytes: &[u8], format: u64, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut said: Value = serde_json::from_slice(bytes).unwrap();
    change(&mut said);
    ["format", "digest"].iter().for_each(|key| drop(said.as_object_mut().unwrap().remove(*key)));
    note::bytes(format, &said)
}

/// Each of these seeds, in a thread and a time of its own.
fn in_worlds(script: &Arc<Script>, seeds: &[u64], lived: impl AsyncFn(Life) + Sync) {
    std::thread::scope(|scope| {
        for &seed in seeds {
            let (script, lived) = (script.clone(), &lived);
            let world = move || in_virtual_time(async |clock| lived(Life::begin(&script, seed, clock)).await).unwrap();
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, world).unwrap();
        }
    });
}

/// The castle as it is raised undisturbed.
fn undisturbed(script: &Arc<Script>) -> Picture {
    let seen = std::sync::Mutex::new(Picture::default());
    in_worlds(script, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        *seen.lock().unwrap() = Picture::settled(&life).await;
    });
    seen.into_inner().unwrap()
}

/// A day in three worlds. Whatever happens, nothing of others is touched, and `up` ends with the castle that is expected; after that it
/// has nothing to do.
fn day_to(script: &Arc<Script>, expected: &Picture, happens: impl AsyncFn(&Life) + Sync) {
    in_worlds(script, &SEEDS, async |life| {
        let others = Others::of(&life);
        happens(&life).await;
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(Picture::settled(&life).await.against(expected), Vec::<String>::new(), "{}", up.printed.text);
        life.tally.changes();
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
        assert_eq!((life.tally.changes(), others.touched(&life)), (Vec::new(), Vec::new()));
    });
}

/// A day of the small castle.
fn day(happens: impl AsyncFn(&Life) + Sync) {
    day_to(&small(), small_undisturbed(), happens);
}

/// A day of another castle.
fn day_of(script: &Arc<Script>, happens: impl AsyncFn(&Life) + Sync) {
    day_to(script, &undisturbed(script), happens);
}

/// Runs a verb, and lets something happen as soon as it is so.
async fn meanwhile(life: &Life, words: &[&str], when: impl Fn(&Life) -> bool, then: impl AsyncFnOnce(&Life)) -> Told {
    let watching = pin!(async {
        while !when(life) {
            life.clock().sleep(Duration::from_millis(10)).await;
        }
        then(life).await;
    });
    match select(pin!(life.run(words)), watching).await {
        Either::Left((told, _)) => panic!("it ended before that: {}", told.printed.text),
        Either::Right(((), running)) => running.await,
    }
}

fn has_guest(life: &Life, name: &str) -> bool {
    let guests = life.datacenter.look().guests;
    guests.values().any(|guest| guest.config.get("name").is_some_and(|is| is == name) && guest.lock.is_none())
}
