//! What Proxmox lists: guests, hosts, storages, volumes. Numbers may come as text and truth as numbers; what is missing is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde_json::Value;

use super::since::{is_settled, is_since, number_in, tells_since};

/// A number, however it is written.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().filter(|float| *float >= 0.0).map(whole)),
        Value::String(text) => {
            text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|it| *it >= 0.0).map(whole))
        }
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes and counts, which are not negative")]
fn whole(float: f64) -> u64 {
    float as u64
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(u8::from(*flag).to_string()),
        _ => None,
    }
}

fn flag(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        other => number(other).is_some_and(|number| number != 0),
    }
}

fn words(value: &Value, separators: &[char]) -> BTreeSet<String> {
    let text = text(value).unwrap_or_default();
    text.split(separators).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Each element of a list; what is no list is an empty one.
pub(crate) fn each<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(read).collect()
}

/// The number that a row is about.
pub(crate) fn vmid(row: &Value) -> Option<u32> {
    number(&row["vmid"]).and_then(|vmid| vmid.try_into().ok())
}

/// A guest as the list of the whole cluster shows it. `vmid`, `host`, `tags`, `lock` and `pool` are as of now. The rest is
/// statistics: up to ten seconds old, missing of a guest that is new, and, of one whose number another had before, that one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its number.
    pub vmid: u32,
    /// The host that carries it.
    pub host: String,
    /// Whether it is a virtual machine; otherwise it is a container.
    pub is_machine: bool,
    /// Its name.
    pub name: Option<String>,
    /// `running`, `stopped`, or `unknown`.
    pub status: Option<String>,
    /// Whether it is shown as a template.
    pub shows_template: bool,
    /// Whether what is shown is certainly its own, and not of one that had its number before.
    pub is_settled: bool,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// Its resource pool.
    pub pool: Option<String>,
    /// What locks it.
    pub lock: Option<String>,
    /// Its memory, in bytes.
    pub memory: Option<u64>,
    /// Its CPUs.
    pub cpus: Option<u64>,
}

impl Guest {
    pub(crate) fn read(row: &Value, now: SystemTime) -> Option<Self> {
        let vmid = vmid(row)?;
        let tags = words(&row["tags"], &[';', ',', ' ']);
        Some(Self {
            vmid,
            host: text(&row["node"])?,
            is_machine: row["type"] == "qemu",
            name: text(&row["name"]),
            status: text(&row["status"]),
            shows_template: flag(&row["template"]),
            is_settled: is_settled(&tags, vmid, now),
            tags,
            pool: text(&row["pool"]),
            lock: text(&row["lock"]),
            memory: number(&row["maxmem"]),
            cpus: number(&row["maxcpu"]),
        })
    }

    /// Whether it runs, as far as the list can tell: of a guest that is new, nothing.
    #[must_use]
    pub fn is_running(&self) -> Option<bool> {
        match self.status.as_deref() {
            Some("running") if self.is_settled => Some(true),
            Some("stopped") if self.is_settled => Some(false),
            _ => None,
        }
    }

    /// Whether it bears the tags of another guest of castle's, as a copy of that one does: or one that castle is just making.
    #[must_use]
    pub fn looks_copied(&self) -> bool {
        !tells_since(&self.tags, self.vmid) && self.tags.iter().any(|tag| is_since(tag))
    }

    /// Of which guest it bears the tags, where they are not its own.
    #[must_use]
    pub fn copied_from(&self) -> Option<u32> {
        self.tags.iter().find_map(|tag| number_in(tag)).filter(|_| self.looks_copied())
    }

    /// Whether it is a template, as far as the list can tell.
    #[must_use]
    pub fn is_template(&self) -> Option<bool> {
        self.is_settled.then_some(self.shows_template)
    }
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub is_online: bool,
    /// Its memory, in bytes, if that may be known.
    pub memory: Option<u64>,
    /// How much of it is in use.
    pub memory_used: Option<u64>,
    /// Its CPUs.
    pub cpus: Option<u64>,
}

impl Host {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        Some(Self {
            name: text(&row["node"])?,
            is_online: row["status"] == "online",
            memory: number(&row["maxmem"]),
            memory_used: number(&row["mem"]),
            cpus: number(&row["maxcpu"]),
        })
    }
}

/// A storage as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Its name.
    pub name: String,
    /// What it is made of: `lvmthin`, `dir`.
    pub kind: String,
    /// What may be kept in it.
    pub content: BTreeSet<String>,
    /// Whether it may be used.
    pub is_enabled: bool,
    /// Whether its host has found it to be there. A busy host says of any that it is not.
    pub is_active: bool,
    /// Whether all hosts see the same.
    pub is_shared: bool,
    /// Its size in bytes; nothing if it was not found to be there.
    pub total: Option<u64>,
    /// What is free of it.
    pub free: Option<u64>,
}

impl Storage {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        // Absent means that nothing speaks against it.
        let is_active = row.get("active").is_none_or(flag);
        // Of one that was not found to be there, sizes are zeros that mean nothing.
        let size = |key: &str| number(&row[key]).filter(|_| is_active);
        Some(Self {
            name: text(&row["storage"])?,
            kind: text(&row["type"]).unwrap_or_default(),
            content: words(&row["content"], &[',', ' ']),
            is_enabled: row.get("enabled").is_none_or(flag),
            is_active,
            is_shared: flag(&row["shared"]),
            total: size("total"),
            free: size("avail"),
        })
    }

    /// Whether a disk takes only the room of what is written to it, so that disks may be larger in sum than the storage.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        ["lvmthin", "zfspool", "rbd"].contains(&self.kind.as_str())
    }

    /// Whether a disk in it can be the base of others that only hold what differs.
    #[must_use]
    pub fn can_link(&self) -> bool {
        ["lvmthin", "zfspool", "rbd", "dir", "nfs", "cifs", "btrfs", "glusterfs"].contains(&self.kind.as_str())
    }
}

