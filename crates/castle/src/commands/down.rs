//! `castle down`: the hypervisor first, bounded, and a receipt of what is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{CastleId, Fault, Graph, GraphBuilder, Lease, Outcome, StateError, Taking, lineage};
use castle_layers::platform::{self, Doomed, Whose};
use castle_layers::vault;
use castle_proxmox::steps::{Reach, unprotect};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::commands::confirm::confirmed;
use crate::commands::rebirth;
use crate::doors::Doors;
use crate::drive::{Driven, conclude, journal_of};
use crate::graceful::{Calm, Rest};
use crate::keeping::Kept;
use crate::output::{Exit, Printer, table};
use crate::stand::{Bounds, Identity, Stand, Trouble, while_held};
use crate::vault::Chamber;

/// Take a castle down: remove every guest and image it made, and prove that nothing of it is left
///
/// Asks the hypervisor alone, so it works whatever inside the castle is dead; with `--graceful` the castle is asked to come to rest before
/// that, and goes all the same if it cannot. Everything is looked at once more before it is
/// removed; what is not this castle's is never touched.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Keep the Talos image, so that the next `up` need not download it
    #[arg(long)]
    keep_image: bool,
    #[command(flatten)]
    rest: RestArgs,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Whether a castle comes to rest before it goes.
#[derive(Debug, Args)]
pub(crate) struct RestArgs {
    /// Let the castle come to rest first: Flux is suspended, Pods let go of their volumes, machines go down by themselves
    #[arg(long)]
    graceful: bool,
    /// How long that may take in all: `90s`, `10m`. What is not done by then is told, and the castle goes all the same
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = bound, requires = "graceful")]
    within: Duration,
}

impl RestArgs {
    /// How long it may take, if it is wanted.
    pub(crate) fn bound(&self) -> Option<Duration> {
        self.graceful.then_some(self.within)
    }
}

/// A time to come to rest in, as people write it.
fn bound(text: &str) -> Result<Duration, String> {
    const WRITE: &str = "write a number and a unit, from 10s to 1h: 90s, 10m";
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let unit = ["s", "m", "h"].iter().position(|known| *known == unit).and_then(|place| [1, 60, 3600].get(place));
    let seconds = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(*unit));
    let seconds = seconds.filter(|seconds| (10..=3600).contains(seconds)).ok_or(WRITE)?;
    Ok(Duration::from_secs(seconds))
}

pub(crate) async fn down(args: &DownArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, &args.path, printer).await?;
    let identity = stand.identify().await?;
    let Found { doomed, copies } = doomed(&stand, &identity.castle, args.keep_image).await?;
    printer.say(&listed(&doomed));
    copies.iter().for_each(|copy| printer.say(&left_alone(copy)));
    let question = format!("Remove {} of {} for good?", counted(&doomed), stand.kept.name());
    if !doomed.is_empty() && !confirmed(&question, args.yes, printer) {
        return Err(Trouble::Refused("nothing was removed: answer yes, or give --yes".to_owned()));
    }
    let graceful = args.rest.bound();
    let removal = Removal { ending: Ending::Life, graceful, ..Removal::new("down", &stand, doomed, args.keep_image) };
    let exit = removal.run(&identity, printer).await?;
    if exit == Exit::Done {
        rebirth::settle(&stand.kept).await?;
    }
    Ok(exit)
}

/// What was found of a castle on its hypervisor.
pub(crate) struct Found {
    /// What is to go.
    pub(crate) doomed: Vec<Doomed>,
    /// Copies of its guests that somebody made. They stay.
    pub(crate) copies: Vec<Doomed>,
}

