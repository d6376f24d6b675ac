//! What the state says that a castle's machines are, and which of them castle itself is making or removing.
//!
//! It is held against what the hypervisor shows: a machine that is written down, is not to be seen, and is not proved to be gone may well run
//! where nobody looked.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use castle_engine::{CastleId, StateError};
use castle_layers::platform;
use castle_layers::secrets::Strongroom;
use castle_proxmox::client::Client;
use castle_proxmox::model::{ErrorClass, Guest, Mark, Refusal};
use castle_proxmox::steps::{Ground, Guests, hardware_addresses};
use castle_spec::Node;
use serde_json::{Value, json};

use crate::stand::Trouble;

/// How Proxmox refuses to show a guest that is there.
const UNSEEN: [ErrorClass; 3] = [ErrorClass::Forbidden, ErrorClass::Unreached, ErrorClass::Unknown];

/// A machine that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) vmid: u32,
    pub(crate) host: Option<String>,
    /// Its address; nothing where an earlier castle did not write it down.
    pub(crate) address: Option<IpAddr>,
    /// Its hardware address; nothing where an earlier castle did not write it down.
    mac: Option<String>,
    is_control_plane: bool,
}

/// What Proxmox shows where a machine was made.
enum Sighting<'g> {
    /// A guest with this castle's tags.
    Marked,
    /// The machine itself, by its hardware address or its name: it has lost its mark.
    Unmarked(&'g Guest),
    /// Another guest has its number, or nobody has it: it is gone.
    Gone,
    /// Nobody knows: it may not be looked at, or somebody is at it just now.
    Unknown,
}

impl Machine {
    pub(crate) fn is_control_plane(&self) -> bool {
        self.is_control_plane
    }

    /// Looks for it. The name in the list may be that of a guest which had this number before, so the guest itself is read; and it may have been
    /// renamed since, so its hardware address counts, too.
    async fn sighting<'g>(
        &self,
        client: &Client,
        castle: &CastleId,
        guests: &'g Guests,
    ) -> Result<Sighting<'g>, Refusal> {
        let Some(row) = guests.get(&self.vmid) else {
            return Ok(if client.is_free(self.vmid).await? { Sighting::Gone } else { Sighting::Unknown });
        };
        if !row.is_machine {
            return Ok(Sighting::Gone);
        }
        if row.tags.is_superset(&Mark::tags_of(castle)) {
            return Ok(Sighting::Marked);
        }
        let config = match client.config(&row.host, self.vmid).await {
            Ok(Some(config)) if !config.is_placeholder() => config,
            Ok(_) => return Ok(Sighting::Unknown),
            Err(refusal) if UNSEEN.contains(&refusal.class) => return Ok(Sighting::Unknown),
            Err(refusal) => return Err(refusal),
        };
        let has_name = config.get("name") == Some(self.name.as_str());
        let Some(mac) = &self.mac else {
            return Ok(if has_name { Sighting::Unmarked(row) } else { Sighting::Unknown });
        };
        let has_address = hardware_addresses(&config).contains(&mac.to_lowercase());
        Ok(if has_name || has_address { Sighting::Unmarked(row) } else { Sighting::Gone })
    }

    /// The guest that is the machine itself, which has lost its mark.
    pub(crate) async fn unmarked<'g>(
        &self,
        client: &Client,
        castle: &CastleId,
        guests: &'g Guests,
    ) -> Result<Option<&'g Guest>, Refusal> {
        Ok(match self.sighting(client, castle, guests).await? {
            Sighting::Unmarked(row) => Some(row),
            _ => None,
        })
    }

    /// Whether Proxmox, asked where the castle stands, proves that it is gone: its number is free, or another guest has it.
    pub(crate) async fn is_gone(&self, ground: &Ground, guests: &Guests) -> Result<bool, Refusal> {
        Ok(matches!(self.sighting(&ground.client, &ground.castle, guests).await?, Sighting::Gone))
    }

    fn read(node: &Value) -> Option<Self> {
        Some(Self {
            name: node["name"].as_str()?.to_owned(),
            vmid: node["vmid"].as_u64()?.try_into().ok()?,
            host: node["host"].as_str().map(str::to_owned),
            address: node["address"].as_str().and_then(|address| address.parse().ok()),
            mac: node["mac"].as_str().map(str::to_owned),
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
    /// Those that have stood.
    pub(crate) machines: Vec<Machine>,
    /// Those that castle was about to make, each with where. Whether it did, a run that was cut off does not tell.
    making: Vec<(String, Machine)>,
    /// Those that castle itself is removing, and where it saw them.
    going: (String, BTreeSet<u32>),
    /// Where castle itself has removed all control planes of this life, if it has.
    razed: String,
}

/// The machines of a list, as they are written down.
fn listed_in(nodes: &Value) -> Vec<Machine> {
    nodes.as_array().into_iter().flatten().filter_map(Machine::read).collect()
}

/// The machines of one list, and those of another that are not in it.
fn joined(nodes: &Value, others: &Value) -> Value {
    let all = nodes.as_array().into_iter().flatten().chain(besides(nodes, others));
    Value::Array(all.cloned().collect())
}

/// Those of another list that are not in this one.
fn besides<'o>(nodes: &Value, others: &'o Value) -> Vec<&'o Value> {
    let known: BTreeSet<u32> = listed_in(nodes).into_iter().map(|machine| machine.vmid).collect();
    let is_new = |node: &&Value| Machine::read(node).is_some_and(|machine| !known.contains(&machine.vmid));
    others.as_array().into_iter().flatten().filter(is_new).collect()
}

