//! The image that guests are cloned from: downloaded by the host itself, made into a template once, and the download removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use castle_engine::{CastleId, Change, Class, Closed, Decision, Fault, Impact, Operation, Step};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::ground::{Ground, Looks};
use super::wanted::{Hardware, SYSTEM_DISK, Wanted, digest_tag};
use crate::client::{Bound, part};
use crate::model::{Config, ErrorClass, Form, Mark, Owner, Refusal, Role, since_tag};

/// An image as it is wanted on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name, by which it is told from other versions: `talos-v1.13.9-e187c9b90f77`.
    pub name: String,
    /// Where it comes from.
    pub url: String,
    /// What it must be, if that is known.
    pub sha256: Option<String>,
    /// The host it is made on.
    pub host: String,
    /// The numbers that templates on this host may have: one in use, one for the next.
    pub slots: [u32; 2],
    /// The storage that takes the download.
    pub storage: String,
    /// The resource pool of the template.
    pub pool: Option<String>,
    /// The hardware of what is cloned from it.
    pub hardware: Hardware,
    /// Whether the disks' storage can make clones that only hold what differs.
    pub can_link: bool,
    /// Whether anything is to be cloned from it. An image that nobody needs is not made.
    pub is_needed: bool,
}

impl Image {
    /// What all downloads of a castle begin with: their names are their marks.
    #[must_use]
    pub fn file_prefix(castle: &CastleId) -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = castle.name.chars().map(fits).collect();
        format!("castle-{name}-{}-", castle.lineage)
    }

    fn file(&self, castle: &CastleId) -> String {
        format!("{}{}-{}.qcow2", Self::file_prefix(castle), self.name, self.host)
    }

    pub(super) fn volume(&self, castle: &CastleId) -> String {
        format!("{}:import/{}", self.storage, self.file(castle))
    }

    pub(super) fn tags(&self, castle: &CastleId) -> BTreeSet<String> {
        let mut tags = Mark::tags_of(castle);
        // An image outlives a life of its castle.
        let castle = CastleId { generation: 0, ..castle.clone() };
        tags.insert(digest_tag(&castle, &format!("image 1\nname: {}\n{}", self.name, self.hardware.told())));
        tags
    }
}

/// What guests are cloned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its number.
    pub vmid: u32,
    /// The host it is on.
    pub host: String,
    /// Whether clones of it only hold what differs.
    pub can_link: bool,
}

/// How Proxmox tells that a guest is a template already.
const CONVERTED: &str = "can't convert a template to a template";

/// Makes the template of an image on one host, once it is downloaded ([`FetchImage`]).
pub struct MakeImage {
    ground: Arc<Ground>,
    image: Image,
    looks: Looks,
    /// Whether the token may not remove the download: then it stays.
    untidy: Mutex<bool>,
}

/// How far an image has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was made from the download.
    Made,
    /// And has its tags. They are not written when it is made: that would take a right on guests outside of the pool.
    Labelled,
    /// And is a template.
    Template,
}

/// What looking for an image tells.
#[derive(Debug, Default)]
pub struct Found {
    /// The template, or what is to become one.
    here: Option<(u32, Stage)>,
    free: Option<u32>,
    /// Images of this castle that are not this one.
    others: Vec<(u32, String)>,
    /// Whether the download is there.
    is_downloaded: bool,
}

impl MakeImage {
    /// The step for this image.
    #[must_use]
    pub fn new(ground: Arc<Ground>, image: Image) -> Self {
        Self { ground, image, looks: Looks::default(), untidy: Mutex::new(false) }
    }

    fn subject(&self) -> String {
        format!("image {} on {}", self.image.name, self.image.host)
    }

