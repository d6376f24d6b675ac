//! All steps and gates of a castle and what each needs: one graph across all layers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::edges::Edges;
use crate::erased::With;
use crate::id::StepId;
use crate::lanes::NO_LANE;
use crate::shelves::{Shelves, Spot};
use crate::step::{Gate, Step};
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

/// What a run touches of a step; the less, the more of them are at hand.
pub(crate) struct Node {
    /// Its number among the steps as they were added: where its value goes, and what others know it by.
    pub(crate) slot: u32,
    pub(crate) id: StepId,
    pub(crate) lane: u32,
    pub(crate) spot: Spot,
}

/// What a run rarely touches, by slot.
#[derive(Default)]
struct Added {
    ids: Vec<StepId>,
    predicted: Vec<Duration>,
    /// How wide each step says its lane is.
    widths: Vec<usize>,
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
    shelves: Shelves,
    nodes: Vec<Node>,
    added: Added,
    lanes: BTreeMap<Arc<str>, u32>,
    /// By slot: a step and one that it needs.
    needs: Vec<(u32, u32)>,
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
        let spot = self.shelves.put_step(With { needs, inner: step });
        self.add(id, place, sources, spot)
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
        let spot = self.shelves.put_gate(With { needs, inner: gate });
        self.add(id, place, sources, spot)
    }

    /// Makes `step` wait for `earlier` although it needs nothing of it.
    pub fn after(&mut self, step: StepId, earlier: StepId) {
        self.after.push((step, earlier));
    }

    fn add<T>(&mut self, id: StepId, place: Place, sources: Vec<(usize, Owner)>, spot: Spot) -> Handle<T> {
        if sources.iter().any(|(_, owner)| !Arc::ptr_eq(owner, &self.owner)) {
            self.error.get_or_insert(GraphError::Foreign(id.clone()));
        }
        let index = self.nodes.len();
        let slot = index as u32;
        let mut needs: Vec<u32> = sources.into_iter().map(|(index, _)| index as u32).collect();
        needs.sort_unstable();
        needs.dedup();
        self.needs.extend(needs.into_iter().map(|need| (slot, need)));
        let Place { lane, predicted } = place;
        let (lane, width) = lane.map_or((NO_LANE, 0), |lane| (self.lane(lane.name), lane.width));
        self.nodes.push(Node { slot, id: id.clone(), lane, spot });
        self.added.ids.push(id);
        self.added.predicted.push(predicted);
        self.added.widths.push(width);
        Handle { index, owner: self.owner.clone(), kind: PhantomData }
    }

    fn lane(&mut self, name: Arc<str>) -> u32 {
        let next = self.lanes.len() as u32 + 1;
        *self.lanes.entry(name).or_insert(next)
    }

    /// The graph.
    ///
    /// # Errors
    ///
    /// What keeps it from being one, see [`GraphError`].
    pub fn build(self) -> Result<Graph, GraphError> {
        let Self { shelves, nodes, added, lanes, mut needs, after, error, .. } = self;
        if let Some(error) = error {
            return Err(error);
        }
        let sorted = sorted(&added.ids)?;
        let find = |id: &StepId| sorted.binary_search_by_key(&id, |&slot| &added.ids[slot as usize]).ok();
        for (step, earlier) in after {
            match (find(&step), find(&earlier)) {
                (Some(at), Some(before)) => needs.push((sorted[at], sorted[before])),
                _ => return Err(GraphError::Missing { step, after: earlier }),
            }
        }
        let needs = Edges::new(nodes.len(), needs.into_iter());
        let order = order(&added.ids, &needs)?;
        Ok(Graph::arrange(shelves, nodes, added, lanes, needs, order))
    }
}

/// The slots of all steps in the order of their names, of which no two may be equal.
fn sorted(ids: &[StepId]) -> Result<Vec<u32>, GraphError> {
    let id = |slot: u32| &ids[slot as usize];
    let mut sorted: Vec<u32> = (0..ids.len() as u32).collect();
    sorted.sort_by(|&one, &other| id(one).cmp(id(other)));
    let second = sorted.windows(2).filter(|pair| id(pair[0]) == id(pair[1])).map(|pair| pair[1]).min();
    second.map_or(Ok(sorted), |slot| Err(GraphError::Duplicate(id(slot).clone())))
}

