//! `castle plan`: what `up` would do, asked of the world as it is.

use std::path::PathBuf;
use std::time::Duration;

use castle_engine::{Change, Impact, Outcome, Report};
use clap::Args;
use futures_util::future::join3;
use serde_json::{Value, json};

use crate::addresses;
use crate::closing::{irreplaceable, tell_irreplaceable};
use crate::components;
use crate::doors::Doors;
use crate::drive::{problems, remembered};
use crate::furnish::Unwanted;
use crate::masking::text;
use crate::output::{Exit, Printer, table};
use crate::planned::Planned;
use crate::preflight::preflight;
use crate::stand::{Foreseen, Stand, Trouble};
use crate::standing::{is_marked, vanished};

/// Show what `up` would do, and what that means for what exists
///
/// Changes nothing. What depends on something that is not there yet is planned on what it will be.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Exit with 2 if there is anything to do
    #[arg(long)]
    exit_code: bool,
    /// Look at every guest in full, even where the list of all guests shows nothing wrong
    #[arg(long)]
    deep: bool,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
    /// Keep the plan in this file, for `castle up --plan FILE` to do just that
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Plan the removal of this component, which castle.yaml wants no more; may be given more than once
    #[arg(long, value_name = "COMPONENT", value_parser = components::removable())]
    remove: Vec<String>,
}

pub(crate) async fn plan(args: &PlanArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::plan_at(doors, &args.path, printer).await?.with_mirror(args.mirror.as_deref());
    let stand = stand.with_removal(&args.remove)?;
    stand.knock().await?;
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, args.deep);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    if let Some(fault) = vanished(&stand, &window, &ground, &survey).await? {
        return Err(fault.into());
    }
    let has_nodes = survey.guests.values().any(|row| is_marked(&ground, row) && row.is_template() != Some(true));
    // Of nodes that are there, their steps tell more.
    if !has_nodes {
        stand.hold_secrets(&identity).await?;
    }
    let manifests = stand.furnishing().await?.manifests();
    let foreseen = stand.foresee(&ground, &window, &survey, &placed);
    let occupied = addresses::occupied(&stand, &survey);
    let (foreseen, preflight, occupied) = join3(foreseen, preflight(&stand.kept, manifests), occupied).await;
    let is_kept_off = preflight.is_in_the_way() || !occupied.is_empty();
    let Foreseen { graph, report, .. } = foreseen?;
    let graph = graph.predicted_by(&remembered(stand.kept.doors.disk.as_ref(), &stand.kept.own_folder()));
    let predicted = graph.predicted();
    let actions: Vec<(String, &Change)> = planned(&report).collect();
    let waiting: Vec<(String, &str, &str)> = report
        .outcomes
        .iter()
        .filter_map(|(step, outcome)| match outcome {
            Outcome::Waiting { subject, evidence } => Some((step.to_string(), subject.as_str(), evidence.as_str())),
            _ => None,
        })
        .collect();
    let lost = irreplaceable(&report).count();
    let failed = report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).count() + lost;
    let is_refused = failed > 0 || is_kept_off;
    match (actions.is_empty(), waiting.is_empty()) {
        (false, _) => show(&stand, &actions, predicted, printer),
        // Where something is in the way, that is what is told.
        (true, _) if is_refused => {}
        (true, true) => printer.say(&format!("Nothing to do: {} is as its file says.", stand.kept.name())),
        (true, false) => {
            printer.say(&format!("Nothing to do but to wait: {} is not as its file says yet.", stand.kept.name()));
            for (_, subject, evidence) in &waiting {
                printer.say(&format!("Waiting for {subject}: {evidence}."));
            }
        }
    }
    let unwanted = stand.furnishing().await?.unwanted();
    for one in &unwanted {
        printer.say(&format!("\n{}", one.with_next()));
    }
    let new_nodes: Vec<Value> = stand
        .kept
        .nodes
        .iter()
        .zip(&placed)
        .map(|(node, placed)| json!({"node": node.name.value, "host": text(&placed.host), "why": placed.why.to_string()}))
        .collect();
    let guarded = report.ended(|outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded)).count() + lost;
    let (result, exit) = match () {
        () if guarded > 0 && guarded == failed => ("refused", Exit::Refused),
        () if failed > 0 => ("failed", Exit::Failed),
        () if is_kept_off => ("refused", Exit::Refused),
        () if actions.is_empty() => ("unchanged", Exit::Done),
        () if args.exit_code => ("planned", Exit::Differs),
        () => ("planned", Exit::Done),
    };
    if !actions.is_empty() && placed.iter().any(|placed| placed.why == castle_layers::Why::Spread) {
        let rows = stand.kept.nodes.iter().zip(&placed);
        let rows: Vec<[String; 3]> =
            rows.map(|(node, placed)| [node.name.value.clone(), text(&placed.host), placed.why.to_string()]).collect();
        printer.say(&format!("\nWhere the nodes go:\n{}", table(&rows)));
    }
    let mut problems = problems(&report, printer);
    problems.extend(tell_irreplaceable(&report, printer));
    problems.extend(preflight.tell(printer));
    problems.extend(addresses::tell(&occupied, printer));
    match &args.out {
        Some(file) if failed == 0 && !is_kept_off => {
            let planned = Planned::of(&stand.kept, &identity, &report, &placed, args.deep)?;
            planned.write(&stand.kept.doors, file)?;
            printer.say(&format!("Kept in {0}: castle up {1} --plan {0}", file.display(), args.path.display()));
        }
        Some(file) => printer.complain_to_people(&format!("{} was not written: this is no plan", file.display())),
        None => {}
    }
    let wait = |(step, subject, evidence)| json!({"step": step, "subject": subject, "evidence": evidence});
    let waits: Vec<Value> = waiting.into_iter().map(wait).collect();
    let objects: Vec<Value> = actions.iter().map(|(step, change)| action(step, change)).collect();
    let seconds = if actions.is_empty() { 0.0 } else { predicted.as_secs_f64() };
    let mut object = json!({
        "verb": "plan", "castle": stand.kept.castle.castle.as_str(), "result": result, "actions": objects,
        "placement": new_nodes, "waiting": waits, "predicted_seconds": seconds, "problems": problems,
    });
    if !unwanted.is_empty() {
        object["unwanted"] = unwanted.iter().map(Unwanted::object).collect();
    }
    if let (Some(file), false) = (&args.out, is_refused) {
        object["file"] = json!(file);
    }
    printer.result(&object);
    Ok(exit)
}

