//! Running a graph for a verb: events to the terminal or as objects, Ctrl-C, and the closing word.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_engine::{
    CastleId, Chosen, EVENT_VERSION, Event, Fence, Graph, Journal, JournalError, Listener, Outcome, Predictions,
    Report, Seal, Span, StepId, Timeline, Tools, Wanted, What, run,
};
use castle_seams::{Clock, Disk, DiskErrorKind, Entropy, Signals};

use crate::closing::Stories;
use crate::commands::plan::minutes;
use crate::live::{Live, Model};
use crate::masking;
use crate::notes;
use crate::output::{Exit, Printer};
use crate::trap;
use crate::voice::Still;

pub use crate::closing::conclude;
pub(crate) use crate::closing::problems;

/// How often it is looked whether the picture is out of date.
const DRAWING: Duration = Duration::from_millis(100);
const PREDICTIONS: &str = "predictions.json";
/// What the last run was like.
pub(crate) const TIMELINE: &str = "timeline.json";
/// No timeline is longer: it has a few hundred bytes a step.
pub(crate) const MAX_TIMELINE_BYTES: u64 = 64 << 20;
/// A few numbers for each kind of step.
const MAX_PREDICTIONS_BYTES: u64 = 1 << 20;

/// What a run of a verb works with.
pub struct Setting<'s> {
    /// The verb, for the result object.
    pub verb: &'s str,
    /// Which castle.
    pub castle: CastleId,
    /// The castle, for people.
    pub name: String,
    /// Its nodes: steps that are called after one of them are about it.
    pub nodes: Vec<String>,
    /// What may be changed.
    pub layers: Chosen,
    /// How long it may take in all.
    pub within: Option<Duration>,
    /// Whether it goes on from another run of the same verb: what that has left open was told.
    pub goes_on: bool,
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
    /// What the state is sealed with: held to be openable again before the first effect. Nothing for whoever writes no state.
    pub seal: Option<&'s Seal>,
    /// The operator's hand.
    pub signals: &'s dyn Signals,
}

/// A run that has ended, before anything is said of how.
pub struct Driven {
    /// What might be changed.
    pub layers: Chosen,
    /// How each step ended.
    pub report: Report,
    /// How long it took.
    pub took: Duration,
    /// How long was looked before, of the time that it might take in all.
    pub before: Duration,
    /// How long it might take in all.
    pub within: Option<Duration>,
    /// What is to be told of those that failed.
    pub(crate) stories: Stories,
}

impl Driven {
    /// This run and another that came after it, as one.
    #[must_use]
    pub(crate) fn and(mut self, later: Self) -> Self {
        let shifted = |mut span: Span| {
            span.ready += self.took;
            span
        };
        let Timeline { spans, critical_path } = later.report.timeline;
        self.report.timeline.spans.extend(spans.into_iter().map(shifted));
        self.report.timeline.critical_path.extend(critical_path.into_iter().map(shifted));
        self.report.outcomes.extend(later.report.outcomes);
        self.report.interrupted |= later.report.interrupted;
        self.stories.extend(later.stories);
        self.took += later.took;
        self
    }
}

