//! Guests that are switched on: where what runs inside of them will stand.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::proxmox::drive::{Drive, boot_disk};
use crate::proxmox::{Download, config};
use crate::world::World;
use crate::world::events::Event;
use crate::world::guest::Power;

/// A guest that is switched on, and what it finds at its power-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The number of the guest.
    pub vmid: u32,
    /// The host it runs on.
    pub host: String,
    /// How often it has been switched on, this time included.
    pub power_on: u64,
    /// When it was switched on.
    pub since: Duration,
    /// When what runs inside answers, if anything does.
    pub up_at: Duration,
    /// Whether it does.
    pub is_up: bool,
    /// The image that its boot disk came from: an address, or a volume.
    pub image: Option<String>,
    /// What it finds on its cloud-init drive, if it has one.
    pub cloud_init: Option<CloudInit>,
    /// Its hardware addresses, by network device.
    pub macs: BTreeMap<String, String>,
    /// Whether it is asked through the guest agent.
    pub agent: bool,
}

/// What a cloud-init drive says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudInit {
    /// The host name.
    pub hostname: String,
    /// By network device, what `ipconfig` says: `ip=192.0.2.1/24,gw=192.0.2.254`.
    pub interfaces: BTreeMap<String, String>,
    /// The name servers.
    pub nameservers: Vec<String>,
}

impl CloudInit {
    /// The address and prefix of a network device, if it is a fixed one.
    #[must_use]
    pub fn address(&self, device: &str) -> Option<(&str, u8)> {
        let parts = self.interfaces.get(device)?.split(',');
        let (ip, prefix) = parts.filter_map(|part| part.strip_prefix("ip=")).next()?.split_once('/')?;
        Some((ip, prefix.parse().ok()?))
    }
}

/// All guests that are switched on.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    on: BTreeMap<u32, Machine>,
    power_ons: BTreeMap<u32, u64>,
}

impl Machines {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Machine> {
        self.on.values()
    }

    pub(crate) fn get(&self, vmid: u32) -> Option<&Machine> {
        self.on.get(&vmid)
    }

    pub(crate) fn moved(&mut self, vmid: u32, host: &str) {
        if let Some(machine) = self.on.get_mut(&vmid) {
            host.clone_into(&mut machine.host);
        }
    }

    pub(crate) fn come_up(&mut self, vmid: u32) {
        if let Some(machine) = self.on.get_mut(&vmid) {
            machine.is_up = true;
            machine.up_at = machine.since;
        }
    }

    /// A guest has come up. Says whether it is still the same power-on.
    pub(crate) fn booted(&mut self, vmid: u32, power_on: u64) -> bool {
        let machine = self.on.get_mut(&vmid).filter(|machine| machine.power_on == power_on);
        machine.map(|machine| machine.is_up = true).is_some()
    }
}

/// What a guest writes to its disk as it comes up.
const WRITTEN_AT_BOOT: u64 = 64 << 20;

impl World {
    /// Switches a guest on. What was pending holds from now on.
    pub(crate) fn power_on(&mut self, vmid: u32) {
        let now = self.now;
        config::apply(self, vmid, false);
        let Some(guest) = self.guests.get_mut(&vmid) else { return };
        guest.power = Power::Running { since: now };
        guest.is_paused = false;
        let (host, config) = (guest.host.clone(), guest.config.clone());
        let drives = Drive::all(&config);
        let disk = boot_disk(&config);
        let image = disk.as_ref().and_then(|disk| self.stores.get(&host, &disk.file)).and_then(|it| it.image.clone());
        let cloud_init = drives.values().any(Drive::is_cloud_init).then(|| CloudInit {
            hostname: config.get("name").cloned().unwrap_or_else(|| format!("VM{vmid}")),
            interfaces: numbered(&config, "ipconfig").map(|(n, text)| (format!("net{n}"), text.to_owned())).collect(),
            nameservers: config
                .get("nameserver")
                .map_or("", String::as_str)
                .split_whitespace()
                .map(Into::into)
                .collect(),
        });
        let macs = numbered(&config, "net").filter_map(|(n, text)| {
            let (_, mac) = text.split(',').next()?.split_once('=')?;
            Some((format!("net{n}"), mac.to_owned()))
        });
        let macs = macs.collect();
        let agent = config.get("agent").is_some_and(|agent| {
            let first = agent.split(',').next().unwrap_or_default();
            ["1", "enabled=1", "enabled=on", "on"].contains(&first)
        });
        let count = self.machines.power_ons.entry(vmid).or_default();
        *count += 1;
        let power_on = *count;
        let boot = self.draw(&format!("boot {vmid}"), self.latencies.boot);
        if let Some(disk) = disk {
            self.stores.write(&host, &disk.file, WRITTEN_AT_BOOT);
        }
        let up_at = now + boot;
        let found = image.as_ref().and_then(|image| self.published.get(image));
        let boots = !matches!(found, Some(Download::File { boots: false, .. }));
        let (since, is_up) = (now, boot.is_zero() && boots);
        if boots {
            self.events.plan(up_at, Event::Booted(vmid, power_on));
        }
        let machine = Machine { vmid, host, power_on, since, up_at, is_up, image, cloud_init, macs, agent };
        self.talos_gone(vmid, false);
        self.machines.on.insert(vmid, machine);
        self.touch();
    }

    /// Switches a guest off. What was pending holds from now on.
    pub(crate) fn power_off(&mut self, vmid: u32) {
        self.machines.on.remove(&vmid);
        self.talos_gone(vmid, false);
        self.touch();
        if let Some(guest) = self.guests.get_mut(&vmid) {
            guest.power = Power::Stopped;
            guest.is_paused = false;
        }
        config::apply(self, vmid, false);
    }
}

/// The values of an indexed family, in the order of their keys.
fn numbered<'a>(config: &'a BTreeMap<String, String>, family: &'a str) -> impl Iterator<Item = (u32, &'a str)> {
    config.iter().filter_map(move |(key, value)| Some((key.strip_prefix(family)?.parse().ok()?, value.as_str())))
}