/// What of the castle is on its hypervisor and is to go.
///
/// Where a guest bears a mark that this castle does not read, nothing is: it may be of this very castle.
pub(crate) async fn doomed(stand: &Stand, castle: &CastleId, keep_image: bool) -> Result<Found, Trouble> {
    let mut within = platform::within(&stand.ground(castle, false)).await?;
    if let Some((guest, format)) = within.iter().find_map(|guest| match guest.whose {
        Whose::Unreadable(format) => Some((guest, format)),
        _ => None,
    }) {
        let subject = format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
        return Err(Fault::guard(subject, format.to_string()).next(format.next()).into());
    }
    let copies = within.extract_if(.., |guest| matches!(guest.whose, Whose::Copied(_))).collect();
    let ours = within.into_iter().filter(|guest| goes(guest, keep_image));
    Ok(Found { doomed: ours.map(|guest| called(guest, &stand.kept)).collect(), copies })
}

/// A guest within the castle's range that stays, and why, for people.
pub(crate) fn left_alone(guest: &Doomed) -> String {
    let Doomed { vmid, name, host, .. } = guest;
    let why = match guest.whose {
        Whose::Ours => "this castle's".to_owned(),
        Whose::Others => "another castle's".to_owned(),
        Whose::Copied(original) => {
            format!("a copy of VM {original} that somebody made (if it runs, it may have that one's address)")
        }
        Whose::Unreadable(format) => format!("which {format}: {}", format.next()),
        Whose::Unmarked => "without a mark".to_owned(),
    };
    format!("left alone: VM {vmid} ({name}) on {host}, {why}")
}

/// A guest whose host is away, and who has no name for it, is called as the file calls it.
fn called(mut guest: Doomed, kept: &Kept) -> Doomed {
    let node = kept.nodes.iter().find(|node| node.vmid.0 == guest.vmid);
    if let (true, Some(node)) = (guest.name.is_empty(), node) {
        guest.name.clone_from(&node.name.value);
    }
    guest
}

fn goes(guest: &Doomed, keep_image: bool) -> bool {
    guest.whose == Whose::Ours && !(keep_image && guest.is_template)
}

pub(crate) fn counted(doomed: &[Doomed]) -> String {
    match doomed.len() {
        1 => "1 guest".to_owned(),
        count => format!("{count} guests"),
    }
}

/// What is to go, for people.
pub(crate) fn listed(doomed: &[Doomed]) -> String {
    if doomed.is_empty() {
        return "There is no guest of this castle.".to_owned();
    }
    let mut rows = vec![["vmid", "name", "host", "what"].map(str::to_owned)];
    rows.extend(doomed.iter().map(|guest| {
        let what = if guest.is_template { "image" } else { "node" };
        [guest.vmid.to_string(), guest.name.clone(), guest.host.clone(), what.to_owned()]
    }));
    table(&rows)
}

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
}

/// Something that should be gone and is not, or of which nobody knows.
struct Leftover {
    /// For people: what it is, and where.
    told: String,
    next: String,
    object: Value,
}

/// The castle's vault, or why it cannot be opened.
type Opened = Result<Option<Arc<Chamber>>, String>;

impl<'r> Removal<'r> {
    /// The removal of what bears the castle's mark.
    pub(crate) fn new(verb: &'r str, stand: &'r Stand, doomed: Vec<Doomed>, keep_image: bool) -> Self {
        Self { verb, stand, doomed, reach: Reach::Marked, keep_image, ending: Ending::Guests, graceful: None }
    }

    /// Removes them, looks again, and prints the receipt.
    pub(crate) async fn run(self, identity: &Identity, printer: &mut Printer) -> Result<Exit, Trouble> {
        let kept = &self.stand.kept;
        if let Some(silent) = kept.silent_holder().await {
            printer.complain_to_people(&silent);
        }
        let held = kept.lease(Taking::Politely, identity.seen_epoch).await?;
        let work = async {
            let castle = &identity.castle;
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
            let (hosts, unseen) = self.hosts().await?;
            // A vault that cannot be opened keeps nobody from taking the machines away.
            let chamber = if self.ending == Ending::Life { kept.chamber() } else { Ok(None) };
            let graph = self.graph(castle, &self.doomed, &hosts, &chamber)?;
            // Nor does a key to the state that is lost.
            let seal = kept.seal().ok();
            let bounds = Bounds { seal: seal.as_ref(), goes_on: calm.is_some(), ..Bounds::default() };
            let driven = self.stand.drive_with(self.verb, graph, castle, bounds, &held.lease, printer).await?;
            let leftovers = self.leftovers(castle, (&hosts, &unseen), &chamber).await?;
            if leftovers.is_empty() && driven.report.is_done() && identity.is_born && self.ending != Ending::Guests {
                self.end(castle, identity.is_stored, held.lease.epoch()).await?;
            }
            Ok(self.receipt(&driven, &leftovers, (&unseen, calm.as_ref()), &chamber, printer))
        };
        let exit = while_held(&held.lease, work).await;
        let _ = held.lease.release().await;
        exit
    }

