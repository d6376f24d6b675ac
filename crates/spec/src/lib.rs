//! `castle.yaml`: what can be written in it, where each value stands, and what must hold between them.
//!
//! [`read`] takes the text of a file and gives back either the castle, complete with every default, or all that is wrong
//! with it at once, each problem with its place.
//!
//! **Architecture invariant:** this crate does no I/O and knows nothing of terminals, files or the systems a castle is
//! made of. What a check needs from outside is handed in ([`references`]). It never panics, whatever the text.

mod checks;
mod inventory;
mod leaks;
pub mod model;
mod problem;
mod read;
mod schema;
mod schematic;
mod shape;
mod span;
mod suggest;
pub mod values;
mod yaml;

pub use checks::{Look, patch_files, patches, references};
pub use inventory::{Node, Role};
pub use model::{Castle, Component, ComponentName, WantedComponent};
pub use problem::{Code, Label, Problem, Severity};
pub use read::{MAX_BYTES, Reading, read};
pub use schema::{reference, schema};
pub use schematic::Schematic;
pub use shape::{Entries, List, Resolved, Unfit};
pub use span::{Lines, Origin, Position, Sourced, Span};
pub use suggest::nearest;
