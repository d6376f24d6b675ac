//! What hosts tell each other of their guests, every ten seconds.

use super::World;
use super::events::Event;
use super::guest::{Guest, Power};
use crate::proxmox::drive;

/// What was last told of a guest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) running: bool,
    pub(crate) name: String,
    pub(crate) template: bool,
    pub(crate) cores: u64,
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    pub(crate) uptime: u64,
}

impl World {
    pub(crate) fn begin_broadcasts(&mut self) {
        let period = self.latencies.broadcast;
        if period.is_zero() {
            return;
        }
        for host in self.hosts.keys().cloned().collect::<Vec<_>>() {
            self.tell(&host);
            // Each host has its own beat.
            let part = self.chance.number("broadcast") % 1000;
            self.events.plan(self.now + period.mul_f64((part + 1) as f64 / 1000.0), Event::Broadcast(host));
        }
    }

    pub(crate) fn broadcast(&mut self, host: &str) {
        self.tell(host);
        self.events.plan(self.now + self.latencies.broadcast, Event::Broadcast(host.to_owned()));
    }

    fn tell(&mut self, host: &str) {
        if self.is_up(host) {
            let told = self.guests.values().filter(|guest| guest.host == host);
            let told: Vec<_> = told.map(|guest| (guest.vmid, self.observe(guest))).collect();
            self.seen.extend(told);
        }
        let guests = &self.guests;
        self.seen.retain(|vmid, _| guests.contains_key(vmid));
    }

    /// What its host knows of a guest.
    pub(crate) fn observe(&self, guest: &Guest) -> Seen {
        let number = |key: &str, default: u64| guest.get(key).and_then(|value| value.parse().ok()).unwrap_or(default);
        let memory = guest.get("memory").map_or("512", |text| text.trim_start_matches("current="));
        Seen {
            running: guest.is_running(),
            name: guest.get("name").map_or_else(|| format!("VM {}", guest.vmid), str::to_owned),
            template: guest.is_template(),
            cores: number("cores", 1) * number("sockets", 1),
            memory: memory.parse::<u64>().unwrap_or(512) << 20,
            disk: drive::boot_disk_size(&guest.config),
            uptime: match guest.power {
                Power::Stopped => 0,
                Power::Running { since } => (self.now - since.min(self.now)).as_secs(),
            },
        }
    }

    /// What the cluster knows of a guest: what was told last, or nothing.
    pub(crate) fn known(&self, guest: &Guest) -> Option<Seen> {
        if self.latencies.broadcast.is_zero() {
            return Some(self.observe(guest));
        }
        self.seen.get(&guest.vmid).cloned()
    }
}
