//! What is held of a castle that stands, before anything of it is changed: that its machines are seen, and that no more than one of
//! them would restart.

use std::collections::{BTreeMap, BTreeSet};

use castle_engine::{Fault, Impact, Outcome, Report};
use castle_layers::platform;
use castle_layers::secrets::Strongroom;
use castle_layers::{Survey, beginning};
use castle_proxmox::model::Mark;
use castle_proxmox::steps::Ground;
use castle_spec::{Node, Role};
use serde_json::Value;

use crate::stand::{Stand, Trouble};

/// The steps that may restart a node.
const RESTARTING: [&str; 2] = ["vm", "config"];

/// Why a castle that stands by its record is not raised: none of its machines is seen, or none of its control planes. What is made
/// instead would be a second castle beside the first.
pub(crate) async fn vanished(
    stand: &Stand,
    room: &Strongroom,
    ground: &Ground,
    survey: &Survey,
) -> Result<Option<Fault>, Trouble> {
    let (kept, nodes) = (&stand.kept, &stand.kept.nodes);
    let tags = Mark::tags_of(&ground.castle);
    let is_image = |vmid: u32| stand.site.image_vmids().any(|image| image == vmid);
    let is_machine_there =
        survey.guests.values().any(|row| row.is_machine && !is_image(row.vmid) && row.tags.is_superset(&tags));
    let expected = expected(room).await?;
    if !is_machine_there && !expected.is_empty() {
        let evidence = format!(
            "stands by its state, and none of its machines is to be seen: {}; looked at {}",
            expected.join(", "),
            stand.client.whereabouts()
        );
        return Ok(Some(Fault::guard(kept.name(), evidence).next(
            "mend the endpoint or the token in castle.yaml (castle doctor tells what the token may see); if the machines are truly gone: castle down ends this \
             life of the castle, then castle up begins the next",
        )));
    }
    let mut control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane);
    if control_planes.any(|node| survey.guests.contains_key(&node.vmid.0)) {
        return Ok(None);
    }
    let remembered = beginning::remembered(room, ground, survey, nodes, false).await?;
    Ok(remembered.began.map(|began| {
        let names = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(|node| node.name.value.as_str());
        let names: Vec<&str> = names.collect();
        let evidence =
            format!("is lost: {began}, and none of its control planes is to be seen: {}; looked at {}", names.join(", "), stand.client.whereabouts());
        Fault::guard("etcd", evidence).next(
            "restore a control plane from a backup, under its own VMID; or begin a new life, without what was in etcd: castle down, then castle up",
        )
    }))
}

/// The machines that this life of the castle has by its state, for people.
async fn expected(room: &Strongroom) -> Result<Vec<String>, Trouble> {
    let Some(state) = &room.state else { return Ok(Vec::new()) };
    let failed = |error: castle_engine::StateError| Trouble::Failed(error.to_string());
    let record = state.lock().await.latest(&platform::layer()).await.map_err(failed)?;
    let payload = record.map(|record| record.payload).filter(|payload| payload["generation"] == room.generation);
    let nodes = payload.as_ref().and_then(|payload| payload["nodes"].as_array());
    let told = |node: &Value| {
        let host = node["host"].as_str().map_or(String::new(), |host| format!(" on {host}"));
        format!("{} (VM {}{host})", node["name"].as_str().unwrap_or_default(), node["vmid"])
    };
    Ok(nodes.into_iter().flatten().map(told).collect())
}

/// Why a change is not made that would restart more than one node of a castle that stands, or a control plane while another is away: they
/// are not restarted one after the other yet, each after all others are back.
pub(crate) fn restarts(report: &Report, all: &[Node]) -> Option<Fault> {
    let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut away: BTreeSet<&str> = BTreeSet::new();
    let is_control_plane =
        |name: &str| all.iter().any(|node| node.role == Role::ControlPlane && node.name.value == name);
    for (step, outcome) in &report.outcomes {
        let (kind, name) = (&*step.kind, &*step.name);
        // One whose member is to be forgotten is lost, whatever came of asking the others.
        if kind == "member" && !outcome.is_done() {
            away.insert(name);
        }
        let Outcome::Planned { change } = outcome else { continue };
        if change.impact == Impact::Reboot && RESTARTING.contains(&kind) {
            let fields = change.differences.iter().map(|difference| difference.field.clone());
            nodes.entry(name).or_default().extend(fields);
        }
        if kind == "power" && is_control_plane(name) {
            away.insert(name);
        }
    }
    away.retain(|name| !nodes.contains_key(name));
    if nodes.len() == 1 && !away.is_empty() && nodes.keys().any(|name| is_control_plane(name)) {
        let restarting: Vec<&str> = nodes.into_keys().collect();
        let away: Vec<&str> = away.into_iter().collect();
        let evidence = format!(
            "{} would restart while {} is away: etcd could lose its quorum",
            restarting.join(", "),
            away.join(", ")
        );
        let next = "take the change back, let castle up bring back what is away, and then make the change";
        return Some(Fault::guard("castle.yaml", evidence).next(next));
    }
    if nodes.len() < 2 {
        return None;
    }
    let told = nodes.iter().map(|(name, fields)| format!("{name} ({})", fields.join(", ")));
    let evidence = format!(
        "{} nodes would restart, and castle restarts no more than one in a run so far: {}",
        nodes.len(),
        told.collect::<Vec<_>>().join(", ")
    );
    Some(
        Fault::guard("castle.yaml", evidence).next(
            "change one node at a time, in nodes.overrides, and run castle up after each; or take the change back",
        ),
    )
}
