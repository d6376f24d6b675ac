//! What castle wants of a cluster: objects that are as wanted, gates that prove what comes next, and nothing left behind.

mod apply;
mod component;
mod expect;
mod explain;
mod inventory;
mod ownership;
mod prune;
mod ready;

pub use apply::{Apply, Present};
pub use component::{install, remove, served_step, stage_step};
pub use expect::{Authority, Expect, Test, Unmet};
pub use inventory::Record;
pub use ownership::{inventories, rivals, survey};
pub use prune::Prune;
pub use ready::Ready;
