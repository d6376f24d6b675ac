//! The engine: from what is to what is wanted, one noted effect at a time.
//!
//! A [`Step`] looks at the world, decides what comes next, does one thing, and looks again. A [`Gate`] asks the world whether
//! what comes next will work. A [`GraphBuilder`] joins them by the typed values they give each other; [`run`] starts whatever
//! can start. What castle is about to do is in the [`Journal`] before it is done.
//!
//! **Architecture invariant:** this crate knows no vendor, no terminal and no castle.yaml. It touches the outside only through
//! `castle-seams` and through the steps it is given. It never prints or stores the values that travel between steps.

mod change;
mod converge;
mod edges;
mod erased;
mod event;
mod fault;
mod fence;
mod graph;
mod id;
mod journal;
mod lanes;
mod lease;
pub mod lineage;
pub mod note;
mod queues;
mod retry;
mod run;
mod shelves;
mod state;
mod step;
mod store;
mod timeline;
mod value;

pub use change::{Change, Decision, Difference, Impact, Restarts};
pub use event::{Deaf, EVENT_VERSION, Event, Listener, Outcome, What};
pub use fault::{Class, Fault};
pub use fence::{Alone, Fence};
pub use graph::{Graph, GraphBuilder, GraphError, Lane, Outlook, Place};
pub use id::{CastleId, Layer, OperationId, StepId, StepName};
pub use journal::{Damage, Entry, Journal, JournalError, OpenIntent, Recovery};
pub use lease::{Applicant, HEARTBEAT, Holder, LIFE, Lease, LeaseError, Taking, look};
pub use retry::{Retry, pace};
pub use run::{Chosen, Report, Tools, Wanted, run};
pub use state::{Locksmith, Memory, Opened, Record, Seal, SealError, State, StateError};
pub use step::{Closed, Gate, Operation, Step, Verdict};
pub use store::{DirectoryStore, Expect, Found, Store, StoreError, StoreErrorKind, Stored, Tag};
pub use timeline::{Predictions, Span, Timeline};
pub use value::{Handle, Need, Needs};
