//! Which groups are certainly applied before which.

use std::collections::{BTreeMap, BTreeSet};

use crate::flux::{Forest, KUSTOMIZE};
use crate::object::Reference;

/// For every group all that come before it: those it waits for, the one that brings it, and what comes before those.
pub(crate) struct Order {
    before: BTreeMap<Reference, BTreeSet<Reference>>,
    /// Groups that wait for each other, each circle once.
    pub(crate) cycles: Vec<Vec<Reference>>,
}

impl Order {
    pub(crate) fn of(forest: &Forest) -> Self {
        let mut edges: BTreeMap<Reference, BTreeSet<Reference>> = BTreeMap::new();
        let mut waits: BTreeMap<Reference, BTreeSet<Reference>> = BTreeMap::new();
        for group in &forest.groups {
            let own = group.reference();
            let needed: BTreeSet<Reference> = group.depends_on().map(|(_, reference)| reference).collect();
            waits.insert(own.clone(), needed.clone());
            edges.entry(own.clone()).or_default().extend(needed);
            for brought in group.objects.iter().filter(|object| object.is(KUSTOMIZE, "Kustomization")) {
                if brought.reference() != own {
                    edges.entry(brought.reference()).or_default().insert(own.clone());
                }
            }
        }
        let before = edges.keys().map(|from| (from.clone(), reachable(from, &edges))).collect();
        Self { before, cycles: cycles(&waits) }
    }

    /// Whether one group is applied before another, or is the same.
    pub(crate) fn is_before(&self, one: &Reference, other: &Reference) -> bool {
        one == other || self.before.get(other).is_some_and(|before| before.contains(one))
    }
}

fn reachable(from: &Reference, edges: &BTreeMap<Reference, BTreeSet<Reference>>) -> BTreeSet<Reference> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&Reference> = edges.get(from).into_iter().flatten().collect();
    while let Some(next) = open.pop() {
        if seen.insert(next.clone()) {
            open.extend(edges.get(next).into_iter().flatten());
        }
    }
    seen
}

/// Those that wait for each other, each circle once.
pub(super) fn cycles(waits: &BTreeMap<Reference, BTreeSet<Reference>>) -> Vec<Vec<Reference>> {
    let mut told = BTreeSet::new();
    let mut cycles = Vec::new();
    for start in waits.keys() {
        let reached = reachable(start, waits);
        if !reached.contains(start) || told.contains(start) {
            continue;
        }
        // All that wait for each other are told as one, beginning with the first by name.
        let circle: Vec<Reference> = waits
            .keys()
            .filter(|other| *other == start || (reached.contains(*other) && reachable(other, waits).contains(start)))
            .cloned()
            .collect();
        told.extend(circle.iter().cloned());
        cycles.push(circle);
    }
    cycles
}
