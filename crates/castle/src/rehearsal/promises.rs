//! What castle promises, held against a world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use castle_datacenter::{Datacenter, Snapshot, VaultView};
use castle_seams::Disk;

use super::life::{Life, Told};
use super::script::STATE;

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

/// All that matters of a world, by what it is; nothing that is drawn or counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picture(BTreeMap<String, String>);

/// Options of guests that are drawn when a guest is made.
const DRAWN: [&str; 4] = ["smbios1", "vmgenid", "meta", "digest"];
/// Collections whose objects have drawn names, or come and go by themselves.
const FLEETING: [&str; 6] = ["pods", "events", "leases", "replicasets", "endpointslices", "controllerrevisions"];

impl Picture {
    /// What there is.
    pub(crate) fn of(datacenter: &Datacenter) -> Self {
        let Snapshot { guests, volumes, objects, .. } = datacenter.look();
        let mut all = BTreeMap::new();
        for guest in guests.values() {
            let state = if guest.running { "running" } else { "stopped" };
            let place = format!("guest {}", guest.vmid);
            all.insert(
                place.clone(),
                format!("on {}, {state}, pool {:?}, lock {:?}", guest.host, guest.pool, guest.lock),
            );
            for (key, value) in guest.config.iter().filter(|(key, _)| !DRAWN.contains(&key.as_str())) {
                let is_told =
                    |line: &&str| !["operation: ", "epoch: ", "lineage: "].iter().any(|drawn| line.starts_with(drawn));
                let value: Vec<&str> = value.lines().filter(is_told).collect();
                all.insert(format!("{place} {key}"), without_digest(&value.join(" | ")));
            }
            for (key, value) in &guest.pending {
                all.insert(format!("{place} pending {key}"), format!("{value:?}"));
            }
        }
        for ((host, name), volume) in &volumes {
            all.insert(format!("volume {name} on {host}"), format!("{} bytes", volume.size));
        }
        // Clusters have drawn names, too: the first, the second.
        let clusters: BTreeSet<&String> = objects.keys().map(|(cluster, ..)| cluster).collect();
        for (cluster, collection, place) in objects.keys() {
            let cluster = clusters.iter().position(|known| *known == cluster).unwrap_or_default();
            let plural = collection.split('.').next().unwrap_or(collection);
            if !FLEETING.contains(&plural) {
                all.insert(format!("{plural} {place} of cluster {cluster}"), "there".to_owned());
            }
        }
        Self(all)
    }

    /// What differs, as people read it.
    pub(crate) fn against(&self, expected: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (what, wanted) in &expected.0 {
            match self.0.get(what) {
                None => differences.push(format!("{what} is missing")),
                Some(is) if is != wanted => differences.push(format!("{what} is `{is}`, not `{wanted}`")),
                Some(_) => {}
            }
        }
        let surplus = self.0.keys().filter(|what| !expected.0.contains_key(*what));
        differences.extend(surplus.map(|what| format!("{what} is there as well")));
        differences
    }
}

/// Tags without the digest, which depends on the lineage; all else that it is made of is told by the other options.
fn without_digest(value: &str) -> String {
    value
        .split(';')
        .map(|tag| tag.strip_prefix("castle-is-").map_or(tag, |_| "castle-is"))
        .collect::<Vec<_>>()
        .join(";")
}

/// What others have, before castle comes.
pub(crate) struct Others {
    guests: BTreeMap<u32, castle_datacenter::GuestView>,
    volumes: BTreeMap<(String, String), castle_datacenter::VolumeView>,
    vault: Option<VaultView>,
}

impl Others {
    pub(crate) fn of(life: &Life) -> Self {
        let Snapshot { guests, volumes, .. } = life.datacenter.look();
        Self { guests, volumes, vault: vault(life) }
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
        let (before, after) = (self.vault.clone().unwrap_or_default(), now.vault.unwrap_or_default());
        for (name, value) in &before.secrets {
            if after.secrets.get(name) != Some(value) || after.comments.get(name) != before.comments.get(name) {
                touched.push(format!("{name} in the vault, which is not castle's, was changed"));
            }
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
        let before = self.vault.clone().unwrap_or_default();
        let after = now.vault.unwrap_or_default();
        left.extend(
            after
                .secrets
                .keys()
                .filter(|name| !before.secrets.contains_key(*name))
                .map(|name| format!("{name} in the vault")),
        );
        left
    }
}

fn vault(life: &Life) -> Option<VaultView> {
    let place = life.script.vault.as_ref()?;
    Some(life.datacenter.vault(&place.host))
}

/// Promise 5: where a secret shows, and which files others can read. `needles` are the secrets; `told` is what was printed.
pub(crate) fn shown(life: &Life, needles: &[(String, String)], told: &str) -> Vec<String> {
    let mut found = life.tally.leaks();
    let disk = life.disk();
    for (path, bytes) in disk.contents() {
        // What the operator put there is the operator's.
        if life.script.files.contains_key(&path) {
            continue;
        }
        let mode = disk.metadata(&path).map_or(0, |found| found.mode);
        if path.starts_with(STATE) && mode & 0o077 != 0 {
            found.push(format!("{} can be read by others: mode {mode:o}", path.display()));
        }
        found.extend(within(&bytes, needles).map(|what| format!("{what} is in clear in {}", path.display())));
    }
    found.extend(within(told.as_bytes(), needles).map(|what| format!("{what} was printed")));
    for guest in life.datacenter.look().guests.values() {
        for (key, value) in &guest.config {
            found.extend(
                within(value.as_bytes(), needles).map(|what| format!("{what} is in {key} of VM {}", guest.vmid)),
            );
        }
    }
    found
}

/// Which secrets are in these bytes.
fn within<'n>(bytes: &'n [u8], needles: &'n [(String, String)]) -> impl Iterator<Item = &'n str> {
    let has = |needle: &str| !needle.is_empty() && bytes.windows(needle.len()).any(|part| part == needle.as_bytes());
    needles.iter().filter(move |(_, needle)| has(needle)).map(|(what, _)| what.as_str())
}

/// Holds that a verb ended as it should.
pub(crate) fn ended(promise: u8, when: &str, told: &Told, results: &[&str]) -> Result<(), Broken> {
    let result = told.printed.result["result"].as_str().unwrap_or("nothing");
    if told.exit == Some(crate::output::Exit::Done) && results.contains(&result) {
        return Ok(());
    }
    let last: Vec<&str> = told.printed.text.lines().rev().take(MOST - 1).collect();
    let last: Vec<String> = last.into_iter().rev().map(str::to_owned).collect();
    let mut seen = vec![format!("{result}, {:?}", told.exit)];
    seen.extend(last);
    Err(Broken::new(promise, when, &format!("it ends {}", results.join(" or ")), &seen))
}

/// Removes castle's memory, as somebody does who loses a machine.
pub(crate) fn forget(life: &Life) {
    life.disk().lose(Path::new(STATE));
}
