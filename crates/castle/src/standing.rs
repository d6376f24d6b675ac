//! What is held of a castle that stands, before anything of it is changed: that its machines are seen.

use std::collections::BTreeSet;

use castle_engine::{Fault, lineage};
use castle_layers::platform::{self, Doomed, Whose};
use castle_layers::secrets::Strongroom;
use castle_layers::{Survey, beginning};
use castle_proxmox::model::Mark;
use castle_proxmox::steps::Ground;
use castle_spec::Role;

use crate::recorded::{self, Machine, Recorded};
use crate::stand::{Stand, Trouble};

/// Why a castle that stands by its record is not raised: none of its machines is seen, or none of its control planes. What is made
/// instead would be a second castle beside the first.
pub(crate) async fn vanished(
    stand: &Stand,
    room: &Strongroom,
    ground: &Ground,
    survey: &Survey,
) -> Result<Option<Fault>, Trouble> {
    let (kept, nodes) = (&stand.kept, &stand.kept.nodes);
    if let Some(fault) = astray(stand, ground, survey).await? {
        return Ok(Some(fault));
    }
    let tags = Mark::tags_of(&ground.castle);
    let is_image = |vmid: u32| stand.site.image_vmids().any(|image| image == vmid);
    let ours = || survey.guests.values().filter(|row| row.is_machine && row.tags.is_superset(&tags));
    let recorded = Recorded::read(room).await.map_err(|error| Trouble::Failed(kept.told(&error)))?;
    let is_written_down = recorded.as_ref().is_some_and(|recorded| !recorded.machines.is_empty());
    if let (Some(recorded), true) = (&recorded, is_written_down && !ours().any(|row| !is_image(row.vmid))) {
        return Ok(Some(nothing_there(stand, recorded)));
    }
    if let Some(fault) = recorded.as_ref().and_then(|recorded| without_quorum(stand, recorded, survey)) {
        return Ok(Some(fault));
    }
    let mut control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane);
    if control_planes.any(|node| survey.guests.contains_key(&node.vmid.0)) {
        return Ok(None);
    }
    // Those of which the file does not know any more may well have all that is in etcd.
    let prefix = format!("{}-cp-", kept.castle.castle.as_str());
    let others = ours().filter(|row| row.name.as_ref().is_some_and(|name| name.starts_with(&prefix)));
    let others: Vec<String> =
        others.map(|row| format!("VM {} ({})", row.vmid, row.name.as_deref().unwrap_or_default())).collect();
    if !others.is_empty() {
        let evidence = format!(
            "none of the control planes of the file is to be seen, and others are there: {}",
            others.join(", ")
        );
        return Ok(Some(
            Fault::guard(kept.name(), evidence).next("put them back into castle.yaml (nodes.controlPlanes)"),
        ));
    }
    let remembered = beginning::remembered(room, ground, survey, nodes, false).await?;
    Ok(remembered.began.map(|began| {
        let names = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(|node| node.name.value.as_str());
        let names: Vec<&str> = names.collect();
        let evidence =
            format!("is lost: {began}, and none of its control planes is to be seen: {}; looked at {}", names.join(", "), stand.client.whereabouts());
        Fault::guard("etcd", evidence).next(format!(
            "restore a control plane from a backup, under its own VMID; or begin a new life, without what was in etcd: castle down --forget-secrets {}, \
             then castle up",
            kept.castle.castle.as_str()
        ))
    }))
}

/// Why nothing is raised where none of the machines is to be seen that the state knows.
fn nothing_there(stand: &Stand, recorded: &Recorded) -> Fault {
    let (name, whereabouts) = (stand.kept.name(), stand.client.whereabouts());
    let missing = recorded.missing(&BTreeSet::new(), whereabouts);
    let fault = |evidence: String| Fault::guard(name, evidence);
    if missing.is_empty() {
        let evidence = "is gone, and its life has not ended: castle itself has removed its machines, and was cut off";
        return fault(evidence.to_owned()).next(
            "castle down ends this life, then castle up begins the next; or, if it was a rebirth: castle rebirth",
        );
    }
    let evidence = format!(
        "stands by its state, and none of its machines is to be seen: {}; looked at {whereabouts}",
        recorded::listed(&missing)
    );
    let forget = format!("castle down --forget-secrets {}", stand.kept.castle.castle.as_str());
    fault(evidence).next(format!(
        "mend the endpoint or the token in castle.yaml (castle doctor tells what the token may see); if the machines are truly gone: {forget} ends this life \
         of the castle, then castle up begins the next"
    ))
}

/// Why nothing is made of an etcd most of whose members have lost their machines: what is left cannot decide anything, and what is made anew
/// would wait for it in vain.
fn without_quorum(stand: &Stand, recorded: &Recorded, survey: &Survey) -> Option<Fault> {
    let (there, gone): (Vec<&Machine>, Vec<&Machine>) =
        recorded.control_planes().partition(|machine| survey.guests.contains_key(&machine.vmid));
    let survivor = there.first().filter(|_| there.len() <= gone.len())?;
    let missing: Vec<String> =
        gone.iter().map(|machine| format!("{} (there is no such machine)", machine.name)).collect();
    let node = stand.kept.nodes.iter().find(|node| node.vmid.0 == survivor.vmid);
    let keep = node.map_or(String::new(), |node| {
        let address = node.address.value;
        format!("; (2) before anything else is tried, keep a copy of what {} has: talosctl --nodes {address} copy /var/lib/etcd FOLDER", survivor.name)
    });
    let forget = format!("castle down --forget-secrets {}", stand.kept.castle.castle.as_str());
    let evidence = format!("has lost its quorum; missing: {}", missing.join(", "));
    Some(Fault::guard("etcd", evidence).next(format!(
        "(1) restore those machines from a backup, under their own VMIDs, and run castle up{keep}. What begins anew ({forget}, then castle up) begins \
         without what was in it"
    )))
}

/// Why nothing is raised while machines of the castle are where its file does not have them, or are of a later life than is known.
async fn astray(stand: &Stand, ground: &Ground, survey: &Survey) -> Result<Option<Fault>, Trouble> {
    let found = platform::elsewhere(ground, &survey.guests).await?;
    let machines: Vec<&Doomed> = found.iter().filter(|guest| !guest.is_template).collect();
    let told = |guest: &&Doomed| format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
    let all = machines.iter().map(told).collect::<Vec<_>>().join(", ");
    if machines.is_empty() {
        return Ok(None);
    }
    if machines.iter().any(|guest| matches!(guest.whose, Whose::Later(_))) {
        let evidence = format!("has machines of a later life than the one that its state knows: {all}");
        return Ok(Some(Fault::guard(stand.kept.name(), evidence).next(lineage::OUTDATED)));
    }
    let (first, last) = (ground.vmids.start(), ground.vmids.end());
    let evidence = format!("has machines outside of its vmids {first}-{last}: {all}");
    Ok(Some(Fault::guard(stand.kept.name(), evidence).next(
        "give castle.yaml the vmids back that they were made with: castle moves no machine; or castle down, and then castle up",
    )))
}
