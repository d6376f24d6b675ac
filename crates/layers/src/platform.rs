//! The platform layer: the image, the guests, and their end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, GraphBuilder, Handle, Lane, Layer, Place, StepId};
use castle_kubernetes::client::Api;
use castle_kubernetes::steps::{Drain, Drained, Empty, Left, Ready};
use castle_proxmox::model::{ErrorClass, Format, Guest, Mark, Owner};
use castle_proxmox::steps::{
    DropOldImages, FetchImage, Ground, Guests, MakeGuest, MakeImage, Reach, RemoveDownloads, RemoveGuest, RunGuest,
    Standing, Template, unprotect,
};
use castle_spec::{Castle, Node};

use crate::cluster::waits_for_nodes;
use crate::placement::Placed;
use crate::site::Site;
use crate::storage::{COPYING, copied_elsewhere};
use crate::survey::Survey;

/// How many guests are made at once on one storage: it makes them one after the other, and gives up on who waits too long.
const MAKING: usize = 4;
/// How many guests are started or stopped at once on one host.
const STARTING: usize = 8;

/// The name of the layer.
#[must_use]
pub fn layer() -> Layer {
    Layer::new("platform")
}

fn id(kind: &str, name: &str) -> StepId {
    StepId::new(&layer(), kind, name)
}

fn storage_lane(site: &Site, host: &str, is_shared: bool) -> Lane {
    let storage = &site.hardware.storage;
    let name = if is_shared { format!("storage {storage}") } else { format!("storage {storage} on {host}") };
    Lane::new(&name, MAKING)
}

fn host_lane(host: &str) -> Lane {
    Lane::new(&format!("host {host}"), STARTING)
}

/// The step that makes the machine of a node.
#[must_use]
pub fn vm_step(node: &Node) -> StepId {
    id("vm", &node.name.value)
}

/// The step that starts a node.
#[must_use]
pub fn power_step(node: &Node) -> StepId {
    id("power", &node.name.value)
}

/// What a castle is raised from.
#[derive(Clone, Copy, Debug)]
pub struct Design<'d> {
    /// The file.
    pub castle: &'d Castle,
    /// Its nodes.
    pub nodes: &'d [Node],
    /// Where each of them goes.
    pub placed: &'d [Placed],
    /// Where the castle stands.
    pub site: &'d Site,
    /// What was seen there.
    pub survey: &'d Survey,
    /// What must be done before anything is made.
    pub after: Option<&'d StepId>,
    /// What must be so before an image is downloaded, which may be done before the secrets are there.
    pub checked: Option<&'d StepId>,
}

/// Adds the steps that raise the platform; returns the promise of each node that runs.
pub fn raise(graph: &mut GraphBuilder, ground: &Arc<Ground>, design: Design<'_>) -> Vec<Handle<Standing>> {
    let Design { castle, nodes, placed, site, survey, after, checked } = design;
    let storage = site.hosts.iter().find_map(|host| survey.storage(host, &site.hardware.storage));
    let can_link = storage.is_none_or(castle_proxmox::model::Storage::can_link);
    let is_shared = storage.is_some_and(|storage| storage.is_shared);
    // Where all hosts see the disks, one image serves them all.
    let source_of =
        |host: &str| if is_shared { 0 } else { site.hosts.iter().position(|name| name == host).unwrap_or(0) };
    let absent = |node: &Node| !survey.guests.contains_key(&node.vmid.0);
    let mut templates: Vec<Option<Handle<Option<Template>>>> = vec![None; site.hosts.len()];
    let mut guests = Vec::new();
    for (index, template) in templates.iter_mut().enumerate() {
        let mut users = nodes.iter().zip(placed).filter(|(_, placed)| source_of(&placed.host) == index).peekable();
        let Some(_) = users.peek() else { continue };
        let is_needed = users.any(|(node, _)| absent(node));
        let Some(image) = site.image(index, can_link, is_needed) else { continue };
        let name = format!("{} on {}", image.name, image.host);
        let fetch = id("download", &name);
        let place = Place { lane: None, predicted: Duration::from_secs(45) };
        graph.step(fetch.clone(), place, (), FetchImage::new(ground.clone(), image.clone()));
        if let Some(earlier) = checked {
            graph.after(fetch.clone(), earlier.clone());
        }
        let place =
            Place { lane: Some(storage_lane(site, &image.host, is_shared)), predicted: Duration::from_secs(15) };
        let step = id("image", &name);
        *template = Some(graph.step(step.clone(), place, (), MakeImage::new(ground.clone(), image)));
        graph.after(step.clone(), fetch);
        if let Some(earlier) = after {
            graph.after(step, earlier.clone());
        }
    }
    for (node, placed) in nodes.iter().zip(placed) {
        let Some(template) = templates.get(source_of(&placed.host)).cloned().flatten() else { continue };
        let name = &node.name.value;
        let making = if can_link { Duration::from_secs(3) } else { Duration::from_secs(25) };
        let place = Place { lane: Some(storage_lane(site, &placed.host, is_shared)), predicted: making };
        let wanted = site.wanted(castle, node, &placed.host);
        let guest = graph.step(vm_step(node), place, (template,), MakeGuest::new(ground.clone(), wanted));
        let place = Place { lane: Some(host_lane(&placed.host)), predicted: Duration::from_secs(2) };
        guests.push(graph.step(power_step(node), place, (guest,), RunGuest::new(ground.clone(), name)));
    }
    for (index, host) in site.hosts.iter().enumerate() {
        if let (Some(image), true) = (site.image(index, can_link, false), templates[index].is_some()) {
            let step = DropOldImages::new(ground.clone(), image.slots, &image.name);
            graph.step(id("old-images", host), Place::default(), (guests.clone(),), step);
        }
    }
    guests
}

