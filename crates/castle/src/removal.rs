//! Guests that go, for whichever verb: looked at again under the lease, removed, and told in a receipt.
//!
//! The secrets of a castle go last, and only once it was seen that nothing bears its mark any more and that no machine is missing of which its
//! state knows: as long as one may run, the secrets it was made with are worth having.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{
    CastleId, Class, Expect, Fault, Fence, Graph, GraphBuilder, Lease, Outcome, SealError, StateError, Taking, lineage,
};
use castle_layers::platform::{self, Doomed, Whose};
use castle_layers::secrets::Strongroom;
use castle_layers::vault;
use castle_proxmox::steps::{Downloads, Ground, Reach, Unseen, unprotect, unstick};
use castle_seams::deadline;
use serde_json::{Map, Value, json};

use crate::drive::{Driven, conclude, journal_of};
use crate::graceful::{Calm, Rest};
use crate::keeping::{ANOTHER_LIFE, Kept};
use crate::masking;
use crate::output::{Exit, Printer, table};
use crate::recorded::{self, Machine, Recorded};
use crate::stand::{Bounds, Identity, Stand, Trouble, while_held};
use crate::standing::{UNMARKED, remove_by_hand};
use crate::vault::Chamber;

/// What becomes of the castle itself once its guests are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its life is over: what it keeps in its vault goes, too, and what is raised next is another life.
    Life,
    /// It will be raised again as it was: the same life, the same secrets.
    Sleep,
    /// Nothing: only its guests were asked for.
    Guests,
}

/// Guests that are to go, for a verb.
pub(crate) struct Removal<'r> {
    pub(crate) verb: &'r str,
    pub(crate) stand: &'r Stand,
    pub(crate) doomed: Vec<Doomed>,
    pub(crate) reach: Reach,
    pub(crate) keep_image: bool,
    pub(crate) ending: Ending,
    /// How long the castle may take to come to rest before its machines go, if it is to.
    pub(crate) graceful: Option<Duration>,
    /// What is noted in the castle's store of this removal, if anything is.
    pub(crate) note: Option<Note<'r>>,
    /// Whether machines that are not to be seen are taken for gone, and the secrets they were made with go, too.
    pub(crate) forgets: bool,
}

/// What is noted of a removal while nobody else can write: before the first guest goes, and once all are gone.
pub(crate) struct Note<'r> {
    /// Its place in the store.
    pub(crate) key: String,
    /// What it says, given how long it took; nothing before it has.
    pub(crate) text: Box<dyn Fn(Option<Duration>) -> Vec<u8> + Send + Sync + 'r>,
}

/// What was found once nobody else could write.
struct Site {
    castle: CastleId,
    ground: Arc<Ground>,
    downloads: Downloads,
    /// Machines that the state knows of, and that are not to be seen.
    missing: Vec<Machine>,
    /// Those that are seen, and have lost their mark; each with its host.
    unmarked: Vec<(Machine, String)>,
    /// Why nobody knows what the state knows.
    unknown: Option<String>,
    /// Guests within the range that somebody has copied from a castle's.
    copies: Vec<String>,
}

/// How long it is looked what is left, where the time of all is up.
const GLANCE: Duration = Duration::from_secs(40);

/// What a leftover is of which nobody knows what it is: whoever goes by those that are known forgets what still stands.
const UNKNOWN: &str = "unknown";

/// Something that should be gone and is not, or of which nobody knows.
struct Leftover {
    /// For people: what it is, and where; nothing if it is told together with others.
    told: Option<String>,
    next: String,
    object: Value,
}

impl Leftover {
    fn is_unknown(&self) -> bool {
        self.object["what"] == UNKNOWN
    }
}

/// The castle's vault, or why it cannot be opened.
type Opened = Result<Option<Arc<Chamber>>, String>;

impl<'r> Removal<'r> {
    /// The removal of what bears the castle's mark.
    pub(crate) fn new(verb: &'r str, stand: &'r Stand, doomed: Vec<Doomed>, keep_image: bool) -> Self {
        let (reach, ending, graceful, note, forgets) = (Reach::Marked, Ending::Guests, None, None, false);
        Self { verb, stand, doomed, reach, keep_image, ending, graceful, note, forgets }
    }

