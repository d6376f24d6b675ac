//! What must hold between the values of the file. Each check is a section of `docs/checks.md`.

mod components;
mod gitops;
mod network;
mod nodes;
mod patches;
mod platform;
mod references;
mod storage;
mod versions;

use std::collections::BTreeMap;

use crate::inventory::Node;
use crate::model::Castle;
use crate::problem::{Problem, Problems};
use crate::span::Span;

pub use patches::{patch_files, patches};
pub use references::{Look, references};

/// Runs every check that needs nothing but the file.
pub(crate) fn all(castle: &Castle, inventory: &[Node], problems: &mut Problems) {
    nodes::check(castle, inventory, problems);
    network::check(castle, inventory, problems);
    platform::check(castle, inventory, problems);
    versions::check(castle, problems);
    storage::check(castle, inventory, problems);
    components::check(castle, problems);
    references::check_vault(castle, problems);
    gitops::check(castle, problems);
}

/// Gathers problems of single nodes and reports those with the same cause once: a thousand nodes may follow from one
/// line, and that line is what has to change.
#[derive(Default)]
struct ByCause {
    found: BTreeMap<(Option<Span>, String), (Problem, usize)>,
}

impl ByCause {
    /// Adds a problem of `node`; `cause` tells those with the same cause.
    fn add(&mut self, node: Option<Span>, cause: &str, problem: impl FnOnce() -> Problem) {
        self.found.entry((node, cause.to_owned())).or_insert_with(|| (problem(), 0)).1 += 1;
    }

    fn report(self, problems: &mut Problems) {
        for (mut problem, count) in self.found.into_values() {
            if count > 1 {
                problem.summary += &format!(" (and {} more like it)", count - 1);
            }
            problems.report(problem);
        }
    }
}
