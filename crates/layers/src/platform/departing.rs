//! Nodes that the file does not name any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, GraphBuilder, Handle, Place, StepId};
use castle_kubernetes::client::Api;
use castle_kubernetes::steps::{Drain, Drained, Empty, Left, Missed, Ready};
use castle_proxmox::model::{ErrorClass, Guest, Mark, Owner, Role};
use castle_proxmox::steps::{Ground, Reach, unprotect};
use castle_spec::Node;
use castle_talos::steps::Quorum;

use super::waits_for_nodes;
use super::{Design, Doomed, Whose, id, raze};
use crate::site::Site;
use crate::storage::{Departure, REBUILDING};
use crate::survey::Survey;

/// Machines with the castle's tags that its file does not name. A copy is none, and what castle had only begun to make has joined nothing.
fn unnamed<'a>(
    ground: &Ground,
    site: &Site,
    survey: &'a Survey,
    nodes: &'a [Node],
) -> impl Iterator<Item = (u32, &'a Guest)> {
    let tags = Mark::tags_of(&ground.castle);
    // An image that is not finished yet looks like any other guest.
    let images: BTreeSet<u32> = site.image_vmids().collect();
    let rows = survey.guests.range(ground.vmids.clone()).map(|(vmid, row)| (*vmid, row));
    rows.filter(move |(vmid, row)| {
        let is_named = nodes.iter().any(|node| node.vmid.0 == *vmid) || images.contains(vmid);
        let is_own = row.tags.is_superset(&tags) && !row.looks_copied();
        !is_named && row.is_template() != Some(true) && row.is_machine && is_own
    })
}

/// Guests of this life of the castle that its file does not name any more. Only these are read: mostly there are none.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn leaving(ground: &Ground, site: &Site, survey: &Survey, nodes: &[Node]) -> Result<Vec<Doomed>, Fault> {
    let mut leaving = Vec::new();
    for (vmid, row) in unnamed(ground, site, survey, nodes) {
        let config = match ground.client.config(&row.host, vmid).await {
            // Its host is away: there is time.
            Err(refusal) if matches!(refusal.class, ErrorClass::Unreached | ErrorClass::Unknown) => continue,
            config => config?,
        };
        let Some(config) = config.filter(|config| !config.is_template()) else { continue };
        if let Owner::Ours(mark) = ground.owner(vmid, &config).await? {
            let (host, whose, is_protected) = (row.host.clone(), Whose::Ours, config.is_protected());
            leaving.push(Doomed { vmid, name: mark.name, host, is_template: false, is_protected, whose });
        }
    }
    Ok(leaving)
}

/// Control planes of this life of the castle that its file does not name any more, by their marks. Whoever is `strict` is not content with a host that does
/// not answer.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn unnamed_control_planes(
    ground: &Ground,
    site: &Site,
    survey: &Survey,
    nodes: &[Node],
    strict: bool,
) -> Result<BTreeMap<u32, String>, Fault> {
    let mut found = BTreeMap::new();
    for (vmid, row) in unnamed(ground, site, survey, nodes) {
        let config = match ground.client.config(&row.host, vmid).await {
            Err(_) if !strict => continue,
            config => config?,
        };
        let Some(config) = config.filter(|config| !config.is_template()) else { continue };
        if let Owner::Ours(mark) = ground.owner(vmid, &config).await?
            && mark.role == Role::ControlPlane
        {
            found.insert(vmid, mark.name);
        }
    }
    Ok(found)
}

