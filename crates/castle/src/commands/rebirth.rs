//! `castle rebirth`: down, then up, with both times.
//!
//! That one was begun is noted in the castle's store, so that whoever is killed in between goes on wherever castle is run next. Whether the
//! castle is down is not believed of the note alone: the next life begins only once an inventory has shown that nothing of the last is
//! left, so the life that the store tells is the proof. With `--keep-identity` there is no next life; there the note tells, which is written after that
//! inventory. To take down what is gone already does nothing, so a note that came too late costs a look and no more. The note is gone when
//! a castle stands, or was taken down by itself: what `up` has raised since, no rebirth takes for its own.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use castle_engine::note::{self, Unreadable};
use castle_engine::{CastleId, Fault};
use castle_proxmox::steps::unprotect;
use castle_seams::Disk;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::commands::confirm::confirmed;
use crate::commands::down::{Found, RestArgs, counted, doomed, left_alone, listed, timeout};
use crate::commands::up::{UpArgs, up};
use crate::doors::Doors;
use crate::keeping::Kept;
use crate::notes;
use crate::output::{Exit, Printer};
use crate::preflight::preflight;
use crate::removal::{Ending, Note, Removal};
use crate::stand::{Identity, Stand, Trouble, UNBORN};

/// The newest format of the note that this castle reads and writes.
const FORMAT: u64 = 1;
const TIMES: &str = "rebirths.json";
/// A few numbers for each of the last ones.
const MAX_TIMES_BYTES: u64 = 1 << 20;
/// How many are remembered.
const REMEMBERED: usize = 20;

/// Take a castle down and raise it anew, and tell how long both took
///
/// The new castle has new secrets, unless told otherwise. Killed or interrupted in between, it goes on when it is run again: what is
/// down is not taken down twice.
#[derive(Debug, Args)]
pub(crate) struct RebirthArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Keep the secrets of the cluster: client files that were issued stay valid
    #[arg(long)]
    keep_identity: bool,
    /// Keep the Talos image, so that it need not be downloaded
    #[arg(long)]
    keep_image: bool,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
    #[command(flatten)]
    rest: RestArgs,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// How long it may take in all: `90s`, `20m`. What is not done by then remains, and the same command goes on
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
}

/// The note that a rebirth was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    /// The life that is to end.
    lineage: String,
    generation: u64,
    keep_identity: bool,
    /// How long it took to take it down, once it is down.
    down: Option<Duration>,
}

impl Begun {
    /// Whether it is about this castle as it is now, or as it was one life ago.
    fn is_about(&self, castle: &CastleId) -> bool {
        let is_same = self.lineage == castle.lineage || self.lineage == UNBORN;
        is_same && (self.generation == castle.generation || self.is_next(castle))
    }

    /// Whether the life that was to end has ended.
    fn is_next(&self, castle: &CastleId) -> bool {
        !self.keep_identity && self.generation + 1 == castle.generation
    }

    fn is_down(&self, castle: &CastleId) -> bool {
        self.down.is_some() || self.is_next(castle)
    }
}

/// How long one took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Times {
    ended: SystemTime,
    down: Duration,
    up: Duration,
}

/// How long all of them took that are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Rebirths {
    rebirths: Vec<Times>,
}

impl Times {
    fn whole(&self) -> Duration {
        self.down + self.up
    }
}

