//! The platform layer: the image, the guests, and their end.

mod departing;

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, GraphBuilder, Handle, Lane, Layer, Place, StepId};
use castle_proxmox::model::{ErrorClass, Format, Guest, Mark, Owner};
use castle_proxmox::steps::{
    DownloadPlace, Downloads, DropOldImages, FetchImage, Ground, Guests, MakeGuest, MakeImage, Reach, RemoveDownloads,
    RemoveGuest, RunGuest, Standing, Template,
};
use castle_seams::BoxFuture;
use castle_spec::model::Cni;
use castle_spec::{Castle, Node};
use futures_util::future::ready;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::placement::Placed;
use crate::site::Site;
use crate::survey::{AT_ONCE, Survey};
use crate::turns::Rolling;

pub use departing::{leaving, shrink, unnamed_control_planes};

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

/// Whether nodes are waited for until they are ready: without a network of Talos' own only where something is put into the cluster, which could
/// not begin before.
pub(crate) fn waits_for_nodes(castle: &Castle) -> bool {
    castle.kubernetes.cni.value == Cni::Flannel || !castle.wanted_components().is_empty()
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

/// The step that restarts a node when its turn has come.
pub(crate) fn restart_step(node: &Node) -> StepId {
    id("restart", &node.name.value)
}

/// The step that starts a node which nobody has started again.
pub(crate) fn start_step(node: &Node) -> StepId {
    id("start", &node.name.value)
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
    /// Which nodes restart, one after the other.
    pub rolling: &'d Rolling,
}

/// Adds the steps that raise the platform; returns those that remove images of earlier versions, which whoever configures the nodes is to come before: what a
/// node was made from stays until the node is as its file says.
pub fn raise(graph: &mut GraphBuilder, ground: &Arc<Ground>, design: Design<'_>) -> Vec<StepId> {
    let Design { castle, nodes, placed, site, survey, after, checked, rolling } = design;
    let storage = site.hosts.iter().find_map(|host| survey.storage(host, &site.hardware.storage));
    let can_link = storage.is_none_or(castle_proxmox::model::Storage::can_link);
    let is_shared = storage.is_some_and(|storage| storage.is_shared);
    // Where all hosts see the disks, one image serves them all.
    let source_of =
        |host: &str| if is_shared { 0 } else { site.hosts.iter().position(|name| name == host).unwrap_or(0) };
    let absent = |node: &Node| !survey.guests.contains_key(&node.vmid.0);
    let mut templates: Vec<Option<Handle<Option<Template>>>> = vec![None; site.hosts.len()];
    let (mut guests, mut old_images) = (Vec::<Handle<Standing>>::new(), Vec::new());
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
        if rolling.has(node) {
            let restart = MakeGuest::new(ground.clone(), wanted.clone()).restarting(rolling.restarts_machine(node));
            let place = Place { lane: None, predicted: Duration::from_secs(20) };
            let restarted = graph.step(restart_step(node), place, (template.clone(),), restart);
            graph.step(start_step(node), Place::default(), (restarted,), RunGuest::new(ground.clone(), name));
        }
        let make = MakeGuest::new(ground.clone(), wanted).restarting(rolling.restarts(node));
        let guest = graph.step(vm_step(node), place, (template,), make);
        let place = Place { lane: Some(host_lane(&placed.host)), predicted: Duration::from_secs(2) };
        guests.push(graph.step(power_step(node), place, (guest,), RunGuest::new(ground.clone(), name)));
    }
    for (index, host) in site.hosts.iter().enumerate() {
        if let (Some(image), true) = (site.image(index, can_link, false), templates[index].is_some()) {
            let step = DropOldImages::new(ground.clone(), image.slots, &image.name);
            graph.step(id("old-images", host), Place::default(), (guests.clone(),), step);
            old_images.push(id("old-images", host));
        }
    }
    old_images
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

impl Doomed {
    /// The step that removes it.
    #[must_use]
    pub fn removal(&self) -> StepId {
        id(if self.is_template { "image" } else { "vm" }, &format!("{} {}", self.vmid, self.name))
    }
}

/// Whose a guest is that is within the castle's range, or bears its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This castle's, in this life or an earlier one.
    Ours,
    /// This castle's, outside of its range, and in no record that castle has: nobody knows how it came there.
    Astray,
    /// Perhaps this castle's: a guest that is being made or removed, or was cut off in that, has no mark yet or any more.
    Unfinished,
    /// This castle's, in this later life than the one that is known.
    Later(u64),
    /// Another castle's.
    Others,
    /// Somebody's who copied a guest of a castle, and the mark with it: the number of that guest.
    Copied(u32),
    /// Of a castle that writes marks in another format.
    Unreadable(Format),
    /// Nobody's that castle knows.
    Unmarked,
}

