//! What all steps on one Proxmox share: the client, whose castle it is, and one list of all guests for many steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{CastleId, Class, Closed, Fault, lineage};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::model::{Config, Guest, Mark, Owner, Refusal};

/// How often to look whether a guest that is just being made has been.
const PLACEHOLDER_PERIOD: Duration = Duration::from_secs(1);
/// Longer than the copy of any system disk.
const PLACEHOLDER_BOUND: Duration = Duration::from_secs(45 * 60);

/// All guests of the cluster by their number, as of one moment.
pub type Guests = BTreeMap<u32, Guest>;

/// What castle has written down of its machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Their numbers, wherever these are by now: the file may have been given others since.
    pub vmids: BTreeSet<u32>,
    /// The hosts that they were made on.
    pub hosts: BTreeSet<String>,
}

/// What all steps on one Proxmox share.
pub struct Ground {
    /// Whom they ask.
    pub client: Arc<Client>,
    /// Whose guests they are.
    pub castle: CastleId,
    /// The numbers that belong to the castle by its file; no guest outside of them is ever made or changed.
    pub vmids: RangeInclusive<u32>,
    /// What castle itself has written down of this life, if it knows.
    pub record: Option<Record>,
    /// Whether every guest is looked at in full, although the list shows nothing wrong with it.
    pub deep: bool,
    latest: Mutex<Option<(Duration, Arc<Guests>)>>,
    /// Which guests run on each host, as of when.
    running: Mutex<BTreeMap<String, Running>>,
    /// The guests that somebody waits for, and what is seen of them.
    awaited: std::sync::Mutex<BTreeMap<u32, Closed>>,
}

/// Since when it is known, and the numbers of the guests that run on a host.
type Running = (Duration, Arc<BTreeSet<u32>>);

/// Whether a machine of this castle is seen besides the guest of this number, as far as the list tells.
#[must_use]
pub fn stands(castle: &CastleId, guests: &Guests, besides: u32) -> bool {
    let tags = Mark::tags_of(castle);
    let is_machine =
        |row: &Guest| row.is_machine && !row.shows_template && row.tags.is_superset(&tags) && !row.looks_copied();
    guests.values().any(|row| row.vmid != besides && is_machine(row))
}

/// What to do about a guest that is in the way. Castle moves no machine, so a castle that stands keeps its numbers.
#[must_use]
pub fn cleared(clear: &str, is_standing: bool) -> String {
    let otherwise = if is_standing { "" } else { ", or give this castle other vmids in castle.yaml" };
    format!("{clear}{otherwise}")
}

/// That a guest is waited for, until this is dropped.
struct Awaited<'g> {
    ground: &'g Ground,
    vmid: u32,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.ground.waits().remove(&self.vmid);
    }
}

impl Ground {
    /// The ground of a castle.
    #[must_use]
    pub fn new(client: Arc<Client>, castle: CastleId, vmids: RangeInclusive<u32>, deep: bool) -> Self {
        Self {
            client,
            castle,
            vmids,
            record: None,
            deep,
            latest: Mutex::new(None),
            running: Mutex::default(),
            awaited: std::sync::Mutex::default(),
        }
    }

    /// The same for whoever knows what castle has written down of its machines.
    #[must_use]
    pub fn with_record(self, record: Option<Record>) -> Self {
        Self { record, ..self }
    }

    /// Whether a guest with the castle's mark may be removed: it is where the file has the castle's guests, or where castle knows that it made
    /// one. An image is in no record, and known by its mark.
    #[must_use]
    pub fn reaches(&self, vmid: u32, is_template: bool) -> bool {
        let is_known = |record: &Record| is_template || record.vmids.contains(&vmid);
        self.vmids.contains(&vmid) || self.record.as_ref().is_some_and(is_known)
    }

    /// All guests, as of a moment not before `since`. However many ask at once, the list is fetched once.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if there is no list.
    pub async fn guests(&self, since: Duration) -> Result<Arc<Guests>, Refusal> {
        let mut latest = self.latest.lock().await;
        if let Some((_, guests)) = latest.as_ref().filter(|(begun, _)| *begun >= since) {
            return Ok(guests.clone());
        }
        let begun = self.client.clock().monotonic();
        let guests = self.client.guests().await?.into_iter().map(|guest| (guest.vmid, guest)).collect();
        let guests = Arc::new(guests);
        *latest = Some((begun, Arc::clone(&guests)));
        Ok(guests)
    }

