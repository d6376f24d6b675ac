//! `castle up`: raise, converge, resume.

use std::path::{Path, PathBuf};
use std::time::Duration;

use castle_engine::{Chosen, Fence, Layer, Outcome, Report, Taking};
use castle_layers::platform;
use castle_layers::{LAYERS, Survey, gitops};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::addresses;
use crate::closing::{irreplaceable, tell_irreplaceable};
use crate::commands::down::timeout;
use crate::commands::rebirth;
use crate::components;
use crate::doors::Doors;
use crate::drive::{conclude, problems};
use crate::furnish::Unwanted;
use crate::leaving::agree;
use crate::output::{Exit, Printer};
use crate::patches;
use crate::planned::Planned;
use crate::preflight::preflight;
use crate::recorded::Recorded;
use crate::repository;
use crate::stand::{Foreseen, RAISING, Stand, Trouble, while_held};
use crate::standing::{let_go, vanished};

/// Raise a castle, bring it to what its file says, or go on where an earlier run was cut off
///
/// Looks at what is there, does what is missing, and nothing else: run twice, the second run changes nothing. It can be
/// interrupted or killed at any moment and run again.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Change only this layer, and look at the others; may be given more than once
    #[arg(long, value_name = "LAYER", value_parser = LAYERS)]
    layer: Vec<String>,
    /// Look at every guest in full, even where the list of all guests shows nothing wrong
    #[arg(long)]
    deep: bool,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
    /// Raise the castle even if something is wrong with the Git repository that Flux will follow
    #[arg(long)]
    skip_preflight: bool,
    /// Do what was planned with `castle plan --out FILE`, and nothing if anything has moved since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["layer", "deep"])]
    plan: Option<PathBuf>,
    /// Remove this component, which castle.yaml wants no more; may be given more than once
    #[arg(long, value_name = "COMPONENT", value_parser = components::removable())]
    remove: Vec<String>,
    /// Do not ask before nodes are removed that the file does not name any more
    #[arg(long)]
    yes: bool,
    /// How long it may take in all: `90s`, `20m`. What is not done by then remains, and the same command goes on
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
}

impl UpArgs {
    /// All of what `path` names, as usual, within a time.
    pub(crate) fn of(path: &Path, mirror: Option<&Path>, timeout: Option<Duration>) -> Self {
        let (path, mirror) = (path.to_owned(), mirror.map(Path::to_owned));
        // Whoever raises a castle anew has looked before it went down.
        let (remove, yes) = (Vec::new(), false);
        Self { path, layer: Vec::new(), deep: false, mirror, skip_preflight: true, plan: None, remove, yes, timeout }
    }
}

