//! The closing word of a run: how it ended, what took how long, and of each failure what a person needs.

use std::collections::BTreeMap;
use std::time::Duration;

use castle_engine::{Event, Fault, Impact, Layer, Outcome, Report, Span, StepId, Timeline, What};
use castle_proxmox::steps;
use serde_json::{Map, Value, json};

use crate::commands::plan::minutes;
use crate::drive::Driven;
use crate::output::{Exit, Printer};
use crate::stand::with_next;

/// What took less of the critical path than this part of the whole is left out for people.
const WORTH_TELLING: f64 = 0.02;

/// What steps tried: told if they fail, forgotten if they do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stories(BTreeMap<StepId, Story>);

/// What one step tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Story {
    begun: Duration,
    ended: Duration,
    /// What it wanted last.
    wanted: Option<String>,
    did: Vec<String>,
    retries: u32,
    is_gate: bool,
}

impl Stories {
    /// Takes the stories of a later run.
    pub(crate) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// Takes an event.
    pub(crate) fn hear(&mut self, event: &Event) {
        match &event.what {
            What::StepStarted { step } => {
                self.0.insert(step.clone(), Story { begun: event.at, ..Story::default() });
            }
            What::StepActing { step, change } => {
                let Some(story) = self.0.get_mut(step) else { return };
                let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
                let told =
                    if differences.is_empty() { String::new() } else { format!(" ({})", differences.join(", ")) };
                story.wanted = Some(format!("{}{told}", change.verb));
                story.did.push(change.verb.clone());
            }
            What::StepRetrying { step, .. } => {
                if let Some(story) = self.0.get_mut(step) {
                    story.retries += 1;
                }
            }
            What::GateClosed { step, .. } => {
                if let Some(story) = self.0.get_mut(step) {
                    story.is_gate = true;
                }
            }
            What::StepEnded { step, outcome: Outcome::Failed { .. } } => {
                if let Some(story) = self.0.get_mut(step) {
                    story.ended = event.at;
                }
            }
            What::StepEnded { step, .. } => {
                self.0.remove(step);
            }
            _ => {}
        }
    }

    /// What was wanted by a step that failed, and what castle did for it.
    fn of(&self, step: &StepId, not_begun: usize, is_removal: bool) -> Option<(String, String)> {
        let story = self.0.get(step)?;
        let what = format!("{} {}", step.kind, step.name.trim());
        let usual = || match (story.is_gate, is_removal) {
            (true, _) => format!("to pass {what}"),
            (_, true) => format!("{what} gone"),
            _ => format!("{what} as the file says"),
        };
        let took = story.ended.saturating_sub(story.begun).as_secs_f64();
        let mut did = Vec::new();
        if story.is_gate {
            did.push(format!("waited {took:.1} s"));
        } else if story.did.is_empty() {
            did.push("changed nothing".to_owned());
        } else {
            did.push(story.did.join(", "));
        }
        if story.retries > 0 {
            did.push(format!("looked again {} in {took:.1} s", times(story.retries)));
        }
        match not_begun {
            0 => {}
            1 => did.push("did not begin 1 step that needs it".to_owned()),
            count => did.push(format!("did not begin {count} steps that need it")),
        }
        Some((story.wanted.clone().unwrap_or_else(usual), did.join("; ")))
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
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
    let Driven { report, took, before, stories, within, .. } = driven;
    let count = |how: fn(&Outcome) -> bool| report.ended(how).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let guarded = count(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped { .. }));
    let remaining: Vec<String> =
        report.ended(|outcome| *outcome == Outcome::Remaining).map(|(step, _)| step.to_string()).collect();
    let acted = count(|outcome| matches!(outcome, Outcome::Done { effects } if *effects > 0));
    // What is still there is not gone, whatever the steps say.
    let has_leftovers = more.get("leftovers").and_then(Value::as_array).is_some_and(|left| !left.is_empty());
    let held_up = held_up(verb, driven);
    let (result, exit) = match () {
        () if report.interrupted => ("interrupted", Exit::Interrupted),
        () if guarded > 0 && guarded == failed => ("refused", Exit::Refused),
        () if failed > 0 || !remaining.is_empty() || has_leftovers || held_up.is_some() => ("failed", Exit::Failed),
        () if acted == 0 && changed != "gone" => ("unchanged", Exit::Done),
        () => (changed, Exit::Done),
    };
    let total = report.outcomes.len();
    let mut problems = told_problems(report, stories, changed == "gone", printer);
    if let Some((summary, next)) = held_up {
        printer.complain_to_people(&format!("{summary}\n  next: {next}"));
        problems.push(json!({"severity": "error", "summary": summary, "hint": next}));
    }
    let layers = layers(report);
    if report.interrupted {
        let names = remaining.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
        let more = if remaining.len() > 10 { ", …" } else { "" };
        printer.say(&format!(
            "Interrupted. {} of {total} steps remain: {names}{more}\nRun the same command again to go on.",
            remaining.len()
        ));
    } else {
        let seconds = took.as_secs_f64();
        if within.is_some_and(|within| *took >= within) && !remaining.is_empty() {
            let names = remaining.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
            let summary = format!(
                "stopped after {} (--timeout): {} of {total} steps remain: {names}",
                minutes(*before + *took),
                remaining.len()
            );
            let next = "run the same command again: it goes on where it was";
            printer.complain_to_people(&format!("{summary}\n  next: {next}"));
            problems.push(json!({"severity": "error", "summary": summary, "hint": next}));
        }
        if acted > 0 {
            say_times(&layers, &report.timeline, *took, printer);
        }
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
        "layers": layers.iter().map(LayerTime::object).collect::<Vec<_>>(),
        "critical_path": path, "problems": problems,
    });
    if let Some(object) = object.as_object_mut() {
        object.extend(more);
    }
    printer.result(&object);
    exit
}