    /// Whether a guest runs that the list shows, as of a moment not before `since`; `None` if it is not on that host any more.
    ///
    /// That its tags are old does not say that its statistics are its own: one that was restored from a backup under its own number has them, too. So its
    /// host is asked: for one that is new about this guest, for all others once about all that it carries, however many ask at once.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if its host does not say.
    pub async fn runs(&self, row: &Guest, since: Duration) -> Result<Option<bool>, Refusal> {
        if !row.is_settled {
            return self.client.is_running(&row.host, row.vmid).await;
        }
        let mut all = self.running.lock().await;
        if let Some((_, running)) = all.get(&row.host).filter(|(begun, _)| *begun >= since) {
            return Ok(Some(running.contains(&row.vmid)));
        }
        let begun = self.client.clock().monotonic();
        let running = Arc::new(self.client.running(&row.host).await?);
        let runs = running.contains(&row.vmid);
        all.insert(row.host.clone(), (begun, running));
        Ok(Some(runs))
    }

    /// Whose a guest is.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if Proxmox does not say where it is.
    pub async fn owner(&self, vmid: u32, config: &Config) -> Result<Owner, Refusal> {
        Ok(Mark::owner(&self.castle, &self.client.place(vmid).await?, config.description()))
    }

    /// Holds that a guest is `name` of this castle, in this life, and in its range: everything else is left alone.
    pub(crate) async fn guard(&self, vmid: u32, name: &str, config: &Config) -> Result<Mark, Fault> {
        let subject = format!("VM {vmid}");
        if !self.vmids.contains(&vmid) {
            let (first, last) = (self.vmids.start(), self.vmids.end());
            return Err(Fault::guard(subject, format!("outside of the castle's VMIDs {first}-{last}")));
        }
        let called = config.get("name").unwrap_or("without a name");
        match self.owner(vmid, config).await? {
            Owner::Ours(mark) if mark.name == name => Ok(mark),
            Owner::Ours(mark) => {
                let evidence = format!("is `{}` of this castle, and the file wants `{name}` there", mark.name);
                Err(Fault::guard(subject, evidence).next("give the nodes the VMIDs they had, or run castle down first"))
            }
            Owner::Earlier(mark) => {
                let life = mark.castle.generation;
                let evidence = format!("is `{}` of an earlier life of this castle (life {life})", mark.name);
                Err(Fault::guard(subject, evidence).next("castle wipe removes what is left of earlier lives"))
            }
            Owner::Later(mark) => Err(Fault::guard(subject, mark.told_as_later(&self.castle)).next(lineage::OUTDATED)),
            Owner::Other(mark) => Err(self.taken(vmid, &mark)),
            Owner::Copy(mark) => {
                let next = self.cleared("move or remove the copy", vmid).await?;
                Err(Fault::guard(subject, mark.told_as_copy()).next(next))
            }
            Owner::Unreadable(format) => Err(Fault::guard(subject, format.to_string()).next(format.next())),
            Owner::Stranger => {
                let evidence = format!("is not castle's: it is called `{called}` and has no mark");
                let next = self.cleared("move that guest", vmid).await?;
                let is_node = "if it is this node, and somebody else made it: castle adopt --foreign; otherwise ";
                Err(Fault::guard(subject, evidence)
                    .next(format!("{}{next}", if called == name { is_node } else { "" })))
            }
        }
    }

    /// What to do about a guest that has this number and is not castle's: clear it as somebody who may does, or, as long as the castle has no machine, choose other
    /// numbers.
    pub(crate) async fn cleared(&self, clear: &str, vmid: u32) -> Result<String, Refusal> {
        let guests = self.guests(Duration::ZERO).await?;
        Ok(cleared(clear, stands(&self.castle, &guests, vmid)))
    }