    /// Removes them, looks again, and prints the receipt.
    pub(crate) async fn run(self, identity: &Identity, printer: &mut Printer) -> Result<Exit, Trouble> {
        let kept = &self.stand.kept;
        let held = kept.lease(Taking::Politely, identity.seen_epoch).await?;
        let work = async {
            let begun = kept.clock().monotonic();
            let site = self.looked_again(identity, held.lease.epoch()).await?;
            self.note(None).await?;
            let castle = &site.castle;
            let calm = self.calm(identity, &held.lease, printer).await?;
            if calm.as_ref().is_some_and(|calm| calm.is_interrupted) {
                let result = json!({"verb": self.verb, "castle": kept.castle.castle.as_str(), "result": "interrupted",
                    "graceful": calm.map(|calm| calm.object())});
                printer.say(
                    "Interrupted: no machine was removed. Run the same command again to go on; castle up calls it off.",
                );
                printer.result(&result);
                return Ok(Exit::Interrupted);
            }
            // A vault that cannot be opened keeps nobody from taking the machines away.
            let chamber = if self.ending == Ending::Life { kept.chamber() } else { Ok(None) };
            let graph = self.graph(&site, &self.doomed)?;
            // Nor does a key to the state that is lost.
            let seal = kept.seal().ok();
            let bounds = || Bounds { seal: seal.as_ref(), goes_on: true, ..Bounds::default() };
            let first = Bounds { goes_on: calm.is_some(), ..bounds() };
            let mut driven = self.stand.drive_with(self.verb, graph, castle, first, &held.lease, printer).await?;
            let mut leftovers = self.leftovers(&site, driven.report.interrupted).await?;
            if leftovers.is_empty() && driven.report.is_done() {
                if let Some(cleared) = self.cleared(castle, &chamber)? {
                    let last =
                        self.stand.drive_with(self.verb, cleared, castle, bounds(), &held.lease, printer).await?;
                    driven = driven.and(last);
                }
                leftovers = self.kept_in_vault(castle, &chamber).await?;
            }
            let is_lacking = !(site.missing.is_empty() && site.unmarked.is_empty());
            // Where nobody can say what is left, nothing is forgotten.
            let is_known = !leftovers.iter().any(Leftover::is_unknown);
            if leftovers.is_empty() && driven.report.is_done() && identity.is_born && self.ending != Ending::Guests {
                self.end(&site, identity.is_stored, &held.lease, printer).await?;
            } else if is_lacking && is_known && self.ending != Ending::Guests {
                held.lease.check().await?;
                self.shrink(&site, &leftovers, held.lease.epoch()).await?;
            }
            let exit = self.receipt(&driven, &leftovers, (&site, calm.as_ref()), &chamber, printer);
            if exit == Exit::Done {
                held.lease.check().await?;
                self.note(Some(kept.clock().monotonic().saturating_sub(begun))).await?;
            }
            Ok(exit)
        };
        let exit = while_held(&kept.doors, &held.lease, work).await;
        let _ = held.lease.release().await;
        exit
    }

    /// Notes how far this is, if that is to be noted.
    async fn note(&self, took: Option<Duration>) -> Result<(), Trouble> {
        let Some(Note { key, text }) = &self.note else { return Ok(()) };
        let (store, failed) = (self.stand.kept.store.as_ref(), |error| Trouble::from(Fault::from(error)));
        let found = store.get(key).await.map_err(failed)?;
        let expect = found.as_ref().map_or(Expect::Nothing, |found| Expect::Version(&found.tag));
        store.put(key, &text(took), expect).await.map(|_| ()).map_err(failed)
    }

    /// Lets the castle come to rest, if that was asked for and there is something that could.
    async fn calm(&self, identity: &Identity, lease: &Lease, printer: &mut Printer) -> Result<Option<Calm>, Trouble> {
        let Some(within) = self.graceful.filter(|_| !self.doomed.is_empty()) else { return Ok(None) };
        let Self { verb, stand, doomed, .. } = self;
        let calm = Rest { verb, stand, identity, doomed, within, lease }.come(printer).await?;
        calm.tell(printer);
        Ok(Some(calm))
    }