    /// Lets the castle come to rest, if that was asked for and there is something that could.
    async fn calm(&self, identity: &Identity, lease: &Lease, printer: &mut Printer) -> Result<Option<Calm>, Trouble> {
        let Some(within) = self.graceful.filter(|_| !self.doomed.is_empty()) else { return Ok(None) };
        let Self { verb, stand, doomed, .. } = self;
        let calm = Rest { verb, stand, identity, doomed, within, lease }.come(printer).await?;
        calm.tell(printer);
        Ok(Some(calm))
    }

    /// The steps that remove these guests, the downloads on these hosts, and what is in the vault. The vault comes last: as long as a
    /// machine stands, the secrets it was made with are worth having.
    fn graph(
        &self,
        castle: &CastleId,
        doomed: &[Doomed],
        hosts: &[String],
        chamber: &Opened,
    ) -> Result<Graph, Trouble> {
        let (kept, ground) = (&self.stand.kept, self.stand.ground(castle, false));
        let mut graph = GraphBuilder::new();
        let guests = platform::raze(&mut graph, &ground, &self.stand.site, doomed, self.reach, hosts);
        if let Ok(Some(chamber)) = chamber {
            let last = vault::clear(&mut graph, chamber.shelf(castle), &kept.castle);
            guests.into_iter().for_each(|guest| graph.after(last.clone(), guest));
        }
        graph.build().map_err(|error| Trouble::Failed(error.to_string()))
    }

    /// The hosts whose downloads are looked at, and those that are not there to be looked at.
    async fn hosts(&self) -> Result<(Vec<String>, Vec<String>), Trouble> {
        if self.keep_image {
            return Ok((Vec::new(), Vec::new()));
        }
        let online = self.stand.client.hosts().await?;
        let is_there = |host: &String| online.iter().any(|row| row.name == *host && row.is_online);
        Ok(self.stand.site.hosts.iter().cloned().partition(is_there))
    }

    /// What is still there of what was to go, asked afresh by someone who only looks.
    async fn leftovers(
        &self,
        castle: &CastleId,
        (hosts, unseen): (&[String], &[String]),
        chamber: &Opened,
    ) -> Result<Vec<Leftover>, Trouble> {
        let mut leftovers = Vec::new();
        let left = |guest: Doomed| {
            let guest = called(guest, &self.stand.kept);
            let (vmid, host) = (guest.vmid, &guest.host);
            let name = if guest.name.is_empty() { String::new() } else { format!(" ({})", guest.name) };
            let once = if unseen.contains(host) { format!("once {host} answers, ") } else { String::new() };
            let told = format!("VM {vmid}{name} on {host}");
            let next = if guest.is_protected { unprotect(vmid) } else { format!("{once}run the same command again") };
            let told = if guest.is_protected { format!("{told}, which is protected from removal") } else { told };
            Leftover { told, next, object: object(&guest) }
        };
        match platform::within(&self.stand.ground(castle, false)).await {
            Ok(now) => {
                let still = |guest: &Doomed| {
                    self.doomed.iter().any(|doomed| doomed.vmid == guest.vmid) || goes(guest, self.keep_image)
                };
                leftovers.extend(now.into_iter().filter(still).map(left));
            }
            Err(fault) => leftovers.push(Leftover {
                told: format!("nobody knows what: {fault}"),
                next: "once the hypervisor answers, run the same command again".to_owned(),
                object: json!({"what": "unknown", "evidence": fault.to_string()}),
            }),
        }
        let others = self.graph(castle, &[], hosts, chamber)?;
        for (step, outcome) in self.stand.look(&others, castle).await.outcomes {
            let evidence = match outcome {
                Outcome::Planned { change } => {
                    change.differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                }
                Outcome::Failed { fault } => fault.to_string(),
                _ => continue,
            };
            leftovers.push(Leftover {
                told: format!("{} ({evidence})", named(&step.kind, &step.name, chamber)),
                next: "run the same command again".to_owned(),
                object: json!({"what": &*step.kind, "name": &*step.name, "evidence": evidence}),
            });
        }
        if let Err(why) = chamber {
            leftovers.push(Leftover {
                told: format!("what the castle keeps in its vault: {why}"),
                next: "mend that, and run the same command again".to_owned(),
                object: json!({"what": "vault", "evidence": why}),
            });
        }
        Ok(leftovers)
    }

