//! `castle status`: what there is, observed now.

use std::path::PathBuf;

use castle_engine::{Impact, Outcome, Report, StepId};
use castle_layers::cluster::Rolling;
use castle_layers::gitops::{Following, Weight};
use castle_layers::platform::{Doomed, Whose};
use castle_layers::{cluster, gitops, layer_of, platform};
use castle_spec::model::ComponentOwner;
use clap::Args;
use serde_json::{Value, json};

use crate::commands::down::left_alone;
use crate::commands::owners::connect;
use crate::doors::Doors;
use crate::furnish::Unwanted;
use crate::output::{Exit, Printer, table};
use crate::stand::{LOOKING, Stand, Trouble, with_next};
use crate::standing::vanished;

/// The state of a machine of this castle that its file does not name.
const LEFT_OUT: &str = "not in the file any more";

/// All layers, in the order they stand on each other.
const LAYERS: [&str; 6] = ["secrets", "platform", "engine", "networking", "storage", "gitops"];

/// Show the nodes of a castle, its cluster, and what is in it, as they are now
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Look at every guest in full, even where the list of all guests shows nothing wrong
    #[arg(long)]
    deep: bool,
    /// The folder or archive that manifests of components come from; CASTLE_MIRROR names one, too
    #[arg(long, value_name = "MIRROR")]
    mirror: Option<PathBuf>,
}

pub(crate) async fn status(args: &StatusArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, &args.path, printer).await?.with_mirror(args.mirror.as_deref());
    if let Err(trouble) = stand.furnishing().await {
        printer.complain_to_people(&format!("What is inside of the cluster is not looked at: {}\n", trouble.told()));
        stand.leave_inside();
    }
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, args.deep);
    let (survey, placed) = stand.lay_out(&ground).await?;
    let window = stand.window(&identity.castle);
    let graph = stand.raise(&ground, &window, &survey, &placed, (LOOKING, &Rolling::at_once())).await?;
    let report = stand.look(&graph, &identity.castle).await;
    let mut rows = vec![["node", "role", "vmid", "host", "address", "state"].map(str::to_owned)];
    let mut objects: Vec<Value> = Vec::new();
    for node in &stand.kept.nodes {
        let name = &node.name.value;
        let row = survey.guests.get(&node.vmid.0);
        let host = row.map(|row| row.host.clone());
        let (state, is_as_wanted) = state(&report, name, row.is_some());
        rows.push([
            name.clone(),
            node.role.word().to_owned(),
            node.vmid.0.to_string(),
            host.clone().unwrap_or_else(|| "-".to_owned()),
            node.address.value.to_string(),
            state.clone(),
        ]);
        objects.push(json!({"name": name, "role": node.role.word(), "vmid": node.vmid.0, "host": host,
            "address": node.address.value.to_string(), "state": state, "as_wanted": is_as_wanted}));
    }
    for guest in platform::leaving(&ground, &stand.site, &survey, &stand.kept.nodes).await? {
        let (name, host) = (guest.name, guest.host);
        objects.push(json!({"name": name, "role": null, "vmid": guest.vmid, "host": host, "address": null,
            "state": LEFT_OUT, "as_wanted": false}));
        let unknown = || "-".to_owned();
        rows.push([name, unknown(), guest.vmid.to_string(), host, unknown(), LEFT_OUT.to_owned()]);
    }
    printer.say(&table(&rows));
    let copies = platform::copies(&ground, &survey.guests).await;
    for copy in &copies {
        printer.say(&left_alone(copy));
    }
    let is_there = stand.kept.nodes.iter().any(|node| survey.guests.contains_key(&node.vmid.0));
    let mut gates = cluster::gates(&stand.kept.castle, &stand.kept.nodes);
    gates.extend(gitops::gates(&stand.kept.castle));
    let gates: Vec<_> = gates.into_iter().map(|(step, claim)| (gate(&report, &step), step, claim)).collect();
    if is_there {
        let answer =
            |open: &Result<(), String>| open.as_ref().map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned());
        let rows: Vec<[String; 2]> = gates.iter().map(|(open, _, claim)| [claim.clone(), answer(open)]).collect();
        printer.say(&format!("\n{}", table(&rows)));
    }
    let layers = layers(&report);
    let components = components(&stand, &report);
    if is_there {
        let rows: Vec<[String; 2]> = layers.iter().map(|(layer, state)| [layer.clone(), word(state)]).collect();
        printer.say(&format!("\n{}", table(&rows)));
        if !components.is_empty() {
            let mut rows = vec![["component", "version", "owner", "state"].map(str::to_owned)];
            rows.extend(components.iter().map(Seen::row));
            printer.say(&format!("\n{}", table(&rows)));
        }
    }
    let following = if is_there { followed(&stand, &report).await } else { Vec::new() };
    if following.len() > 1 {
        let mut rows = vec![["kustomization", "", "state"].map(str::to_owned)];
        rows.extend(following.iter().map(row));
        printer.say(&format!("\n{}", table(&rows)));
    }
    let unwanted = stand.furnishing().await?.unwanted();
    for one in &unwanted {
        printer.say(&format!("\n{}", one.with_next()));
    }
    let revision = stand.furnishing().await?.revision();
    if let Some(revision) = &revision {
        printer.say(&format!("\nFlux has applied {revision}."));
    }
    let standing = report.is_done();
    let life = identity.castle.generation;
    let closing = match (standing, identity.is_born && is_there) {
        (true, _) => format!("\n{} stands as its file says (life {life}).", stand.kept.name()),
        (false, true) => format!(
            "\n{} is not as its file says: castle plan {} tells what is to do.",
            stand.kept.name(),
            args.path.display()
        ),
        (false, false) => match vanished(&stand, &window, &ground, &survey).await? {
            Some(fault) => format!("\n{}", with_next(&fault)),
            None => format!("\n{} does not stand: castle up {}", stand.kept.name(), args.path.display()),
        },
    };
    printer.say(&closing);
    let mut told = json!({
        "verb": "status", "castle": stand.kept.castle.castle.as_str(), "result": "shown", "standing": standing,
        "generation": life, "nodes": objects,
        "gates": gates.iter().map(|(open, step, _)| json!({"gate": step.to_string(), "open": open.is_ok(),
            "evidence": open.as_ref().err()})).collect::<Vec<Value>>(),
        "layers": layers.iter().map(|(layer, state)| json!({"layer": layer, "as_wanted": state.is_ok(),
            "evidence": state.as_ref().err()})).collect::<Vec<Value>>(),
        "components": components.iter().map(Seen::object).collect::<Vec<Value>>(),
        "kustomizations": following.iter().map(object).collect::<Vec<Value>>(),
        "handover": revision.map(|revision| json!({"revision": revision})),
    });
    if !copies.is_empty() {
        let object = |copy: &Doomed| match copy.whose {
            Whose::Copied(original) => json!({"vmid": copy.vmid, "name": copy.name, "host": copy.host, "of": original}),
            _ => Value::Null,
        };
        told["copies"] = copies.iter().map(object).collect();
    }
    if !unwanted.is_empty() {
        told["unwanted"] = unwanted.iter().map(Unwanted::object).collect();
    }
    printer.result(&told);
    Ok(Exit::Done)
}