/// All guests within the castle's range, and those elsewhere that bear its mark, each looked at.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn found(ground: &Ground) -> Result<Vec<Doomed>, Fault> {
    let guests = ground.guests(Duration::ZERO).await?;
    let mut found = look_at(ground, guests.range(ground.vmids.clone()).map(|(_, row)| row)).await?;
    found.extend(elsewhere(ground, &guests).await?);
    found.sort_by_key(|guest| guest.vmid);
    Ok(found)
}

/// Guests outside of the castle's range that bear its mark. Their tags tell which are to be read: mostly there are none.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn elsewhere(ground: &Ground, guests: &Guests) -> Result<Vec<Doomed>, Fault> {
    let tags = Mark::tags_of(&ground.castle);
    let is_tagged = |row: &&Guest| row.is_machine && row.tags.is_superset(&tags) && !ground.vmids.contains(&row.vmid);
    let mut found = look_at(ground, guests.values().filter(is_tagged)).await?;
    found.retain(|guest| matches!(guest.whose, Whose::Ours | Whose::Later(_)));
    for guest in &mut found {
        if guest.whose == Whose::Ours && !ground.reaches(guest.vmid, guest.is_template) {
            guest.whose = Whose::Astray;
        }
    }
    Ok(found)
}

/// Looks at many guests at once, for one whose host does not answer is not to hold up the others; told in their order.
async fn look_at<'g>(ground: &Ground, rows: impl Iterator<Item = &'g Guest>) -> Result<Vec<Doomed>, Fault> {
    let looked = stream::iter(rows).map(async |row: &Guest| look_at_one(ground, row).await).buffered(AT_ONCE);
    looked.try_filter_map(|found| ready(Ok(found))).try_collect().await
}

