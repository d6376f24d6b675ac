//! What the state says that a castle's machines are, and which of them castle itself is removing.
//!
//! It is held against what the hypervisor shows: a machine that is written down, is not to be seen, and was not removed by castle may well run
//! where nobody looked.

use std::collections::BTreeSet;
use std::fmt;

use castle_engine::StateError;
use castle_layers::platform;
use castle_layers::secrets::Strongroom;
use castle_proxmox::steps::Record;
use serde_json::{Value, json};

use crate::stand::Trouble;

/// A machine that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) vmid: u32,
    pub(crate) host: Option<String>,
    is_control_plane: bool,
}

impl Machine {
    fn read(node: &Value) -> Option<Self> {
        Some(Self {
            name: node["name"].as_str()?.to_owned(),
            vmid: node["vmid"].as_u64()?.try_into().ok()?,
            host: node["host"].as_str().map(str::to_owned),
            is_control_plane: node["role"] == castle_spec::Role::ControlPlane.word(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_ref().map_or(String::new(), |host| format!(" on {host}"));
        write!(f, "{} (VM {}{host})", self.name, self.vmid)
    }
}

/// Machines, as people read them.
pub(crate) fn listed<'m>(machines: impl IntoIterator<Item = &'m Machine>) -> String {
    machines.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What the state says of the machines of this life.
pub(crate) struct Recorded {
    payload: Value,
    pub(crate) machines: Vec<Machine>,
    /// Those that castle itself is removing, and where it saw them.
    going: (String, BTreeSet<u32>),
}

impl Recorded {
    /// What is written down of this life; nothing if nothing is, or nobody here has a key to it.
    pub(crate) async fn read(room: &Strongroom) -> Result<Option<Self>, StateError> {
        let Some(state) = &room.state else { return Ok(None) };
        let record = state.lock().await.latest(&platform::layer()).await?;
        let Some(payload) = record.map(|record| record.payload) else { return Ok(None) };
        if payload["generation"] != room.generation {
            return Ok(None);
        }
        let machines = payload["nodes"].as_array().into_iter().flatten().filter_map(Machine::read).collect();
        let vmids = payload["going"]["vmids"].as_array().into_iter().flatten();
        let vmids = vmids.filter_map(|vmid| vmid.as_u64()?.try_into().ok()).collect();
        let going = (payload["going"]["seen"].as_str().unwrap_or_default().to_owned(), vmids);
        Ok(Some(Self { payload, machines, going }))
    }

    /// The numbers of the machines.
    pub(crate) fn record(&self) -> Record {
        Record { vmids: self.machines.iter().map(|machine| machine.vmid).collect() }
    }

    /// Whether castle has begun to remove a machine that it saw here.
    fn is_going(&self, machine: &Machine, whereabouts: &str) -> bool {
        self.going.0 == whereabouts && self.going.1.contains(&machine.vmid)
    }

    /// The machines that are not among those that are seen here, and that castle did not remove itself.
    pub(crate) fn missing(&self, seen: &BTreeSet<u32>, whereabouts: &str) -> Vec<Machine> {
        let is_missing = |machine: &&Machine| !seen.contains(&machine.vmid) && !self.is_going(machine, whereabouts);
        self.machines.iter().filter(is_missing).cloned().collect()
    }

    /// The control planes, in the order they were written down.
    pub(crate) fn control_planes(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| machine.is_control_plane)
    }

    /// Writes down that castle removes these, which it sees here: should it be cut off, they are known to be gone by its own hand.
    pub(crate) async fn note_going(
        &self,
        room: &Strongroom,
        vmids: impl IntoIterator<Item = u32>,
        whereabouts: &str,
        epoch: u64,
    ) -> Result<(), Trouble> {
        let Some(state) = &room.state else { return Ok(()) };
        let known = self.machines.iter().map(|machine| machine.vmid).collect::<BTreeSet<u32>>();
        let mut going: BTreeSet<u32> = vmids.into_iter().filter(|vmid| known.contains(vmid)).collect();
        if self.going.0 == whereabouts {
            going.extend(&self.going.1);
        }
        if going.is_empty() || (self.going.0 == whereabouts && going == self.going.1) {
            return Ok(());
        }
        let mut payload = self.payload.clone();
        payload["going"] = json!({"seen": whereabouts, "vmids": going});
        let written = state.lock().await.write(&platform::layer(), payload, epoch).await;
        written.map(|_| ()).map_err(|error| Trouble::Failed(error.to_string()))
    }
}