/// Runs `graph` and tells people or programs about it as it goes.
///
/// # Errors
///
/// How the verb ends if nothing could be begun; it has been said why.
pub async fn drive(graph: Graph, setting: Setting<'_>, printer: &mut Printer) -> Result<Driven, Exit> {
    let Setting {
        verb,
        castle,
        name,
        nodes,
        layers,
        within,
        goes_on,
        folder,
        disk,
        clock,
        entropy,
        fence,
        seal,
        signals,
    } = setting;
    // A state that nobody can read is a state that is lost.
    if let Some(Err(error)) = seal.map(Seal::prove) {
        return Err(printer.failed(verb, &format!("the state could not be opened again: {error}; nothing was done")));
    }
    let opened = disk
        .create_dir_all(folder, 0o700)
        .map_err(|error| error.to_string())
        .and_then(|()| Journal::open(&disk, &journal_of(folder, &castle), &castle).map_err(|error| unusable(&error)));
    let (journal, recovery) = match opened {
        Ok(opened) => opened,
        Err(why) => return Err(printer.failed(verb, &why)),
    };
    if !recovery.open.is_empty() && !goes_on {
        let steps: Vec<String> = recovery.open.iter().map(|intent| intent.step.to_string()).collect();
        printer.say(&format!("An earlier run was cut off at {}: looking at what it did.", steps.join(", ")));
    }
    if let Some(damage) = &recovery.damage {
        let bytes = recovery.dropped_bytes;
        printer.say(&format!(
            "The journal's last {bytes} bytes were bad ({damage}) and are set aside: looking at the world instead."
        ));
    }
    let journal = Mutex::new(journal);
    let mut predictions = remembered(disk.as_ref(), folder);
    let graph = graph.predicted_by(&predictions);
    let live = printer.is_live().then(|| {
        let model =
            Model::new(&format!("{verb} {name}"), &nodes, &graph.outlook(), predictions != Predictions::default());
        Live::new(model, printer.is_coloured())
    });
    let (voice, running, start) = (printer.voice(), Arc::<Mutex<Running>>::default(), clock.monotonic());
    // Whoever sees the picture hears no silence.
    let at = match &live {
        Some(_) => voice.hushed(),
        None => {
            let running = running.clone();
            voice.tells(move |now| still(&running, now.saturating_sub(start)))
        }
    };
    let place = Place { printer, live, stories: Stories::default(), running };
    let teller = Teller { place: Mutex::new(place) };
    let tools = Tools { clock, entropy, fence, listener: &teller, signals: Some(signals), journal: Some(&journal) };
    let wanted = Wanted { layers, within, ..Wanted::all(castle) };
    let report = masking::report(teller.watched(clock, start, run(&graph, tools, &wanted)).await);
    let took = clock.monotonic().saturating_sub(start);
    drop(at);
    // For people and for the next run's predictions; that they cannot be kept is no failure of the run.
    notes::keep(disk.as_ref(), &folder.join(TIMELINE), MAX_TIMELINE_BYTES, &report.timeline);
    if report.effects() > 0 {
        predictions.learn(&report.timeline);
        notes::keep(disk.as_ref(), &folder.join(PREDICTIONS), MAX_PREDICTIONS_BYTES, &predictions);
    }
    let stories = std::mem::take(&mut teller.place().stories);
    Ok(Driven { layers: wanted.layers, report, took, before: Duration::ZERO, within: wanted.within, stories })
}

/// The journal of a castle: each of its lives has one.
pub(crate) fn journal_of(folder: &Path, castle: &CastleId) -> PathBuf {
    folder.join(format!("journal.{}", castle.generation))
}

/// Why a journal cannot be used, and what to do.
fn unusable(error: &JournalError) -> String {
    match error {
        JournalError::Disk(inner) if inner.kind == DiskErrorKind::IsDirectory => {
            format!("{error}\n  next: move it away, and run the same command again")
        }
        _ => error.to_string(),
    }
}

/// What earlier runs tell; nothing if there were none, or if it can no longer be read.
pub(crate) fn remembered(disk: &dyn Disk, folder: &Path) -> Predictions {
    notes::read(disk, &folder.join(PREDICTIONS), MAX_PREDICTIONS_BYTES).told().unwrap_or_default()
}

/// Tells about events as they happen.
struct Teller<'p> {
    place: Mutex<Place<'p>>,
}

/// Where it is told.
struct Place<'p> {
    printer: &'p mut Printer,
    /// Where someone watches, a picture; elsewhere line by line.
    live: Option<Live>,
    stories: Stories,
    running: Arc<Mutex<Running>>,
}

/// What runs: where nobody sees the picture, silence is broken by it.
#[derive(Default)]
pub(crate) struct Running {
    /// Since when, and what it does or waits for.
    steps: BTreeMap<StepId, (Duration, String)>,
}

