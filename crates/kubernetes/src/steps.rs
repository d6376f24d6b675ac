//! What castle wants of a cluster: objects that are as wanted, gates that prove what comes next, and nothing left behind.

mod apply;
mod arbiter;
mod component;
mod expect;
mod explain;
mod give;
mod inventory;
mod leave;
mod obstacle;
mod ownership;
mod proof;
mod prune;
mod ready;
mod reopen;
mod sources;
mod take;

pub use apply::{Apply, Present};
pub use arbiter::{Keeper, Known, Tenure, tenures};
pub use component::{install, install_unless, prune_step, record_step, remove, served_step, stage_step};
pub use expect::{Authority, Expect, Test, Unmet};
pub use give::give;
pub use inventory::{Record, all_recorded, recorded};
pub use leave::{Back, Drain, Drained, Draining, Empty, Left, Missed, Others, Settling};
pub use ownership::{inventories, rivals, survey};
pub use proof::{PodSeen, Proof, Seen, prove};
pub use prune::{Prune, Pruning};
pub use ready::Ready;
pub use reopen::unopened;
pub use sources::{Waiting, declared};
pub use take::take;
