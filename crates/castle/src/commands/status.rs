//! `castle status`: what there is, observed now.

use std::path::PathBuf;

use castle_engine::{Impact, Outcome, Report, StepId};
use castle_layers::cluster::Rolling;
use castle_layers::gitops::{Following, Weight};
use castle_layers::platform::{Doomed, Whose};
use castle_layers::{LAYERS, cluster, gitops, layer_of, platform};
use castle_spec::model::ComponentOwner;
use clap::Args;
use serde_json::{Value, json};

use crate::commands::down::left_alone;
use crate::commands::owners::connect;
use crate::doors::Doors;
use crate::furnish::Unwanted;
use crate::masking;
use crate::output::{Exit, Printer, table};
use crate::patches;
use crate::stand::{LOOKING, Stand, Trouble};
use crate::standing::obstacle;

/// The state of a machine of this castle that its file does not name.
const LEFT_OUT: &str = "not in the file any more";

/// That a part of the castle is not known.
const UNSEEN: &str = "What is inside of the cluster was not looked at";

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
    let stand = Stand::look_at(doors, &args.path).await?.with_mirror(args.mirror.as_deref());
    // What can be looked at is, and that the rest was not is told.
    let unseen = stand.furnishing().await.err().map(|trouble| trouble.told().to_owned());
    if let Some(why) = &unseen {
        printer.complain_to_people(&format!("{UNSEEN}: {why}\n"));
        stand.leave_inside();
    }
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, args.deep);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    let graph = stand.raise(&ground, &window, &survey, &placed, (LOOKING, &Rolling::at_once())).await?;
    let report = stand.look(&graph, &identity.castle).await;
    let mut rows = vec![["node", "role", "vmid", "host", "address", "state"].map(str::to_owned)];
    let mut objects: Vec<Value> = Vec::new();
    for node in &stand.kept.nodes {
        let name = &node.name.value;
        let row = survey.guests.get(&node.vmid.0);
        let host = row.map(|row| masking::text(&row.host));
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
        let Doomed { name, host, .. } = masking::guest(&guest);
        objects.push(json!({"name": name, "role": null, "vmid": guest.vmid, "host": host, "address": null,
            "state": LEFT_OUT, "as_wanted": false}));
        let unknown = || "-".to_owned();
        rows.push([name, unknown(), guest.vmid.to_string(), host, unknown(), LEFT_OUT.to_owned()]);
    }
    printer.say(&table(&rows));
    let copies: Vec<Doomed> = platform::copies(&ground, &survey.guests).await.iter().map(masking::guest).collect();
    for copy in &copies {
        printer.say(&left_alone(copy));
    }
    let is_there = stand.kept.nodes.iter().any(|node| survey.guests.contains_key(&node.vmid.0));
    let mut gates = cluster::gates(&stand.kept.castle, &stand.kept.nodes);
    gates.extend(gitops::gates(&stand.kept.castle));
    let gates: Vec<_> = gates.into_iter().map(|(step, claim)| (gate(&report, &step), step, claim)).collect();
    if is_there {
        let answer = |open: &State| match open {
            State::Well => "yes".to_owned(),
            State::Ill(why) => format!("no: {why}"),
            State::Unseen(why) => why.clone(),
            State::Others => NOT_LOOKED_AT.to_owned(),
        };
        let rows: Vec<[String; 2]> = gates.iter().map(|(open, _, claim)| [claim.clone(), answer(open)]).collect();
        printer.say(&format!("\n{}", table(&rows)));
    }
    let layers = layers(&stand, &report, unseen.is_none());
    let components = components(&stand, &report, unseen.is_none());
    if is_there {
        let rows: Vec<[String; 2]> = layers.iter().map(|(layer, state)| [layer.clone(), state.word()]).collect();
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
    let obstacle = obstacle(&stand, &window, &ground, &survey).await;
    let standing = report.is_done() && unseen.is_none() && obstacle.is_none();
    let life = identity.castle.generation;
    let closing = match (standing, identity.is_born && is_there) {
        (false, true)
            if report.is_done()
                && let Some(obstacle) = &obstacle =>
        {
            let verdict = if obstacle.is_seen {
                "is not as its file says"
            } else {
                "is as its file says as far as castle looked"
            };
            format!("\n{} {verdict}.\n{}", stand.kept.name(), obstacle.told())
        }
        (true, _) => format!("\n{} stands as its file says (life {life}).", stand.kept.name()),
        (false, true) if report.is_done() => {
            format!("\n{} is as its file says as far as castle looked. {UNSEEN}.", stand.kept.name())
        }
        (false, true) => format!(
            "\n{} is not as its file says: castle plan {} tells what is to do.",
            stand.kept.name(),
            args.path.display()
        ),
        (false, false) => match &obstacle {
            Some(obstacle) => format!("\n{}", obstacle.told()),
            None => format!("\n{} does not stand: castle up {}", stand.kept.name(), args.path.display()),
        },
    };
    printer.say(&closing);
    let unwatched = patches::unwatched_nodes(&stand.kept).filter(|_| is_there);
    if let Some(note) = unwatched {
        printer.say(&format!("{note}."));
    }
    let mut told = json!({
        "verb": "status", "castle": stand.kept.castle.castle.as_str(), "result": "shown", "standing": standing,
        "generation": life, "nodes": objects,
        "gates": gates.iter().map(|(open, step, _)| json!({"gate": step.to_string(),
            "open": open.is_well(), "evidence": open.evidence()})).collect::<Vec<Value>>(),
        "layers": layers.iter().map(|(layer, state)| json!({"layer": layer, "as_wanted": state.is_well(),
            "evidence": state.evidence()})).collect::<Vec<Value>>(),
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
    if let Some(why) = &unseen {
        told["unseen"] = json!(why);
    }
    if let Some(note) = unwatched {
        told["notes"] = json!([note]);
    }
    if let Some(obstacle) = &obstacle {
        told["problems"] = json!([obstacle.object()]);
    }
    if !unwanted.is_empty() {
        told["unwanted"] = unwanted.iter().map(Unwanted::object).collect();
    }
    printer.result(&told);
    Ok(Exit::Done)
}

/// How a node is, in words, and whether that is as wanted: nothing where nobody could look.
fn state(report: &Report, name: &str, is_there: bool) -> (String, Option<bool>) {
    let outcome = |kind| report.outcome(&StepId::new(&platform::layer(), kind, name));
    let told = |outcome: &Outcome| match outcome {
        Outcome::Planned { change } => {
            let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
            (format!("differs: {}", differences.join(", ")), Some(false))
        }
        Outcome::Failed { fault } => (fault.evidence.clone(), Some(false)),
        Outcome::Skipped { because } => (State::unseen_before(because).word(), None),
        _ => (NOT_LOOKED_AT.to_owned(), None),
    };
    let ill = |word: &str| (word.to_owned(), Some(false));
    match (outcome("vm"), outcome("power"), outcome("config")) {
        _ if !is_there => ill("absent"),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Done { .. })) => {
            ("running".to_owned(), Some(true))
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Planned { change }))
            if change.impact == Impact::Create =>
        {
            ill("waits for its configuration")
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Planned { .. }), _) => ill("stopped"),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(other))
        | (Some(Outcome::Done { .. }), Some(other), _)
        | (Some(other), _, _) => told(other),
        (None, _, _) => (NOT_LOOKED_AT.to_owned(), None),
    }
}

