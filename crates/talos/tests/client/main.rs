//! The client, against servers of the same words at the other end of a pipe, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod calls;
mod clocks;
mod failures;
mod loopback;
mod newborn;
mod node;
mod resources;
mod serving;
mod tls;