pub(crate) async fn rebirth(args: &RebirthArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let begun = doors.clock.monotonic();
    doors.within(args.timeout);
    let stand = Stand::open(doors, &args.path, printer).await?.with_mirror(args.mirror.as_deref());
    let kept = &stand.kept;
    let identity = stand.identify().await?;
    let noted = find(kept, printer).await?.filter(|begun| begun.is_about(&identity.castle));
    if let Some(noted) = noted.as_ref().filter(|noted| noted.keep_identity != args.keep_identity) {
        let how = if noted.keep_identity { "with --keep-identity" } else { "without --keep-identity" };
        return Err(Trouble::Refused(format!(
            "a rebirth of {} was begun {how}, and has not ended\n  next: run it {how}; or end it with castle up {}",
            kept.name(),
            args.path.display()
        )));
    }
    let clock = kept.clock();
    let is_resumed = noted.as_ref().is_some_and(|begun| begun.is_down(&identity.castle));
    let mut calm = Value::Null;
    let down = match noted {
        Some(begun) if begun.is_down(&identity.castle) => {
            printer.say(&format!("{} is down already: an earlier rebirth was cut off after that.", kept.name()));
            begun.down
        }
        _ => {
            let taken = take_down(args, &stand, &identity, printer).await?;
            calm = taken.1;
            Some(taken.0)
        }
    };
    let start = clock.monotonic();
    printer.hold_result();
    let spent = doors.clock.monotonic().saturating_sub(begun);
    let left = args.timeout.map(|timeout| timeout.saturating_sub(spent));
    let ended = up(&UpArgs::of(&args.path, args.mirror.as_deref(), left), doors, printer).await;
    let mut object = part("up", ended, printer)?.map_err(Trouble::Said)?;
    let raised = clock.monotonic().saturating_sub(start);
    let castle = kept.castle_id().await.map_err(Trouble::Failed)?;
    let generation = castle.map_or(0, |castle| castle.generation);
    (object["verb"], object["result"]) = ("rebirth".into(), "raised".into());
    (object["up"], object["generation"]) = (json!({"seconds": raised.as_secs_f64()}), generation.into());
    object["resumed"] = is_resumed.into();
    if !calm.is_null() {
        object["graceful"] = calm;
    }
    match (down, is_resumed) {
        (Some(down), false) => {
            let times = Times { ended: clock.wall(), down, up: raised };
            let earlier = remember(kept, times);
            object["seconds"] = times.whole().as_secs_f64().into();
            object["down"] = json!({"seconds": down.as_secs_f64()});
            object["earlier"] = compared(&earlier);
            let (whole, down, raised) = (times.whole().as_secs_f64(), down.as_secs_f64(), raised.as_secs_f64());
            printer.say(&format!(
                "\nReborn in {whole:.1} s: down {down:.1} s, up {raised:.1} s (life {generation}).{}",
                told(&earlier)
            ));
        }
        (down, _) => {
            object["down"] = down.map_or(Value::Null, |down| json!({"seconds": down.as_secs_f64()}));
            let raised = raised.as_secs_f64();
            printer.say(&format!("\nReborn, after it was cut off: up {raised:.1} s this time (life {generation})."));
        }
    }
    printer.result(&object);
    Ok(Exit::Done)
}

/// Takes the castle down and notes that; returns how long it took, and how it came to rest before, if that was wanted.
async fn take_down(
    args: &RebirthArgs,
    stand: &Stand,
    identity: &Identity,
    printer: &mut Printer,
) -> Result<(Duration, Value), Trouble> {
    let kept = &stand.kept;
    let Found { doomed, copies } = doomed(stand, &identity.castle, args.keep_image).await?;
    copies.iter().for_each(|copy| printer.say(&left_alone(copy)));
    can_rise(stand, identity, args.keep_identity && !doomed.is_empty()).await?;
    if let Some(guest) = doomed.iter().find(|guest| guest.is_protected) {
        let subject = format!("VM {} ({})", guest.vmid, guest.name);
        return Err(Fault::guard(subject, "is protected from removal, so nothing was removed")
            .next(unprotect(guest.vmid))
            .into());
    }
    printer.say(&listed(&doomed));
    let question = format!("Remove {} of {} for good, and raise it anew?", counted(&doomed), kept.name());
    if !doomed.is_empty() && !confirmed(&question, args.yes, printer) {
        return Err(Trouble::Refused("nothing was removed: answer yes, or give --yes".to_owned()));
    }
    let text = |down| {
        let CastleId { lineage, generation, .. } = identity.castle.clone();
        note::bytes(FORMAT, &Begun { lineage, generation, keep_identity: args.keep_identity, down })
    };
    let note = Some(Note { key: key_of(kept), text: Box::new(text) });
    let start = kept.clock().monotonic();
    let ending = if args.keep_identity { Ending::Sleep } else { Ending::Life };
    let graceful = args.rest.bound();
    let removal = Removal { ending, graceful, note, ..Removal::new("rebirth", stand, doomed, args.keep_image) };
    printer.hold_result();
    let removed = removal.run(identity, printer).await;
    let mut receipt = part("down", removed, printer)?.map_err(Trouble::Said)?;
    let took = kept.clock().monotonic().saturating_sub(start);
    Ok((took, receipt["graceful"].take()))
}

/// The result of one of the two, if it did what it should; otherwise it is told as the result of all.
fn part(which: &str, ended: Result<Exit, Trouble>, printer: &mut Printer) -> Result<Result<Value, Exit>, Trouble> {
    let mut object = printer.held_result();
    match ended {
        Ok(Exit::Done) => Ok(Ok(object)),
        Ok(exit) | Err(Trouble::Said(exit)) => {
            (object["verb"], object["during"]) = ("rebirth".into(), which.into());
            printer.result(&object);
            Ok(Err(exit))
        }
        Err(trouble) => Err(trouble),
    }
}