/// What would be done, in an order that works.
pub(crate) fn planned(report: &Report) -> impl Iterator<Item = (String, &Change)> {
    report.outcomes.iter().filter_map(|(step, outcome)| match outcome {
        Outcome::Planned { change } => Some((step.to_string(), change)),
        _ => None,
    })
}

fn action(step: &str, change: &Change) -> Value {
    json!({"step": step, "impact": change.impact.word(), "action": change.verb, "differences": change.differences})
}

fn show(stand: &Stand, actions: &[(String, &Change)], predicted: Duration, printer: &mut Printer) {
    let rows: Vec<[String; 4]> = actions
        .iter()
        .map(|(step, change)| {
            let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
            [change.impact.word().to_owned(), step.clone(), change.verb.clone(), differences.join(", ")]
        })
        .collect();
    printer.say(&table(&rows));
    let count = |impact: Impact| actions.iter().filter(|(_, change)| change.impact == impact).count();
    let kinds = [Impact::Create, Impact::InPlace, Impact::Reboot, Impact::Rolling, Impact::Replace, Impact::Destroy];
    let counts: Vec<String> = kinds
        .into_iter()
        .filter(|&impact| count(impact) > 0)
        .map(|impact| format!("{} {}", count(impact), impact.word()))
        .collect();
    printer.say(&format!(
        "\n{} for {}: {}. About {}.",
        if actions.len() == 1 { "1 action".to_owned() } else { format!("{} actions", actions.len()) },
        stand.kept.name(),
        counts.join(", "),
        minutes(predicted)
    ));
}

/// A duration as people plan with it.
pub(crate) fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}
