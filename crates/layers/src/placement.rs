//! Which host carries which node, and why.
//!
//! What stands stays where it is, be it moved by a person or by Proxmox itself. What is new goes where the file says, or else to
//! the host with the fewest nodes of its role that has room for it; among equals the order of the file decides, so the same file
//! on the same site always gives the same answer.

use std::collections::BTreeMap;
use std::fmt;

use castle_spec::{Node, Role};
use thiserror::Error;

use crate::site::Site;
use crate::survey::Survey;

/// What a node writes to a thin disk before it is of any use: the system, in MiB.
const WRITTEN_AT_ONCE: u64 = 2 << 10;

/// Why a node is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It stands there already.
    Stands,
    /// The file says so.
    File,
    /// It is the only host.
    Only,
    /// It has the fewest nodes of this role, and room.
    Spread,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stands => "stands there",
            Self::File => "the file says so",
            Self::Only => "the only host",
            Self::Spread => "the fewest of its role, and room",
        })
    }
}

/// Where a node is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The host.
    pub host: String,
    /// Why.
    pub why: Why,
}

/// A node that no host has room for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{node} fits on no host: {}", .hosts.join("; "))]
pub struct Crowded {
    /// The node.
    pub node: String,
    /// Each host, and what is missing there.
    pub hosts: Vec<String>,
}

/// What a host has left.
struct Room {
    /// In MiB; nothing if the token may not know.
    memory: Option<u64>,
    disk: Option<u64>,
    /// Whether disks take only what is written to them.
    is_thin: bool,
    is_there: bool,
    nodes: BTreeMap<&'static str, usize>,
}

impl Room {
    /// What is missing for a node of this size.
    fn lacks(&self, node: &Node) -> Option<String> {
        if !self.is_there {
            return Some("is not there".to_owned());
        }
        let disks = self.disks(node);
        let lacks = |what: &str, needed: u64, left: Option<u64>| {
            let left = left.filter(|left| *left < needed)?;
            Some(format!("has {} of {what} left, and {} are needed", gib(left), gib(needed)))
        };
        lacks("memory", node.memory.mib(), self.memory).or_else(|| lacks("disk", disks, self.disk))
    }

    fn take(&mut self, node: &Node) {
        let disks = self.disks(node);
        self.memory = self.memory.map(|left| left.saturating_sub(node.memory.mib()));
        self.disk = self.disk.map(|left| left.saturating_sub(disks));
        self.count(node.role);
    }

    /// What the disks of a node take at once.
    fn disks(&self, node: &Node) -> u64 {
        let whole = node.disk.mib() + node.data_disk.as_ref().map_or(0, |disk| disk.mib());
        if self.is_thin { whole.min(WRITTEN_AT_ONCE) } else { whole }
    }

    fn count(&mut self, role: Role) {
        *self.nodes.entry(role.word()).or_default() += 1;
    }
}

fn gib(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{} GiB", mib / 1024) } else { format!("{:.1} GiB", mib as f64 / 1024.0) }
}

/// Places every node, in the order given.
///
/// # Errors
///
/// All nodes that fit nowhere.
pub fn place(site: &Site, survey: &Survey, nodes: &[Node]) -> Result<Vec<Placed>, Vec<Crowded>> {
    let mut rooms: Vec<(&String, Room)> = site.hosts.iter().map(|host| (host, room(site, survey, host))).collect();
    let stands: Vec<Option<String>> =
        nodes.iter().map(|node| survey.guests.get(&node.vmid.0).map(|guest| guest.host.clone())).collect();
    for (node, host) in nodes.iter().zip(&stands) {
        // What stands has taken its room already.
        if let Some((_, room)) = rooms.iter_mut().find(|(name, _)| Some(*name) == host.as_ref()) {
            room.count(node.role);
        }
    }
    let (mut placed, mut crowded) = (Vec::new(), Vec::new());
    for (node, stands) in nodes.iter().zip(stands) {
        if let Some(host) = stands {
            placed.push(Placed { host, why: Why::Stands });
            continue;
        }
        let pinned = node.host.as_ref().map(|host| host.to_string());
        let why = match (&pinned, rooms.len()) {
            (Some(_), _) => Why::File,
            (None, 1) => Why::Only,
            _ => Why::Spread,
        };
        let allowed = |name: &String| pinned.as_ref().is_none_or(|pinned| pinned == name);
        let best = rooms
            .iter_mut()
            .filter(|(name, room)| allowed(name) && room.lacks(node).is_none())
            .min_by_key(|(_, room)| room.nodes.get(node.role.word()).copied().unwrap_or(0));
        match best {
            Some((host, room)) => {
                room.take(node);
                placed.push(Placed { host: (*host).clone(), why });
            }
            None => {
                let lacks = |(name, room): &(&String, Room)| Some(format!("{name} {}", room.lacks(node)?));
                let hosts = rooms.iter().filter(|(name, _)| allowed(name)).filter_map(lacks).collect();
                crowded.push(Crowded { node: node.name.value.clone(), hosts });
            }
        }
    }
    if crowded.is_empty() { Ok(placed) } else { Err(crowded) }
}

fn room(site: &Site, survey: &Survey, name: &str) -> Room {
    let host = survey.hosts.get(name);
    let storage = survey.storage(name, &site.hardware.storage);
    let free = host.and_then(|host| Some(host.memory?.saturating_sub(host.memory_used?)));
    Room {
        memory: free.map(|bytes| bytes >> 20),
        disk: storage.and_then(|storage| storage.free).map(|bytes| bytes >> 20),
        is_thin: storage.is_some_and(castle_proxmox::model::Storage::is_thin),
        is_there: host.is_some_and(|host| host.is_online),
        nodes: BTreeMap::new(),
    }
}