fn seen_at(payload: &Value, what: &str) -> String {
    payload[what]["seen"].as_str().unwrap_or_default().to_owned()
}

/// The machines that castle was about to make, each with where: what is left of an earlier run may have been made elsewhere than the rest.
fn making_in(payload: &Value) -> Vec<(String, Machine)> {
    let seen = seen_at(payload, "making");
    let nodes = payload["making"]["nodes"].as_array().into_iter().flatten();
    let made = |node: &Value| Some((node["seen"].as_str().unwrap_or(&seen).to_owned(), Machine::read(node)?));
    nodes.filter_map(made).collect()
}

impl Recorded {
    /// What is written down of this life; nothing if nothing is, or nobody here has a key to it.
    pub(crate) async fn read(room: &Strongroom) -> Result<Option<Self>, StateError> {
        let Some(state) = &room.state else { return Ok(None) };
        let record = state.lock().await.latest(&platform::layer()).await?;
        Ok(record.and_then(|record| Self::of(record.payload, room.generation)))
    }

    /// What the record of the platform says of a life. Its version is that of the record around it.
    pub(crate) fn of(payload: Value, generation: u64) -> Option<Self> {
        if payload["generation"] != generation {
            return None;
        }
        let vmids = payload["going"]["vmids"].as_array().into_iter().flatten();
        let vmids = vmids.filter_map(|vmid| vmid.as_u64()?.try_into().ok()).collect();
        let (machines, making) = (listed_in(&payload["nodes"]), making_in(&payload));
        let (going, razed) = ((seen_at(&payload, "going"), vmids), seen_at(&payload, "razed"));
        Some(Self { machines, making, going, razed, payload })
    }

    /// The record of a life with these machines, as [`crate::stand::Stand::nodes`] lists them.
    pub(crate) fn payload(generation: u64, nodes: &Value) -> Value {
        json!({"generation": generation, "nodes": nodes})
    }

    /// All machines that are there, or may be.
    fn all(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().chain(self.making.iter().map(|(_, machine)| machine))
    }

    /// The numbers of the machines.
    pub(crate) fn vmids(&self) -> impl Iterator<Item = u32> {
        self.all().map(|machine| machine.vmid)
    }