pub(crate) async fn up(args: &UpArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    doors.within(args.timeout);
    let stand = Stand::open(doors, &args.path, printer).await?.with_mirror(args.mirror.as_deref());
    let stand = stand.with_removal(&args.remove)?;
    let planned = args.plan.as_ref().map(|file| Planned::read(stand.kept.doors.disk.as_ref(), file)).transpose()?;
    let deep = planned.as_ref().map_or(args.deep, |planned| planned.deep);
    let kept = &stand.kept;
    // Before anything else: a state that cannot be sealed is none.
    kept.can_seal().await.map_err(Trouble::Failed)?;
    repository::announce(kept).map_err(Trouble::Invalid)?;
    stand.knock().await?;
    let written = kept.written_epoch().await;
    let identity = stand.identify().await?;
    // Before anything is written anywhere: is there something in the way?
    let ground = stand.ground(&identity.castle, deep);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    if let Some(fault) = vanished(&stand, &window, &ground, &survey).await? {
        return Err(fault.into());
    }
    let Foreseen { report: first_look, rolling, .. } = stand.foresee(&ground, &window, &survey, &placed).await?;
    let layers = Chosen::of(args.layer.iter().map(|layer| Layer::new(layer)));
    refuse(&stand, &first_look, &layers, printer)?;
    stand.hold_secrets(&identity).await?;
    keep_off(&stand, &survey, printer).await?;
    if layers.contains(&platform::layer()) {
        let mut leaving = platform::leaving(&ground, &stand.site, &survey, &kept.nodes).await?;
        match &planned {
            None => agree(&stand, &leaving, args.yes, printer).await?,
            // Whoever is not in the plan was not agreed to.
            Some(planned) => {
                leaving.retain(|guest| planned.removes(guest));
                stand.agree_to(&leaving);
            }
        }
    }
    let is_handed_over =
        gitops::gates(&kept.castle).iter().all(|(gate, _)| first_look.outcome(gate).is_some_and(Outcome::is_done));
    if !args.skip_preflight && !is_handed_over {
        let preflight = preflight(kept, stand.furnishing().await?.manifests()).await;
        let problems = preflight.tell(printer);
        if preflight.is_in_the_way() {
            let name = kept.castle.castle.as_str();
            printer.result(&json!({"verb": "up", "castle": name, "result": "refused", "problems": problems}));
            printer.say(
                "Nothing was changed. Mend the repository; or raise the castle as it is: castle up --skip-preflight",
            );
            return Ok(Exit::Refused);
        }
    }

    kept.seal_anew().await.map_err(Trouble::Failed)?;
    let first_seen = identity.seen_epoch;
    let held = kept.lease(Taking::Politely, first_seen).await?;
    let work = async {
        if let Some(planned) = &planned {
            hold_to(planned, &stand, printer).await?;
        }
        // Whatever decides is read once more, now that nobody else writes.
        let identity = stand.identify().await?;
        stand.hold_secrets(&identity).await?;
        let castle = stand.settle(&identity, printer).await?;
        let ground = stand.ground(&castle, deep);
        let state = kept.state(castle.clone()).map_err(Trouble::Failed)?;
        let room = kept.strongroom(&castle, Some(state));
        let (survey, placed) = stand.lay_out(&ground, &room).await?;
        if let Some(fault) = vanished(&stand, &room, &ground, &survey).await? {
            return Err(fault.into());
        }
        // What is in the way, who has to restart, and in which order, may have changed since: somebody else may have been at it.
        let is_moved = written.is_none_or(|written| held.lease.epoch() != written.max(first_seen) + 1);
        if is_moved {
            stand.look_afresh(&survey);
        }
        let rolling = if is_moved || !rolling.is_empty() {
            let Foreseen { report, rolling, .. } = stand.foresee(&ground, &room, &survey, &placed).await?;
            refuse(&stand, &report, &layers, printer)?;
            keep_off(&stand, &survey, printer).await?;
            rolling
        } else {
            rolling
        };
        held.lease.check().await?;
        let_go(&stand, &room, &ground, &survey, held.lease.epoch()).await?;
        let (nodes, whereabouts) = (stand.nodes(&placed), stand.client.whereabouts());
        Recorded::note_making(&room, &nodes, whereabouts, held.lease.epoch()).await?;
        stand.note_leaving(&room, &ground, &survey, held.lease.epoch()).await?;
        let graph = stand.raise(&ground, &room, &survey, &placed, (RAISING, &rolling)).await?;
        let driven = stand.drive("up", graph, &castle, layers.clone(), &held.lease, printer).await?;
        let mut more = Map::new();
        // Machines that were raised alone stand, too.
        let stands = driven.report.has_done(&platform::layer());
        let known = stands.then(|| (stand.nodes(&placed), &*ground));
        let remembered = stand.remember(&room, known, held.lease.epoch()).await;
        if driven.report.failures().is_empty() {
            // Where something went wrong, that is what is told.
            remembered?;
        }
        if driven.report.is_done() {
            rebirth::settle(kept).await?;
            more.insert("nodes".to_owned(), stand.nodes(&placed));
        }
        if let Some(revision) = stand.furnishing().await?.revision() {
            more.insert("handover".to_owned(), json!({"revision": revision}));
        }
        let unwanted = stand.furnishing().await?.unwanted();
        if !unwanted.is_empty() {
            more.insert("unwanted".to_owned(), unwanted.iter().map(Unwanted::object).collect());
        }
        let unwatched = patches::unwatched_nodes(kept);
        if let (Some(note), true) = (unwatched, driven.report.is_done()) {
            more.insert("notes".to_owned(), json!([note]));
        }
        let exit = conclude("up", "raised", kept.castle.castle.as_str(), &driven, more, printer);
        if exit == Exit::Done && driven.report.is_done() {
            let path = args.path.display();
            printer.say(&format!(
                "\n{} stands. What it is made of: castle status {path}\nFor kubectl and talosctl: castle kubeconfig {path}, castle talosconfig {path}",
                kept.name(),
            ));
            if let Some(note) = unwatched {
                printer.say(&format!("\n{note}."));
            }
        }
        for one in &unwanted {
            printer.say(&format!("\n{}", one.with_next()));
        }
        Ok(exit)
    };
    let exit = while_held(&kept.doors, &held.lease, work).await;
    // A lease that cannot be given back runs out by itself.
    let _ = held.lease.release().await;
    exit
}

