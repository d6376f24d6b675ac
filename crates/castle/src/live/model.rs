//! What is known of a run while it runs: events in, nothing out but what was asked.

use std::collections::BTreeMap;
use std::time::Duration;

use castle_engine::{Event, Layer, Outcome, Outlook, StepId, What};
use castle_secrets::redact::redact_own;

/// From this part of the predicted way on, the pace so far tells more than the prediction.
const PACE_KNOWN: f64 = 0.05;

/// What is waited for longer than this, beyond what was predicted, is not guessed at.
const GUESSED: Duration = Duration::from_secs(60);

/// Where a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Ahead,
    Running(Running),
    Well,
    Badly,
}

/// A step that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) since: Duration,
    pub(super) doing: Doing,
    /// What it has done so far.
    done: Vec<String>,
}

/// What a step that runs is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Looking,
    Acting(String),
    /// Something is in the way, and will be looked at again.
    Hindered(String),
    /// A gate is closed.
    Waiting(String),
}

/// A step and where it is.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    own: Duration,
    behind: Duration,
    /// The number of its layer.
    layer: usize,
    /// The number of the node it is about, if it is about one: it is called after it, or ends with it (`1000 blue-cp-1`).
    pub(super) node: Option<usize>,
    pub(super) stage: Stage,
}

/// How far a layer, or a node, is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) total: usize,
    pub(super) done: usize,
    pub(super) bad: usize,
}

impl Share {
    fn count(&mut self, stage: &Stage) {
        self.total += 1;
        match stage {
            Stage::Well => self.done += 1,
            Stage::Badly => self.bad += 1,
            Stage::Running(_) | Stage::Ahead => {}
        }
    }
}

/// All of a run.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The verb and the castle.
    pub(super) title: String,
    pub(super) nodes: Vec<String>,
    pub(super) steps: BTreeMap<StepId, Seen>,
    /// Layers in the order in which they begin.
    pub(super) layers: Vec<Layer>,
    predicted: Duration,
    /// Whether predictions come from earlier runs, not from a table.
    is_experienced: bool,
    pub(super) is_stopping: bool,
}

impl Model {
    /// A run that has not begun yet.
    pub(crate) fn new(title: &str, nodes: &[String], outlook: &[Outlook], is_experienced: bool) -> Self {
        let numbers: BTreeMap<&str, usize> = (0..).zip(nodes).map(|(number, node)| (node.as_str(), number)).collect();
        let mut layers: Vec<Layer> = Vec::new();
        let mut steps = BTreeMap::new();
        for Outlook { step, own, behind } in outlook {
            let layer = layers.iter().position(|known| *known == step.layer).unwrap_or_else(|| {
                layers.push(step.layer.clone());
                layers.len() - 1
            });
            let node = step.name.rsplit(' ').next().and_then(|name| numbers.get(name).copied());
            steps.insert(step.clone(), Seen { own: *own, behind: *behind, layer, node, stage: Stage::Ahead });
        }
        Self {
            title: title.to_owned(),
            nodes: nodes.to_vec(),
            steps,
            layers,
            predicted: outlook.iter().map(|one| one.own + one.behind).max().unwrap_or_default(),
            is_experienced,
            is_stopping: false,
        }
    }

    /// Takes an event; returns the line that is kept of it, if one is.
    pub(crate) fn hear(&mut self, event: &Event) -> Option<String> {
        match &event.what {
            What::StepStarted { step } => {
                let running = Running { since: event.at, doing: Doing::Looking, done: Vec::new() };
                self.steps.get_mut(step)?.stage = Stage::Running(running);
                None
            }
            What::StepActing { step, change } => {
                let running = self.running(step)?;
                running.done.push(change.verb.clone());
                running.doing = Doing::Acting(plain(&change.verb));
                None
            }
            What::StepRetrying { step, fault, .. } => {
                self.running(step)?.doing = Doing::Hindered(plain(&fault.to_string()));
                None
            }
            What::GateClosed { step, subject, evidence } => {
                self.running(step)?.doing = Doing::Waiting(plain(&format!("{subject}: {evidence}")));
                None
            }
            What::StepEnded { step, outcome } => self.ended(step, outcome, event.at),
            What::Interrupted => {
                self.is_stopping = true;
                None
            }
            _ => None,
        }
    }