/// What is said of something that nobody looked at.
const NOT_LOOKED_AT: &str = "not looked at";

/// How a part of the castle is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// As the file says.
    Well,
    /// Not so, and why.
    Ill(String),
    /// Nobody looked, and why: it may be either.
    Unseen(String),
    /// It is not castle's to tell.
    Others,
}

impl State {
    fn unseen() -> Self {
        Self::Unseen(NOT_LOOKED_AT.to_owned())
    }

    fn unseen_before(step: &StepId) -> Self {
        Self::Unseen(format!("{NOT_LOOKED_AT}: it cannot be asked before {step}"))
    }

    /// Of something inside of the cluster: that it is castle's is always asked, and alone does not make it well.
    fn inside(self, is_looked_at: bool) -> Self {
        if is_looked_at || self != Self::Well { self } else { Self::unseen() }
    }

    fn word(&self) -> String {
        match self {
            Self::Well => "as its file says".to_owned(),
            Self::Ill(why) | Self::Unseen(why) => why.clone(),
            Self::Others => "not castle's to tell".to_owned(),
        }
    }

    /// Nothing where that is not known.
    fn is_well(&self) -> Option<bool> {
        match self {
            Self::Well => Some(true),
            Self::Ill(_) => Some(false),
            Self::Unseen(_) | Self::Others => None,
        }
    }