    async fn look(&self, tidies: bool) -> Result<Found, Fault> {
        let (client, castle, image) = (&self.ground.client, &self.ground.castle, &self.image);
        let guests = self.ground.guests(self.looks.since(client.clock().monotonic())).await?;
        let mut found = Found::default();
        let mut strangers = Vec::new();
        for vmid in image.slots {
            let Some(row) = guests.get(&vmid) else {
                found.free = found.free.or(Some(vmid));
                continue;
            };
            if row.is_template() == Some(true)
                && row.host == image.host
                && row.tags.is_superset(&image.tags(castle))
                && !self.ground.deep
            {
                found.here = Some((vmid, Stage::Template));
                continue;
            }
            if matches!(row.lock.as_deref(), Some("clone" | "create")) {
                self.ground.wait_for_placeholder(row).await?;
            }
            let config = match client.config(&row.host, vmid).await {
                // What nobody needs may be on a host that does not answer.
                Err(refusal) if refusal.class == ErrorClass::Unreached && !image.is_needed => continue,
                config => config?,
            };
            let Some(config) = config else { continue };
            match self.ground.owner(vmid, &config).await? {
                Owner::Ours(mark) | Owner::Earlier(mark) if mark.name == image.name && row.host == image.host => {
                    let tags = config.get("tags").unwrap_or_default();
                    let is_labelled = image.tags(castle).iter().all(|tag| tags.split(';').any(|its| its == tag));
                    found.here = Some((
                        vmid,
                        match (config.is_template(), is_labelled) {
                            (true, true) => Stage::Template,
                            (false, true) => Stage::Labelled,
                            (_, false) => Stage::Made,
                        },
                    ));
                }
                Owner::Ours(mark) | Owner::Earlier(mark) => found.others.push((vmid, mark.name)),
                owner => {
                    let what = match owner {
                        Owner::Unreadable(format) => {
                            return Err(Fault::guard(format!("VM {vmid}"), format.to_string()).next(format.next()));
                        }
                        Owner::Copy(mark) => format!(", a copy of VM {}", mark.place.vmid),
                        _ => String::new(),
                    };
                    strangers.push(format!("VM {vmid} ({}{what})", config.get("name").unwrap_or("without a name")));
                }
            }
        }
        if found.here.is_none() && found.free.is_none() && found.others.is_empty() && image.is_needed {
            let evidence = format!("its VMIDs are taken by guests that are not castle's: {}", strangers.join(", "));
            let next = self.ground.cleared("move or remove one of them", image.slots[0]).await?;
            return Err(Fault::guard(self.subject(), evidence).next(next));
        }
        // The download of a template that is there only matters to whoever tidies up.
        if (image.is_needed && found.here.is_none()) || (found.here.is_some() && tidies) {
            let form = Form::new().with("content", "import");
            let volumes = match client.volumes(&image.host, &image.storage, &form).await {
                Err(refusal) if refusal.class == ErrorClass::Unreached && !image.is_needed => Vec::new(),
                volumes => volumes?,
            };
            found.is_downloaded = volumes.iter().any(|volume| volume.id == image.volume(castle));
        }
        Ok(found)
    }