/// An order in which every step comes after its needs; those that need nothing come first, as they were added.
fn order(ids: &[StepId], needs: &Edges) -> Result<Vec<u32>, GraphError> {
    let needed_by = needs.reversed();
    let slots = 0..ids.len() as u32;
    let mut waits: Vec<usize> = slots.clone().map(|slot| needs.of(slot).len()).collect();
    let mut order: Vec<u32> = slots.filter(|&slot| waits[slot as usize] == 0).collect();
    let mut next = 0;
    while let Some(&slot) = order.get(next) {
        next += 1;
        for &later in needed_by.of(slot) {
            waits[later as usize] -= 1;
            if waits[later as usize] == 0 {
                order.push(later);
            }
        }
    }
    if order.len() == ids.len() { Ok(order) } else { Err(GraphError::Cycle(cycle(ids, needs, &waits))) }
}

/// For each slot, how long the step and the longest chain behind it will take.
fn remaining(added: &Added, behind: &Edges, order: &[u32]) -> Vec<Duration> {
    let mut remaining = vec![Duration::ZERO; order.len()];
    for &slot in order.iter().rev() {
        let longest = behind.of(slot).iter().map(|&later| remaining[later as usize]).max().unwrap_or_default();
        remaining[slot as usize] = added.predicted[slot as usize].saturating_add(longest);
    }
    remaining
}

/// A circle among the steps that still wait: whoever waits for one of them waits for another of them.
fn cycle(ids: &[StepId], needs: &Edges, waits: &[usize]) -> Vec<StepId> {
    let mut path: Vec<u32> = Vec::new();
    let mut at = waits.iter().position(|&count| count > 0).map(|slot| slot as u32);
    while let Some(slot) = at {
        if let Some(start) = path.iter().position(|&seen| seen == slot) {
            path.push(slot);
            // The path leads from each to what it waits for; people read it the other way.
            return path[start..].iter().rev().map(|&slot| ids[slot as usize].clone()).collect();
        }
        path.push(slot);
        at = needs.of(slot).iter().copied().find(|&need| waits[need as usize] > 0);
    }
    Vec::new()
}

/// What is thought of a step before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The step.
    pub step: StepId,
    /// How long it will probably take.
    pub own: Duration,
    /// How long the longest chain behind it will probably take.
    pub behind: Duration,
}

/// Steps and gates in an order that works.
///
/// A step has two numbers: its slot says when it was added, its rank how urgent it is, the most urgent first. What a run needs
/// stands by rank, so that a run goes through memory forwards instead of jumping about.
pub struct Graph {
    pub(crate) shelves: Shelves,
    /// By rank.
    pub(crate) nodes: Vec<Node>,
    /// By rank, those that need a step, as they were added.
    pub(crate) needed_by: Edges,
    /// The rank of each slot.
    ranks: Vec<u32>,
    added: Added,
    /// By slot.
    pub(crate) needs: Edges,
    /// Slots, every step after its needs.
    pub(crate) order: Vec<u32>,
    /// The lanes and their numbers.
    pub(crate) lanes: BTreeMap<Arc<str>, u32>,
    predicted: Duration,
}

