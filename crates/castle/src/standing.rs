//! What is held of a castle that stands, before anything of it is changed: that its machines are seen, and that no more than one of
//! them would restart.

use std::collections::BTreeMap;

use castle_engine::{Fault, Impact, Outcome, Report};
use castle_layers::platform;
use castle_layers::secrets::Strongroom;
use castle_layers::{Survey, beginning};
use castle_proxmox::model::Mark;
use castle_proxmox::steps::Ground;
use castle_spec::Role;
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
    let mut control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane).peekable();
    let first = control_planes.peek().is_some();
    if !first || control_planes.any(|node| survey.guests.contains_key(&node.vmid.0)) {
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

/// Why a change is not made that would restart more than one node of a castle that stands: they are not restarted one after the other yet,
/// each after the one before it is back.
pub(crate) fn restarts(report: &Report) -> Option<Fault> {
    let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (step, outcome) in &report.outcomes {
        let Outcome::Planned { change } = outcome else { continue };
        if change.impact == Impact::Reboot && RESTARTING.contains(&&*step.kind) {
            let fields = change.differences.iter().map(|difference| difference.field.clone());
            nodes.entry(&step.name).or_default().extend(fields);
        }
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