/// A guest that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its number.
    pub vmid: u32,
    /// What it is called.
    pub name: String,
    /// The host that carries it.
    pub host: String,
    /// Whether it is an image, which goes after what may be linked to it.
    pub is_template: bool,
    /// Whether somebody has protected it from removal.
    pub is_protected: bool,
    /// Whose it is.
    pub whose: Whose,
}

/// Whose a guest within the castle's range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This castle's, in this life or an earlier one.
    Ours,
    /// Another castle's.
    Others,
    /// Somebody's who copied a guest of a castle, and the mark with it: the number of that guest.
    Copied(u32),
    /// Of a castle that writes marks in another format.
    Unreadable(Format),
    /// Nobody's that castle knows.
    Unmarked,
}

/// All guests within the castle's range, each looked at.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn within(ground: &Ground) -> Result<Vec<Doomed>, Fault> {
    let guests = ground.guests(Duration::ZERO).await?;
    let mut found = Vec::new();
    for (&vmid, row) in guests.range(ground.vmids.clone()) {
        let called = row.name.clone().unwrap_or_default();
        let of = |name: String, whose, is_template| Doomed {
            vmid,
            name,
            host: row.host.clone(),
            is_template,
            is_protected: false,
            whose,
        };
        if !row.is_machine {
            found.push(of(called, Whose::Unmarked, row.shows_template));
            continue;
        }
        let config = match ground.client.config(&row.host, vmid).await {
            Ok(Some(config)) => config,
            Ok(None) => continue,
            // Its host does not answer: whose it is, the list alone tells. It is read before anything is done to it.
            Err(refusal) if matches!(refusal.class, ErrorClass::Unreached | ErrorClass::Unknown) => {
                let is_ours = row.tags.is_superset(&Mark::tags_of(&ground.castle));
                let whose = if is_ours { Whose::Ours } else { Whose::Unmarked };
                found.push(of(called, whose, row.shows_template));
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let is_template = config.is_template();
        let called = config.get("name").map_or(called, str::to_owned);
        let guest = match ground.owner(vmid, &config).await? {
            Owner::Ours(mark) | Owner::Earlier(mark) => of(mark.name, Whose::Ours, is_template),
            Owner::Other(mark) => of(format!("{called} of {}", mark.castle.name), Whose::Others, is_template),
            Owner::Copy(mark) => of(called, Whose::Copied(mark.place.vmid), is_template),
            Owner::Unreadable(format) => of(called, Whose::Unreadable(format), is_template),
            Owner::Stranger => of(called, Whose::Unmarked, is_template),
        };
        found.push(Doomed { is_protected: config.is_protected(), ..guest });
    }
    Ok(found)
}

/// Machines with the castle's tags that its file does not name.
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
        !is_named && row.is_template() != Some(true) && row.is_machine && row.tags.is_superset(&tags)
    })
}

