//! `castle timeline`: the last run, step by step, and what decided how long it took.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use castle_engine::{Span, Timeline};
use castle_seams::FileKind;
use clap::Args;
use serde_json::{Value, json};

use crate::doors::Doors;
use crate::drive::{MAX_TIMELINE_BYTES, TIMELINE};
use crate::keeping::Kept;
use crate::notes::{self, Note};
use crate::output::{Exit, Printer, table};
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

/// How wide the run is drawn.
const WIDTH: usize = 40;
/// What took less is left out, unless everything is wanted.
const BRIEF: Duration = Duration::from_millis(50);

/// Show the last run: what took how long, and what everything else had to wait for
///
/// Steps of the critical path are marked with `*`: had they been faster, so had the run.
#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Show the steps, too, that took next to no time
    #[arg(long)]
    all: bool,
    /// Write it as a page for a browser, complete in itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) async fn timeline(args: &TimelineArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let kept = Kept::open(doors, &args.path).map_err(Trouble::Invalid)?;
    let file = kept.own_folder().join(TIMELINE);
    let timeline: Timeline = match notes::read(kept.doors.disk.as_ref(), &file, MAX_TIMELINE_BYTES) {
        Note::Read(timeline) => timeline,
        Note::Newer(format) => return Err(Trouble::Refused(notes::newer(&file, format))),
        Note::None | Note::Damaged(_) => {
            let (path, shown) = (args.path.display(), file.display());
            let next = match kept.doors.disk.metadata(&file).map(|found| found.kind) {
                Ok(FileKind::Directory) => format!("move {shown} away, for it is a folder; then castle up {path}"),
                Ok(_) => format!("castle up {path}: {shown} is damaged, and is written anew"),
                Err(_) => format!("castle up {path}"),
            };
            let why = format!("nothing is remembered of a run for {}\n  next: {next}", kept.name());
            return Err(Trouble::Failed(why));
        }
    };
    let critical: BTreeSet<String> = timeline.critical_path.iter().map(|span| span.step.to_string()).collect();
    let whole = timeline.spans.iter().map(end).max().unwrap_or_default();
    let mut spans: Vec<&Span> = timeline.spans.iter().collect();
    spans.sort_by_key(|span| (span.ready + span.waited, span.step.to_string()));
    let is_shown = |span: &&Span| args.all || span.worked >= BRIEF || critical.contains(&span.step.to_string());
    let shown: Vec<&Span> = spans.iter().copied().filter(is_shown).collect();
    if let Some(file) = &args.html {
        let page = page(&kept.name(), &shown, &critical, whole);
        Place::judge(doors, file)?.write(doors.disk.as_ref(), page.as_bytes(), Readers::AsBeforeOrAll)?;
        printer.say(&format!("wrote {}", file.display()));
    } else {
        let mut rows = vec![["", "step", "began", "waited", "worked", ""].map(str::to_owned)];
        rows.extend(shown.iter().map(|span| row(span, &critical, whole)));
        printer.say(&table(&rows));
        let hidden = spans.len() - shown.len();
        let hidden = if hidden == 0 { String::new() } else { format!(", {hidden} of them not shown (--all)") };
        printer.say(&format!("\n{} steps in {:.1} s{hidden}", spans.len(), whole.as_secs_f64()));
    }
    printer.result(&json!({
        "verb": "timeline", "castle": kept.castle.castle.as_str(), "result": "shown", "seconds": whole.as_secs_f64(),
        "spans": spans.iter().map(|span| told(span)).collect::<Vec<_>>(),
        "critical_path": timeline.critical_path.iter().map(told).collect::<Vec<_>>(),
        "file": args.html,
    }));
    Ok(Exit::Done)
}

fn end(span: &Span) -> Duration {
    span.ready + span.waited + span.worked
}

fn told(span: &Span) -> Value {
    json!({"step": span.step.to_string(), "ready": span.ready.as_secs_f64(), "waited": span.waited.as_secs_f64(),
        "worked": span.worked.as_secs_f64()})
}

fn row(span: &Span, critical: &BTreeSet<String>, whole: Duration) -> [String; 6] {
    let step = span.step.to_string();
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let mark = if critical.contains(&step) { "*" } else { "" };
    let waited = if span.waited < BRIEF { String::new() } else { seconds(span.waited) };
    [mark.to_owned(), step, seconds(span.ready + span.waited), waited, seconds(span.worked), bar(span, whole)]
}

/// A span as a line: where in the run it is.
fn bar(span: &Span, whole: Duration) -> String {
    let at = |time: Duration| ((time.as_secs_f64() / whole.as_secs_f64().max(1e-9)) * WIDTH as f64).round() as usize;
    let (begin, end) = (at(span.ready + span.waited).min(WIDTH - 1), at(end(span)).min(WIDTH));
    let waited = at(span.ready).min(begin);
    format!("{}{}{}", " ".repeat(waited), "·".repeat(begin - waited), "━".repeat(end.saturating_sub(begin).max(1)))
}

/// A page that needs nothing else.
fn page(name: &str, spans: &[&Span], critical: &BTreeSet<String>, whole: Duration) -> String {
    let percent = |time: Duration| time.as_secs_f64() / whole.as_secs_f64().max(1e-9) * 100.0;
    let mut rows = String::new();
    for span in spans {
        let step = span.step.to_string();
        let class = if critical.contains(&step) { " class=\"critical\"" } else { "" };
        let (left, width) = (percent(span.ready + span.waited), percent(span.worked).max(0.2));
        let (wait_left, wait) = (percent(span.ready), percent(span.waited));
        let _ = writeln!(
            rows,
            "<tr{class}><th scope=\"row\">{}</th><td class=\"time\">{:.1} s</td><td class=\"run\"><i style=\"left:{wait_left:.2}%;width:{wait:.2}%\"></i>\
             <b style=\"left:{left:.2}%;width:{width:.2}%\"></b></td></tr>",
            escaped(&step),
            span.worked.as_secs_f64()
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0}: the last run</title>\n<style>\n\
         :root {{ color-scheme: light dark }}\n\
         body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2rem }}\n\
         table {{ border-collapse: collapse; width: 100% }}\n\
         th {{ text-align: left; font-weight: normal; white-space: nowrap; padding: .15rem 1rem .15rem 0 }}\n\
         .time {{ text-align: right; white-space: nowrap; padding-right: 1rem; font-variant-numeric: tabular-nums }}\n\
         .run {{ position: relative; width: 60%; height: 1.2em; background: color-mix(in srgb, currentColor 6%, transparent) }}\n\
         .run b, .run i {{ position: absolute; top: 15%; height: 70%; border-radius: 2px }}\n\
         .run b {{ background: #4a7fb5 }} .run i {{ background: color-mix(in srgb, currentColor 20%, transparent) }}\n\
         .critical b {{ background: #c2542d }} .critical th {{ font-weight: 600 }}\n\
         </style>\n<h1>{0}: the last run</h1>\n\
         <p>{1:.1} s. What decided that is drawn in red: had it been faster, so had the run.</p>\n\
         <table>\n{rows}</table>\n</html>\n",
        escaped(name),
        whole.as_secs_f64()
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