    fn running(&mut self, step: &StepId) -> Option<&mut Running> {
        match &mut self.steps.get_mut(step)?.stage {
            Stage::Running(running) => Some(running),
            _ => None,
        }
    }

    fn ended(&mut self, step: &StepId, outcome: &Outcome, at: Duration) -> Option<String> {
        let seen = self.steps.get_mut(step)?;
        let stage = match outcome {
            Outcome::Done { .. } => Stage::Well,
            Outcome::Remaining => Stage::Ahead,
            _ => Stage::Badly,
        };
        let before = std::mem::replace(&mut seen.stage, stage);
        let (since, mut done) = match before {
            Stage::Running(Running { since, done, .. }) => (since, done),
            _ => (at, Vec::new()),
        };
        done.dedup();
        let took = at.saturating_sub(since).as_secs_f64();
        match outcome {
            Outcome::Done { effects } if *effects > 0 => Some(format!("{step}  {} ({took:.1} s)", done.join(", "))),
            Outcome::Failed { fault } => Some(format!("{step}  failed: {}", plain(&fault.to_string()))),
            _ => None,
        }
    }

    /// How far each layer and each node is.
    pub(super) fn shares(&self) -> (Vec<Share>, Vec<Share>) {
        let mut layers = vec![Share::default(); self.layers.len()];
        let mut nodes = vec![Share::default(); self.nodes.len()];
        for seen in self.steps.values() {
            layers[seen.layer].count(&seen.stage);
            if let Some(node) = seen.node {
                nodes[node].count(&seen.stage);
            }
        }
        (layers, nodes)
    }

    /// The steps that run, each with the node it is about, those that have run longest first.
    pub(super) fn running_steps(&self) -> Vec<(&StepId, Option<usize>, &Running)> {
        let running = self.steps.iter().filter_map(|(step, seen)| match &seen.stage {
            Stage::Running(running) => Some((step, seen.node, running)),
            _ => None,
        });
        let mut all: Vec<_> = running.collect();
        // The order of names is kept among those of one age.
        all.sort_by_key(|(_, _, running)| running.since);
        all
    }

    /// How much longer it will probably take; nothing while that is not known.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let ahead = |seen: &Seen| match &seen.stage {
            Stage::Ahead => Some(seen.own + seen.behind),
            Stage::Running(running) => Some(seen.own.saturating_sub(now.saturating_sub(running.since)) + seen.behind),
            Stage::Well | Stage::Badly => None,
        };
        // A step that is hindered hinders all behind it: what is ahead of those counts, too.
        let left = self.steps.values().filter_map(ahead).max().unwrap_or_default();
        // Time that only passes is no pace: whoever waits longer is not slower.
        let overdue = |seen: &Seen| match &seen.stage {
            Stage::Running(running) if matches!(running.doing, Doing::Waiting(_)) && ahead(seen) == Some(left) => {
                Some(now.saturating_sub(running.since + seen.own))
            }
            _ => None,
        };
        let waited = self.steps.values().filter_map(overdue).max().unwrap_or_default();
        if waited > GUESSED {
            return None;
        }
        let covered = self.predicted.saturating_sub(left).as_secs_f64();
        let is_paced = covered > PACE_KNOWN * self.predicted.as_secs_f64();
        let pace = if is_paced { now.saturating_sub(waited).as_secs_f64() / covered } else { 1.0 };
        (self.is_experienced || is_paced).then(|| left.mul_f64(pace))
    }
}

/// A text for one line of a terminal: without secrets (of what others say they are taken out before), and nothing that the terminal could take for an order.
pub(super) fn plain(text: &str) -> String {
    redact_own(text).chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}