/// Guests anywhere that somebody has copied from guests of this castle. Their tags tell of whom they are copies, so only these are read: mostly
/// there are none. Who may not be read, or whose host is away, is not told of.
pub async fn copies(ground: &Ground, guests: &Guests) -> Vec<Doomed> {
    let tags = Mark::tags_of(&ground.castle);
    let is_suspect =
        |row: &&Guest| row.is_machine && row.lock.is_none() && row.tags.is_superset(&tags) && row.looks_copied();
    let mut copies = Vec::new();
    for row in guests.values().filter(is_suspect) {
        let (vmid, host) = (row.vmid, row.host.clone());
        let Ok(Some(config)) = ground.client.config(&host, vmid).await else { continue };
        let Ok(Owner::Copy(mark)) = ground.owner(vmid, &config).await else { continue };
        if mark.castle.name == ground.castle.name && mark.castle.lineage == ground.castle.lineage {
            let name = config.get("name").unwrap_or_default().to_owned();
            let (is_template, is_protected) = (config.is_template(), config.is_protected());
            copies.push(Doomed { vmid, name, host, is_template, is_protected, whose: Whose::Copied(mark.place.vmid) });
        }
    }
    copies
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

/// Adds the steps that let go of nodes which the file does not name any more: sent away, their machines removed, forgotten.
pub fn shrink(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    design: Design<'_>,
    leaving: &[Doomed],
    api: &Handle<Api>,
) {
    let castle = design.castle.castle.as_str();
    let left = id("nodes", "left");
    for guest in leaving {
        let name = &guest.name;
        // Nothing is sent away from a machine that has to stay; and what is so now has to be so when it goes.
        let drain = Drain::new(castle, name, objection(castle, guest, design.nodes));
        let drain = drain.provided(vec![copied_elsewhere(name)]);
        let step = id("drain", name);
        let drained = graph.step(step.clone(), Place::default(), (api.clone(),), drain);
        // Whoever comes is there before someone goes.
        if waits_for_nodes(design.castle) {
            graph.after(step, id("nodes", "ready"));
        }
        let copied = Ready::<Drained>::new(vec![copied_elsewhere(name)], COPYING);
        graph.gate(id("copies", name), Place::default(), (api.clone(), drained.clone()), copied);
        let place = Place { lane: None, predicted: Duration::from_secs(30) };
        let empty = Empty::new(name).provided(vec![copied_elsewhere(name)]);
        graph.gate(id("empty", name), place, (api.clone(), drained), empty);
        // Longhorn keeps its own Pod on the machine then, but does not say why.
        graph.after(id("empty", name), id("copies", name));
        let removed = raze(graph, ground, design.site, std::slice::from_ref(guest), Reach::Marked, &[]);
        for step in removed {
            graph.after(step.clone(), id("empty", name));
            graph.after(left.clone(), step);
        }
    }
    let wanted = design.nodes.iter().map(|node| node.name.value.clone());
    let names = leaving.iter().map(|guest| guest.name.clone()).collect();
    let step = Left::new(castle, wanted, names);
    // A machine that nobody could look at may still be one that was sent away.
    let is_known = |vmid: &u32| leaving.iter().any(|guest| guest.vmid == *vmid);
    // A copy is none, and what castle had only begun to make has joined nothing.
    let mut others = unnamed(ground, design.site, design.survey, design.nodes).filter(|(_, row)| !row.looks_copied());
    let is_all_known = others.all(|(vmid, _)| is_known(&vmid));
    let step = if is_all_known { step } else { step.only_these() };
    graph.step(left, Place::default(), (api.clone(),), step);
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

/// Adds the steps that remove these guests, and the downloads of the castle from these hosts; returns those that remove guests.
pub fn raze(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    site: &Site,
    doomed: &[Doomed],
    reach: Reach,
    hosts: &[String],
) -> Vec<StepId> {
    let step_of =
        |guest: &Doomed| id(if guest.is_template { "image" } else { "vm" }, &format!("{} {}", guest.vmid, guest.name));
    for guest in doomed {
        let place = Place { lane: Some(host_lane(&guest.host)), predicted: Duration::from_secs(2) };
        let step = RemoveGuest::new(ground.clone(), guest.vmid, &guest.name, reach);
        graph.step(step_of(guest), place, (), step);
    }
    for image in doomed.iter().filter(|guest| guest.is_template) {
        for guest in doomed.iter().filter(|guest| !guest.is_template) {
            graph.after(step_of(image), step_of(guest));
        }
    }
    for host in hosts {
        let step = RemoveDownloads::new(ground.clone(), host, &site.images);
        graph.step(id("downloads", host), Place::default(), (), step);
    }
    doomed.iter().map(step_of).collect()
}
