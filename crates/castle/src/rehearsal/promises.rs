//! What castle promises, held against a world.

use std::collections::BTreeMap;
use std::path::Path;

use castle_datacenter::{Snapshot, VaultView};
use castle_seams::Disk;

use super::life::{Life, Told};
use super::needles::Needles;
use super::script::STATE;
use crate::output::Printed;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Its number in docs/rehearse.md.
    pub(crate) promise: u8,
    /// When: `the second up`.
    pub(crate) when: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
}

/// Where files are put that hold secrets because somebody asked for them.
pub(crate) const ASKED_FOR: &str = "/rehearsal/asked-for";
/// How much of what was seen is told.
const MOST: usize = 8;

impl Broken {
    pub(crate) fn new(promise: u8, when: &str, expected: &str, seen: &[String]) -> Self {
        let mut told = seen.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
        if seen.len() > MOST {
            told += &format!("; and {} more", seen.len() - MOST);
        }
        Self { promise, when: when.to_owned(), expected: expected.to_owned(), seen: told }
    }
}

/// What others have, before castle comes.
pub(crate) struct Others {
    guests: BTreeMap<u32, castle_datacenter::GuestView>,
    volumes: BTreeMap<(String, String), castle_datacenter::VolumeView>,
    vault: VaultView,
}

impl Others {
    pub(crate) fn of(life: &Life) -> Self {
        let Snapshot { guests, volumes, .. } = life.datacenter.look();
        Self { guests, volumes, vault: vault(life).unwrap_or_default() }
    }

    /// The same while a castle stands: what does not bear its tags.
    #[cfg(test)]
    pub(crate) fn of_strangers(life: &Life) -> Self {
        let mut others = Self::of(life);
        let is_castles = |guest: &castle_datacenter::GuestView| {
            guest.config.get("tags").is_some_and(|tags| tags.split(';').any(|tag| tag == "castle"))
        };
        others.guests.retain(|_, guest| !is_castles(guest));
        let is_strangers =
            |name: &str| others.guests.values().any(|guest| guest.config.values().any(|value| value.contains(name)));
        others.volumes.retain(|(_, name), _| is_strangers(name));
        others.vault = VaultView::default();
        others
    }

    /// Promise 2: what of theirs is not as it was.
    pub(crate) fn touched(&self, life: &Life) -> Vec<String> {
        let now = Self::of(life);
        let mut touched = Vec::new();
        for (vmid, guest) in &self.guests {
            if now.guests.get(vmid) != Some(guest) {
                touched.push(format!("VM {vmid}, which is not castle's, was changed"));
            }
        }
        for ((host, name), volume) in &self.volumes {
            if now.volumes.get(&(host.clone(), name.clone())) != Some(volume) {
                touched.push(format!("the volume {name} on {host}, which is not castle's, was changed"));
            }
        }
        let (before, after) = (&self.vault, &now.vault);
        for (name, value) in &before.secrets {
            if after.secrets.get(name) != Some(value) || after.comments.get(name) != before.comments.get(name) {
                touched.push(format!("{name} in the vault, which is not castle's, was changed"));
            }
        }
        for folder in before.folders.iter().filter(|folder| !after.folders.contains(folder)) {
            touched.push(format!("the folder {folder} in the vault, which is not castle's, was removed"));
        }
        touched
    }

    /// Promise 4: what is there that was not before.
    pub(crate) fn left(&self, life: &Life) -> Vec<String> {
        let now = Self::of(life);
        let guests = now.guests.keys().filter(|vmid| !self.guests.contains_key(vmid)).map(|vmid| format!("VM {vmid}"));
        let volumes = now.volumes.keys().filter(|name| !self.volumes.contains_key(name));
        let mut left: Vec<String> =
            guests.chain(volumes.map(|(host, name)| format!("volume {name} on {host}"))).collect();
        let entries = now.vault.secrets.keys().filter(|name| !self.vault.secrets.contains_key(*name));
        left.extend(entries.map(|name| format!("{name} in the vault")));
        left
    }
}