/// Refuses what looking says no run may do: a guard that stands, or a machine that would have to be made anew. Of a layer that is only looked at, that is
/// told at the end.
fn refuse(stand: &Stand, look: &Report, layers: &Chosen, printer: &mut Printer) -> Result<(), Trouble> {
    let guarded = |outcome: &Outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded);
    let in_the_way = look.ended(guarded).map(|(step, _)| step).chain(irreplaceable(look).map(|(step, _)| step));
    if !in_the_way.into_iter().any(|step| layers.contains(&step.layer)) {
        return Ok(());
    }
    let mut problems = problems(look, printer);
    problems.extend(tell_irreplaceable(look, printer));
    let name = stand.kept.castle.castle.as_str();
    printer.result(&json!({"verb": "up", "castle": name, "result": "refused", "problems": problems}));
    printer.say("Nothing was changed.");
    Err(Trouble::Said(Exit::Refused))
}

/// Refuses to make machines with addresses at which another cluster answers.
async fn keep_off(stand: &Stand, survey: &Survey, printer: &mut Printer) -> Result<(), Trouble> {
    let _at = stand.kept.doors.at("asking whether somebody has the addresses of new nodes");
    let occupied = addresses::occupied(stand, survey).await;
    if occupied.is_empty() {
        return Ok(());
    }
    let problems = addresses::tell(&occupied, printer);
    let name = stand.kept.castle.castle.as_str();
    printer.result(&json!({"verb": "up", "castle": name, "result": "refused", "problems": problems}));
    printer.say("Nothing was changed.");
    Err(Trouble::Said(Exit::Refused))
}

/// Refuses if what would be done now is not what was planned. Asked under the lease, so that no other castle moves anything in between.
async fn hold_to(planned: &Planned, stand: &Stand, printer: &mut Printer) -> Result<(), Trouble> {
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, planned.deep);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    let Foreseen { report, .. } = stand.foresee(&ground, &window, &survey, &placed).await?;
    let now = Planned::of(&stand.kept, &identity, &report, &placed, planned.deep)?;
    let moved = planned.moved(&now);
    if moved.is_empty() {
        return Ok(());
    }
    printer.complain_to_people("This is not what was planned any more:");
    for one in &moved {
        printer.complain_to_people(&format!("  {one}"));
    }
    printer.complain_to_people("Nothing was changed.\n  next: castle plan --out FILE, and look at it again");
    let problem = |one: &String| json!({"severity": "error", "summary": one, "hint": "castle plan --out FILE"});
    let problems: Vec<Value> = moved.iter().map(problem).collect();
    let name = stand.kept.castle.castle.as_str();
    printer.result(&json!({"verb": "up", "castle": name, "result": "refused", "problems": problems}));
    Err(Trouble::Said(Exit::Refused))
}
