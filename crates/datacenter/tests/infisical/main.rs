//! The embedded Infisical, as any client sees it. What is expected was read in the server's source, not in castle's client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod auth;
mod folders;
mod interventions;
mod refusals;
mod secrets;
mod site;
