//! `castle down`: the hypervisor first, bounded, and a receipt of what is gone.

use std::path::PathBuf;
use std::time::Duration;

use castle_engine::{CastleId, Fault, StateError, lineage};
use castle_layers::platform::{self, Doomed, Whose};
use castle_proxmox::steps::unstick;
use clap::Args;

use crate::commands::confirm::confirmed;
use crate::commands::rebirth;
use crate::doors::Doors;
use crate::masking;
use crate::output::{Exit, Printer, table};
use crate::recorded::Recorded;
use crate::removal::{Ending, Removal, UNFINISHED, called, goes};
use crate::stand::{Stand, Trouble};

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
    /// End the castle's life though machines that its state knows are not to be seen, and remove the secrets they were made with; takes the
    /// castle's name
    #[arg(long, value_name = "CASTLE")]
    forget_secrets: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// How long it may take in all: `90s`, `20m`. What is not done by then remains, and the same command goes on
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
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
    time(text, 3600).ok_or_else(|| "write a number and a unit, from 10s to 1h: 90s, 10m".to_owned())
}

/// How long a whole run may take, as people write it.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    time(text, 24 * 3600).ok_or_else(|| "write a number and a unit, from 10s to 24h: 90s, 20m, 2h".to_owned())
}

fn time(text: &str, longest: u64) -> Option<Duration> {
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let unit = ["s", "m", "h"].iter().position(|known| *known == unit).and_then(|place| [1, 60, 3600].get(place));
    let seconds = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(*unit));
    let seconds = seconds.filter(|seconds| (10..=longest).contains(seconds))?;
    Some(Duration::from_secs(seconds))
}

pub(crate) async fn down(args: &DownArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    doors.within(args.timeout);
    let stand = Stand::open(doors, &args.path, printer).await?;
    let name = stand.kept.castle.castle.as_str();
    if let Some(other) = args.forget_secrets.as_ref().filter(|given| *given != name) {
        return Err(Trouble::Invalid(format!("--forget-secrets {other}: the castle is called {name}")));
    }
    let identity = stand.identify().await?;
    let Found { doomed, copies } = doomed(&stand, &identity.castle, args.keep_image).await?;
    printer.say(&listed(&doomed));
    copies.iter().for_each(|copy| printer.say(&left_alone(copy)));
    let question = format!("Remove {} of {} for good?", counted(&doomed), stand.kept.name());
    if !doomed.is_empty() && !confirmed(&question, args.yes, printer) {
        return Err(Trouble::Refused("nothing was removed: answer yes, or give --yes".to_owned()));
    }
    let graceful = args.rest.bound();
    let (ending, forgets) = (Ending::Life, args.forget_secrets.is_some());
    let removal = Removal { ending, graceful, forgets, ..Removal::new("down", &stand, doomed, args.keep_image) };
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
    let recorded = match Recorded::read(&stand.window(castle)).await {
        // Whoever cannot read what is written down goes by the marks within the range.
        Err(StateError::Store(error)) => return Err(Trouble::of(&error)),
        recorded => recorded.ok().flatten(),
    };
    let at = stand.looking_at("guests");
    let mut found = platform::found(&stand.ground_of(castle, recorded.as_ref())).await?;
    drop(at);
    for guest in &found {
        let subject = format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
        match guest.whose {
            Whose::Unreadable(format) => {
                return Err(Fault::guard(subject, format.to_string()).next(format.next()).into());
            }
            Whose::Later(life) => {
                let evidence =
                    format!("is of life {life} of this castle, and its state knows of {}", castle.generation);
                return Err(Fault::guard(subject, evidence).next(lineage::OUTDATED).into());
            }
            _ => {}
        }
    }
    let copies = found.extract_if(.., |guest| matches!(guest.whose, Whose::Copied(_))).collect();
    let ours = found.into_iter().filter(|guest| goes(guest, keep_image));
    Ok(Found { doomed: ours.map(|guest| called(guest, &stand.kept)).collect(), copies })
}

/// A guest within the castle's range that stays, and why, for people.
pub(crate) fn left_alone(guest: &Doomed) -> String {
    let Doomed { vmid, name, host, .. } = &masking::guest(guest);
    let why = match guest.whose {
        Whose::Ours => "this castle's".to_owned(),
        Whose::Astray => "with this castle's mark, outside of its vmids".to_owned(),
        Whose::Unfinished => format!("which {UNFINISHED}; if no task works on it any more, {}", unstick(*vmid, host)),
        Whose::Later(life) => format!("this castle's in life {life}, of which its state does not know"),
        Whose::Others => "another castle's".to_owned(),
        Whose::Copied(original) => {
            format!("a copy of VM {original} that somebody made (if it runs, it may have that one's address)")
        }
        Whose::Unreadable(format) => format!("which {format}: {}", format.next()),
        Whose::Unmarked => "without a mark".to_owned(),
    };
    format!("left alone: VM {vmid} ({name}) on {host}, {why}")
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
        let what = match guest.whose {
            Whose::Unfinished => "unfinished: goes if it turns out to be this castle's",
            _ if guest.is_template => "image",
            _ => "node",
        };
        let Doomed { vmid, name, host, .. } = masking::guest(guest);
        [vmid.to_string(), name, host, what.to_owned()]
    }));
    table(&rows)
}