/// How a node is, in words, and whether that is as wanted.
fn state(report: &Report, name: &str, is_there: bool) -> (String, bool) {
    let outcome = |kind| report.outcome(&StepId::new(&platform::layer(), kind, name));
    let told = |outcome: &Outcome| match outcome {
        Outcome::Planned { change } => {
            let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
            format!("differs: {}", differences.join(", "))
        }
        Outcome::Failed { fault } => fault.evidence.clone(),
        Outcome::Skipped { because } => format!("cannot be told: {because} failed"),
        _ => "cannot be told".to_owned(),
    };
    match (outcome("vm"), outcome("power"), outcome("config")) {
        _ if !is_there => ("absent".to_owned(), false),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Done { .. })) => {
            ("running".to_owned(), true)
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Planned { change }))
            if change.impact == Impact::Create =>
        {
            ("waits for its configuration".to_owned(), false)
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Planned { .. }), _) => ("stopped".to_owned(), false),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(other))
        | (Some(Outcome::Done { .. }), Some(other), _)
        | (Some(other), _, _) => (told(other), false),
        (None, _, _) => ("cannot be told".to_owned(), false),
    }
}

/// Whether a gate is open, or why not.
fn gate(report: &Report, step: &StepId) -> Result<(), String> {
    match report.outcome(step) {
        Some(Outcome::Done { .. }) => Ok(()),
        Some(Outcome::Waiting { subject, evidence }) => Err(format!("{subject}: {evidence}")),
        Some(Outcome::Failed { fault }) => Err(fault.to_string()),
        _ => Err("cannot be asked yet".to_owned()),
    }
}