    fn evidence(&self) -> Option<&str> {
        match self {
            Self::Well | Self::Others => None,
            Self::Ill(why) | Self::Unseen(why) => Some(why),
        }
    }
}

/// Whether a gate is open, or why not.
fn gate(report: &Report, step: &StepId) -> State {
    match report.outcome(step) {
        Some(Outcome::Done { .. }) => State::Well,
        Some(Outcome::Waiting { subject, evidence }) => State::Ill(format!("{subject}: {evidence}")),
        Some(Outcome::Failed { fault }) => State::Ill(fault.to_string()),
        Some(Outcome::Skipped { because }) => State::unseen_before(because),
        Some(Outcome::Planned { .. } | Outcome::Remaining) | None => State::unseen(),
    }
}

/// How each layer of the castle is: as wanted, or what is first in the way.
fn layers(stand: &Stand, report: &Report, is_looked_at: bool) -> Vec<(String, State)> {
    let castle = &stand.kept.castle;
    let own = castle.wanted_components().into_iter().filter(|wanted| wanted.owner == ComponentOwner::Castle);
    let mut wanted: Vec<&str> = own.map(|wanted| layer_of(wanted.name)).collect();
    wanted.extend(castle.gitops.as_ref().map(|_| "gitops"));
    let mut layers = Vec::new();
    for name in LAYERS {
        let mut own = report.outcomes.iter().filter(|(step, _)| step.layer.to_string() == name).peekable();
        if own.peek().is_some() || wanted.contains(&name) {
            let is_outside = ["secrets", "platform"].contains(&name);
            layers.push((name.to_owned(), standing(report, own).inside(is_looked_at || is_outside)));
        }
    }
    layers
}

/// Whether all of these are as wanted. What failed says more than what waits, and what waits more than what was not asked; of nothing, nothing is known.
fn standing<'r>(report: &Report, outcomes: impl Iterator<Item = &'r (StepId, Outcome)>) -> State {
    let mut worst: Option<(u8, State)> = None;
    for (step, outcome) in outcomes {
        let seen = match outcome {
            Outcome::Failed { fault } => (4, State::Ill(fault.to_string())),
            Outcome::Waiting { subject, evidence } => (3, State::Ill(format!("waits for {subject}: {evidence}"))),
            Outcome::Planned { .. } if report.foreseen.contains_key(step) => {
                (1, State::unseen_before(&report.foreseen[step]))
            }
            Outcome::Planned { change } => (2, State::Ill(format!("{step}: {} to do", change.verb))),
            Outcome::Skipped { because } => (1, State::unseen_before(because)),
            Outcome::Remaining => (1, State::Unseen(format!("{NOT_LOOKED_AT}: {step}"))),
            Outcome::Done { .. } => (0, State::Well),
        };
        if worst.as_ref().is_none_or(|(weight, _)| *weight < seen.0) {
            worst = Some(seen);
        }
    }
    worst.map_or_else(State::unseen, |(_, state)| state)
}

/// A component, as it is.
struct Seen {
    name: &'static str,
    version: String,
    owner: &'static str,
    state: State,
}

impl Seen {
    fn row(&self) -> [String; 4] {
        [self.name.to_owned(), self.version.clone(), self.owner.to_owned(), self.state.word()]
    }

    fn object(&self) -> Value {
        json!({"component": self.name, "version": self.version, "owner": self.owner,
            "as_wanted": self.state.is_well(), "evidence": self.state.evidence()})
    }
}

fn components(stand: &Stand, report: &Report, is_looked_at: bool) -> Vec<Seen> {
    let seen = |wanted: castle_spec::WantedComponent| {
        let is_castles = wanted.owner == ComponentOwner::Castle;
        let (layer, name) = (layer_of(wanted.name), wanted.name.word());
        let own = report.outcomes.iter().filter(|(step, _)| step.layer.to_string() == layer && &*step.kind == name);
        Seen {
            name,
            version: wanted.version.to_string(),
            owner: if is_castles { "castle" } else { "flux" },
            // Nothing is known of one that castle does not install.
            state: if is_castles { standing(report, own).inside(is_looked_at) } else { State::Others },
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
    let following = gitops::following(&api, &stand.kept.castle).await.unwrap_or_default();
    let text = |text: String| masking::text(&text);
    let masked = |one: Following| Following { name: text(one.name), state: one.state.map(text).map_err(text), ..one };
    following.into_iter().map(masked).collect()
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
