//! Nodes that become a cluster, in virtual time: machines, configurations, one bootstrap, voters, an API that serves, nodes that are
//! ready.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(dead_code, reason = "the room has more than a cluster needs")]

mod bad_days;
mod castle;
mod configurations;
mod contract;
mod drift;
mod judge;
mod raise;
#[path = "../platform/room.rs"]
mod room;
mod traits;
mod vaulted;
