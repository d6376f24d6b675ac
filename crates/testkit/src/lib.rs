//! For tests alone: seams that lead into a world in memory and virtual time, which can be stopped at any instant.
//!
//! - [`Pulse`] counts every effect on disk and world, and kills at a chosen one: before it, or after it.
//! - [`ModelDisk`] is a disk that loses, tears and reorders what was not synced.
//! - [`ModelWorld`] has things that are made, changed and destroyed, and calls that fail as real ones do.
//! - [`VirtualClock`], [`Chance`] and [`Trace`] make runs that are the same for the same seed.
//! - [`contract`] holds what every step must hold, for whatever step it is given.
//!
//! **Architecture invariant:** nothing that is shipped depends on this crate.

mod chance;
mod clock;
pub mod contract;
mod disk;
mod pulse;
mod trace;
pub mod vendor;
mod world;

pub use chance::Chance;
pub use clock::{VirtualClock, in_virtual_time};
pub use disk::{Loss, ModelDisk};
pub use pulse::{Moment, Pulse};
pub use trace::Trace;
pub use world::{Call, ModelWorld, Thing, ThingStep, Weather};
