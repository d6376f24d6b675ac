//! Running a graph for a verb: events to the terminal or as objects, Ctrl-C, and the closing word.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use castle_engine::{
    CastleId, Event, Fence, Graph, Journal, Layer, Listener, Outcome, Predictions, Report, Seal, Tools, Wanted, What,
    run,
};
use castle_seams::{Clock, Disk, Entropy, Signals};
use serde_json::{Map, Value, json};

use crate::output::{Exit, Printer};
use crate::trap;

const PREDICTIONS: &str = "predictions.json";
/// A few numbers for each kind of step.
const MAX_PREDICTIONS_BYTES: u64 = 1 << 20;

/// What a run of a verb works with.
pub struct Setting<'s> {
    /// The verb, for the result object.
    pub verb: &'s str,
    /// Which castle.
    pub castle: CastleId,
    /// Only this layer may be changed.
    pub layer: Option<Layer>,
    /// The folder of the journal and of what is known of earlier runs.
    pub folder: &'s Path,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: &'s dyn Clock,
    /// Chance.
    pub entropy: &'s dyn Entropy,
    /// Asked before every effect.
    pub fence: &'s dyn Fence,
    /// What the state is sealed with: held to be openable again before the first effect.
    pub seal: &'s Seal,
    /// The operator's hand.
    pub signals: &'s dyn Signals,
}

/// A run that has ended, before anything is said of how.
pub struct Driven {
    /// How each step ended.
    pub report: Report,
    /// How long it took.
    pub took: Duration,
}

/// Runs `graph` and tells people or programs about it as it goes.
///
/// # Errors
///
/// How the verb ends if nothing could be begun; it has been said why.
pub async fn drive(graph: Graph, setting: Setting<'_>, printer: &mut Printer) -> Result<Driven, Exit> {
    let Setting { verb, castle, layer, folder, disk, clock, entropy, fence, seal, signals } = setting;
    // A state that nobody can read is a state that is lost.
    if let Err(error) = seal.prove() {
        return Err(printer.failed(verb, &format!("the state could not be opened again: {error}; nothing was done")));
    }
    let opened = disk
        .create_dir_all(folder, 0o700)
        .map_err(|error| error.to_string())
        .and_then(|()| Journal::open(&disk, &journal_of(folder, &castle), &castle).map_err(|error| error.to_string()));
    let (journal, recovery) = match opened {
        Ok(opened) => opened,
        Err(why) => return Err(printer.failed(verb, &why)),
    };
    if !recovery.open.is_empty() {
        let steps: Vec<String> = recovery.open.iter().map(|intent| intent.step.to_string()).collect();
        printer.say(&format!("An earlier run was cut off at {}: looking at what it did.", steps.join(", ")));
    }
    if let Some(damage) = &recovery.damage {
        let bytes = recovery.dropped_bytes;
        printer.say(&format!(
            "The journal's last {bytes} bytes were bad ({damage:?}) and are set aside: looking at the world instead."
        ));
    }
    let journal = Mutex::new(journal);
    let mut predictions = remembered(disk.as_ref(), folder);
    let graph = graph.predicted_by(&predictions);
    let teller = Teller { printer: Mutex::new(printer) };
    let tools = Tools { clock, entropy, fence, listener: &teller, signals: Some(signals), journal: Some(&journal) };
    let start = clock.monotonic();
    let wanted = Wanted { layer, ..Wanted::all(castle) };
    let report = run(&graph, tools, &wanted).await;
    let took = clock.monotonic().saturating_sub(start);
    // For people and for the next run's predictions; that they cannot be kept is no failure of the run.
    let keep = |name: &str, bytes: Vec<u8>| {
        let _ = disk.replace(&folder.join(name), &bytes, 0o600);
    };
    keep("timeline.json", serde_json::to_vec(&report.timeline).unwrap_or_default());
    if report.effects() > 0 {
        predictions.learn(&report.timeline);
        keep(PREDICTIONS, serde_json::to_vec(&predictions).unwrap_or_default());
    }
    Ok(Driven { report, took })
}

/// The journal of a castle: each of its lives has one.
pub(crate) fn journal_of(folder: &Path, castle: &CastleId) -> PathBuf {
    folder.join(format!("journal.{}", castle.generation))
}