    /// The hosts that the machines were made on, as far as anybody wrote that down.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        self.all().filter_map(|machine| machine.host.clone())
    }

    /// The control planes that have stood, in the order they were written down.
    pub(crate) fn control_planes(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| machine.is_control_plane)
    }

    /// The machines that may be there though they are not among those that are seen.
    ///
    /// What castle was about to make or to remove is not there if Proxmox, asked where castle did that, has no such number at all: that a token
    /// shows none proves nothing.
    pub(crate) async fn missing(&self, client: &Client, seen: &BTreeSet<u32>) -> Result<Vec<Machine>, Refusal> {
        let whereabouts = client.whereabouts();
        let is_going = |machine: &Machine| self.going.0 == whereabouts && self.going.1.contains(&machine.vmid);
        let stood = self.machines.iter().map(|machine| (machine, is_going(machine)));
        let made = self.making.iter().map(|(seen, machine)| (machine, seen == whereabouts));
        let mut missing = Vec::new();
        for (machine, may_be_free) in stood.chain(made).filter(|(machine, _)| !seen.contains(&machine.vmid)) {
            if !(may_be_free && client.is_free(machine.vmid).await?) {
                missing.push(machine.clone());
            }
        }
        Ok(missing)
    }

    /// Writes down that castle makes these machines here, unless that is known: should it be cut off, whoever does not see them knows of them.
    pub(crate) async fn note_making(
        room: &Strongroom,
        nodes: &Value,
        whereabouts: &str,
        epoch: u64,
    ) -> Result<(), Trouble> {
        let recorded = Self::read(room).await.map_err(|error| Trouble::Failed(error.to_string()))?;
        let known = recorded.map_or_else(|| Self::payload(room.generation, &json!([])), |known| known.payload);
        match Self::making(&known, nodes, whereabouts) {
            Some(payload) => write(room, payload, epoch).await,
            None => Ok(()),
        }
    }

    /// What a record says once castle makes these machines here; nothing if it says so already. Those that an earlier run was about to make stay, each
    /// with where that was: the file may not name them any more, and they may be there.
    fn making(known: &Value, nodes: &Value, whereabouts: &str) -> Option<Value> {
        let new: Vec<&Value> = besides(&known["nodes"], nodes);
        if new.is_empty() {
            return None;
        }
        let seen = seen_at(known, "making");
        let mut all = json!(new);
        for open in besides(&json!(new), &known["making"]["nodes"]) {
            let mut open = open.clone();
            if open["seen"].is_null() && seen != whereabouts {
                open["seen"] = json!(seen);
            }
            all = joined(&all, &json!([open]));
        }
        let mut payload = known.clone();
        payload["making"] = json!({"seen": whereabouts, "nodes": all});
        (payload != *known).then_some(payload)
    }

    /// Writes down that these machines are there, beside those that were known to be: that one is not seen does not prove that it is gone. What castle
    /// was about to make besides, and may have, is still to be looked for.
    pub(crate) async fn note_standing(room: &Strongroom, nodes: &Value, epoch: u64) -> Result<(), Trouble> {
        let recorded = Self::read(room).await.map_err(|error| Trouble::of(&error))?;
        let mut payload = Self::payload(room.generation, nodes);
        if let Some(Self { payload: known, .. }) = &recorded {
            payload["nodes"] = joined(nodes, &known["nodes"]);
            let open = besides(nodes, &known["making"]["nodes"]);
            if !open.is_empty() {
                payload["making"] = json!({"seen": known["making"]["seen"], "nodes": open});
            }
            if !known["going"].is_null() {
                payload["going"] = known["going"].clone();
            }
        }
        if recorded.is_some_and(|known| known.payload == payload) {
            return Ok(());
        }
        write(room, payload, epoch).await
    }

    /// What is written down of a castle that stands with these machines: they, and those that it had besides, unless they are proved to be gone.
    /// Where Proxmox does not say, nothing is proved.
    pub(crate) async fn standing(&self, ground: &Ground, generation: u64, nodes: &Value) -> Value {
        let mut all = nodes.clone();
        let known: Vec<Value> = [&self.payload["nodes"], &self.payload["making"]["nodes"]]
            .into_iter()
            .flat_map(|known| besides(nodes, known).into_iter().cloned())
            .collect();
        if !known.is_empty() {
            let guests = ground.guests(ground.client.clock().monotonic()).await;
            for node in &known {
                let Some(machine) = Machine::read(node) else { continue };
                let is_gone = match &guests {
                    Ok(guests) => machine.is_gone(ground, guests).await.unwrap_or(false),
                    Err(_) => false,
                };
                if !is_gone {
                    all = joined(&all, &json!([node]));
                }
            }
        }
        Self::payload(generation, &all)
    }

    /// The workers that the castle had, that none of these nodes is, and that are proved to be gone.
    pub(crate) async fn departed(
        &self,
        ground: &Ground,
        guests: &Guests,
        nodes: &[Node],
    ) -> Result<Vec<String>, Refusal> {
        let is_wanted =
            |machine: &Machine| nodes.iter().any(|node| node.vmid.0 == machine.vmid || node.name.value == machine.name);
        let mut departed = Vec::new();
        for machine in self.machines.iter().filter(|machine| !machine.is_control_plane && !is_wanted(machine)) {
            if machine.is_gone(ground, guests).await? {
                departed.push(machine.name.clone());
            }
        }
        Ok(departed)
    }

    /// The control planes that nobody will ask what they have: these nodes do not name them and they are not proved to be gone, or they are not to be seen and
    /// were made elsewhere than where somebody looks.
    pub(crate) async fn out_of_reach(
        &self,
        ground: &Ground,
        guests: &Guests,
        nodes: &[Node],
    ) -> Result<Vec<&Machine>, Refusal> {
        let tags = Mark::tags_of(&ground.castle);
        let is_seen = |machine: &Machine| guests.get(&machine.vmid).is_some_and(|row| row.tags.is_superset(&tags));
        let whereabouts = ground.client.whereabouts();
        let sees_any = self.all().any(is_seen);
        let makes_here = seen_at(&self.payload, "making") == whereabouts;
        let stood = self.machines.iter().map(|machine| (machine, sees_any || makes_here));
        let made = self.making.iter().map(|(seen, machine)| (machine, sees_any || seen == whereabouts));
        let is_named =
            |machine: &Machine| nodes.iter().any(|node| node.vmid.0 == machine.vmid && node.name.value == machine.name);
        let mut found = Vec::new();
        for (machine, is_here) in stood.chain(made).filter(|(machine, _)| machine.is_control_plane) {
            // One of the file is asked, or made here first.
            let is_fine = match is_named(machine) {
                true => is_here || guests.contains_key(&machine.vmid),
                false => is_here && machine.is_gone(ground, guests).await?,
            };
            if !is_fine {
                found.push(machine);
            }
        }
        Ok(found)
    }

    /// Whether castle itself is removing this one, or has.
    pub(crate) fn is_going(&self, machine: &Machine) -> bool {
        self.going.1.contains(&machine.vmid)
    }

    /// An older record with all that the newest one of the same life knows besides: what was written down since may still be there.
    pub(crate) fn restored(older: &Value, newest: Option<&Value>) -> Value {
        let Some(newest) =
            newest.filter(|newest| newest["generation"].is_u64() && newest["generation"] == older["generation"])
        else {
            return older.clone();
        };
        let mut payload = newest.clone();
        payload["nodes"] = joined(&older["nodes"], &newest["nodes"]);
        payload
    }

    /// Whether a record of the platform knows machines of this life.
    pub(crate) fn knows_machines(payload: &Value, generation: u64) -> bool {
        Self::of(payload.clone(), generation).is_some_and(|recorded| recorded.all().next().is_some())
    }

    /// Writes down that castle removes these, which it sees here: should it be cut off, they are known to be gone by its own hand.
    pub(crate) async fn note_going(
        &self,
        room: &Strongroom,
        vmids: impl IntoIterator<Item = u32>,
        whereabouts: &str,
        epoch: u64,
    ) -> Result<(), Trouble> {
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
        write(room, payload, epoch).await
    }

    /// Writes down no more that these machines have stood.
    pub(crate) async fn forget(&self, room: &Strongroom, vmids: &BTreeSet<u32>, epoch: u64) -> Result<(), Trouble> {
        if vmids.is_empty() {
            return Ok(());
        }
        let stays = |node: &&Value| Machine::read(node).is_none_or(|machine| !vmids.contains(&machine.vmid));
        let nodes: Vec<&Value> = self.payload["nodes"].as_array().into_iter().flatten().filter(stays).collect();
        let mut payload = self.payload.clone();
        payload["nodes"] = json!(nodes);
        write(room, payload, epoch).await
    }

    /// Whether castle itself has removed all control planes of this life here, and none has stood since: nobody is left that has its etcd.
    pub(crate) fn is_razed(&self, whereabouts: &str) -> bool {
        self.razed == whereabouts && self.control_planes().next().is_none()
    }

    /// Forgets the machines that castle has removed here: all but these. Which of them it is removing elsewhere stays known. Returns whether castle itself has
    /// removed all control planes of this life: one of which no control plane is known may have its etcd anywhere.
    pub(crate) async fn keep_only(
        &self,
        room: &Strongroom,
        left: &BTreeSet<u32>,
        whereabouts: &str,
        epoch: u64,
    ) -> Result<bool, Trouble> {
        let is_left = |node: &&Value| Machine::read(node).is_some_and(|machine| left.contains(&machine.vmid));
        let nodes = [&self.payload["nodes"], &self.payload["making"]["nodes"]];
        let nodes: Vec<&Value> = nodes.into_iter().filter_map(Value::as_array).flatten().filter(is_left).collect();
        let mut payload = json!({"generation": room.generation, "nodes": nodes});
        let going: BTreeSet<&u32> = self.going.1.intersection(left).collect();
        if !going.is_empty() {
            payload["going"] = json!({"seen": self.going.0, "vmids": going});
        }
        let control_planes: Vec<&Machine> = self.all().filter(|machine| machine.is_control_plane).collect();
        let is_razed = match control_planes.as_slice() {
            [] => self.is_razed(whereabouts),
            all => !all.iter().any(|machine| left.contains(&machine.vmid)),
        };
        if is_razed {
            payload["razed"] = json!({"seen": whereabouts});
        }
        if payload != self.payload {
            write(room, payload, epoch).await?;
        }
        Ok(is_razed)
    }
}

