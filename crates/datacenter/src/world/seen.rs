//! Statistics: what hosts tell each other of their guests every ten seconds, and how long it is believed.
//!
//! What was told last of a number stays for five minutes, whether the guest is still there or not, and whether or not another
//! has its number since: nobody takes it back.

use std::time::Duration;

use super::World;
use super::events::Event;
use super::guest::{Guest, Power};
use crate::proxmox::drive;

/// How long what was told is believed.
const KEPT: Duration = Duration::from_secs(300);

/// What is known of a guest at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) running: bool,
    /// The word for what it does, as its own monitor would say it: a guest that is paused runs, too.
    pub(crate) status: &'static str,
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
        let now = self.now;
        if self.is_up(host) {
            let told = self.guests.values().filter(|guest| guest.host == host);
            let told: Vec<_> = told.map(|guest| (guest.vmid, (now, self.observe(guest)))).collect();
            self.seen.extend(told);
        }
        self.seen.retain(|_, (told, _)| now.saturating_sub(*told) <= KEPT);
    }

    /// What its host knows of a guest.
    pub(crate) fn observe(&self, guest: &Guest) -> Seen {
        let number = |key: &str, default: u64| guest.get(key).and_then(|value| value.parse().ok()).unwrap_or(default);
        let memory = guest.get("memory").map_or("512", |text| text.trim_start_matches("current="));
        let there = self.hosts.get(&guest.host).map_or(u64::MAX, |host| u64::from(host.cores));
        let cores = (number("cores", 1) * number("sockets", 1)).min(there);
        Seen {
            running: guest.is_running(),
            status: guest.status(),
            name: guest.get("name").map_or_else(|| format!("VM {}", guest.vmid), str::to_owned),
            template: guest.is_template(),
            cores: number("vcpus", cores),
            memory: memory.parse::<u64>().unwrap_or(512) << 20,
            disk: drive::boot_disk_size(&guest.config),
            uptime: match guest.power {
                Power::Stopped => 0,
                Power::Running { since } => (self.now - since.min(self.now)).as_secs(),
            },
        }
    }

    /// What the cluster says of a guest: what was told last of its number, of whomever; or nothing.
    pub(crate) fn known(&self, guest: &Guest) -> Option<Seen> {
        if self.latencies.broadcast.is_zero() {
            return Some(self.observe(guest)).filter(|_| self.is_up(&guest.host));
        }
        let (told, seen) = self.seen.get(&guest.vmid)?;
        (self.now.saturating_sub(*told) <= KEPT).then(|| seen.clone())
    }
}