    /// Why a guest is left alone that has the mark of another castle.
    #[must_use]
    pub fn taken(&self, vmid: u32, mark: &Mark) -> Fault {
        let Mark { name, castle, .. } = mark;
        let next = if castle.name == self.castle.name {
            "somebody has raised a castle of this name from elsewhere: let both use one state (state.store, docs/state.md), or take it down where it was raised"
        } else {
            "give this castle other vmids in castle.yaml"
        };
        let evidence = format!("belongs to another castle: `{name}` of {} (lineage {})", castle.name, castle.lineage);
        Fault::guard(format!("VM {vmid}"), evidence).next(next)
    }

    /// Holds that nobody has written after this writer.
    pub(crate) fn fence(vmid: u32, mark: &Mark, epoch: u64) -> Result<(), Fault> {
        if mark.epoch <= epoch {
            return Ok(());
        }
        let evidence = format!("was made by a later writer (epoch {}, this one is {epoch})", mark.epoch);
        Err(Fault::guard(format!("VM {vmid}"), evidence).next("someone else works on this castle: castle lease show"))
    }

    /// The configuration of a guest once nobody makes or destroys it any more; nothing if it is gone then. While that goes on it has no mark.
    ///
    /// # Errors
    ///
    /// If Proxmox does not answer, or the guest is stuck.
    pub async fn settled(&self, row: &Guest) -> Result<Option<Config>, Fault> {
        let config = self.client.config(&row.host, row.vmid).await?;
        if !config.as_ref().is_some_and(Config::is_placeholder) {
            return Ok(config);
        }
        self.wait_for_placeholder(row).await?;
        Ok(self.client.config(&row.host, row.vmid).await?)
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Closed>> {
        self.awaited.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is waited for of this guest, if it is.
    pub(crate) fn awaited(&self, vmid: u32) -> Option<Closed> {
        self.waits().get(&vmid).cloned()
    }

    /// Waits for a guest that is just being made or destroyed. One on which nobody works any more is stuck: a token cannot unlock it.
    pub(crate) async fn wait_for_placeholder(&self, row: &Guest) -> Result<(), Fault> {
        let (vmid, host, clock) = (row.vmid, row.host.as_str(), self.client.clock());
        let begun = clock.monotonic();
        let evidence = match row.lock.as_deref() {
            Some("destroyed") => "is being removed",
            _ => "is being made or removed",
        };
        let subject = format!("VM {vmid} on {host}");
        let closed = Closed { subject, evidence: format!("{evidence} by an earlier task"), next: String::new() };
        self.waits().insert(vmid, closed);
        let _awaited = Awaited { ground: self, vmid };
        while clock.monotonic().saturating_sub(begun) < PLACEHOLDER_BOUND {
            let own = vmid.to_string();
            let tasks = self.client.running_tasks(host).await?;
            // The task of a clone tells the source, never the target.
            let works = tasks.iter().any(|task| task.kind == "qmclone" || task.id.as_ref() == Some(&own));
            let lock = self.client.config(host, vmid).await?.and_then(|config| config.get("lock").map(str::to_owned));
            match lock {
                None => return Ok(()),
                Some(_) if works => clock.sleep(PLACEHOLDER_PERIOD).await,
                Some(lock) => return Err(stuck(vmid, host, &lock)),
            }
        }
        Err(stuck(vmid, host, row.lock.as_deref().unwrap_or("clone")))
    }
}

fn stuck(vmid: u32, host: &str, lock: &str) -> Fault {
    let what = if lock == "destroyed" { "removal" } else { "making" };
    let evidence = format!("is locked ({lock}), and no task works on it: its {what} was cut off");
    Fault::new(Class::Final, format!("VM {vmid} on {host}"), evidence).next(unstick(vmid, host))
}

/// How a person ends a guest whose making or removal was cut off.
#[must_use]
pub fn unstick(vmid: u32, host: &str) -> String {
    format!(
        "no token can unlock it; on {host}, as root: qm unlock {vmid} && qm destroy {vmid}; then run the same command again"
    )
}

/// When a step may look at what others have seen already: the first time, and never again.
#[derive(Debug, Default)]
pub(crate) struct Looks(std::sync::atomic::AtomicBool);

impl Looks {
    /// How old what is looked at may be.
    pub(crate) fn since(&self, now: Duration) -> Duration {
        if self.0.swap(true, std::sync::atomic::Ordering::Relaxed) { now } else { Duration::ZERO }
    }
}