    /// Looks again at what decides, now that nobody else writes: it is still the castle and the life that somebody was asked about, and it has no
    /// more guests than that.
    async fn looked_again(&self, identity: &Identity, epoch: u64) -> Result<Site, Trouble> {
        let (stand, kept) = (self.stand, &self.stand.kept);
        let _at = stand.looking_at("guests once more");
        let now = stand.identify().await?;
        let moved = |how: &str| Trouble::Refused(kept.moved_on(how));
        if now.castle != identity.castle && identity.is_born {
            return Err(moved(ANOTHER_LIFE));
        }
        let room = stand.window(&now.castle);
        let (recorded, unread) = match Recorded::read(&room).await {
            Ok(recorded) => (recorded, kept.state(now.castle.clone()).err().map(|why| (why, true))),
            // Who has lost the key to the state takes a castle down all the same.
            Err(error) => {
                let is_keyless = matches!(error, StateError::Seal { error: SealError::WrongKey { .. }, .. });
                (None, Some((error.to_string(), is_keyless)))
            }
        };
        // Where only guests within the range are asked for, nothing else is.
        let known = recorded.as_ref().filter(|_| self.ending != Ending::Guests);
        let ground = stand.ground_of(&now.castle, known);
        let found = platform::found(&ground).await?;
        let is_new = |guest: &&Doomed| {
            goes(guest, self.keep_image) && !self.doomed.iter().any(|doomed| doomed.vmid == guest.vmid)
        };
        if let Some(new) = found.iter().find(is_new).filter(|_| self.reach == Reach::Marked) {
            return Err(moved(&format!("got VM {} ({})", new.vmid, new.name)));
        }
        let is_ours =
            |guest: &&Doomed| matches!(guest.whose, Whose::Ours | Whose::Astray | Whose::Later(_) | Whose::Unfinished);
        let seen: BTreeSet<u32> = found.iter().filter(is_ours).map(|guest| guest.vmid).collect();
        let (mut missing, mut unmarked) = (Vec::new(), Vec::new());
        if let Some(recorded) = &recorded {
            let guests = ground.guests(Duration::ZERO).await?;
            for machine in recorded.missing(&stand.client, &seen).await? {
                match machine.unmarked(&stand.client, &now.castle, &guests).await? {
                    Some(row) => unmarked.push((machine, row.host.clone())),
                    None => missing.push(machine),
                }
            }
            let going = self.doomed.iter().map(|guest| guest.vmid).filter(|vmid| seen.contains(vmid));
            recorded.note_going(&room, going, stand.client.whereabouts(), epoch).await?;
        }
        let is_seen = found.iter().any(|guest| is_ours(&guest) && !guest.is_template);
        let beginning = room.beginning().await;
        let has_begun = beginning.as_ref().is_ok_and(|known| known.as_ref().is_some_and(|known| known.has_begun));
        let unreadable = |why: String| Some(format!("the state cannot be read: {why}"));
        let unknown = match (unread, beginning) {
            (Some((why, false)), _) => unreadable(why),
            // Without a key the machines themselves have to tell; where one is not seen, nobody does.
            (Some((why, true)), _)
                if self.has_record().await? && (!is_seen || self.hides_one(&ground, &seen).await?) =>
            {
                unreadable(why)
            }
            (None, Err(error)) if recorded.is_none() && !is_seen => unreadable(error.to_string()),
            (None, _) if recorded.is_none() && is_seen && self.hides_one(&ground, &seen).await? => Some(format!(
                "the state has no record of the machines of {}, and at {} a node of its file is there that castle may not see",
                kept.name(),
                stand.client.whereabouts()
            )),
            // A life that ended has been written down without machines, not without a record.
            (None, _) if !is_seen && has_begun && recorded.is_none() => Some(format!(
                "the state has no record of the machines of {}, whose etcd has begun, and castle sees none at {}",
                kept.name(),
                stand.client.whereabouts()
            )),
            // Whoever sleeps begins its etcd once more: only if castle itself has seen the old one go.
            (None, _) if self.ending == Ending::Sleep && has_begun && !self.knows_etcd(&found, recorded.as_ref()) => {
                Some(format!("the etcd of {} has begun, and castle knows of no control plane that has it", kept.name()))
            }
            _ if !is_seen && now.is_told_by_vault() => Some(format!(
                "only its vault knows of {}, and its machines may be where castle did not see them: looked at {}",
                kept.name(),
                stand.client.whereabouts()
            )),
            _ => None,
        };
        let downloads = match self.keep_image {
            true => Downloads::default(),
            false => platform::downloads(&ground, &stand.site).await?,
        };
        let is_copy = |guest: &&Doomed| matches!(guest.whose, Whose::Copied(_));
        let copies = found.iter().filter(is_copy).map(|guest| format!("VM {}", guest.vmid)).collect();
        Ok(Site { castle: now.castle, ground, downloads, missing, unmarked, unknown, copies })
    }

