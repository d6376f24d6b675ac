//! A castle with everything in it, in virtual time: machines, a cluster, its components, and the handover to Flux.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(dead_code, reason = "the room has more than these tests need")]

#[path = "../cluster/castle.rs"]
mod castle;
mod fits;
mod keep;
mod mirror;
mod raise;
#[path = "../platform/room.rs"]
mod room;
mod scribe;
mod seeds;
mod stands;
