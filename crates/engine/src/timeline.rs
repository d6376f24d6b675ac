//! What took how long, and what everything else had to wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::graph::Graph;
use crate::id::StepId;

/// When a step was ready, began and ended, since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTime {
    pub(crate) ready: Duration,
    pub(crate) started: Duration,
    pub(crate) ended: Duration,
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

impl Timeline {
    pub(crate) fn new(graph: &Graph, times: &[StepTime]) -> Self {
        let span = |index: usize| {
            let StepTime { ready, started, ended } = times[index];
            let (waited, worked) = (started.saturating_sub(ready), ended.saturating_sub(started));
            Span { step: graph.nodes[index].id.clone(), ready, waited, worked }
        };
        let began = |index: &usize| times[*index].ended > Duration::ZERO || times[*index].started > Duration::ZERO;
        let order: Vec<usize> = graph.order.iter().copied().filter(began).collect();
        let latest =
            |indexes: &[usize]| indexes.iter().copied().max_by_key(|&index| (times[index].ended, usize::MAX - index));
        let mut path = Vec::new();
        let mut at = latest(&order);
        while let Some(index) = at {
            path.push(index);
            at = latest(&graph.nodes[index].needs);
        }
        path.reverse();
        Self { spans: order.into_iter().map(span).collect(), critical_path: path.into_iter().map(span).collect() }
    }

    /// How long each kind of step worked, for predicting the next run: the middle of all of the kind.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<(String, String), Duration> {
        let mut kinds: BTreeMap<(String, String), Vec<Duration>> = BTreeMap::new();
        for span in &self.spans {
            let kind = (span.step.layer.to_string(), span.step.kind.to_string());
            kinds.entry(kind).or_default().push(span.worked);
        }
        let middle = |mut all: Vec<Duration>| {
            all.sort_unstable();
            all[all.len() / 2]
        };
        kinds.into_iter().map(|(kind, all)| (kind, middle(all))).collect()
    }
}