/// What earlier runs tell; nothing if there were none, or if it can no longer be read.
pub(crate) fn remembered(disk: &dyn Disk, folder: &Path) -> Predictions {
    let bytes = disk.read(&folder.join(PREDICTIONS), MAX_PREDICTIONS_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Tells about events as they happen.
struct Teller<'p> {
    printer: Mutex<&'p mut Printer>,
}

impl<'p> Teller<'p> {
    fn printer(&self) -> MutexGuard<'_, &'p mut Printer> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Teller<'_> {
    fn hear(&self, event: &Event) {
        if let What::StepActing { step, .. } = &event.what {
            trap::spring(&step.to_string(), "an intent is noted, and nothing is done yet");
        }
        let mut printer = self.printer();
        if printer.is_json() {
            printer.result(&serde_json::to_value(event).unwrap_or_default());
        } else if let Some(line) = line(&event.what, printer.is_verbose()) {
            printer.say(&format!("{:8.1} s  {line}", event.at.as_secs_f64()));
        }
    }
}

/// An event in words; most are only for those who want to know everything.
fn line(what: &What, verbose: bool) -> Option<String> {
    match what {
        What::StepActing { step, change } => {
            let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
            let told = if verbose {
                format!(" ({}: {})", change.impact.word(), differences.join(", "))
            } else {
                String::new()
            };
            Some(format!("{step}  {}{told}", change.verb))
        }
        What::StepRetrying { step, fault, after } => {
            Some(format!("{step}  looks again in {:.1} s: {fault}", after.as_secs_f64()))
        }
        What::GateClosed { step, subject, evidence } => Some(format!("{step}  waits for {subject}: {evidence}")),
        What::StepEnded { step, outcome } => match outcome {
            Outcome::Done { effects: 0 } if !verbose => None,
            Outcome::Done { .. } => Some(format!("{step}  done")),
            Outcome::Failed { fault } => Some(format!("{step}  failed: {fault}")),
            _ => None,
        },
        What::LaneChanged { lane, width } if verbose => Some(format!("{lane}: {width} at once")),
        What::Interrupted => {
            Some("stopping: what is under way is brought to its end; once more stops at once".to_owned())
        }
        _ => None,
    }
}

/// The closing word of a verb, with what it adds to the result object, and the exit code that goes with it.
///
/// `changed` is the word for a run that did what was asked.
pub fn conclude(
    verb: &str,
    changed: &str,
    castle: &str,
    driven: &Driven,
    more: Map<String, Value>,
    printer: &mut Printer,
) -> Exit {
    let Driven { report, took } = driven;
    let count = |how: fn(&Outcome) -> bool| report.ended(how).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let guarded = count(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped { .. }));
    let remaining: Vec<String> =
        report.ended(|outcome| *outcome == Outcome::Remaining).map(|(step, _)| step.to_string()).collect();
    let acted = count(|outcome| matches!(outcome, Outcome::Done { effects } if *effects > 0));
    let (result, exit) = match () {
        () if report.interrupted => ("interrupted", Exit::Interrupted),
        () if guarded > 0 && guarded == failed => ("refused", Exit::Refused),
        () if failed > 0 || !remaining.is_empty() => ("failed", Exit::Failed),
        () if acted == 0 && changed != "gone" => ("unchanged", Exit::Done),
        () => (changed, Exit::Done),
    };
    let total = report.outcomes.len();
    let problems = problems(report, printer);
    if report.interrupted {
        let names = remaining.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
        let more = if remaining.len() > 10 { ", …" } else { "" };
        printer.say(&format!(
            "Interrupted. {} of {total} steps remain: {names}{more}\nRun the same command again to go on.",
            remaining.len()
        ));
    } else {
        let seconds = took.as_secs_f64();
        printer.say(&format!("{result} in {seconds:.1} s: {total} steps, {acted} of them changed something, {failed} failed, {skipped} skipped"));
    }
    let path: Vec<Value> = report
        .timeline
        .critical_path
        .iter()
        .map(|span| json!({"step": span.step.to_string(), "waited": span.waited.as_secs_f64(), "worked": span.worked.as_secs_f64()}))
        .collect();
    let mut object = json!({
        "verb": verb, "castle": castle, "result": result, "seconds": took.as_secs_f64(),
        "steps": {"total": total, "acted": acted, "failed": failed, "skipped": skipped, "remaining": remaining.len()},
        "critical_path": path, "problems": problems,
    });
    if let Some(object) = object.as_object_mut() {
        object.extend(more);
    }
    printer.result(&object);
    exit
}

/// What went wrong: said to people, and as objects for programs.
pub(crate) fn problems(report: &Report, printer: &mut Printer) -> Vec<Value> {
    let mut problems = Vec::new();
    let mut not_begun = 0;
    for (step, outcome) in report.ended(|outcome| !outcome.is_done()) {
        match outcome {
            Outcome::Failed { fault } => {
                let next = if fault.next.is_empty() { String::new() } else { format!("\n  next: {}", fault.next) };
                printer.complain_to_people(&format!("{step} failed: {fault}{next}"));
                let (summary, hint) = (fault.to_string(), fault.next.clone());
                problems.push(json!({"severity": "error", "step": step.to_string(), "summary": summary, "hint": hint}));
            }
            Outcome::Skipped { because } => {
                not_begun += 1;
                let summary = format!("not begun: it needs {because}");
                problems.push(json!({"severity": "note", "step": step.to_string(), "summary": summary}));
            }
            _ => {}
        }
    }
    match not_begun {
        // Behind a gate that is closed nothing went wrong.
        _ if problems.iter().all(|problem| problem["severity"] != "error") => {}
        0 => {}
        1 => printer.complain_to_people("1 step that needs these was not begun"),
        count => printer.complain_to_people(&format!("{count} steps that need these were not begun")),
    }
    problems
}