    fn is_untidy(&self) -> bool {
        *self.untidy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn download(&self) -> Result<(), Fault> {
        let Image { url, sha256, host, storage, .. } = &self.image;
        let mut form = Form::new()
            .with("url", url)
            .with("content", "import")
            .with("filename", self.image.file(&self.ground.castle))
            .with_flag("verify-certificates", true);
        if let Some(sha256) = sha256 {
            form = form.with("checksum", sha256).with("checksum-algorithm", "sha256");
        }
        let path = format!("/nodes/{}/storage/{}/download-url", part(host), part(storage));
        let done = self.ground.client.run(&self.subject(), Method::POST, &path, &form, Bound::LONG).await;
        done.map(|_| ()).map_err(|refusal| self.undelivered(refusal))
    }

    /// Why there is no download. What a server says of the image is its last word, unless it says that it cannot answer now.
    fn undelivered(&self, refusal: Refusal) -> Fault {
        let Some(status) = http_status(&refusal.sentence) else { return refusal.into() };
        let is_passing = status >= 500 || status == 429;
        let class = if is_passing { Class::RetryableAfter(None) } else { Class::Final };
        let next = format!(
            "does {} have that image? talos.version, talos.extensions and talos.image in castle.yaml say which",
            self.image.url
        );
        Fault::new(class, refusal.subject, refusal.sentence).next(next)
    }

    async fn create(&self, vmid: u32, operation: &Operation) -> Result<(), Refusal> {
        let (castle, Image { name, host, pool, hardware, .. }) = (&self.ground.castle, &self.image);
        let place = self.ground.client.place(vmid).await?;
        let mark = Mark::new(castle, name, Role::Image, place, &operation.id, operation.epoch);
        let thread = if hardware.iothread { ",iothread=1" } else { "" };
        let disk = format!("{}:0,import-from={}{thread}", hardware.storage, self.image.volume(castle));
        let form = Wanted::template_form(hardware)
            .with("vmid", vmid)
            .with("name", name)
            .with("description", mark)
            .with("pool", pool.as_deref().unwrap_or_default())
            .with(SYSTEM_DISK, disk)
            .with("boot", format!("order={SYSTEM_DISK}"));
        let path = format!("/nodes/{}/qemu", part(host));
        self.ground.client.run(&self.subject(), Method::POST, &path, &form, Bound::LONG).await.map(|_| ())
    }

    /// Holds that what is being made into a template still is what castle made for it: somebody may have been faster.
    async fn still_ours(&self, vmid: u32, operation: &Operation) -> Result<Config, Fault> {
        let gone = || Fault::new(Class::RefusedBeforeEffect, self.subject(), "is not where it was");
        let config = self.ground.client.config(&self.image.host, vmid).await?.ok_or_else(gone)?;
        match self.ground.owner(vmid, &config).await? {
            Owner::Ours(mark) | Owner::Earlier(mark) if mark.name == self.image.name => {
                Ground::fence(vmid, &mark, operation.epoch)?;
                Ok(config)
            }
            _ => Err(Fault::guard(self.subject(), format!("VM {vmid} is no longer an image of this castle"))
                .next("castle status shows what is castle's")),
        }
    }

    async fn tidy(&self) -> Result<(), Refusal> {
        let path = volume_path(&self.image.host, &self.image.storage, &self.image.volume(&self.ground.castle));
        match self.ground.client.run(&self.subject(), Method::DELETE, &path, &Form::new(), Bound::SHORT).await {
            Err(refusal) if refusal.class == ErrorClass::Forbidden => {
                *self.untidy.lock().unwrap_or_else(PoisonError::into_inner) = true;
                Ok(())
            }
            result => result.map(|_| ()),
        }
    }
}

/// The status that a server answered a download with, as the program says that a host downloads with: `ERROR 404: Not Found.`
fn http_status(sentence: &str) -> Option<u16> {
    let (_, rest) = sentence.rsplit_once("ERROR ")?;
    rest.get(..3)?.parse().ok().filter(|_| rest[3..].starts_with(':'))
}

/// Where a volume is removed.
pub(crate) fn volume_path(host: &str, storage: &str, volume: &str) -> String {
    format!("/nodes/{}/storage/{}/content/{}", part(host), part(storage), part(volume))
}

/// What brings an image about, each at the number where it is done.
#[derive(Clone, Debug)]
pub enum Imaging {
    /// A guest is made of the download.
    Create(u32),
    /// It gets its tags.
    Label(u32),
    /// It becomes a template.
    Convert(u32),
    /// The download goes.
    Tidy,
    /// An earlier image makes room.
    Discard {
        /// Where it is.
        vmid: u32,
        /// What it is called.
        name: String,
    },
}

impl Step for MakeImage {
    type Needs = ();
    type Observed = Found;
    type Action = Imaging;
    type Output = Option<Template>;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Found, Fault>> {
        Box::pin(self.look(true))
    }

    fn awaits(&self) -> Option<Closed> {
        self.image.slots.into_iter().find_map(|vmid| self.ground.awaited(vmid))
    }

