//! What took how long, and what everything else had to wait for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::graph::Graph;
use crate::id::StepId;

/// When a step was ready, began and ended, in nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTime {
    pub(crate) ready_ns: u64,
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
}

/// A step in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The step.
    pub step: StepId,
    /// When its needs were met.
    pub ready: Duration,
    /// How long it then waited for a place in its lane.
    pub waited: Duration,
    /// How long it worked.
    pub worked: Duration,
}

/// A run in time: the steps that began, and the chain that decided how long it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// All steps that began and ended, in the order of their needs.
    pub spans: Vec<Span>,
    /// The chain of steps each of which held up the next; had they been faster, so had the run.
    pub critical_path: Vec<Span>,
}

impl StepTime {
    fn began(&self) -> bool {
        self.ended_ns > 0 || self.started_ns > 0
    }

    fn span(&self, step: &StepId) -> Span {
        let &Self { ready_ns, started_ns, ended_ns } = self;
        let since = |start_ns: u64, end_ns: u64| Duration::from_nanos(end_ns.saturating_sub(start_ns));
        let (waited, worked) = (since(ready_ns, started_ns), since(started_ns, ended_ns));
        Span { step: step.clone(), ready: Duration::from_nanos(ready_ns), waited, worked }
    }
}

impl Timeline {
    /// No steps yet, and room for those of the graph; the times are by rank.
    pub(crate) fn new(graph: &Graph, times: &[StepTime]) -> Self {
        let time = |slot: u32| &times[graph.rank(slot) as usize];
        let lateness = |slot: &u32| (time(*slot).ended_ns, Reverse(*slot));
        let mut path = Vec::new();
        let mut at = graph.order.iter().copied().filter(|&slot| time(slot).began()).max_by_key(lateness);
        while let Some(slot) = at {
            path.push(time(slot).span(graph.id(slot)));
            at = graph.needs.of(slot).iter().copied().max_by_key(lateness);
        }
        path.reverse();
        Self { spans: Vec::with_capacity(times.len()), critical_path: path }
    }

    /// Adds a step, if it began.
    pub(crate) fn add(&mut self, step: &StepId, time: &StepTime) {
        if time.began() {
            self.spans.push(time.span(step));
        }
    }
}

/// How many runs of a kind of step are remembered; older ones no longer tell.
const REMEMBERED: usize = 20;

/// What earlier runs tell about the next: how long each kind of step works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predictions {
    /// By `layer/kind`, the last times, oldest first.
    kinds: BTreeMap<String, Vec<Duration>>,
}

impl Predictions {
    fn kind(step: &StepId) -> String {
        format!("{}/{}", step.layer, step.kind)
    }

    /// Learns from a run. Steps that had nothing to do tell nothing about those that have, so only a run that changed something is
    /// worth learning from: the caller decides.
    pub fn learn(&mut self, timeline: &Timeline) {
        for span in &timeline.spans {
            let times = self.kinds.entry(Self::kind(&span.step)).or_default();
            times.push(span.worked);
            if times.len() > REMEMBERED {
                times.remove(0);
            }
        }
    }

    /// How long a step will probably work: the middle of what its kind took, if that is known.
    #[must_use]
    pub fn of(&self, step: &StepId) -> Option<Duration> {
        let mut times = self.kinds.get(&Self::kind(step))?.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }
}

impl Graph {
    /// The graph with what earlier runs tell about how long its steps take.
    #[must_use]
    pub fn predicted_by(self, predictions: &Predictions) -> Self {
        self.predicted_as(|step| predictions.of(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Layer;

    fn timeline(seconds: &[u64]) -> Timeline {
        let step = StepId::new(&Layer::new("platform"), "vm", "x");
        let span = |&seconds: &u64| Span {
            step: step.clone(),
            ready: Duration::ZERO,
            waited: Duration::ZERO,
            worked: Duration::from_secs(seconds),
        };
        Timeline { spans: seconds.iter().map(span).collect(), critical_path: Vec::new() }
    }

    #[test]
    fn the_middle_of_the_last_runs_predicts_the_next() {
        let step = StepId::new(&Layer::new("platform"), "vm", "another");
        let mut predictions = Predictions::default();
        assert_eq!(predictions.of(&step), None);
        predictions.learn(&timeline(&[3, 100, 4]));
        assert_eq!(predictions.of(&step), Some(Duration::from_secs(4)), "one bad run does not count");
        predictions.learn(&timeline(&[9; 20]));
        assert_eq!(predictions.of(&step), Some(Duration::from_secs(9)), "old runs are forgotten");
        let text = serde_json::to_string(&predictions).unwrap();
        assert_eq!(serde_json::from_str::<Predictions>(&text).unwrap(), predictions);
    }
}