async fn look_at_one(ground: &Ground, row: &Guest) -> Result<Option<Doomed>, Fault> {
    let vmid = row.vmid;
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
        return Ok(Some(of(called, Whose::Unmarked, row.shows_template)));
    }
    let config = match ground.client.config(&row.host, vmid).await {
        // Whoever only looks does not wait for it. What castle never made here is somebody else's.
        Ok(Some(config)) if config.is_placeholder() && config.description().is_empty() => {
            let may_be_ours = ground.record.as_ref().is_none_or(|record| record.vmids.contains(&vmid));
            let whose = if may_be_ours { Whose::Unfinished } else { Whose::Unmarked };
            return Ok(Some(of(called, whose, row.shows_template)));
        }
        Ok(Some(config)) => config,
        Ok(None) => return Ok(None),
        // Its host does not answer: whose it is, the list alone tells. It is read before anything is done to it.
        Err(refusal) if matches!(refusal.class, ErrorClass::Unreached | ErrorClass::Unknown) => {
            return Ok(Some(of(called, by_tags(ground, row), row.shows_template)));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let is_template = config.is_template();
    let called = config.get("name").map_or(called, str::to_owned);
    let guest = match ground.owner(vmid, &config).await? {
        Owner::Ours(mark) | Owner::Earlier(mark) => of(mark.name, Whose::Ours, is_template),
        Owner::Later(mark) => of(mark.name, Whose::Later(mark.castle.generation), is_template),
        Owner::Other(mark) => of(format!("{called} of {}", mark.castle.name), Whose::Others, is_template),
        Owner::Copy(mark) => of(called, Whose::Copied(mark.place.vmid), is_template),
        Owner::Unreadable(format) => of(called, Whose::Unreadable(format), is_template),
        Owner::Stranger => of(called, Whose::Unmarked, is_template),
    };
    Ok(Some(Doomed { is_protected: config.is_protected(), ..guest }))
}

/// Whose a guest is as far as the list tells. A copy has the tags of another guest; so has one that castle was just making, which is where castle makes
/// guests, and written down.
fn by_tags(ground: &Ground, row: &Guest) -> Whose {
    if !row.tags.is_superset(&Mark::tags_of(&ground.castle)) {
        return Whose::Unmarked;
    }
    let Some(original) = row.copied_from() else { return Whose::Ours };
    let may_be_ours = match &ground.record {
        Some(record) => record.vmids.contains(&row.vmid),
        None => ground.vmids.contains(&row.vmid),
    };
    if may_be_ours { Whose::Unfinished } else { Whose::Copied(original) }
}

/// Guests anywhere that somebody has copied from guests of this castle. Their tags tell of whom they are copies, so only these are read: mostly
/// there are none. Who may not be read, or whose host is away, is not told of.
pub async fn copies(ground: &Ground, guests: &Guests) -> Vec<Doomed> {
    let tags = Mark::tags_of(&ground.castle);
    let is_suspect =
        |row: &&Guest| row.is_machine && row.lock.is_none() && row.tags.is_superset(&tags) && row.looks_copied();
    let copied = async |row: &Guest| {
        let (vmid, host) = (row.vmid, row.host.clone());
        let config = ground.client.config(&host, vmid).await.ok()??;
        let Ok(Owner::Copy(mark)) = ground.owner(vmid, &config).await else { return None };
        let is_ours = mark.castle.name == ground.castle.name && mark.castle.lineage == ground.castle.lineage;
        let name = config.get("name").unwrap_or_default().to_owned();
        let (is_template, is_protected) = (config.is_template(), config.is_protected());
        let whose = Whose::Copied(mark.place.vmid);
        is_ours.then_some(Doomed { vmid, name, host, is_template, is_protected, whose })
    };
    let suspects = guests.values().filter(is_suspect);
    stream::iter(suspects).map(copied).buffered(AT_ONCE).filter_map(ready).collect().await
}

/// Finds the UUID that the hypervisor gave the firmware of a machine; nothing if it does not tell.
pub type Uuids = Arc<dyn Fn(u32) -> BoxFuture<'static, Result<Option<String>, Fault>> + Send + Sync>;

/// The search for what the hypervisor knows a machine by: asked once the machine is there.
#[must_use]
pub fn uuids(ground: &Arc<Ground>) -> Uuids {
    let ground = ground.clone();
    Arc::new(move |vmid| {
        let ground = ground.clone();
        Box::pin(async move {
            let guests = ground.guests(ground.client.clock().monotonic()).await?;
            let Some(row) = guests.get(&vmid) else { return Ok(None) };
            let config = ground.client.config(&row.host, vmid).await?;
            Ok(config.and_then(|config| config.uuid()))
        })
    })
}

/// Where this castle may have downloaded something.
///
/// # Errors
///
/// If Proxmox does not say which hosts there are.
pub async fn downloads(ground: &Ground, site: &Site) -> Result<Downloads, Fault> {
    Ok(Downloads::find(ground, &site.hosts, &site.images).await?)
}

/// Adds the steps that remove these guests, and the downloads of the castle from these places; returns those that remove guests.
pub fn raze(
    graph: &mut GraphBuilder,
    ground: &Arc<Ground>,
    site: &Site,
    doomed: &[Doomed],
    reach: Reach,
    downloads: &[DownloadPlace],
) -> Vec<StepId> {
    for guest in doomed {
        let place = Place { lane: Some(host_lane(&guest.host)), predicted: Duration::from_secs(2) };
        let reach = if guest.whose == Whose::Unfinished { Reach::Unfinished } else { reach };
        let step = RemoveGuest::new(ground.clone(), guest.vmid, &guest.name, reach);
        graph.step(guest.removal(), place, (), step);
    }
    for image in doomed.iter().filter(|guest| guest.is_template) {
        for guest in doomed.iter().filter(|guest| !guest.is_template) {
            graph.after(image.removal(), guest.removal());
        }
    }
    for place in downloads {
        let DownloadPlace { host, storage } = place;
        let is_usual = *storage == site.images && site.hosts.contains(host);
        let name = if is_usual { host.clone() } else { format!("{host} ({storage})") };
        graph.step(id("downloads", &name), Place::default(), (), RemoveDownloads::new(ground.clone(), place));
    }
    doomed.iter().map(Doomed::removal).collect()
}
