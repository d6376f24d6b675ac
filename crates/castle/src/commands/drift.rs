//! `castle drift`: what is not as the file says, whoever made it so.

use std::path::PathBuf;
use std::time::Duration;

use castle_engine::{Impact, Outcome, Report};
use castle_layers::cluster::Rolling;
use castle_layers::{layer_of, platform};
use clap::Args;
use serde_json::{Value, json};

use super::plan::planned;
use crate::doors::Doors;
use crate::drive::problems;
use crate::output::{Exit, Printer, table};
use crate::stand::{LOOKING, Stand, Trouble};
use crate::standing::{Obstacle, obstacle};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(30);

/// Show what differs from the file: machines, their configurations, the cluster, the vault
///
/// Changes nothing, looks at every guest in full, and exits with 2 if anything differs. `castle up --deep` puts it right.
#[derive(Debug, Args)]
pub(crate) struct DriftArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Look again every half minute, and tell what changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
}

/// One thing that is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Drifted {
    step: String,
    what: String,
    is: Option<String>,
    wanted: Option<String>,
    /// Whether `castle up` brings it about by itself.
    is_ours: bool,
}

impl Drifted {
    /// As people read it.
    fn words(&self) -> String {
        match (&self.is, &self.wanted) {
            (Some(is), Some(wanted)) => format!("{} is {is}, wanted {wanted}", self.what),
            (None, Some(wanted)) => format!("{} is absent, wanted {wanted}", self.what),
            (Some(is), None) => format!("{} is {is}, not wanted", self.what),
            (None, None) => self.what.clone(),
        }
    }
}

pub(crate) async fn drift(args: &DriftArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::look_at(doors, &args.path).await?.with_mirror(args.mirror.as_deref());
    stand.knock().await?;
    // What can be looked at is, and that the rest was not is an error all the same.
    let unseen = stand.furnishing().await.err().map(|trouble| trouble.told().to_owned());
    if unseen.is_some() {
        stand.leave_inside();
    }
    let unseen = unseen.as_deref();
    if !args.watch {
        let (report, obstacle) = look(&stand).await?;
        let found = differing(&stand, &report, obstacle.as_ref()).await?;
        return Ok(tell(&stand, &report, &found, (obstacle.as_ref(), unseen), printer));
    }
    // Taken for whoever runs this verb, and ends it at a signal, whatever it is at.
    drop(doors.signals().map_err(|error| Trouble::of(&error))?);
    let mut last = None;
    loop {
        let (report, obstacle) = look(&stand).await?;
        let now = differing(&stand, &report, obstacle.as_ref()).await?;
        if last.as_ref() != Some(&now) {
            tell(&stand, &report, &now, (obstacle.as_ref(), unseen), printer);
            last = Some(now);
        }
        // Nobody waits for what may happen.
        let _hushed = doors.voice.hushed();
        stand.kept.doors.clock.sleep(EVERY).await;
    }
}

/// What looking tells, and why castle would not raise it at all, if it would not.
async fn look(stand: &Stand) -> Result<(Report, Option<Obstacle>), Trouble> {
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, true);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    let graph = stand.raise(&ground, &window, &survey, &placed, (LOOKING, &Rolling::at_once())).await?;
    let report = stand.look(&graph, &identity.castle).await;
    Ok((report, obstacle(stand, &window, &ground, &survey).await))
}

