//! Damaged files: what castle keeps of a castle that stands is emptied, cut, flipped or lost. Every verb ends, names what is damaged and the way out,
//! and mints nothing; those that only look write nothing; and `adopt` mends it all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::script::STATE;
use super::*;

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Emptied,
    Halved,
    Flipped,
    Lost,
}

const DAMAGES: [Damage; 4] = [Damage::Emptied, Damage::Halved, Damage::Flipped, Damage::Lost];

impl Damage {
    fn befall(self, life: &Life, file: &Path, whole: &[u8]) {
        let mut bytes = whole.to_vec();
        match self {
            Self::Emptied => bytes.clear(),
            Self::Halved => bytes.truncate(whole.len() / 2),
            Self::Flipped => bytes[whole.len() / 2] ^= 1,
            Self::Lost => return life.disk().lose(file),
        }
        life.disk().tamper(file, bytes);
    }
}

/// The verbs that only look.
const LOOKING: [&[&str]; 7] =
    [&["status"], &["plan"], &["drift"], &["doctor"], &["state", "show"], &["lease", "show"], &["timeline"]];

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What castle keeps.
fn kept(life: &Life) -> Files {
    life.disk().contents().into_iter().filter(|(path, _)| path.starts_with(STATE)).collect()
}

/// Brings back what there was.
fn restore(life: &Life, whole: &Files) {
    life.disk().lose(Path::new(STATE));
    for (path, bytes) in whole {
        life.disk().tamper(path, bytes.clone());
    }
}

/// The keys that castle may mint.
fn keys(files: &Files) -> Vec<&PathBuf> {
    files.keys().filter(|path| path.to_string_lossy().ends_with("agekey")).collect()
}

/// Whether a text tells what to do.
fn tells(told: &Told, case: &str) {
    let text = &told.printed.text;
    assert!(text.contains("next: "), "{case} tells no way out: {text}");
}

/// Holds what every verb promises, whatever is damaged.
async fn look(life: &Life, verb: &[&str], case: &str) {
    let before = kept(life);
    let told = life.run(verb).await;
    let exit = told.exit.unwrap_or_else(|| panic!("{case} did not end"));
    let mut after = kept(life);
    if verb[0] == "state" {
        // It remembers what it has seen.
        after.retain(|path, _| !path.ends_with(".seen.json"));
    }
    let changed = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes));
    let changed: Vec<&PathBuf> = changed.map(|(path, _)| path).collect();
    assert!(changed.is_empty(), "{case} wrote {changed:?}: {}", told.printed.text);
    assert_eq!(life.tally.changes(), Vec::<String>::new(), "{case}");
    if matches!(exit, Exit::Failed | Exit::Refused | Exit::Invalid) {
        tells(&told, case);
    }
}

#[test]
fn whatever_is_damaged_is_named_and_mended_and_nothing_is_minted() {
    let begun = AtomicUsize::new(0);
    in_worlds(&small(), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let (whole, guests) = (kept(&life), life.datacenter.look().guests.keys().copied().collect::<Vec<_>>());
        let identity = bundle(&life);
        // Each world takes its part of them.
        let mut number = begun.fetch_add(1, Ordering::Relaxed);
        for (file, bytes) in &whole {
            for damage in DAMAGES {
                number += 1;
                if number.is_multiple_of(2) {
                    continue;
                }
                let name = file.display();
                damage.befall(&life, file, bytes);
                life.tally.changes();
                for verb in LOOKING {
                    look(&life, verb, &format!("{name} {damage:?}: {}", verb.join(" "))).await;
                }
                let case = format!("{name} {damage:?}: up");
                let up = life.run(&["up"]).await;
                match up.exit {
                    Some(Exit::Done) => {}
                    Some(Exit::Failed | Exit::Refused) => tells(&up, &case),
                    other => panic!("{case}: {other:?} {}", up.printed.text),
                }
                if file.ends_with("lease") {
                    damage.befall(&life, file, bytes);
                    let taken = life.run(&["lease", "take", "--yes"]).await;
                    assert_eq!(taken.exit, Some(Exit::Done), "{case}: {}", taken.printed.text);
                    assert_eq!(life.run(&["up"]).await.exit, Some(Exit::Done), "{case}");
                }
                restore(&life, &whole);
                damage.befall(&life, file, bytes);
                let adopt = life.run(&["adopt"]).await;
                assert_eq!(adopt.exit, Some(Exit::Done), "{name} {damage:?}: adopt: {}", adopt.printed.text);
                let up = life.run(&["up"]).await;
                assert_eq!(up.exit, Some(Exit::Done), "{name} {damage:?}: up after adopt: {}", up.printed.text);
                let now: Vec<u32> = life.datacenter.look().guests.keys().copied().collect();
                assert_eq!((&now, bundle(&life)), (&guests, identity.clone()), "{name} {damage:?}");
                assert_eq!(keys(&kept(&life)), keys(&whole), "{name} {damage:?}: a key was minted");
                restore(&life, &whole);
            }
        }
    });
}

/// What the nodes of the castle know each other by, as they have it.
fn bundle(life: &Life) -> Vec<Option<String>> {
    let nodes = life.datacenter.talos_nodes();
    nodes.iter().map(|node| life.datacenter.machine_configuration(node.vmid)).collect()
}