/// Adds the steps that let go of nodes which the file does not name any more, one after the other: sent away, its machine removed, forgotten,
/// and the copies of volumes that it had made up for before the next one goes; before the first goes, those of whoever went earlier. Those that have departed without their machines are forgotten.
pub fn shrink(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    design: Design<'_>,
    (leaving, departed): (&[Doomed], Vec<String>),
    (api, begun): (&Handle<Api>, &Handle<Quorum>),
    is_looking: bool,
) {
    let castle = design.castle.castle.as_str();
    let named = || design.nodes.iter().map(|node| node.name.value.clone());
    let is_absent = |node: &&Node| !design.survey.guests.contains_key(&node.vmid.0);
    let blank = design.nodes.iter().filter(is_absent).map(|node| node.name.value.clone());
    let departure = Departure::of(leaving.iter().map(|guest| guest.name.clone()), named()).with_blank(blank);
    let mut missed: Vec<StepId> = Vec::new();
    for name in &departed {
        missed.push(id("missed", name));
        graph.gate(id("missed", name), Place::default(), (api.clone(),), Missed::new(name));
    }
    let mut turns: Vec<(&Doomed, Option<Fault>)> =
        leaving.iter().map(|guest| (guest, objection(castle, guest, design.nodes))).collect();
    // Where one has to stay, none is sent away.
    turns.sort_by_key(|(_, objection)| objection.is_none());
    let mut earlier: Vec<StepId> = Vec::new();
    // Those that have gone in an earlier run have to be made up for, too. A plan tells what is to be done, also where it has to wait.
    if !is_looking && turns.iter().any(|(_, objection)| objection.is_none()) {
        let all = Departure::of_none(named().chain(leaving.iter().map(|guest| guest.name.clone())));
        let whole = id("volumes", "whole");
        let gate = Ready::<Quorum>::new(all.is_made_up_for(), REBUILDING);
        graph.gate(whole.clone(), Place::default(), (api.clone(), begun.clone()), gate);
        earlier.push(whole);
    }
    for (guest, objection) in turns {
        let (name, stays) = (&guest.name, objection.is_some());
        // Nothing is sent away from a machine that has to stay; and what is so now has to be so when it goes.
        let drain = Drain::new(castle, name, objection).provided(departure.loses_nothing());
        let step = id("drain", name);
        let drained = graph.step(step.clone(), Place::default(), (api.clone(),), drain);
        if !stays {
            earlier.drain(..).for_each(|earlier| graph.after(step.clone(), earlier));
        }
        // Nobody goes while it is not known who has gone already.
        missed.iter().for_each(|missed| graph.after(step.clone(), missed.clone()));
        // Whoever comes is there before someone goes.
        if waits_for_nodes(design.castle) {
            graph.after(step.clone(), id("nodes", "ready"));
        }
        let copied = Ready::<Drained>::new(departure.loses_nothing(), Departure::COPYING);
        graph.gate(id("copies", name), Place::default(), (api.clone(), drained.clone()), copied);
        let place = Place { lane: None, predicted: Duration::from_secs(30) };
        let empty = Empty::new(name).for_good().provided(departure.loses_nothing());
        graph.gate(id("empty", name), place, (api.clone(), drained), empty);
        // Longhorn keeps its own Pod on the machine then, but does not say why.
        graph.after(id("empty", name), id("copies", name));
        let forget = Left::new(castle, [], vec![name.clone()]).only_these();
        let forgotten = graph.step(id("forget", name), Place::default(), (api.clone(),), forget);
        for removed in raze(graph, ground, design.site, std::slice::from_ref(guest), Reach::Marked, &[]) {
            graph.after(removed.clone(), id("empty", name));
            graph.after(id("forget", name), removed);
        }
        let rebuilt = Ready::<()>::new(departure.is_made_up_for(), REBUILDING);
        graph.gate(id("rebuilt", name), Place::default(), (api.clone(), forgotten), rebuilt);
        earlier.push(if stays { step } else { id("rebuilt", name) });
    }
    earlier.extend(missed);
    let left = id("nodes", "left");
    let step = Left::new(castle, named(), departed);
    // A machine that nobody could look at may still be one that was sent away.
    let is_known = |vmid: &u32| leaving.iter().any(|guest| guest.vmid == *vmid);
    let is_all_known = unnamed(ground, design.site, design.survey, design.nodes).all(|(vmid, _)| is_known(&vmid));
    let step = if is_all_known { step } else { step.only_these() };
    graph.step(left.clone(), Place::default(), (api.clone(),), step);
    earlier.into_iter().for_each(|earlier| graph.after(left.clone(), earlier));
}

/// Why a guest that the file does not name is not just removed.
fn objection(castle: &str, guest: &Doomed, nodes: &[Node]) -> Option<Fault> {
    let Doomed { vmid, name, .. } = guest;
    let subject = format!("VM {vmid} ({name})");
    if let Some(node) = nodes.iter().find(|node| node.name.value == *name) {
        let evidence = format!("is the castle's {name}, and the file gives that name the number {}", node.vmid.0);
        let fault = Fault::guard(subject, evidence);
        return Some(fault.next(format!("give it its number {vmid} and its address again; castle moves no node")));
    }
    if guest.is_protected {
        return Some(Fault::guard(subject, "is protected from removal").next(unprotect(*vmid)));
    }
    name.starts_with(&format!("{castle}-cp-")).then(|| {
        let fault = Fault::guard(subject, "is a control plane, and castle takes none away yet");
        fault.next("put it back into castle.yaml")
    })
}
