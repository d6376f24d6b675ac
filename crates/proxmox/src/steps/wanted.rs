//! A guest as it is wanted, and how one that is there differs from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

use castle_engine::{CastleId, Impact};
use sha2::{Digest, Sha256};

use crate::model::{Config, Form, Guest, Mark, Properties, Role, is_since, since_tag, tells_since};

/// The disk of the system, and that of the volumes.
pub(crate) const SYSTEM_DISK: &str = "scsi0";
pub(crate) const DATA_DISK: &str = "scsi1";
/// What the tag begins with that tells by its digest what is wanted.
pub(crate) const DIGEST_TAG: &str = "castle-is-";
/// Options that a running guest takes up at once. The others wait for its next start.
const AT_ONCE: [&str; 5] = ["name", "onboot", "tags", "net0", DATA_DISK];

/// The virtual hardware that all guests of a castle share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// `q35` or `pc`.
    pub machine: String,
    /// The CPU type.
    pub cpu: String,
    /// The SCSI controller.
    pub scsi_controller: String,
    /// Whether each disk has a thread of its own.
    pub iothread: bool,
    /// The drive that carries address and host name.
    pub cloud_init_drive: String,
    /// A CD image, and the drive it is put in.
    pub iso: Option<(String, String)>,
    /// The storage of the disks.
    pub storage: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN tag.
    pub vlan: Option<u32>,
    /// Whether the guest agent is in the image.
    pub agent: bool,
}

impl Hardware {
    /// All of it, for the digest of an image: as of a guest, line by line and by name.
    pub(crate) fn told(&self) -> String {
        let Self { machine, cpu, scsi_controller, iothread, cloud_init_drive, iso, storage, bridge, vlan, agent } =
            self;
        let mut lines = vec![
            format!("machine: {machine}\ncpu: {cpu}\nscsihw: {scsi_controller}\nagent: {agent}\nbridge: {bridge}"),
            format!("storage: {storage}\niothread: {iothread}\ncloudinit: {cloud_init_drive}"),
        ];
        lines.extend(vlan.map(|vlan| format!("vlan: {vlan}")));
        lines.extend(iso.iter().map(|(drive, file)| format!("iso: {drive} {file}")));
        lines.join("\n")
    }
}

/// A guest as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number.
    pub vmid: u32,
    /// Its name, which is its host name.
    pub name: String,
    /// What it is to the castle.
    pub role: Role,
    /// The control plane that etcd begins on; nothing for a worker.
    pub etcd_begins_on: Option<String>,
    /// The host it is made on. One that has moved since is left where it is.
    pub host: String,
    /// Its resource pool.
    pub pool: Option<String>,
    /// CPU cores.
    pub cores: u32,
    /// Memory in MiB.
    pub memory: u64,
    /// The system disk, in MiB.
    pub system: u64,
    /// The second disk, in MiB.
    pub data: Option<u64>,
    /// Its hardware address.
    pub mac: String,
    /// Its address, and how many bits of it name the network.
    pub address: (IpAddr, u8),
    /// The way out.
    pub gateway: IpAddr,
    /// The DNS servers.
    pub nameservers: Vec<IpAddr>,
    /// What all guests share.
    pub hardware: Hardware,
}

/// One option that is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deviation {
    pub(crate) option: String,
    pub(crate) is: Option<String>,
    pub(crate) wanted: String,
    pub(crate) remedy: Remedy,
}

/// What makes an option as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Write this.
    Set(String),
    /// Make the disk larger.
    Grow(u64),
    /// Nothing, short of making the guest anew.
    Replace,
}

impl Deviation {
    /// What it takes to bring it about in a guest that runs or not.
    pub(crate) fn impact(&self, running: bool) -> Impact {
        match self.remedy {
            Remedy::Replace => Impact::Replace,
            Remedy::Set(_) if running && !AT_ONCE.contains(&self.option.as_str()) => Impact::Reboot,
            _ => Impact::InPlace,
        }
    }
}

