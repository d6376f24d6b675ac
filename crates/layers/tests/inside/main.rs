//! A castle with everything in it, in virtual time: machines, a cluster, its components, and the handover to Flux.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(dead_code, reason = "the room has more than these tests need")]

mod bad_days;
mod bad_git;
#[path = "../cluster/castle.rs"]
mod castle;
mod contract;
mod cost;
mod day;
mod fits;
mod graceful;
mod keep;
mod mirror;
mod mutation;
mod person;
mod raise;
#[path = "../platform/room.rs"]
mod room;
mod scribe;
mod seeds;
mod stands;
mod unwanted;