impl Graph {
    /// Ranks the steps: the longest remaining path first, then as they were added.
    fn arrange(
        mut shelves: Shelves,
        mut nodes: Vec<Node>,
        added: Added,
        lanes: BTreeMap<Arc<str>, u32>,
        needs: Edges,
        order: Vec<u32>,
    ) -> Self {
        let behind = needs.reversed();
        let remaining = remaining(&added, &behind, &order);
        let mut slots: Vec<u32> = (0..nodes.len() as u32).collect();
        slots.sort_by_key(|&slot| Reverse(remaining[slot as usize]));
        let mut ranks = vec![0; slots.len()];
        for (rank, &slot) in (0..).zip(&slots) {
            ranks[slot as usize] = rank;
        }
        nodes.sort_unstable_by_key(|node| ranks[node.slot as usize]);
        shelves.arrange(nodes.iter_mut().map(|node| &mut node.spot));
        let ranked = (0..).zip(&slots).flat_map(|(rank, &slot)| {
            let ranks = &ranks;
            behind.of(slot).iter().map(move |&later| (rank, ranks[later as usize]))
        });
        let needed_by = Edges::new(slots.len(), ranked);
        let predicted = slots.first().map(|&slot| remaining[slot as usize]).unwrap_or_default();
        Self { shelves, nodes, needed_by, ranks, added, needs, order, lanes, predicted }
    }

    pub(crate) fn rank(&self, slot: u32) -> u32 {
        self.ranks[slot as usize]
    }

    pub(crate) fn id(&self, slot: u32) -> &StepId {
        &self.added.ids[slot as usize]
    }

    pub(crate) fn width(&self, node: &Node) -> usize {
        self.added.widths[node.slot as usize]
    }

    /// The names of all steps and gates, each after what it needs.
    pub fn ids(&self) -> impl Iterator<Item = &StepId> {
        self.order.iter().map(|&slot| self.id(slot))
    }

    /// The graph with what is told of how long its steps take.
    pub(crate) fn predicted_as(self, told: impl Fn(&StepId) -> Option<Duration>) -> Self {
        let Self { shelves, nodes, mut added, lanes, needs, order, .. } = self;
        for (id, predicted) in added.ids.iter().zip(&mut added.predicted) {
            *predicted = told(id).unwrap_or(*predicted);
        }
        Self::arrange(shelves, nodes, added, lanes, needs, order)
    }

    /// What is thought of each step, in the order of their needs.
    #[must_use]
    pub fn outlook(&self) -> Vec<Outlook> {
        let remaining = remaining(&self.added, &self.needs.reversed(), &self.order);
        let of = |&slot: &u32| {
            let own = self.added.predicted[slot as usize];
            Outlook { step: self.id(slot).clone(), own, behind: remaining[slot as usize].saturating_sub(own) }
        };
        self.order.iter().map(of).collect()
    }

    /// How long the longest chain will probably take: no run can be faster.
    #[must_use]
    pub fn predicted(&self) -> Duration {
        self.predicted
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.added.ids.iter().map(ToString::to_string)).finish()
    }
}

#[cfg(test)]
mod tests {
    use castle_seams::BoxFuture;

    use super::*;
    use crate::fault::Fault;
    use crate::id::Layer;
    use crate::step::Verdict;

    /// A gate that is open, and needs others that are.
    struct Open;

    impl Gate for Open {
        type Needs = (Vec<Arc<()>>,);
        type Output = ();

        fn check<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
            Box::pin(std::future::ready(Ok(Verdict::Open(()))))
        }

        fn deadline(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    #[test]
    fn the_outlook_of_a_step_is_the_longest_chain_behind_it() {
        let mut builder = GraphBuilder::new();
        let mut add = |name: &str, seconds, needs: Vec<Handle<()>>| {
            let place = Place { lane: None, predicted: Duration::from_secs(seconds) };
            builder.gate(StepId::new(&Layer::new("model"), "gate", name), place, (needs,), Open)
        };
        let first = add("first", 1, Vec::new());
        let short = add("short", 2, vec![first.clone()]);
        let long = add("long", 7, vec![first]);
        add("last", 3, vec![short, long]);
        let graph = builder.build().unwrap();
        let seen: Vec<(String, u64, u64)> = graph
            .outlook()
            .iter()
            .map(|one| (one.step.name.to_string(), one.own.as_secs(), one.behind.as_secs()))
            .collect();
        let expected = [("first", 1, 10), ("short", 2, 3), ("long", 7, 3), ("last", 3, 0)];
        assert_eq!(seen, expected.map(|(name, own, behind)| (name.to_owned(), own, behind)));
        assert_eq!(graph.predicted(), Duration::from_secs(11));
    }
}