    /// The castle is gone, for good or for a while.
    async fn end(&self, castle: &CastleId, is_stored: bool, epoch: u64) -> Result<(), Trouble> {
        let failed = |error: String| Trouble::Failed(error);
        let store = self.stand.kept.store.as_ref();
        if !is_stored {
            lineage::adopt(store, castle).await.map_err(|error| failed(error.to_string()))?;
        }
        let (kept, layer) = (&self.stand.kept, platform::layer());
        let mut was_raised = false;
        if let Ok(mut state) = kept.state(castle.clone()) {
            let known = match state.latest(&layer).await {
                // Who has lost the key to the state takes a castle down all the same.
                Err(StateError::Seal { .. }) => None,
                known => known.map_err(|error| failed(error.to_string()))?,
            };
            let payload = json!({"generation": castle.generation, "nodes": []});
            was_raised = known.is_some_and(|record| record.payload != payload && record.payload["nodes"] != json!([]));
            if was_raised {
                state.write(&layer, payload, epoch).await.map_err(|error| failed(error.to_string()))?;
            }
            kept.remember(&state).map_err(failed)?;
        }
        // A castle that never stood has not died.
        if !was_raised && self.doomed.is_empty() {
            return Ok(());
        }
        if self.ending == Ending::Sleep {
            // The same life begins its etcd once more: nothing is left that has the old one.
            let room = kept.strongroom(castle, Some(kept.state(castle.clone()).map_err(failed)?));
            if let Some(chamber) = kept.chamber().map_err(failed)? {
                vault::note_unbegun(&chamber.shelf(castle), &kept.seal().map_err(failed)?, &room).await?;
            }
            room.note_begun(false, epoch).await?;
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
        (unseen, calm): (&[String], Option<&Calm>),
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
            .map(|guest| ["gone".to_owned(), guest.vmid.to_string(), guest.name.clone(), guest.host.clone()])
            .collect();
        rows.extend(others.iter().map(|(step, _)| {
            ["gone".to_owned(), String::new(), named(&step.kind, &step.name, chamber), String::new()]
        }));
        if !rows.is_empty() {
            printer.say(&table(&rows));
        }
        for left in leftovers {
            printer.complain_to_people(&format!("still there: {}\n  next: {}", left.told, left.next));
        }
        for host in unseen {
            printer.complain_to_people(&format!(
                "{host} is not there: whether something that castle downloaded is left on it was not looked at\n  next: once it is back, run the same command again"
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
        if !unseen.is_empty() {
            more.insert("unseen".to_owned(), json!(unseen));
        }
        let name = self.stand.kept.castle.castle.as_str();
        let exit = conclude(self.verb, "gone", name, driven, more, printer);
        if exit == Exit::Done && unseen.is_empty() {
            printer.say(&format!("Nothing of {} is left on its hypervisor.", self.stand.kept.name()));
        }
        exit
    }
}

/// A guest as an object.
fn object(guest: &Doomed) -> Value {
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