/// Holds, before anything is removed, that what comes after can be done as far as that is known: the file, the secrets it refers to, the
/// vault, the key to the state, the manifests, the repository; and that there is an identity, if one is to be kept.
async fn can_rise(stand: &Stand, identity: &Identity, keeps: bool) -> Result<(), Trouble> {
    let kept = &stand.kept;
    kept.seal().map_err(Trouble::Failed)?;
    stand.knock().await?;
    kept.checks().await.map_err(Trouble::Failed)?;
    kept.referred().await?;
    let preflight = preflight(kept, stand.furnishing().await?.manifests()).await;
    if preflight.is_in_the_way() {
        return Err(Trouble::Refused(preflight.told()));
    }
    let room = stand.window(&identity.castle);
    room.hold_given().await?;
    if !keeps {
        return Ok(());
    }
    let mut is_kept = room.bundle().await?.is_some();
    if let (Some(given), false) = (&room.given, is_kept) {
        is_kept = matches!(given().await, Some(Ok(_)));
    }
    if let (Some(saved), false) = (&room.saved, is_kept) {
        is_kept = matches!(saved().await, Some(Ok(_)));
    }
    if is_kept {
        return Ok(());
    }
    let nowhere =
        Fault::guard("the secrets of the cluster", "are neither in the state nor in a vault, so they cannot be kept")
            .next("name them in talos.bundle; or without --keep-identity, for new ones");
    Err(nowhere.into())
}

fn key_of(kept: &Kept) -> String {
    format!("{}/rebirth", kept.key())
}

fn failed(error: impl Into<Fault>) -> Trouble {
    error.into().into()
}

/// What a note says.
#[derive(Debug, PartialEq, Eq)]
enum Noted {
    Begun(Begun),
    /// Nothing that anybody could use.
    Damaged,
    /// Something that only a newer castle knows: this is its format.
    Newer(u64),
}

impl Noted {
    fn read(bytes: &[u8]) -> Self {
        match note::read(FORMAT, bytes) {
            Ok(begun) => Self::Begun(begun),
            Err(Unreadable::Newer(format)) => Self::Newer(format),
            Err(Unreadable::Damaged(_)) => Self::Damaged,
        }
    }
}

/// The note, if there is one that can be read; that one cannot is said, for a rebirth that was cut off is begun anew then. One of a newer castle is left to that.
async fn find(kept: &Kept, printer: &mut Printer) -> Result<Option<Begun>, Trouble> {
    let found = kept.store.get(&key_of(kept)).await.map_err(failed)?;
    match found.map(|found| Noted::read(&found.bytes)) {
        Some(Noted::Begun(begun)) => Ok(Some(begun)),
        Some(Noted::Newer(format)) => Err(Trouble::Refused(format!(
            "a newer castle has begun a rebirth of {} ({} has format {format}; this one knows {FORMAT}): use that one",
            kept.name(),
            key_of(kept)
        ))),
        Some(Noted::Damaged) => {
            let (note, place) = (key_of(kept), &kept.place);
            printer.complain_to_people(&format!(
                "{note} in {place} is damaged, so nothing is known of an earlier rebirth: this one begins anew"
            ));
            Ok(None)
        }
        None => Ok(None),
    }
}

/// The castle stands, or was taken down for itself: whatever rebirth was begun has ended.
pub(crate) async fn settle(kept: &Kept) -> Result<(), Trouble> {
    match kept.store.get(&key_of(kept)).await.map_err(failed)?.map(|found| Noted::read(&found.bytes)) {
        Some(Noted::Begun(_) | Noted::Damaged) => kept.store.delete(&key_of(kept)).await.map_err(failed),
        Some(Noted::Newer(_)) | None => Ok(()),
    }
}

/// Remembers how long this one took, beside what else is known of earlier runs; returns what the earlier ones took. That it cannot be
/// kept is no failure.
fn remember(kept: &Kept, times: Times) -> Vec<Times> {
    let (disk, file): (&dyn Disk, _) = (kept.doors.disk.as_ref(), kept.own_folder().join(TIMES));
    let Rebirths { rebirths: earlier } = notes::read(disk, &file, MAX_TIMES_BYTES).told().unwrap_or_default();
    let mut rebirths = earlier.clone();
    rebirths.push(times);
    let surplus = rebirths.len().saturating_sub(REMEMBERED);
    rebirths.drain(..surplus);
    notes::keep(disk, &file, MAX_TIMES_BYTES, &Rebirths { rebirths });
    earlier
}

/// The whole times of the earlier ones, shortest first.
fn sorted(earlier: &[Times]) -> Vec<f64> {
    let mut all: Vec<Duration> = earlier.iter().map(Times::whole).collect();
    all.sort_unstable();
    all.iter().map(Duration::as_secs_f64).collect()
}