impl Wanted {
    /// Options whose values are compared as they stand.
    fn plain(&self) -> BTreeMap<&'static str, String> {
        let mut options = BTreeMap::from([
            ("name", self.name.clone()),
            ("onboot", "1".to_owned()),
            ("ostype", "l26".to_owned()),
            ("cores", self.cores.to_string()),
            ("memory", self.memory.to_string()),
            ("balloon", "0".to_owned()),
            ("scsihw", self.hardware.scsi_controller.clone()),
            ("serial0", "socket".to_owned()),
            ("boot", format!("order={SYSTEM_DISK}")),
        ]);
        let servers: Vec<String> = self.nameservers.iter().map(ToString::to_string).collect();
        if !servers.is_empty() {
            options.insert("nameserver", servers.join(" "));
        }
        options
    }

    /// Options that are property strings, each with its default key.
    fn composed(&self) -> BTreeMap<&'static str, (Option<&'static str>, String)> {
        let Hardware { machine, cpu, bridge, vlan, agent, .. } = &self.hardware;
        let vlan = vlan.map_or(String::new(), |vlan| format!(",tag={vlan}"));
        let (address, prefix) = self.address;
        let six = if address.is_ipv6() { "6" } else { "" };
        BTreeMap::from([
            ("cpu", (Some("cputype"), cpu.clone())),
            ("machine", (Some("type"), machine.clone())),
            ("agent", (Some("enabled"), u8::from(*agent).to_string())),
            ("net0", (Some("model"), format!("virtio={},bridge={bridge}{vlan}", self.mac.to_uppercase()))),
            ("ipconfig0", (None, format!("ip{six}={address}/{prefix},gw{six}={}", self.gateway))),
        ])
    }

    /// The tags of the guest: whose it is, and a digest of who it is and of all that is wanted of it. The list of the whole
    /// cluster shows them, so one request tells of every guest whether it is as wanted.
    pub(crate) fn tags(&self, castle: &CastleId) -> BTreeSet<String> {
        let mut tags = Mark::tags_of(castle);
        tags.insert(digest_tag(castle, &self.told()));
        tags
    }

    /// All that is wanted, for the digest: line by line and by name, so that no change of these types is one of every guest. What a later castle adds is left
    /// out where a guest is as it was without; anything else is another format.
    fn told(&self) -> String {
        let Self { system, data, pool, hardware, .. } = self;
        let Hardware { storage, iothread, cloud_init_drive, iso, .. } = hardware;
        let mut lines = vec!["guest 1".to_owned()];
        lines.extend(self.plain().into_iter().map(|(option, value)| format!("{option}: {value}")));
        lines.extend(self.composed().into_iter().map(|(option, (_, value))| format!("{option}: {value}")));
        lines
            .push(format!("storage: {storage}\nsystem: {system}\niothread: {iothread}\ncloudinit: {cloud_init_drive}"));
        lines.extend(data.map(|size| format!("data: {size}")));
        lines.extend(pool.iter().map(|pool| format!("pool: {pool}")));
        lines.extend(iso.iter().map(|(drive, file)| format!("iso: {drive} {file}")));
        lines.join("\n")
    }

    /// Whether the list of the cluster alone tells that nothing is to be done. The tags tell it, which are as of now. What else is
    /// shown tells of changes by hand; be it of another guest that had the number before, then this one is looked at in full.
    pub(crate) fn is_shown_by(&self, castle: &CastleId, row: &Guest) -> bool {
        row.is_machine
            && !row.shows_template
            && row.lock.is_none()
            && row.tags.is_superset(&self.tags(castle))
            && tells_since(&row.tags, self.vmid)
            && row.pool == self.pool
            && row.name.as_ref().is_none_or(|name| *name == self.name)
            && row.memory.is_none_or(|memory| memory == self.memory << 20)
            && row.cpus.is_none_or(|cpus| cpus == u64::from(self.cores))
    }

    /// Everything that is not as wanted, the tags apart: they are written when the rest is.
    pub(crate) fn deviations(&self, config: &Config) -> Vec<Deviation> {
        let mut found = Vec::new();
        for (option, wanted) in self.plain() {
            let is = config.get(option);
            if is != Some(wanted.as_str()) {
                found.push(Deviation::set(option, is, &wanted));
            }
        }
        for (option, (default_key, wanted)) in self.composed() {
            let is = config.get(option);
            let read = |text: &str| Properties::parse(default_key, text).ok();
            let same = is.and_then(read).zip(read(&wanted)).is_some_and(|(is, want)| is.differences(&want).is_empty());
            // No agent is what a guest has that says nothing of one.
            let absent = option == "agent" && !self.hardware.agent && is.is_none();
            if !same && !absent {
                found.push(Deviation::set(option, is, &wanted));
            }
        }
        found.extend(self.disk(config, SYSTEM_DISK, self.system));
        found.extend(self.data.and_then(|size| self.disk(config, DATA_DISK, size)));
        found.extend(self.drives(config));
        found
    }

    fn disk(&self, config: &Config, option: &str, size: u64) -> Option<Deviation> {
        let Hardware { storage, iothread, .. } = &self.hardware;
        let thread = if *iothread { ",iothread=1" } else { "" };
        let wanted = format!("{storage}, {}", human(size));
        let deviation = |is: Option<&str>, remedy| Deviation {
            option: option.to_owned(),
            is: is.map(str::to_owned),
            wanted: wanted.clone(),
            remedy,
        };
        let Some(is) = config.get(option) else {
            // A guest without the disk it starts from was not made by cloning.
            let make = Remedy::Set(format!("{storage}:{}{thread}", gib(size)));
            return Some(deviation(None, if option == SYSTEM_DISK { Remedy::Replace } else { make }));
        };
        let Ok(line) = Properties::parse(Some("file"), is) else { return Some(deviation(Some(is), Remedy::Replace)) };
        let file = line.get("file").unwrap_or_default();
        let there = line.get("size").and_then(crate::model::mib_of);
        if !file.starts_with(&format!("{storage}:")) || there.is_some_and(|there| there > size) {
            return Some(deviation(Some(is), Remedy::Replace));
        }
        if there != Some(size) {
            return Some(deviation(Some(is), Remedy::Grow(size)));
        }
        let says = |key: &str| line.get(key).is_some_and(|value| value != "0");
        let own = |key: &str| ["file", "size", "iothread"].contains(&key);
        let same = says("iothread") == *iothread && line.keys().all(own);
        (!same).then(|| deviation(Some(is), Remedy::Set(format!("{file}{thread}"))))
    }

    /// The drives that hold CDs: address and host name, and what the file adds.
    fn drives(&self, config: &Config) -> Vec<Deviation> {
        let Hardware { storage, cloud_init_drive, iso, .. } = &self.hardware;
        let file_of = |option: &str| {
            let line = Properties::parse(Some("file"), config.get(option)?).ok()?;
            line.get("file").map(str::to_owned)
        };
        let mut found = Vec::new();
        let is_ours = |file: &str| {
            file.starts_with(&format!("{storage}:")) && file.contains(&format!("vm-{}-cloudinit", self.vmid))
        };
        if !file_of(cloud_init_drive).is_some_and(|file| is_ours(&file)) {
            let wanted = format!("{storage}:cloudinit");
            found.push(Deviation::set(cloud_init_drive, config.get(cloud_init_drive), &wanted));
        }
        if let Some((drive, file)) = iso
            && file_of(drive).as_ref() != Some(file)
        {
            found.push(Deviation::set(drive, config.get(drive), &format!("{file},media=cdrom")));
        }
        found
    }

    /// The deviation of the tags.
    pub(crate) fn tags_deviation(&self, castle: &CastleId, config: &Config) -> Option<Deviation> {
        let wanted = self.tags(castle);
        let is: BTreeSet<String> = config
            .get("tags")
            .unwrap_or_default()
            .split([';', ',', ' '])
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        // Tags that people add are theirs.
        let is_whole = is.is_superset(&wanted) && tells_since(&is, self.vmid);
        if is_whole && is.iter().all(|tag| wanted.contains(tag) || !tag.starts_with(DIGEST_TAG)) {
            return None;
        }
        let others = is.into_iter().filter(|tag| is_lasting(tag));
        let all: BTreeSet<String> = wanted.into_iter().chain(others).collect();
        let all: Vec<String> = all.into_iter().collect();
        Some(Deviation::set("tags", config.get("tags"), &all.join(";")))
    }

    /// The tags as they are written now: with the time, which is part of no plan.
    pub(crate) fn tags_now(&self, tags: &str, now: SystemTime) -> String {
        let since = since_tag(self.vmid, now);
        if tags.is_empty() { since } else { format!("{tags};{since}") }
    }

    /// The options that a template is made with, so that its clones differ from what is wanted as little as can be.
    pub(crate) fn template_form(hardware: &Hardware) -> Form {
        let Hardware { machine, cpu, scsi_controller, agent, .. } = hardware;
        Form::new()
            .with("ostype", "l26")
            .with("cores", 2)
            .with("memory", 2048)
            .with("balloon", 0)
            .with("cpu", cpu)
            .with("machine", machine)
            .with("scsihw", scsi_controller)
            .with("serial0", "socket")
            .with("agent", u8::from(*agent))
    }
}