    fn decide(&self, (): &(), found: &Found) -> Decision<Imaging> {
        let Image { name, storage, is_needed, .. } = &self.image;
        let say = |action, (verb, impact), field: &str, wanted: String| {
            Decision::Act(action, Change::new(verb, impact).differing(field, None, Some(wanted)))
        };
        match (found.here, found.free) {
            (Some((_, Stage::Template)), _) if found.is_downloaded && !self.is_untidy() => {
                let gone = Change::new("tidy", Impact::InPlace);
                Decision::Act(Imaging::Tidy, gone.differing("download", Some(format!("in {storage}")), None))
            }
            (Some((_, Stage::Template)), _) => Decision::Nothing,
            (Some((vmid, Stage::Made)), _) => {
                say(Imaging::Label(vmid), ("label", Impact::InPlace), "tags", vmid.to_string())
            }
            (Some((vmid, Stage::Labelled)), _) => {
                say(Imaging::Convert(vmid), ("convert", Impact::Create), "template", vmid.to_string())
            }
            (None, _) if !is_needed => Decision::Nothing,
            (None, Some(vmid)) => {
                say(Imaging::Create(vmid), ("create", Impact::Create), "template", format!("{vmid} from {name}"))
            }
            (None, None) => {
                let (vmid, name) = found.others.first().cloned().unwrap_or_default();
                let discard = Change::new("discard", Impact::Destroy);
                let change = discard.differing("template", Some(format!("{vmid}: {name}")), None);
                Decision::Act(Imaging::Discard { vmid, name }, change)
            }
        }
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        found: &'a Found,
        action: &'a Imaging,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match action {
                Imaging::Create(_) if !found.is_downloaded => {
                    let evidence = "has no download to be made from: somebody has removed it";
                    return Err(Fault::new(Class::Final, self.subject(), evidence).next("run the same command again"));
                }
                Imaging::Create(slot) => self.create(*slot, operation).await?,
                Imaging::Label(slot) => {
                    let mut tags = self.image.tags(&self.ground.castle);
                    tags.insert(since_tag(*slot, self.ground.client.wall()));
                    let tags: Vec<String> = tags.into_iter().collect();
                    let path = format!("/nodes/{}/qemu/{slot}/config", part(&self.image.host));
                    let config = self.still_ours(*slot, operation).await?;
                    // If anyone has changed it since, Proxmox refuses by the digest.
                    let form =
                        Form::new().with("tags", tags.join(";")).with("digest", config.digest.unwrap_or_default());
                    self.ground.client.run(&self.subject(), Method::POST, &path, &form, Bound::SHORT).await?;
                }
                Imaging::Convert(slot) => {
                    let path = format!("/nodes/{}/qemu/{slot}/template", part(&self.image.host));
                    let subject = self.subject();
                    // Proxmox takes no digest here: this is as near as one can look.
                    self.still_ours(*slot, operation).await?;
                    match self.ground.client.run(&subject, Method::POST, &path, &Form::new(), Bound::SHORT).await {
                        // A run that was cut off had begun it, and it has come to its end since.
                        Err(refusal) if refusal.sentence.contains(CONVERTED) => {}
                        converted => drop(converted?),
                    }
                }
                Imaging::Tidy => self.tidy().await?,
                Imaging::Discard { vmid, name } => discard(&self.ground, *vmid, name).await?,
            }
            Ok(())
        })
    }

    fn expect(&self, (): &(), found: &Found) -> Option<Option<Template>> {
        let Image { host, can_link, slots, .. } = &self.image;
        let vmid = found.here.map(|(vmid, _)| vmid).or(found.free).unwrap_or(slots[0]);
        Some(Some(Template { vmid, host: host.clone(), can_link: *can_link }))
    }

    fn output(&self, (): &(), found: &Found) -> Option<Template> {
        let Image { host, can_link, .. } = &self.image;
        let (vmid, _) = found.here?;
        Some(Template { vmid, host: host.clone(), can_link: *can_link })
    }
}

/// Has a host download an image that nothing was made of yet. It holds no secret, so it need not wait for any.
pub struct FetchImage(MakeImage);

impl FetchImage {
    /// The step for this image.
    #[must_use]
    pub fn new(ground: Arc<Ground>, image: Image) -> Self {
        Self(MakeImage::new(ground, image))
    }
}

impl Step for FetchImage {
    type Needs = ();
    type Observed = Found;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Found, Fault>> {
        Box::pin(self.0.look(false))
    }

