//! All steps and gates of a castle and what each needs: one graph across all layers.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::erased::{AnyGate, AnyStep, With};
use crate::id::StepId;
use crate::step::{Gate, Step};
use crate::timeline::Predictions;
use crate::value::{Handle, Needs, Owner};

/// What limits how many steps run at once: a host, a storage, an API. Named by whoever adds the steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Its name.
    pub name: Arc<str>,
    /// How many at once when nothing complains.
    pub width: usize,
}

impl Lane {
    /// A lane of this width; at least one fits.
    #[must_use]
    pub fn new(name: &str, width: usize) -> Self {
        Self { name: name.into(), width: width.max(1) }
    }
}

pub(crate) enum Work {
    Step(Box<dyn AnyStep>),
    Gate(Box<dyn AnyGate>),
}

pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) id: StepId,
    pub(crate) lane: Option<Lane>,
    pub(crate) predicted: Duration,
    pub(crate) needs: Vec<usize>,
    pub(crate) needed_by: Vec<usize>,
    pub(crate) work: Work,
}

/// Why there is no graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// Two steps have one name.
    #[error("two steps are called {0}")]
    Duplicate(StepId),
    /// Steps wait for each other in a circle.
    #[error("these wait for each other: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<StepId>),
    /// A step is to come after one that is not there.
    #[error("{step} is to come after {after}, which is not in the graph")]
    Missing {
        /// The step.
        step: StepId,
        /// What it is to come after.
        after: StepId,
    },
    /// A step needs what a step of another graph gives.
    #[error("{0} needs a value of another graph")]
    Foreign(StepId),
}

/// Gathers steps and gates.
///
/// A value can only be needed once the step that gives it has been added, so needs cannot form a circle; the order that
/// [`GraphBuilder::after`] adds can, and is refused by [`GraphBuilder::build`].
#[derive(Default)]
pub struct GraphBuilder {
    owner: Owner,
    nodes: Vec<Node>,
    after: Vec<(StepId, StepId)>,
    error: Option<GraphError>,
}

/// The place of a step among the others.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// What limits it, if anything does.
    pub lane: Option<Lane>,
    /// How long it will probably take.
    pub predicted: Duration,
}

impl GraphBuilder {
    /// An empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step; returns the promise of what it gives.
    pub fn step<N: Needs, S: Step<Needs = N::Values>>(
        &mut self,
        id: StepId,
        place: Place,
        needs: N,
        step: S,
    ) -> Handle<S::Output> {
        let sources = needs.sources();
        self.add(id, place, sources, Work::Step(Box::new(With { needs, inner: step })))
    }

    /// Adds a gate; returns the promise of what it gives.
    pub fn gate<N: Needs, G: Gate<Needs = N::Values>>(
        &mut self,
        id: StepId,
        place: Place,
        needs: N,
        gate: G,
    ) -> Handle<G::Output> {
        let sources = needs.sources();
        self.add(id, place, sources, Work::Gate(Box::new(With { needs, inner: gate })))
    }

    /// Makes `step` wait for `earlier` although it needs nothing of it.
    pub fn after(&mut self, step: StepId, earlier: StepId) {
        self.after.push((step, earlier));
    }

    fn add<T>(&mut self, id: StepId, place: Place, sources: Vec<(usize, Owner)>, work: Work) -> Handle<T> {
        if sources.iter().any(|(_, owner)| !Arc::ptr_eq(owner, &self.owner)) {
            self.error.get_or_insert(GraphError::Foreign(id.clone()));
        }
        let mut needs: Vec<usize> = sources.into_iter().map(|(index, _)| index).collect();
        needs.sort_unstable();
        needs.dedup();
        let Place { lane, predicted } = place;
        let index = self.nodes.len();
        self.nodes.push(Node { index, id, lane, predicted, needs, needed_by: Vec::new(), work });
        Handle { index, owner: self.owner.clone(), kind: PhantomData }
    }

    /// The graph.
    ///
    /// # Errors
    ///
    /// What keeps it from being one, see [`GraphError`].
    pub fn build(self) -> Result<Graph, GraphError> {
        let Self { mut nodes, after, error, .. } = self;
        if let Some(error) = error {
            return Err(error);
        }
        let mut places: BTreeMap<StepId, usize> = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            if places.insert(node.id.clone(), index).is_some() {
                return Err(GraphError::Duplicate(node.id.clone()));
            }
        }
        for (step, earlier) in after {
            match (places.get(&step), places.get(&earlier)) {
                (Some(&index), Some(&before)) => nodes[index].needs.push(before),
                _ => return Err(GraphError::Missing { step, after: earlier }),
            }
        }
        for index in 0..nodes.len() {
            for need in nodes[index].needs.clone() {
                nodes[need].needed_by.push(index);
            }
        }
        let order = order(&nodes)?;
        Ok(Graph { remaining: remaining(&nodes, &order), nodes, order })
    }
}

/// An order in which every step comes after its needs.
fn order(nodes: &[Node]) -> Result<Vec<usize>, GraphError> {
    let mut waits: Vec<usize> = nodes.iter().map(|node| node.needs.len()).collect();
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&index| waits[index] == 0).collect();
    let mut next = 0;
    while let Some(&index) = order.get(next) {
        next += 1;
        for &later in &nodes[index].needed_by {
            waits[later] -= 1;
            if waits[later] == 0 {
                order.push(later);
            }
        }
    }
    if order.len() == nodes.len() { Ok(order) } else { Err(GraphError::Cycle(cycle(nodes, &waits))) }
}

/// A circle among the steps that still wait: whoever waits for one of them waits for another of them.
fn cycle(nodes: &[Node], waits: &[usize]) -> Vec<StepId> {
    let mut path: Vec<usize> = Vec::new();
    let mut at = waits.iter().position(|&count| count > 0);
    while let Some(index) = at {
        if let Some(start) = path.iter().position(|&seen| seen == index) {
            path.push(index);
            // The path leads from each to what it waits for; people read it the other way.
            return path[start..].iter().rev().map(|&index| nodes[index].id.clone()).collect();
        }
        path.push(index);
        at = nodes[index].needs.iter().copied().find(|&need| waits[need] > 0);
    }
    Vec::new()
}

/// For each step, how long it and the longest chain behind it will take.
fn remaining(nodes: &[Node], order: &[usize]) -> Vec<Duration> {
    let mut remaining = vec![Duration::ZERO; nodes.len()];
    for &index in order.iter().rev() {
        let behind = nodes[index].needed_by.iter().map(|&later| remaining[later]).max().unwrap_or_default();
        remaining[index] = nodes[index].predicted.saturating_add(behind);
    }
    remaining
}

/// Steps and gates in an order that works.
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) remaining: Vec<Duration>,
    /// Every step after its needs.
    pub(crate) order: Vec<usize>,
}

impl Graph {
    /// The names of all steps and gates, each after what it needs.
    pub fn ids(&self) -> impl Iterator<Item = &StepId> {
        self.order.iter().map(|&index| &self.nodes[index].id)
    }

    /// The graph with what earlier runs tell about how long its steps take.
    #[must_use]
    pub fn predicted_by(mut self, predictions: &Predictions) -> Self {
        for node in &mut self.nodes {
            node.predicted = predictions.of(&node.id).unwrap_or(node.predicted);
        }
        self.remaining = remaining(&self.nodes, &self.order);
        self
    }

    /// How long the longest chain will probably take: no run can be faster.
    #[must_use]
    pub fn predicted(&self) -> Duration {
        self.remaining.iter().max().copied().unwrap_or_default()
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| node.id.to_string())).finish()
    }
}