/// What a state is called.
fn word(state: &Result<(), String>) -> String {
    state.as_ref().map_or_else(Clone::clone, |()| "as its file says".to_owned())
}

/// How each layer is: as wanted, or what is first in the way.
fn layers(report: &Report) -> Vec<(String, Result<(), String>)> {
    let mut layers: Vec<(String, Result<(), String>)> = Vec::new();
    for name in LAYERS {
        let mut own = report.outcomes.iter().filter(|(step, _)| step.layer.to_string() == name).peekable();
        if own.peek().is_some() {
            layers.push((name.to_owned(), standing(own)));
        }
    }
    layers
}

/// Whether all of these are as wanted. What failed says more than what waits, and what waits more than what was not asked.
fn standing<'r>(outcomes: impl Iterator<Item = &'r (StepId, Outcome)>) -> Result<(), String> {
    let mut worst: Option<(u8, String)> = None;
    for (step, outcome) in outcomes {
        let seen = match outcome {
            Outcome::Done { .. } => continue,
            Outcome::Failed { fault } => (3, fault.to_string()),
            Outcome::Waiting { subject, evidence } => (2, format!("waits for {subject}: {evidence}")),
            Outcome::Planned { change } => (1, format!("{step}: {} to do", change.verb)),
            Outcome::Skipped { because } => (0, format!("cannot be told before {because}")),
            Outcome::Remaining => (0, format!("{step} was not looked at")),
        };
        if worst.as_ref().is_none_or(|(weight, _)| *weight < seen.0) {
            worst = Some(seen);
        }
    }
    worst.map_or(Ok(()), |(_, why)| Err(why))
}

/// A component, as it is.
struct Seen {
    name: &'static str,
    version: String,
    owner: &'static str,
    /// Nothing is known of one that castle does not install.
    state: Option<Result<(), String>>,
}

impl Seen {
    fn row(&self) -> [String; 4] {
        let state = self.state.as_ref().map_or_else(|| "not castle's to tell".to_owned(), word);
        [self.name.to_owned(), self.version.clone(), self.owner.to_owned(), state]
    }

    fn object(&self) -> Value {
        json!({"component": self.name, "version": self.version, "owner": self.owner,
            "as_wanted": self.state.as_ref().map(Result::is_ok),
            "evidence": self.state.as_ref().and_then(|state| state.as_ref().err())})
    }
}

fn components(stand: &Stand, report: &Report) -> Vec<Seen> {
    let seen = |wanted: castle_spec::WantedComponent| {
        let is_castles = wanted.owner == ComponentOwner::Castle;
        let (layer, name) = (layer_of(wanted.name), wanted.name.word());
        let own = report.outcomes.iter().filter(|(step, _)| step.layer.to_string() == layer && &*step.kind == name);
        Seen {
            name,
            version: wanted.version.to_string(),
            owner: if is_castles { "castle" } else { "flux" },
            state: is_castles.then(|| standing(own)),
        }
    };
    stand.kept.castle.wanted_components().into_iter().map(seen).collect()
}

/// How the Kustomizations stand, if the API can be asked.
async fn followed(stand: &Stand, report: &Report) -> Vec<Following> {
    let gates = gitops::gates(&stand.kept.castle);
    let is_asked = gates
        .iter()
        .any(|(gate, _)| matches!(report.outcome(gate), Some(Outcome::Done { .. } | Outcome::Waiting { .. })));
    if !is_asked {
        return Vec::new();
    }
    // Whoever does not answer has been told of already, by the gates.
    let Ok(api) = connect(&stand.kept).await else { return Vec::new() };
    gitops::following(&api, &stand.kept.castle).await.unwrap_or_default()
}

fn row(following: &Following) -> [String; 3] {
    let state = following.state.as_ref().map_or_else(Clone::clone, |revision| format!("has applied {revision}"));
    let weight = match following.weight {
        Weight::Critical => "critical",
        Weight::Background(_) if following.is_late => "late",
        Weight::Background(_) => "background",
        Weight::Other => "",
    };
    [following.name.clone(), weight.to_owned(), state]
}

fn object(following: &Following) -> Value {
    json!({"name": following.name, "critical": following.weight == Weight::Critical, "late": following.is_late,
        "revision": following.state.as_ref().ok(), "evidence": following.state.as_ref().err()})
}
