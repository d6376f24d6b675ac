//! A GitOps repository, read and built as Flux would, and judged before a cluster sees it.
//!
//! - [`Tree`] is the files: of a folder, or of a commit ([`git::fetch`]).
//! - [`build`] makes of one Flux Kustomization the objects it applies; [`Forest`] is all that follow from the first.
//! - [`judge`] tells what is wrong with them in a [`World`], which is what castle makes: each [`Finding`] has its file and line,
//!   why, and what to do.
//!
//! # Architecture invariant
//!
//! No Kubernetes client, nothing of castle.yaml, nothing that prints. What is in a cluster is told by the caller, as data. What is not
//! understood is a finding of its own, never passed over.

mod flux;
pub mod git;
mod judge;
mod kinds;
mod kustomize;
mod object;
mod substitute;
mod tree;
mod yaml;

pub use flux::{Forest, Group, build};
pub use judge::{Code, Finding, Severity, Taken, Verdict, World, judge};
pub use kinds::{Component, EXTERNAL_SECRETS, FLUX, Kinds, LONGHORN, METALLB, SOURCE_WATCHER, Served};
pub use kustomize::BuildError;
pub use object::{Object, Reference};
pub use substitute::{SubstituteError, substitute};
pub use tree::{MAX_FILE_BYTES, MAX_FILES, MAX_TREE_BYTES, Tree, TreeError};
pub use yaml::{Lines, YamlError};
