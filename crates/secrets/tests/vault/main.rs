//! The vault's client and steps, against the Infisical of the embedded datacenter.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod client;
mod contract;
mod loopback;
mod resolve;
mod room;
mod secrecy;
