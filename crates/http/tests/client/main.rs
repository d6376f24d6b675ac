//! The client against servers in memory, in virtual time: each behaves as real ones do, or worse.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod answers;
mod reuse;
mod server;
mod time;
mod tls;