/// All that is not as wanted: what `up` would change, what the cluster says is not so, and what is there and wanted no more.
async fn differing(stand: &Stand, report: &Report, obstacle: Option<&Obstacle>) -> Result<Vec<Drifted>, Trouble> {
    let mut found = Vec::new();
    found.extend(obstacle.filter(|obstacle| obstacle.is_seen).map(|obstacle| Drifted {
        step: platform::layer().to_string(),
        what: obstacle.sentence(),
        is: None,
        wanted: None,
        is_ours: false,
    }));
    for (step, change) in planned(report) {
        let one = |what: &str, is: &Option<String>, wanted: &Option<String>| Drifted {
            step: step.clone(),
            what: what.to_owned(),
            is: is.clone(),
            wanted: wanted.clone(),
            is_ours: change.impact != Impact::Replace,
        };
        if change.differences.is_empty() {
            found.push(one(&change.verb, &None, &None));
        }
        found.extend(
            change.differences.iter().map(|difference| one(&difference.field, &difference.is, &difference.wanted)),
        );
    }
    found.extend(report.outcomes.iter().filter_map(|(step, outcome)| match outcome {
        Outcome::Waiting { subject, evidence } => {
            let what = format!("{subject}: {evidence}");
            Some(Drifted { step: step.to_string(), what, is: None, wanted: None, is_ours: true })
        }
        // Castle leaves it to whoever has it; that it differs is no less true.
        Outcome::Failed { fault } if fault.guarded => {
            Some(Drifted { step: step.to_string(), what: fault.to_string(), is: None, wanted: None, is_ours: false })
        }
        _ => None,
    }));
    found.extend(stand.furnishing().await?.unwanted().iter().map(|unwanted| Drifted {
        step: format!("{}/{}", layer_of(unwanted.name), unwanted.name),
        what: unwanted.with_next().replace("\n  next: ", "; next: "),
        is: None,
        wanted: None,
        is_ours: false,
    }));
    Ok(found)
}

/// Tells what differs, and if what is inside of the cluster was not looked at, why.
fn tell(
    stand: &Stand,
    report: &Report,
    found: &[Drifted],
    (obstacle, unseen): (Option<&Obstacle>, Option<&str>),
    printer: &mut Printer,
) -> Exit {
    let counted = |guarded| {
        report.ended(move |outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded == guarded)).count()
    };
    let is = |is_seen| obstacle.is_some_and(|obstacle| obstacle.is_seen == is_seen);
    let failed = counted(false) + usize::from(unseen.is_some()) + usize::from(is(false));
    let guarded = counted(true) + usize::from(is(true));
    let rows: Vec<[String; 2]> = found.iter().map(|drifted| [drifted.step.clone(), drifted.words()]).collect();
    match (found.is_empty(), failed) {
        (true, 0) => printer.say(&format!("Nothing has drifted: {} is as its file says.", stand.kept.name())),
        (true, _) => {}
        (false, _) => {
            printer.say(&table(&rows));
            let cure = match guarded {
                0 if found.iter().all(|drifted| drifted.is_ours) => "castle up --deep puts it right",
                0 => "castle plan tells what castle up would do, and what it leaves to you",
                _ => "castle up changes nothing before it is settled what is not castle's to change",
            };
            printer.say(&format!("\n{} is not as its file says: {cure}.", stand.kept.name()));
        }
    }
    let mut problems = problems(report, printer);
    if let Some(obstacle) = obstacle {
        if !obstacle.is_seen {
            printer.complain_to_people(&obstacle.told());
        }
        problems.push(obstacle.object());
    }
    if let Some(why) = unseen {
        let summary = format!("what is inside of the cluster was not looked at: {why}");
        printer.complain_to_people(&summary);
        problems.push(json!({"severity": "error", "summary": summary}));
    }
    let (result, exit) = match (failed, found.is_empty()) {
        (0, true) => ("unchanged", Exit::Done),
        (0, false) => ("drifted", Exit::Differs),
        _ => ("failed", Exit::Failed),
    };
    let differences = found.iter().map(
        |drifted| json!({"step": drifted.step, "field": drifted.what, "is": drifted.is, "wanted": drifted.wanted}),
    );
    printer.result(&json!({
        "verb": "drift", "castle": stand.kept.castle.castle.as_str(), "result": result,
        "differences": differences.collect::<Vec<Value>>(), "problems": problems,
    }));
    exit
}