impl Deviation {
    fn set(option: &str, is: Option<&str>, wanted: &str) -> Self {
        let (option, is, wanted) = (option.to_owned(), is.map(str::to_owned), wanted.to_owned());
        Self { option, is, remedy: Remedy::Set(wanted.clone()), wanted }
    }
}

/// Whether a tag stays when castle writes its own anew.
pub(crate) fn is_lasting(tag: &str) -> bool {
    !tag.is_empty() && !tag.starts_with(DIGEST_TAG) && !is_since(tag)
}

/// The tag that tells of what it is on that it is as wanted.
pub(crate) fn digest_tag(castle: &CastleId, wanted: &str) -> String {
    let CastleId { name, lineage, generation } = castle;
    let digest = Sha256::digest(format!("{name}\n{lineage}\n{generation}\n{wanted}"));
    let digits: String = digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{DIGEST_TAG}{digits}")
}

/// A size in GiB, as a new disk is ordered: exact, for a MiB is a GiB divided by a power of two.
fn gib(mib: u64) -> String {
    let (whole, part) = (mib / 1024, (mib % 1024) * 9_765_625);
    let text = format!("{whole}.{part:010}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A size as people read it and as a disk is resized to.
pub(crate) fn human(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}G", mib / 1024) } else { format!("{mib}M") }
}

#[cfg(test)]
mod tests;