/// A layer in time: from the first of its steps that began to the last that ended.
struct LayerTime {
    layer: Layer,
    steps: usize,
    acted: usize,
    began: Duration,
    ended: Duration,
}

impl LayerTime {
    fn took(&self) -> f64 {
        self.ended.saturating_sub(self.began).as_secs_f64()
    }

    fn object(&self) -> Value {
        json!({"layer": self.layer.to_string(), "steps": self.steps, "acted": self.acted,
            "began": self.began.as_secs_f64(), "seconds": self.took()})
    }
}

/// The layers of a run, as they began; one of which nothing was begun has no time.
fn layers(report: &Report) -> Vec<LayerTime> {
    let mut layers: Vec<LayerTime> = Vec::new();
    for span in &report.timeline.spans {
        let (began, ended) = (span.ready + span.waited, span.ready + span.waited + span.worked);
        match layers.iter_mut().find(|known| known.layer == span.step.layer) {
            Some(known) => (known.began, known.ended) = (known.began.min(began), known.ended.max(ended)),
            None => layers.push(LayerTime { layer: span.step.layer.clone(), steps: 0, acted: 0, began, ended }),
        }
    }
    for (step, outcome) in &report.outcomes {
        if let Some(known) = layers.iter_mut().find(|known| known.layer == step.layer) {
            known.steps += 1;
            known.acted += usize::from(matches!(outcome, Outcome::Done { effects } if *effects > 0));
        }
    }
    layers.sort_by_key(|known| known.began);
    layers
}

fn say_times(layers: &[LayerTime], timeline: &Timeline, took: Duration, printer: &mut Printer) {
    let by_layer: Vec<String> = layers.iter().map(|known| format!("{} {:.1} s", known.layer, known.took())).collect();
    let least = took.mul_f64(WORTH_TELLING);
    let of = |span: &&Span| span.waited + span.worked >= least;
    let path: Vec<String> = timeline
        .critical_path
        .iter()
        .filter(of)
        .map(|span| format!("{} {:.1} s", span.step, (span.waited + span.worked).as_secs_f64()))
        .collect();
    printer.say(&format!("By layer: {}", by_layer.join(", ")));
    if !path.is_empty() {
        printer.say(&format!("Critical path: {}", path.join(", ")));
    }
}

