//! Which manifest a castle has of each component that castle installs.

use castle_spec::model::Platform;
use castle_spec::{Castle, ComponentName, WantedComponent};
use thiserror::Error;

use crate::lock::{Lock, Stale};
use crate::pins::pin;
use crate::source::{Entry, Source};

/// A component that castle installs, and its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What castle.yaml says of it.
    pub wanted: WantedComponent,
    /// Its manifest.
    pub entry: Entry,
}

/// Why it is not known which manifests to use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// The lock file is not the one that the castle needs.
    #[error("castle.lock is not up to date: {}; run `castle lock`", told(.0))]
    Stale(Vec<Stale>),
    /// There is no lock file, and castle knows no digest by itself.
    #[error(
        "no manifest of {0} {1} is pinned, and there is no castle.lock: run `castle lock`, which pins what upstream publishes"
    )]
    Unpinned(ComponentName, String),
}

fn told(stale: &[Stale]) -> String {
    stale.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The manifests of all components that castle installs in a castle.
///
/// The lock file decides. Without one, castles in the embedded datacenter have the stand-ins unless there is a mirror, and others
/// what castle itself knows of their versions.
///
/// # Errors
///
/// [`ChoiceError`] if the lock file is stale, or if there is none and castle does not know the version.
pub fn choose(castle: &Castle, lock: Option<&Lock>, has_mirror: bool) -> Result<Vec<Chosen>, ChoiceError> {
    let all = castle.wanted_components();
    if let Some(lock) = lock {
        let stale = lock.stale(&all);
        if !stale.is_empty() {
            return Err(ChoiceError::Stale(stale));
        }
    }
    let stands_in = matches!(castle.platform.value, Platform::Embedded(_)) && !has_mirror;
    let choose = |wanted: WantedComponent| {
        let locked = lock.and_then(|lock| lock.entries.get(&wanted.name)).cloned();
        let entry = match (locked, &wanted.source) {
            (Some(entry), _) => entry,
            (None, None) if stands_in => {
                Entry { version: wanted.version.clone(), source: Source::StandIn, sha256: String::new() }
            }
            (None, None) => pin(wanted.name, &wanted.version)
                .map(|pin| pin.entry(&wanted.version))
                // What upstream publishes of some is in no release: only mirrors have what castle knows.
                .filter(|entry| has_mirror || !matches!(entry.source, Source::Mirror(_)))
                .ok_or_else(|| ChoiceError::Unpinned(wanted.name, wanted.version.to_string()))?,
            (None, Some(file)) => return Err(ChoiceError::Unpinned(wanted.name, format!("of the file {file}"))),
        };
        Ok(Chosen { wanted, entry })
    };
    all.into_iter().filter(WantedComponent::is_castles).map(choose).collect()
}

/// The same where nobody can be asked for manifests: small ones stand in for all that are not files beside castle.yaml.
#[must_use]
pub fn stand_ins(castle: &Castle, lock: Option<&Lock>) -> Vec<Chosen> {
    let choose = |wanted: WantedComponent| {
        let locked = lock.and_then(|lock| lock.entries.get(&wanted.name));
        let of_file = locked.filter(|entry| matches!(entry.source, Source::File(_))).cloned();
        let stand_in = || Entry { version: wanted.version.clone(), source: Source::StandIn, sha256: String::new() };
        let entry = of_file.unwrap_or_else(stand_in);
        Chosen { wanted, entry }
    };
    castle.wanted_components().into_iter().filter(WantedComponent::is_castles).map(choose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn castle(platform: &str, more: &str) -> Castle {
        let text = format!(
            "castle: blue\nplatform: {platform}\ntalos: {{version: v1.13.9}}\nkubernetes: {{version: v1.36.3}}\n\
             network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1], loadBalancers: 10.0.0.50-10.0.0.60}}\n\
             nodes: {{controlPlanes: {{count: 1, firstAddress: 10.0.0.11}}}}\n{more}"
        );
        let reading = castle_spec::read(text.as_bytes());
        reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems))
    }

    const PROXMOX: &str = "{proxmox: {endpoint: 'https://pve.lan:8006', token: 'env:T', nodes: [pve], vmids: 421-432}}";

    fn sources(castle: &Castle, lock: Option<&Lock>, has_mirror: bool) -> Vec<String> {
        let chosen = choose(castle, lock, has_mirror).unwrap();
        chosen.iter().map(|chosen| format!("{} {}", chosen.wanted.name, chosen.entry.source)).collect()
    }

    #[test]
    fn without_a_lock_castle_knows_what_it_was_tested_with() {
        let longhorn = "longhorn https://raw.githubusercontent.com/longhorn/longhorn/v1.12.1/deploy/longhorn.yaml";
        let metallb =
            "metallb https://raw.githubusercontent.com/metallb/metallb/v0.16.1/config/manifests/metallb-native.yaml";
        assert_eq!(sources(&castle(PROXMOX, ""), None, false), [metallb, longhorn]);
        let stand_ins = ["metallb castle's stand-in", "longhorn castle's stand-in"];
        assert_eq!(sources(&castle("embedded", ""), None, false), stand_ins);
        assert_eq!(sources(&castle("embedded", ""), None, true), [metallb, longhorn]);
        let with = "gitops: {repository: 'https://h.example/r.git'}\nsecrets: embedded\ncomponents: {metallb: off}\nstorage: none\n";
        assert_eq!(
            sources(&castle("embedded", with), None, true),
            ["external-secrets mirror:external-secrets-v2.9.0.yaml", "flux mirror:flux-v2.9.0-components.yaml"]
        );
        let of_flux =
            "gitops: {repository: 'https://h.example/r.git'}\ncomponents: {metallb: {owner: flux}}\nstorage: none\n";
        assert_eq!(sources(&castle("embedded", of_flux), None, false), ["flux castle's stand-in"]);
    }

    #[test]
    fn what_castle_does_not_know_has_to_be_locked() {
        let other = castle(PROXMOX, "components: {metallb: {version: v0.15.3}}\n");
        let told = choose(&other, None, false).unwrap_err().to_string();
        assert_eq!(
            told,
            "no manifest of metallb v0.15.3 is pinned, and there is no castle.lock: run `castle lock`, which pins what upstream publishes"
        );
        let own = castle("embedded", "components: {metallb: {source: own.yaml}}\n");
        assert!(choose(&own, None, false).unwrap_err().to_string().contains("of the file own.yaml"));
        let told = choose(&own, Some(&Lock::default()), false).unwrap_err().to_string();
        assert_eq!(
            told,
            "castle.lock is not up to date: metallb is not in castle.lock; longhorn is not in castle.lock; run `castle lock`"
        );
    }

    #[test]
    fn the_lock_decides_where_there_is_one() {
        let entry = Entry {
            version: ComponentName::Metallb.newest(),
            source: Source::Mirror("a.yaml".to_owned()),
            sha256: "0".repeat(64),
        };
        let lock = Lock { entries: [(ComponentName::Metallb, entry)].into() };
        let castle = castle("embedded", "storage: none\n");
        assert_eq!(sources(&castle, Some(&lock), false), ["metallb mirror:a.yaml"]);
    }
}
