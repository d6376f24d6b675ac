//! For tests alone: a world to be changed in memory and virtual time, whose seams are those of `castle-rehearsal`.
//!
//! - [`ModelWorld`] has things that are made, changed and destroyed, and calls that fail as real ones do.
//! - [`Trace`] tells whether two runs were the same.
//! - [`skipped`] is for tests that lack something from outside: told, counted, and a failure in CI.
//! - [`told`] says something of a test that passes: how much it has lived through.
//! - [`oracle`] finds what others have published and tests are held against.
//! - [`draw`] says which part of many worlds is lived through.
//! - [`contract`] holds what every step must hold, for whatever step it is given.
//!
//! **Architecture invariant:** nothing that is shipped depends on this crate.

pub mod contract;
mod draw;
mod oracles;
mod skips;
mod trace;
pub mod vendor;
mod world;

pub use castle_rehearsal::{Chance, Loss, ModelDisk, Moment, Pulse, VirtualClock};
pub use draw::{DRAW, draw};
pub use oracles::{ORACLES, oracle, oracle_text, oracles};
pub use skips::{LIST as SKIPPED_LIST, left_to_peers, skipped, told};
pub use trace::Trace;
pub use world::{Call, ModelWorld, Thing, ThingStep, Weather};

/// Runs `work` on one thread in virtual time.
///
/// # Panics
///
/// If the machine cannot make a runtime.
pub fn in_virtual_time<T>(work: impl AsyncFnOnce(&VirtualClock) -> T) -> T {
    castle_rehearsal::in_virtual_time(work).expect("a runtime of one thread needs nothing but memory")
}
