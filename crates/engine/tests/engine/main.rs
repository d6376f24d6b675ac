//! The engine in a model world: in virtual time, on a disk that forgets, killed at every effect.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should say so and stop")]

mod contract;
mod journal;
mod lease;
mod planning;
mod recorded;
mod running;
mod scheduling;
mod secrecy;
mod seeds;
mod state;