    /// Whether castle knows where the etcd of this life was: on control planes that are written down or seen, or on those that it has removed here itself.
    fn knows_etcd(&self, found: &[Doomed], recorded: Option<&Recorded>) -> bool {
        let is_razed = |known: &Recorded| known.is_razed(self.stand.client.whereabouts());
        let is_control_plane = |guest: &Doomed| {
            let mut nodes = self.stand.kept.nodes.iter();
            nodes.any(|node| node.vmid.0 == guest.vmid && node.role == castle_spec::Role::ControlPlane)
        };
        recorded.is_some_and(|known| known.control_planes().next().is_some() || is_razed(known))
            || found.iter().any(|guest| goes(guest, self.keep_image) && is_control_plane(guest))
    }

    /// Whether a node of the file is there and not to be seen.
    async fn hides_one(&self, ground: &Ground, seen: &BTreeSet<u32>) -> Result<bool, Trouble> {
        let guests = ground.guests(Duration::ZERO).await?;
        for vmid in self.stand.kept.nodes.iter().map(|node| node.vmid.0).filter(|vmid| !seen.contains(vmid)) {
            // What nobody tells may well be there.
            if !guests.contains_key(&vmid) && !self.stand.client.is_free(vmid).await.unwrap_or(false) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether machines were written down, readable or not.
    async fn has_record(&self) -> Result<bool, Trouble> {
        let kept = &self.stand.kept;
        let folder = format!("{}/state/{}/", kept.key(), platform::layer());
        let keys = kept.store.list(&folder).await.map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(!keys.is_empty())
    }

    /// A castle of which a part is gone goes on in its life without that part; and if its control planes are gone by castle's own hand, its etcd
    /// begins once more in it.
    async fn shrink(&self, site: &Site, leftovers: &[Leftover], epoch: u64) -> Result<(), Trouble> {
        let kept = &self.stand.kept;
        let Ok(state) = kept.state(site.castle.clone()) else { return Ok(()) };
        let room = kept.strongroom(&site.castle, Some(state));
        let Ok(Some(recorded)) = Recorded::read(&room).await else { return Ok(()) };
        let told = leftovers.iter().filter_map(|left| left.object["vmid"].as_u64()?.try_into().ok());
        // Somebody's word that these are gone ends a life; as long as it goes on, they may run.
        let left = told.chain(site.missing.iter().map(|machine| machine.vmid)).collect();
        if recorded.keep_only(&room, &left, self.stand.client.whereabouts(), epoch).await? {
            self.unbegin(&site.castle, &room, epoch).await?;
        }
        Ok(())
    }

    /// Writes down that nothing is left that has the etcd of this life, so that it may begin once more: for whoever has seen every control plane of this life
    /// that is written down go by castle's own hand.
    async fn unbegin(&self, castle: &CastleId, room: &Strongroom, epoch: u64) -> Result<(), Trouble> {
        let kept = &self.stand.kept;
        if let Some(chamber) = kept.chamber().map_err(Trouble::Failed)? {
            vault::note_unbegun(&chamber.shelf(castle), &kept.seal().map_err(Trouble::Failed)?, room).await?;
        }
        Ok(room.note_begun(false, epoch).await?)
    }

    /// The steps that remove these guests, and the downloads on the hosts.
    fn graph(&self, site: &Site, doomed: &[Doomed]) -> Result<Graph, Trouble> {
        let mut graph = GraphBuilder::new();
        platform::raze(&mut graph, &site.ground, &self.stand.site, doomed, self.reach, &site.downloads.places);
        graph.build().map_err(|error| Trouble::of(&error))
    }

    /// The step that takes out of the vault what the castle has there, if it has one that can be opened.
    fn cleared(&self, castle: &CastleId, chamber: &Opened) -> Result<Option<Graph>, Trouble> {
        let Ok(Some(chamber)) = chamber else { return Ok(None) };
        let mut graph = GraphBuilder::new();
        vault::clear(&mut graph, chamber.shelf(castle), &self.stand.kept.castle);
        graph.build().map(Some).map_err(|error| Trouble::of(&error))
    }

    /// What is still there of what was to go, asked afresh by someone who only looks; and what may be, where nobody looked.
    async fn leftovers(&self, site: &Site, is_interrupted: bool) -> Result<Vec<Leftover>, Trouble> {
        let mut leftovers = Vec::new();
        let _at = self.stand.looking_at("what is left");
        // What was removed is not believed of the list that it was chosen from.
        let (client, vmids) = (self.stand.client.clone(), self.stand.site.vmids.clone());
        let ground = Ground::new(client, site.castle.clone(), vmids, false).with_record(site.ground.record.clone());
        let looking = async {
            let now = platform::found(&ground).await?;
            Ok::<_, Fault>((now, self.out_of_sight(&ground).await?))
        };
        // Where the time is up this is all that is left to know, and is asked for all the same.
        let bound = self.stand.left().map(|left| left.max(GLANCE));
        let looked = match bound {
            None => looking.await,
            Some(bound) => deadline(self.stand.kept.clock(), bound, looking).await.unwrap_or_else(|elapsed| {
                Err(Fault::new(Class::RetryableAfter(None), self.stand.client.whereabouts(), elapsed.to_string()))
            }),
        };
        match looked {
            Ok((now, hidden)) => {
                let is_left = |guest: &Doomed| {
                    let was_to_go =
                        self.doomed.iter().any(|doomed| doomed.vmid == guest.vmid && doomed.whose == guest.whose);
                    // A mark that cannot be read may be this castle's.
                    let is_left_alone = matches!(guest.whose, Whose::Astray | Whose::Later(_) | Whose::Unreadable(_));
                    was_to_go || goes(guest, self.keep_image) || is_left_alone
                };
                leftovers.extend(now.into_iter().filter(is_left).map(|guest| self.left(guest, &site.downloads.unseen)));
                leftovers.extend(hidden);
            }
            Err(fault) => leftovers.push(Leftover {
                told: Some(format!("nobody knows what: {fault}")),
                next: "once the hypervisor answers, run the same command again".to_owned(),
                object: json!({"what": UNKNOWN, "evidence": fault.to_string()}),
            }),
        }
        // That may wait for downloads, and nobody wants to any more after Ctrl-C: what was not done is told as that.
        if !is_interrupted {
            leftovers.extend(self.looked_for(&self.graph(site, &[])?, &site.castle, &Ok(None)).await);
        }
        if self.ending == Ending::Guests {
            return Ok(leftovers);
        }
        let forget = format!("castle down --forget-secrets {}", self.stand.kept.castle.castle.as_str());
        // What is seen is not taken for gone by anybody.
        leftovers.extend(site.unmarked.iter().map(|(machine, host)| Leftover {
            told: Some(format!("VM {} ({}) on {host}, which {UNMARKED}", machine.vmid, machine.name)),
            next: format!("{}; then: {forget}", remove_by_hand(machine.vmid)),
            object: json!({"what": "unmarked", "vmid": machine.vmid, "name": machine.name, "host": host}),
        }));
        if self.forgets {
            return Ok(leftovers);
        }
        leftovers.extend(site.missing.iter().map(|machine| Leftover {
            told: None,
            next: forget.clone(),
            object: json!({"what": "unseen", "vmid": machine.vmid, "name": machine.name, "host": machine.host}),
        }));
        leftovers.extend(site.unknown.iter().map(|why| Leftover {
            told: Some(format!("nobody knows what: {why}")),
            next: format!("castle state show; or, if nothing else can be there: {forget}"),
            object: json!({"what": UNKNOWN, "evidence": why}),
        }));
        Ok(leftovers)
    }

    /// What was to go, is not to be seen any more, and is there all the same: the token may have lost sight of it meanwhile.
    async fn out_of_sight(&self, ground: &Ground) -> Result<Vec<Leftover>, Fault> {
        let guests = ground.guests(Duration::ZERO).await?;
        let mut hidden = Vec::new();
        for guest in self.doomed.iter().filter(|guest| !guests.contains_key(&guest.vmid)) {
            if !ground.client.is_free(guest.vmid).await? {
                hidden.push(Leftover {
                    told: Some(format!(
                        "VM {} ({}), which castle does not see any more",
                        guest.vmid,
                        masking::text(&guest.name)
                    )),
                    next: "mend the token (castle doctor tells what it may see), and run the same command again"
                        .to_owned(),
                    object: object(guest),
                });
            }
        }
        Ok(hidden)
    }

    /// A guest that is still there.
    fn left(&self, guest: Doomed, unseen: &[Unseen]) -> Leftover {
        let is_away = unseen.iter().any(|unseen| unseen.storage.is_none() && unseen.host == guest.host);
        let guest = masking::guest(&called(guest, &self.stand.kept));
        let (vmid, host) = (guest.vmid, &guest.host);
        let name = if guest.name.is_empty() { String::new() } else { format!(" ({})", guest.name) };
        let once = if is_away { format!("once {host} answers, ") } else { String::new() };
        let told = format!("VM {vmid}{name} on {host}");
        let (told, next) = match guest.whose {
            _ if guest.is_protected => (format!("{told}, which is protected from removal"), unprotect(vmid)),
            Whose::Astray => {
                let (first, last) = (self.stand.site.vmids.start(), self.stand.site.vmids.end());
                let next = "give castle.yaml vmids that it is within, and run the same command again";
                (format!("{told}, with this castle's mark, outside of its vmids {first}-{last}"), next.to_owned())
            }
            Whose::Unfinished => (
                format!("{told}, which {UNFINISHED}"),
                format!(
                    "run the same command again; if no task of Proxmox works on it any more, {}",
                    unstick(vmid, host)
                ),
            ),
            Whose::Later(life) => {
                (format!("{told}, of life {life}, of which the state here does not know"), lineage::OUTDATED.to_owned())
            }
            Whose::Unreadable(format) => (format!("{told}, which {format}"), format.next().to_owned()),
            _ => (told, format!("{once}run the same command again")),
        };
        Leftover { told: Some(told), next, object: object(&guest) }
    }

    /// What the castle still keeps in its vault.
    async fn kept_in_vault(&self, castle: &CastleId, chamber: &Opened) -> Result<Vec<Leftover>, Trouble> {
        if let Err(why) = chamber {
            return Ok(vec![Leftover {
                told: Some(format!("what the castle keeps in its vault: {why}")),
                next: "mend that, and run the same command again".to_owned(),
                object: json!({"what": "vault", "evidence": why}),
            }]);
        }
        match self.cleared(castle, chamber)? {
            Some(graph) => Ok(self.looked_for(&graph, castle, chamber).await),
            None => Ok(Vec::new()),
        }
    }

    /// What steps that remove something would still have to do.
    async fn looked_for(&self, graph: &Graph, castle: &CastleId, chamber: &Opened) -> Vec<Leftover> {
        let mut leftovers = Vec::new();
        for (step, outcome) in self.stand.look(graph, castle).await.outcomes {
            let again = || "run the same command again".to_owned();
            let (evidence, next) = match outcome {
                Outcome::Planned { change } => {
                    (change.differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), again())
                }
                // Refused once, it is refused again.
                Outcome::Failed { fault } if fault.guarded => (fault.to_string(), fault.next),
                Outcome::Failed { fault } => (fault.to_string(), again()),
                _ => continue,
            };
            leftovers.push(Leftover {
                told: Some(format!("{} ({evidence})", named(&step.kind, &step.name, chamber))),
                next,
                object: json!({"what": &*step.kind, "name": &*step.name, "evidence": evidence}),
            });
        }
        leftovers
    }

    /// The castle is gone, for good or for a while.
    async fn end(&self, site: &Site, is_stored: bool, lease: &Lease, printer: &mut Printer) -> Result<(), Trouble> {
        let castle = &site.castle;
        let failed = |error: String| Trouble::Failed(error);
        let store = self.stand.kept.store.as_ref();
        // What is written from here on is written by the one who took it down, or not at all.
        lease.check().await?;
        let epoch = lease.epoch();
        // Others may know this life better than who has taken it down by its marks alone: the next one here is another castle.
        if !is_stored && self.ending == Ending::Life && self.stand.kept.castle.secrets.is_none() {
            return Ok(());
        }
        if !is_stored {
            lineage::adopt(store, castle).await.map_err(|error| failed(error.to_string()))?;
        }
        if site.unknown.is_some() {
            // Somebody ends this life although its state cannot be read, and the next one begins with one that can.
            self.stand.mend_state(castle, printer).await?;
        }
        let (kept, layer) = (&self.stand.kept, platform::layer());
        // One that was cut off while it ended has no machine written down any more, and its etcd has begun.
        let beginning = self.stand.window(castle).beginning().await.ok().flatten();
        let has_begun = beginning.is_some_and(|beginning| beginning.has_begun);
        let mut was_raised = false;
        if let Ok(mut state) = kept.state(castle.clone()) {
            let known = match state.latest(&layer).await {
                // Who has lost the key to the state takes a castle down all the same.
                Err(StateError::Seal { .. }) => None,
                known => known.map_err(|error| failed(error.to_string()))?,
            };
            let payload = Recorded::payload(castle.generation, &json!([]));
            was_raised = known.as_ref().is_some_and(|record| record.payload["nodes"] != json!([]));
            // The same life begins its etcd once more: nothing is left that has the old one. Before its machines are forgotten, for without them
            // nobody would know why there is none.
            if self.ending == Ending::Sleep && (was_raised || has_begun || !self.doomed.is_empty()) {
                let room = kept.strongroom(castle, Some(kept.state(castle.clone()).map_err(failed)?));
                self.unbegin(castle, &room, epoch).await?;
            }
            if known.is_some_and(|record| record.payload != payload) {
                state.write(&layer, payload, epoch).await.map_err(|error| failed(error.to_string()))?;
            }
            kept.remember(&state).map_err(failed)?;
        }
        // A castle that never stood has not died.
        let is_forgotten = !site.missing.is_empty() || site.unknown.is_some();
        if !was_raised && !has_begun && self.doomed.is_empty() && !is_forgotten {
            return Ok(());
        }
        if self.ending == Ending::Life {
            lineage::next_life(store, castle).await.map_err(|error| failed(error.to_string()))?;
        }
        // What it noted is of no use to the next one; that it stays would do no harm.
        let _ = kept.doors.disk.remove_file(&journal_of(&kept.own_folder(), castle));
        Ok(())
    }

    fn receipt(
        &self,
        driven: &Driven,
        leftovers: &[Leftover],
        (site, calm): (&Site, Option<&Calm>),
        chamber: &Opened,
        printer: &mut Printer,
    ) -> Exit {
        let is_left = |guest: &Doomed| leftovers.iter().any(|left| left.object["vmid"] == guest.vmid);
        let gone: Vec<&Doomed> = self.doomed.iter().filter(|guest| !is_left(guest)).collect();
        // What was removed besides guests: the steps alone know.
        let others = driven.report.ended(|outcome| matches!(outcome, Outcome::Done { effects: 1.. }));
        let others: Vec<_> = others.filter(|(step, _)| matches!(&*step.kind, "downloads" | "vault")).collect();
        let mut rows: Vec<[String; 4]> = gone
            .iter()
            .map(|guest| masking::guest(guest))
            .map(|guest| ["gone".to_owned(), guest.vmid.to_string(), guest.name, guest.host])
            .collect();
        rows.extend(others.iter().map(|(step, _)| {
            ["gone".to_owned(), String::new(), named(&step.kind, &step.name, chamber), String::new()]
        }));
        if !rows.is_empty() {
            printer.say(&table(&rows));
        }
        for left in leftovers {
            let Some(told) = &left.told else { continue };
            printer.complain_to_people(&format!("still there: {told}\n  next: {}", left.next));
        }
        if !self.forgets && self.ending != Ending::Guests && !site.missing.is_empty() {
            printer.complain_to_people(&format!(
                "may still be there: {}, which the state knows, and which castle did not see at {}: the secrets and the life of the castle are kept\n  next: \
                 mend the endpoint or the token in castle.yaml, and run the same command again; if they are truly gone: castle down --forget-secrets {}",
                recorded::listed(&site.missing),
                self.stand.client.whereabouts(),
                self.stand.kept.castle.castle.as_str()
            ));
        }
        for unseen in &site.downloads.unseen {
            printer.complain_to_people(&format!(
                "not looked at: whether something that castle downloaded is left on {unseen}: {}\n  next: once that is mended, run the same command again",
                unseen.why
            ));
        }
        let other = |step: &castle_engine::StepId| json!({"what": &*step.kind, "name": &*step.name});
        let all = gone.iter().map(|guest| object(guest)).chain(others.iter().map(|(step, _)| other(step)));
        let mut more = Map::new();
        more.insert("gone".to_owned(), all.collect());
        more.insert("leftovers".to_owned(), leftovers.iter().map(|left| left.object.clone()).collect());
        if let Some(calm) = calm {
            more.insert("graceful".to_owned(), calm.object());
        }
        if !site.downloads.unseen.is_empty() {
            more.insert("unseen".to_owned(), site.downloads.unseen.iter().map(ToString::to_string).collect());
        }
        if self.forgets && !site.missing.is_empty() {
            let told = recorded::listed(&site.missing);
            printer.say(&format!("Not to be seen, and taken for gone: {told}"));
            more.insert("forgotten".to_owned(), site.missing.iter().map(|machine| json!(machine.name)).collect());
        }
        let name = self.stand.kept.castle.castle.as_str();
        let exit = conclude(self.verb, "gone", name, driven, more, printer);
        if exit == Exit::Done && site.downloads.unseen.is_empty() {
            let image = if self.keep_image { " but the image, which was to be kept" } else { "" };
            let (name, vmids) = (self.stand.kept.name(), &self.stand.site.vmids);
            let copies = match site.copies.as_slice() {
                [] => String::new(),
                copies => format!(" but what somebody copied: {}", copies.join(", ")),
            };
            printer.say(&match self.ending {
                Ending::Guests => {
                    let (first, last) = (vmids.start(), vmids.end());
                    format!("Nothing that bears the mark of {name} is left within {first}-{last}{copies}.")
                }
                Ending::Life | Ending::Sleep => format!("Nothing of {name} is left on its hypervisor{image}."),
            });
        }
        exit
    }
}

/// What is said of a guest that has no mark yet, or not any more.
pub(crate) const UNFINISHED: &str = "is being made or removed, or was cut off in that";

/// A guest as an object.
fn object(guest: &Doomed) -> Value {
    let guest = masking::guest(guest);
    json!({"vmid": guest.vmid, "name": guest.name, "host": guest.host})
}

/// What a step removes besides guests, for people.
fn named(kind: &str, name: &str, chamber: &Opened) -> String {
    match (kind, chamber) {
        ("downloads", _) => format!("downloads on {name}"),
        (_, Ok(Some(chamber))) => format!("what it kept in its vault, in {}", chamber.path),
        _ => format!("{kind} {name}"),
    }
}

/// A guest whose host is away, and who has no name for it, is called as the file calls it.
pub(crate) fn called(mut guest: Doomed, kept: &Kept) -> Doomed {
    let node = kept.nodes.iter().find(|node| node.vmid.0 == guest.vmid);
    if let (true, Some(node)) = (guest.name.is_empty(), node) {
        guest.name.clone_from(&node.name.value);
    }
    guest
}

/// Whether a guest is to go with its castle.
pub(crate) fn goes(guest: &Doomed, keep_image: bool) -> bool {
    matches!(guest.whose, Whose::Ours | Whose::Unfinished) && !(keep_image && guest.is_template)
}