impl Running {
    pub(crate) fn hear(&mut self, event: &Event) {
        let (step, doing) = match &event.what {
            What::StepStarted { step } => {
                self.steps.insert(step.clone(), (event.at, "looks".to_owned()));
                return;
            }
            What::StepEnded { step, .. } => {
                self.steps.remove(step);
                return;
            }
            What::StepActing { step, change } => (step, change.verb.clone()),
            What::StepRetrying { step, fault, .. } => (step, fault.to_string()),
            What::GateClosed { step, subject, evidence } => (step, format!("waits for {subject}: {evidence}")),
            _ => return,
        };
        if let Some((_, known)) = self.steps.get_mut(step) {
            *known = doing;
        }
    }

    /// What has run the longest.
    pub(crate) fn longest(&self, now: Duration) -> Option<What> {
        let (step, (since, doing)) = self.steps.iter().min_by_key(|(_, (since, _))| *since)?;
        let (running, others) = (now.saturating_sub(*since), self.steps.len() - 1);
        Some(What::StillRunning { step: step.clone(), running, doing: doing.clone(), others })
    }
}

/// What of a run takes so long, which began so long ago.
fn still(running: &Mutex<Running>, at: Duration) -> Option<Still> {
    let what = running.lock().unwrap_or_else(PoisonError::into_inner).longest(at)?;
    let event = Event { version: EVENT_VERSION, at, what };
    let line = stamped(&event, &line(&event.what, false)?);
    Some(Still::Running { event: Box::new(event), line })
}

impl<'p> Teller<'p> {
    fn place(&self) -> MutexGuard<'_, Place<'p>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works, and keeps the picture up to date meanwhile, if there is one.
    async fn watched<T>(&self, clock: &dyn Clock, start: Duration, work: impl Future<Output = T>) -> T {
        let is_live = self.place().live.is_some();
        let mut work = pin!(work);
        let mut drawing = pin!(async {
            loop {
                clock.sleep(DRAWING).await;
                self.place().draw(clock.monotonic().saturating_sub(start));
            }
        });
        let done = poll_fn(|context| {
            if is_live {
                // It never ends.
                let _: Poll<()> = drawing.as_mut().poll(context);
            }
            work.as_mut().poll(context)
        });
        let done = done.await;
        self.place().finish();
        done
    }
}

impl Place<'_> {
    fn draw(&mut self, now: Duration) {
        if let Some(text) = self.live.as_mut().and_then(|live| live.draw(now, Printer::size())) {
            self.printer.draw(&text);
        }
    }

    fn finish(&mut self) {
        if let Some(mut live) = self.live.take() {
            self.printer.draw(&live.finish(Printer::size()));
        }
    }
}

impl Listener for Teller<'_> {
    fn hear(&self, event: &Event) {
        if let What::StepActing { step, .. } = &event.what {
            trap::spring(&step.to_string(), "an intent is noted, and nothing is done yet");
        }
        let event = &masking::event(event);
        let mut place = self.place();
        let Place { printer, live, stories, running } = &mut *place;
        stories.hear(event);
        running.lock().unwrap_or_else(PoisonError::into_inner).hear(event);
        printer.note(event);
        if let Some(live) = live {
            let told = if printer.is_verbose() { line(&event.what, true) } else { None };
            live.hear(event, told.map(|line| stamped(event, &line)));
            place.draw(event.at);
        } else if printer.is_json() {
            printer.event(&serde_json::to_value(event).unwrap_or_default());
        } else if let Some(line) = line(&event.what, printer.is_verbose()) {
            printer.say(&stamped(event, &line));
        }
    }
}

fn stamped(event: &Event, line: &str) -> String {
    format!("{:8.1} s  {line}", event.at.as_secs_f64())
}

/// An event in words; most are only for those who want to know everything.
pub(crate) fn line(what: &What, verbose: bool) -> Option<String> {
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
        What::StillRunning { step, running, doing, others } => {
            let rest = match others {
                0 => String::new(),
                1 => " (and 1 other step)".to_owned(),
                count => format!(" (and {count} other steps)"),
            };
            Some(format!("{step}  {doing}, for {} by now{rest}", minutes(*running)))
        }
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
