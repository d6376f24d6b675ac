//! Who answers at an address.

use std::net::IpAddr;

use super::{KUBERNETES_PORT, TALOS_PORT};
use crate::world::World;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The Talos API of a node: the guest, and which server it is.
    Talos(u32, u64),
    /// The Kubernetes API on a node: the guest, and which life it is in.
    Kubernetes(u32, u64),
}

/// Why nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// There is no way to the address.
    Unreachable,
    /// Nothing listens there.
    Refused,
}

impl World {
    /// The node that has an address, its own or a shared one.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<u32> {
        let own = self.talos.nodes.values().find(|node| node.boot.is_some() && node.has_address(address));
        let shared = self.talos.clusters.values().find_map(|cluster| cluster.vips.get(&address)?.holder);
        own.map(|node| node.vmid).or(shared)
    }

    /// What answers at an address and a port.
    pub(crate) fn door(&self, address: IpAddr, port: u16) -> Result<Door, Closed> {
        if self.talos.occupied.contains(&address) {
            return Err(Closed::Refused);
        }
        let Some(vmid) = self.node_at(address) else {
            // A guest of another kind has its address, but nothing that we know listens.
            let is_up = self.machines.all().any(|machine| {
                let told = machine.cloud_init.as_ref();
                let is_here = |device: &String| {
                    told.and_then(|told| told.address(device)).is_some_and(|(ip, _)| ip == address.to_string())
                };
                let is_node = self.talos.nodes.contains_key(&machine.vmid);
                !is_node && machine.is_up && told.is_some_and(|told| told.interfaces.keys().any(is_here))
            });
            return Err(if is_up { Closed::Refused } else { Closed::Unreachable });
        };
        let Some(node) = self.talos.nodes.get(&vmid) else { return Err(Closed::Unreachable) };
        let Some(boot) = &node.boot else { return Err(Closed::Unreachable) };
        match port {
            TALOS_PORT => boot.apid.map(|apid| Door::Talos(vmid, apid)).ok_or(Closed::Refused),
            KUBERNETES_PORT if boot.runs_apiserver => Ok(Door::Kubernetes(vmid, node.life)),
            _ => Err(Closed::Refused),
        }
    }

    /// Whether what answered is still there.
    pub(crate) fn is_open(&self, door: Door) -> bool {
        match door {
            Door::Talos(vmid, apid) => self.talos.boot(vmid).is_some_and(|boot| boot.apid == Some(apid)),
            Door::Kubernetes(vmid, life) => {
                self.talos.nodes.get(&vmid).is_some_and(|node| node.life == life)
                    && self.talos.boot(vmid).is_some_and(|boot| boot.runs_apiserver)
            }
        }
    }
}
