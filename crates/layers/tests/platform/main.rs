//! The platform layer against the embedded datacenter, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adoption;
mod bad_days;
mod contract;
mod drift;
mod foreign;
mod guards;
mod haunted;
mod placement;
mod room;
mod speed;
mod vanished;
