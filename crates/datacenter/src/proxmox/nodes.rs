//! The hosts.

use serde_json::{Map, Value, json};

use super::api::Version;
use super::{Done, Outcome, Request};
use crate::access::Identity;
use crate::world::World;
use crate::world::guest::Guest;

pub(super) fn version(version: Version) -> Done {
    match version {
        Version::Eight => json!({ "version": "8.4.21", "release": "8.4", "repoid": "2606ac85" }),
        Version::Nine => json!({ "version": "9.2.11", "release": "9.2", "repoid": "14a22df3" }),
    }
    .into()
}

impl World {
    /// The memory that running guests of a host take.
    pub(super) fn memory_used(&self, host: &str) -> u64 {
        let running = |guest: &&Guest| guest.host == host && guest.is_running();
        let guests: u64 = self.guests.values().filter(running).map(|guest| self.observe(guest).memory).sum();
        // The host itself takes some.
        guests + (2 << 30)
    }

    /// Seconds since the host came up.
    pub(super) fn host_uptime(&self) -> u64 {
        86_400 + self.now.as_secs()
    }

    /// The fingerprint of a host's certificate; of one that never served, a made-up one.
    pub(super) fn fingerprint(&self, host: &str) -> String {
        use sha2::{Digest, Sha256};
        let made_up = || {
            let digest = Sha256::digest(format!("certificate of {host}"));
            digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
        };
        self.fingerprints.get(host).cloned().unwrap_or_else(made_up)
    }
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let rows = world.hosts.values().map(|host| {
        let is_up = world.is_up(&host.name);
        let mut row = Map::new();
        row.insert("node".into(), json!(host.name));
        row.insert("id".into(), json!(format!("node/{}", host.name)));
        row.insert("type".into(), json!("node"));
        row.insert("status".into(), json!(if is_up { "online" } else { "offline" }));
        row.insert("ssl_fingerprint".into(), json!(world.fingerprint(&host.name)));
        if is_up && world.may(&request.who, &format!("/nodes/{}", host.name), &["Sys.Audit"]) {
            row.insert("level".into(), json!(""));
            row.insert("cpu".into(), json!(0.02));
            row.insert("maxcpu".into(), json!(host.cores));
            row.insert("mem".into(), json!(world.memory_used(&host.name)));
            row.insert("maxmem".into(), json!(host.memory));
            row.insert("disk".into(), json!(8_u64 << 30));
            row.insert("maxdisk".into(), json!(96_u64 << 30));
            row.insert("uptime".into(), json!(world.host_uptime()));
        }
        Value::from(row)
    });
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn status(world: &World, request: &Request) -> Outcome {
    let Some(host) = world.hosts.get(&request.host) else {
        return Err(format!("no such node '{}'", request.host).into());
    };
    let used = world.memory_used(&host.name);
    let manager = match world.version {
        Version::Eight => "pve-manager/8.4.21/2606ac85",
        Version::Nine => "pve-manager/9.2.11/14a22df3",
    };
    Ok(json!({
        "uptime": world.host_uptime(),
        "cpu": 0.02,
        "wait": 0,
        "idle": 0,
        "loadavg": ["0.32", "0.28", "0.25"],
        "memory": { "total": host.memory, "used": used, "free": host.memory.saturating_sub(used), "available": host.memory.saturating_sub(used) },
        "swap": { "total": 0, "used": 0, "free": 0 },
        "rootfs": { "total": 96_u64 << 30, "used": 8_u64 << 30, "free": 88_u64 << 30, "avail": 88_u64 << 30 },
        "ksm": { "shared": 0 },
        "cpuinfo": { "cpus": host.cores, "cores": host.cores / 2, "sockets": 1, "model": "castle embedded", "mhz": "3000.000", "hvm": "1", "user_hz": 100, "flags": "" },
        "pveversion": manager,
        "kversion": "Linux 6.14.0-embedded",
        "boot-info": { "mode": "efi", "secureboot": 0 },
        "current-kernel": { "machine": "x86_64", "release": "6.14.0-embedded", "sysname": "Linux", "version": "#1" },
    })
    .into())
}

pub(super) fn network(world: &World, request: &Request) -> Outcome {
    let wanted = request.text("type");
    let is_bridge_wanted =
        wanted.is_none_or(|kind| ["bridge", "any_bridge", "any_local_bridge", "include_sdn"].contains(&kind));
    let bridges = world.bridges.iter().filter(|_| is_bridge_wanted).enumerate().map(|(at, name)| {
        json!({
            "iface": name, "type": "bridge", "active": 1, "autostart": 1, "priority": at + 3,
            "method": "static", "method6": "manual", "families": ["inet"], "bridge_ports": format!("eno{}", at + 1),
            "bridge_stp": "off", "bridge_fd": "0", "cidr": format!("192.168.{}.2/24", at + 1),
            "address": format!("192.168.{}.2", at + 1), "netmask": "24",
        })
    });
    let bridges: Vec<Value> = bridges
        .filter(|row| {
            let bridge = row["iface"].as_str().unwrap_or_default();
            sees_bridge(world, &request.who, bridge)
        })
        .collect();
    Ok(bridges.into())
}

/// Whether somebody sees a bridge: by a right on it, or on one of those VLANs of it that anybody was given rights on.
fn sees_bridge(world: &World, who: &Identity, bridge: &str) -> bool {
    let place = format!("/sdn/zones/localnetwork/{bridge}");
    let sees = |path: &str| world.may(who, path, &["SDN.Audit", "SDN.Use"]);
    let below = world.access.paths().filter_map(|path| path.strip_prefix(&place)?.strip_prefix('/'));
    let mut vlans = below.filter_map(|rest| rest.split('/').next());
    sees(&place) || vlans.any(|vlan| sees(&format!("{place}/{vlan}")))
}