    fn decide(&self, (): &(), found: &Found) -> Decision {
        let is_missing = found.here.is_none() && found.free.is_some() && !found.is_downloaded;
        if !is_missing || !self.0.image.is_needed {
            return Decision::Nothing;
        }
        let change = Change::new("download", Impact::Create);
        Decision::Act((), change.differing("from", None, Some(self.0.image.url.clone())))
    }

    fn act<'a>(&'a self, (): &'a (), _: &'a Found, (): &'a (), _: &'a Operation) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { self.0.download().await })
    }

    fn expect(&self, (): &(), _: &Found) -> Option<()> {
        Some(())
    }

    fn output(&self, (): &(), _: &Found) {}
}

/// Removes an image of this castle, if it still is one and nothing is linked to it.
async fn discard(ground: &Ground, vmid: u32, name: &str) -> Result<(), Fault> {
    let subject = format!("template {vmid} ({name})");
    let guests = ground.guests(ground.client.clock().monotonic()).await?;
    let Some(row) = guests.get(&vmid) else { return Ok(()) };
    let gone = || Fault::new(Class::RefusedBeforeEffect, subject.clone(), "is not where it was");
    let config = ground.client.config(&row.host, vmid).await?.ok_or_else(gone)?;
    match ground.owner(vmid, &config).await? {
        Owner::Ours(mark) | Owner::Earlier(mark) if mark.name == name && ground.vmids.contains(&vmid) => {
            let path = format!("/nodes/{}/qemu/{vmid}", part(&row.host));
            ground
                .client
                .run(&subject, Method::DELETE, &path, &Form::new().with_flag("purge", true), Bound::SHORT)
                .await?;
            Ok(())
        }
        _ => Err(Fault::guard(subject, "is no longer an image of this castle")),
    }
}

/// Removes the images that nothing is cloned from any more, once all guests stand.
pub struct DropOldImages {
    ground: Arc<Ground>,
    slots: [u32; 2],
    /// The image in use.
    name: String,
    looks: Looks,
    /// Those that something is still linked to.
    kept: Mutex<BTreeSet<u32>>,
}

impl DropOldImages {
    /// The step for these numbers.
    #[must_use]
    pub fn new(ground: Arc<Ground>, slots: [u32; 2], name: &str) -> Self {
        Self { ground, slots, name: name.to_owned(), looks: Looks::default(), kept: Mutex::new(BTreeSet::new()) }
    }
}

impl Step for DropOldImages {
    type Needs = (Vec<Arc<super::guest::Standing>>,);
    type Observed = Vec<(u32, String)>;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<Self::Observed, Fault>> {
        Box::pin(async move {
            let client = &self.ground.client;
            let guests = self.ground.guests(self.looks.since(client.clock().monotonic())).await?;
            let mut old = Vec::new();
            for row in self
                .slots
                .iter()
                .filter_map(|vmid| guests.get(vmid))
                .filter(|row| !row.is_settled || row.name.as_ref() != Some(&self.name))
            {
                let Some(config) = client.config(&row.host, row.vmid).await? else { continue };
                match self.ground.owner(row.vmid, &config).await? {
                    Owner::Ours(mark) | Owner::Earlier(mark) if mark.name != self.name && config.is_template() => {
                        old.push((row.vmid, mark.name));
                    }
                    _ => {}
                }
            }
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            old.retain(|(vmid, _)| !kept.contains(vmid));
            Ok(old)
        })
    }

    fn decide(&self, _: &Self::Needs, old: &Self::Observed) -> Decision {
        let Some((vmid, name)) = old.first() else { return Decision::Nothing };
        let discard = Change::new("discard", Impact::Destroy);
        Decision::Act((), discard.differing("template", Some(format!("{vmid}: {name}")), None))
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        old: &'a Self::Observed,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some((vmid, name)) = old.first() else { return Ok(()) };
            match discard(&self.ground, *vmid, name).await {
                // Something is linked to it: it stays until that is gone.
                Err(fault) if ErrorClass::of_sentence(&fault.evidence) == ErrorClass::BaseInUse => {
                    self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(*vmid);
                    Ok(())
                }
                result => result,
            }
        })
    }

    fn output(&self, _: &Self::Needs, _: &Self::Observed) {}
}
