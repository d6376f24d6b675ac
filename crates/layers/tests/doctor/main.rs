//! The doctor against the embedded datacenter, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod addresses;
mod findings;
mod grants;
mod practice;