async fn write(room: &Strongroom, payload: Value, epoch: u64) -> Result<(), Trouble> {
    let Some(state) = &room.state else { return Ok(()) };
    let written = state.lock().await.write(&platform::layer(), payload, epoch).await;
    written.map(|_| ()).map_err(|error| Trouble::of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is sealed in the state; `host` is missing where an earlier castle did not know it.
    const RECORDED: &str = r#"{"generation":2,"nodes":[{"name":"blue-cp-1","role":"control-plane","vmid":421,"host":"pve","address":"10.0.1.1","mac":"02:00:00:00:00:01"},{"name":"blue-worker-1","role":"worker","vmid":428}],"going":{"seen":"https://pve:8006","vmids":[428]}}"#;
    /// The same while castle makes machines, and once it has removed all control planes.
    const MAKING: &str = r#"{"generation":2,"nodes":[],"making":{"seen":"pve:8006 as castle@pve!castle","nodes":[{"name":"blue-cp-1","role":"control-plane","vmid":421,"host":"pve","address":"10.0.1.1","mac":"02:00:00:00:00:01"}]}}"#;
    const RAZED: &str = r#"{"generation":2,"nodes":[{"name":"blue-worker-1","role":"worker","vmid":428}],"razed":{"seen":"pve:8006 as castle@pve!castle"}}"#;

    #[test]
    fn the_recorded_machines_are_read() {
        let read = |generation| Recorded::of(serde_json::from_str(RECORDED).unwrap(), generation);
        assert!(read(1).is_none() && read(3).is_none(), "each life has a record of its own");
        let recorded = read(2).unwrap();
        assert_eq!(listed(&recorded.machines), "blue-cp-1 (VM 421 on pve), blue-worker-1 (VM 428)");
        assert_eq!(listed(recorded.control_planes()), "blue-cp-1 (VM 421 on pve)");
        assert_eq!(recorded.vmids().collect::<Vec<_>>(), [421, 428]);
        assert_eq!(recorded.going, ("https://pve:8006".to_owned(), [428].into()));
        assert_eq!(recorded.making, Vec::new());
    }

    fn of(recorded: &str) -> Recorded {
        Recorded::of(serde_json::from_str(recorded).unwrap(), 2).unwrap()
    }

    #[test]
    fn the_recorded_addresses_are_read() {
        let addresses: Vec<_> = of(RECORDED).machines.iter().map(|machine| machine.address).collect();
        assert_eq!(addresses, ["10.0.1.1".parse().ok(), None]);
    }

    #[test]
    fn the_recorded_machines_that_castle_makes_are_read() {
        let making = of(MAKING);
        assert!(making.machines.is_empty() && making.going == (String::new(), BTreeSet::new()));
        let [(seen, machine)] = making.making.as_slice() else { panic!("{:?}", making.making) };
        assert_eq!(
            (seen.as_str(), listed([machine])),
            ("pve:8006 as castle@pve!castle", "blue-cp-1 (VM 421 on pve)".to_owned())
        );
        assert!(machine.is_control_plane && machine.mac.as_deref() == Some("02:00:00:00:00:01"));
        assert_eq!(making.vmids().collect::<Vec<_>>(), [421]);
        assert!(Recorded::knows_machines(&making.payload, 2), "what may have been made is not forgotten");
    }

    #[test]
    fn the_recorded_end_of_all_control_planes_is_read() {
        let here = "pve:8006 as castle@pve!castle";
        let razed = of(RAZED);
        assert!(razed.is_razed(here) && !razed.is_razed("pve2:8006 as castle@pve!castle"));
        assert!(!of(MAKING).is_razed(here) && !of(RECORDED).is_razed(""), "there are control planes");
        // Castle may have been cut off while it made them anew; once they have stood, they are what it goes by.
        let anew = of(MAKING).payload["making"].clone();
        let mut payload = razed.payload;
        payload["making"] = anew.clone();
        assert!(Recorded::of(payload.clone(), 2).unwrap().is_razed(here));
        payload["nodes"] = anew["nodes"].clone();
        assert!(!Recorded::of(payload, 2).unwrap().is_razed(here));
    }

    /// Goal: what an earlier raise may have made leaves the record only once it is proved to be gone, and by whoever looks where it was made. Method: the file names
    /// another machine meanwhile.
    #[test]
    fn what_an_earlier_raise_may_have_made_is_not_forgotten_by_the_next() {
        let (here, elsewhere) = ("pve:8006 as castle@pve!castle", "pve2:8006 as castle@pve!castle");
        let new = json!([{"name": "blue-cp-2", "role": "control-plane", "vmid": 422}]);
        let first = of(MAKING).payload;
        let second = Recorded::of(Recorded::making(&first, &new, here).unwrap(), 2).unwrap();
        assert_eq!(second.vmids().collect::<Vec<_>>(), [422, 421]);
        assert_eq!(Recorded::making(&second.payload, &new, here), None, "known");
        let moved = Recorded::of(Recorded::making(&first, &new, elsewhere).unwrap(), 2).unwrap();
        let made: Vec<_> = moved.making.iter().map(|(seen, machine)| (seen.as_str(), machine.vmid)).collect();
        assert_eq!(made, [(elsewhere, 422), (here, 421)]);
        // Made anew, it is made where that is.
        let anew = Recorded::making(&moved.payload, &first["making"]["nodes"], elsewhere).unwrap();
        let anew = Recorded::of(anew, 2).unwrap();
        let made: Vec<_> = anew.making.iter().map(|(seen, machine)| (seen.as_str(), machine.vmid)).collect();
        assert_eq!(made, [(elsewhere, 421), (elsewhere, 422)]);
    }

    #[test]
    fn an_older_record_joins_only_what_is_of_its_own_life() {
        let record = |generation, vmids: &[u32]| {
            let nodes: Vec<Value> =
                vmids.iter().map(|vmid| json!({"name": format!("n{vmid}"), "vmid": vmid})).collect();
            Recorded::payload(generation, &json!(nodes))
        };
        let (older, newer) = (record(1, &[421]), record(1, &[421, 428]));
        assert_eq!(Recorded::restored(&older, Some(&newer)), newer, "what was made since may still be there");
        assert_eq!(Recorded::restored(&older, Some(&record(2, &[430]))), older, "each life has machines of its own");
        assert_eq!(Recorded::restored(&older, None), older);
    }

    #[test]
    fn the_record_is_written_as_it_was() {
        let written = Recorded::payload(2, &json!([{"name": "blue-cp-1", "vmid": 421}]));
        assert_eq!(written.to_string(), r#"{"generation":2,"nodes":[{"name":"blue-cp-1","vmid":421}]}"#);
    }
}