/// A volume of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name: `STORAGE:PATH`.
    pub id: String,
    /// The guest it belongs to.
    pub vmid: Option<u32>,
    /// Its size in bytes.
    pub size: Option<u64>,
}

impl Volume {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        let vmid = number(&row["vmid"]).and_then(|vmid| vmid.try_into().ok());
        Some(Self { id: text(&row["volid"])?, vmid, size: number(&row["size"]) })
    }
}

/// A task that the host knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub upid: String,
    /// What it does: `qmclone`.
    pub kind: String,
    /// What it does it to; for `qmclone` that is the source.
    pub id: Option<String>,
    /// Whether it still runs.
    pub is_running: bool,
}

impl Task {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        Some(Self {
            upid: text(&row["upid"])?,
            kind: text(&row["type"])?,
            id: text(&row["id"]),
            is_running: row.get("endtime").is_none_or(Value::is_null),
        })
    }
}

/// What a guest is made of, as Proxmox writes it down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Tells whether anyone changed it in between.
    pub digest: Option<String>,
    /// Each option as text.
    pub options: BTreeMap<String, String>,
}

impl Config {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let object = object.as_object()?;
        let options = object.iter().filter(|(key, _)| *key != "digest");
        Some(Self {
            digest: object.get("digest").and_then(text),
            options: options.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect(),
        })
    }

    /// The value of an option.
    #[must_use]
    pub fn get(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    /// What people and castle wrote about it.
    #[must_use]
    pub fn description(&self) -> &str {
        self.get("description").unwrap_or_default()
    }

    /// The UUID of its firmware.
    #[must_use]
    pub fn uuid(&self) -> Option<String> {
        let parts = self.get("smbios1")?.split(',');
        parts.filter_map(|part| part.strip_prefix("uuid=")).map(str::to_owned).next()
    }

    /// Whether it is a template.
    #[must_use]
    pub fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    /// Whether it is a guest that somebody makes or removes just now. It has no description then until its first disk is there, or any more.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        matches!(self.get("lock"), Some("clone" | "create" | "destroyed"))
    }

    /// Whether somebody has protected it from removal.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.get("protection") == Some("1")
    }
}

/// Which Proxmox VE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// 8 or 9.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl Release {
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let version = text(&object["version"])?;
        let mut numbers = version.split(['.', '-', '~']).map_while(|number| number.parse().ok());
        Some(Self { major: numbers.next()?, minor: numbers.next().unwrap_or(0) })
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_read_however_they_are_written() {
        let whole = json!({"vmid": 421, "node": "pve", "type": "qemu", "name": "blue-cp-1", "status": "running", "template": 0,
            "tags": "castle;castle-blue", "pool": "blue", "maxmem": 4_294_967_296u64, "maxcpu": 4});
        let odd = json!({"vmid": "421", "node": "pve", "type": "qemu", "name": "blue-cp-1", "status": "running", "template": "",
            "tags": "castle-blue, castle", "pool": "blue", "maxmem": "4294967296", "maxcpu": 4.0});
        let read = |row: &Value| Guest::read(row, std::time::UNIX_EPOCH + std::time::Duration::from_secs(9_000));
        assert_eq!(read(&whole), read(&odd));
        assert!(read(&json!({"vmid": 421})).is_none(), "without a host there is nobody to ask about it");
        let fresh = read(&json!({"vmid": 421, "node": "pve", "type": "qemu", "lock": "clone", "status": "unknown"}));
        assert!(fresh.is_some_and(|guest| guest.is_running().is_none() && guest.lock.as_deref() == Some("clone")));
        let haunted = read(&whole).unwrap();
        assert_eq!((haunted.is_running(), haunted.is_template()), (None, None), "who ran is not known");
        let mut row = whole;
        row["tags"] = json!("castle;castle-since-421-1000");
        let settled = read(&row).unwrap();
        assert_eq!((settled.is_running(), settled.is_template()), (Some(true), Some(false)));
    }

    #[test]
    fn how_full_a_storage_is_that_is_not_active_is_not_known() {
        let row = |active: u8| {
            Storage::read(
                &json!({"storage": "local", "type": "dir", "content": "images,import", "enabled": 1, "shared": 0,
                "active": active, "total": 0, "used": 0, "avail": 0}),
            )
        };
        assert!(row(0).is_some_and(|it| it.is_enabled && !it.is_active && it.free.is_none() && it.total.is_none()));
        assert!(row(1).is_some_and(|it| it.is_active && it.free == Some(0)));
    }

    #[test]
    fn releases_are_read() {
        for (version, release) in [("9.2.3", (9, 2)), ("8.4.14", (8, 4)), ("9.0.0~11", (9, 0)), ("8", (8, 0))] {
            let read = Release::read(&json!({"version": version})).unwrap();
            assert_eq!((read.major, read.minor), release, "{version}");
        }
        assert_eq!(Release::read(&json!({"version": "x"})), None);
    }

    #[test]
    fn a_configuration_keeps_its_digest_apart() {
        let config = Config::read(&json!({"digest": "abc", "cores": 4, "name": "x", "template": 1})).unwrap();
        assert_eq!(
            (config.digest.as_deref(), config.get("cores"), config.get("digest")),
            (Some("abc"), Some("4"), None)
        );
        assert!(config.is_template());
    }
}
