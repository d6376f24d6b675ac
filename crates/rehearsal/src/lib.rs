//! Seams that lead into a world in memory and virtual time, which can be stopped at any instant: for rehearsals and for tests.
//!
//! - [`Pulse`] counts every effect of a process, and kills at a chosen one: before it, or after it.
//! - [`ModelDisk`] is a disk that loses, tears and reorders what was not synced.
//! - [`VirtualClock`] is time that passes only when everybody waits for it.
//! - [`Chance`] and [`KeyStock`] make runs that are the same for the same seed.
//!
//! **Architecture invariant:** nothing here is fit for secrets, and nothing here reaches outside of this process.

mod chance;
mod clock;
mod disk;
mod keys;
mod pulse;

pub use chance::Chance;
pub use clock::{VirtualClock, dawn, in_virtual_time};
pub use disk::{Loss, ModelDisk};
pub use keys::{KeyStock, StockedMint};
pub use pulse::{Moment, Pulse};