/// What went wrong: said to people, and as objects for programs.
pub(crate) fn problems(report: &Report, printer: &mut Printer) -> Vec<Value> {
    told_problems(report, &Stories::default(), false, printer)
}

/// What is planned and not made: it would take another machine.
pub(crate) fn irreplaceable(report: &Report) -> impl Iterator<Item = (&StepId, Fault)> {
    report.outcomes.iter().filter_map(|(step, outcome)| match outcome {
        Outcome::Planned { change } if change.impact == Impact::Replace => {
            Some((step, steps::irreplaceable(step.to_string(), change)))
        }
        _ => None,
    })
}

/// Says what is planned and not made, and why; the same as objects for programs.
pub(crate) fn tell_irreplaceable(report: &Report, printer: &mut Printer) -> Vec<Value> {
    let tell = |(step, fault): (&StepId, Fault)| {
        printer.complain_to_people(&with_next(&fault));
        json!({"severity": "error", "step": step.to_string(), "summary": fault.to_string(), "hint": fault.next, "seen": fault.evidence})
    };
    irreplaceable(report).map(tell).collect()
}

/// What keeps the layers that were chosen from coming to be, and the next command: changes in layers that were only looked at.
fn held_up(verb: &str, Driven { layers, report, .. }: &Driven) -> Option<(String, String)> {
    let mut held = 0;
    let mut first: Vec<String> = Vec::new();
    for (_, outcome) in report.outcomes.iter().filter(|(step, _)| layers.contains(&step.layer)) {
        let Outcome::Skipped { because } = outcome else { continue };
        if matches!(report.outcome(because), Some(Outcome::Planned { .. })) {
            held += 1;
            first.push(because.layer.to_string());
        }
    }
    first.sort();
    first.dedup();
    if held == 0 {
        return None;
    }
    let steps = if held == 1 { "1 step waits".to_owned() } else { format!("{held} steps wait") };
    let which = first.join(", ");
    let summary = format!("{steps} for changes in layers that were only looked at: {which}");
    let all = first.into_iter().chain(layers.named().iter().map(ToString::to_string));
    Some((summary, format!("castle {verb}{}", all.map(|layer| format!(" --layer {layer}")).collect::<String>())))
}

/// What to do about a fault, if it does not say so itself.
fn next(fault: &Fault) -> &str {
    match &*fault.next {
        "" if fault.is_final() => "castle doctor; then run the same command again",
        "" => "run the same command again: it goes on where it was",
        next => next,
    }
}

fn told_problems(report: &Report, stories: &Stories, is_removal: bool, printer: &mut Printer) -> Vec<Value> {
    let mut behind: BTreeMap<&StepId, usize> = BTreeMap::new();
    for (_, outcome) in &report.outcomes {
        if let Outcome::Skipped { because } = outcome {
            *behind.entry(because).or_default() += 1;
        }
    }
    let mut problems = Vec::new();
    let mut has_errors = false;
    for (step, fault) in report.failures() {
        has_errors = true;
        let story = stories.of(step, behind.get(step).copied().unwrap_or(0), is_removal);
        let next = next(fault);
        let mut text = format!("{step} failed: {fault}");
        let mut object = json!({"severity": "error", "step": step.to_string(), "summary": fault.to_string(), "hint": next,
            "seen": fault.evidence});
        if let Some((wanted, did)) = story {
            text += &format!("\n  wanted: {wanted}\n  castle: {did}");
            (object["wanted"], object["did"]) = (wanted.into(), did.into());
        }
        printer.complain_to_people(&format!("{text}\n  next: {next}"));
        problems.push(object);
    }
    for (step, outcome) in &report.outcomes {
        if let Outcome::Skipped { because } = outcome {
            let summary = format!("not begun: it needs {because}");
            problems.push(json!({"severity": "note", "step": step.to_string(), "summary": summary}));
        }
    }
    // Behind a gate that is closed nothing went wrong.
    match behind.values().sum() {
        _ if !has_errors => {}
        0 => {}
        1 => printer.complain_to_people("1 step that needs these was not begun"),
        count => printer.complain_to_people(&format!("{count} steps that need these were not begun")),
    }
    problems
}