fn compared(earlier: &[Times]) -> Value {
    let all = sorted(earlier);
    match (all.get(all.len() / 2), all.first()) {
        (Some(middle), Some(best)) => json!({"runs": all.len(), "median_seconds": middle, "best_seconds": best}),
        _ => json!({"runs": 0}),
    }
}

fn told(earlier: &[Times]) -> String {
    let all = sorted(earlier);
    match (all.len(), all.get(all.len() / 2), all.first()) {
        (1, Some(once), _) => format!(" The time before: {once:.1} s."),
        (count, Some(middle), Some(best)) => {
            format!(" The {count} times before: {middle:.1} s in the middle, {best:.1} s at best.")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_times_are_written_and_read() {
        const RECORDED: &str = r#"{"format":1,"rebirths":[{"ended":{"secs_since_epoch":1790000000,"nanos_since_epoch":0},"down":{"secs":12,"nanos":500000000},"up":{"secs":90,"nanos":0}}],"digest":"59ea32014350cda4b02d5f8119d9eb56"}"#;
        let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let times = Times { ended, down: Duration::from_millis(12_500), up: Duration::from_secs(90) };
        let all = Rebirths { rebirths: vec![times] };
        assert_eq!(String::from_utf8(notes::bytes(&all)).unwrap(), RECORDED);
        assert_eq!(notes::of(RECORDED.as_bytes().to_vec()), notes::Note::Read(all));
    }

    fn castle(lineage: &str, generation: u64) -> CastleId {
        CastleId { name: "blue/embedded".to_owned(), lineage: lineage.to_owned(), generation }
    }

    fn begun(keep_identity: bool, down: Option<u64>) -> Begun {
        let down = down.map(Duration::from_secs);
        Begun { lineage: "a".to_owned(), generation: 3, keep_identity, down }
    }

    #[test]
    fn the_next_life_proves_that_the_last_is_over() {
        let fresh = begun(false, None);
        assert!(fresh.is_about(&castle("a", 3)) && !fresh.is_down(&castle("a", 3)));
        assert!(fresh.is_about(&castle("a", 4)) && fresh.is_down(&castle("a", 4)));
        assert!(!fresh.is_about(&castle("a", 5)) && !fresh.is_about(&castle("b", 3)));
        // With the old secrets there is no next life: the note tells.
        assert!(!begun(true, None).is_about(&castle("a", 4)) && !begun(true, None).is_down(&castle("a", 3)));
        assert!(begun(true, Some(2)).is_down(&castle("a", 3)));
        // One that never stood had nothing to take down, and has a lineage of its own by now.
        let unborn = Begun { lineage: UNBORN.to_owned(), generation: 1, ..begun(false, Some(0)) };
        assert!(unborn.is_about(&castle("a", 1)) && unborn.is_down(&castle("a", 1)));
    }

    #[test]
    fn the_recorded_note_is_written_and_read_and_that_of_a_newer_castle_is_not_taken_for_damaged() {
        const RECORDED: &str = r#"{"format":1,"lineage":"a","generation":3,"keep_identity":true,"down":{"secs":2,"nanos":0},"digest":"8c6c6727c4ec8baf34c1e0e940410799"}"#;
        const UNENDED: &str = r#"{"format":1,"lineage":"a","generation":3,"keep_identity":false,"down":null,"digest":"8dd91c651d1219ec5a841f432e7415f8"}"#;
        for (note, recorded) in [(begun(true, Some(2)), RECORDED), (begun(false, None), UNENDED)] {
            assert_eq!(String::from_utf8(note::bytes(FORMAT, &note)).unwrap(), recorded);
            assert_eq!(Noted::read(recorded.as_bytes()), Noted::Begun(note));
        }
        assert_eq!(Noted::read(&note::bytes(2, &json!({"lineage": "a", "keeps": true}))), Noted::Newer(2));
        for damaged in [&RECORDED[..20], &RECORDED.replace(":3", ":2")] {
            assert_eq!(Noted::read(damaged.as_bytes()), Noted::Damaged, "{damaged}");
        }
    }

    #[test]
    fn times_are_held_against_earlier_ones() {
        let times = |down, up| Times {
            ended: SystemTime::UNIX_EPOCH,
            down: Duration::from_secs(down),
            up: Duration::from_secs(up),
        };
        assert_eq!((told(&[]), compared(&[])), (String::new(), json!({"runs": 0})));
        assert_eq!(told(&[times(2, 10)]), " The time before: 12.0 s.");
        let all = [times(2, 10), times(30, 40), times(1, 8)];
        assert_eq!(told(&all), " The 3 times before: 12.0 s in the middle, 9.0 s at best.");
        assert_eq!(compared(&all), json!({"runs": 3, "median_seconds": 12.0, "best_seconds": 9.0}));
    }
}