/// Promise 2: which files of the operator's are not as they were.
pub(crate) fn rewritten(life: &Life) -> Vec<String> {
    let now = life.disk().contents();
    let files = life.script.files.iter().filter(|(path, bytes)| now.get(*path) != Some(bytes));
    files.map(|(path, _)| format!("{}, which is the operator's, was changed", path.display())).collect()
}

fn vault(life: &Life) -> Option<VaultView> {
    let place = life.script.vault.as_ref()?;
    Some(life.datacenter.vault(&place.host))
}

/// All that a verb said: to people, and to programs before anything in it is masked.
pub(crate) fn heard(printed: &Printed) -> String {
    let events = serde_json::to_string(&printed.events).unwrap_or_default();
    format!("{}\n{events}\n{}\n", printed.text, printed.result)
}

/// Promise 5: where a secret shows, and which files others can read. `told` is all that was printed, and what programs are given instead.
pub(crate) fn shown(life: &Life, needles: &Needles, told: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut look = |bytes: &[u8], place: &dyn Fn() -> String| {
        found.extend(needles.within(bytes).iter().map(|what| format!("{what} {}", place())));
    };
    let disk = life.disk();
    // What the operator put there is the operator's.
    let own: Vec<_> = disk.contents().into_iter().filter(|(path, _)| !life.script.files.contains_key(path)).collect();
    for (path, bytes) in own.iter().filter(|(path, _)| !path.starts_with(ASKED_FOR)) {
        look(bytes, &|| format!("is in clear in {}", path.display()));
    }
    look(told.as_bytes(), &|| "was printed".to_owned());
    for request in life.tally.told() {
        look(request.as_bytes(), &|| format!("is in {}", request.lines().next().unwrap_or_default()));
    }
    for guest in life.datacenter.look().guests.values() {
        let pending = guest.pending.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (key, value) in guest.config.iter().chain(pending) {
            look(value.as_bytes(), &|| format!("is in {key} of VM {}", guest.vmid));
        }
    }
    for (name, note) in &vault(life).unwrap_or_default().comments {
        look(format!("{name}\n{note}").as_bytes(), &|| format!("is in the note at {name} in the vault"));
    }
    for (path, _) in &own {
        let mode = disk.metadata(path).map_or(0, |found| found.mode);
        if mode & 0o077 != 0 {
            found.push(format!("{} can be read by others: mode {mode:o}", path.display()));
        }
    }
    found
}

/// Holds that a verb ended as it should.
pub(crate) fn ended(promise: u8, when: &str, told: &Told, results: &[&str]) -> Result<(), Broken> {
    let result = told.printed.result["result"].as_str().unwrap_or("nothing");
    if told.exit == Some(crate::output::Exit::Done) && results.contains(&result) {
        return Ok(());
    }
    let last: Vec<&str> = told.printed.text.lines().rev().take(MOST - 1).collect();
    let last: Vec<String> = last.into_iter().rev().map(str::to_owned).collect();
    let mut seen = vec![format!("{result}, {}", told.ending())];
    seen.extend(last);
    Err(Broken::new(promise, when, &format!("it ends {}", results.join(" or ")), &seen))
}

/// Removes castle's memory, as somebody does who loses a machine.
pub(crate) fn forget(life: &Life) {
    life.disk().lose(Path::new(STATE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Exit;

    /// Goal: whoever reads of a promise that was broken reads no Rust. Method: every way in which a verb can end, as it is told.
    #[test]
    fn how_a_verb_ended_is_told_in_words() {
        use Exit::{Differs, Done, Failed, Interrupted, Invalid, Refused};
        for exit in [Some(Done), Some(Failed), Some(Differs), Some(Refused), Some(Invalid), Some(Interrupted), None] {
            let told = Told { exit, printed: Printed::default(), effects: 0, took: std::time::Duration::ZERO };
            let Err(broken) = ended(1, "the first up", &told, &["raised"]) else { panic!("nothing was raised") };
            let expected = exit.map_or_else(|| "killed".to_owned(), |exit| format!("exit code {}", exit.code()));
            assert_eq!(broken.seen, format!("nothing, {expected}"));
            let debugged = exit.map_or_else(|| "None".to_owned(), |exit| format!("{exit:?}"));
            assert!(!broken.seen.contains(&debugged) && !broken.seen.contains("Some("), "{}", broken.seen);
        }
    }
}
