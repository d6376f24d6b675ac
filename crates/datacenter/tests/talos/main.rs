//! Talos nodes as their clients see them: real gRPC over pipes in memory, in virtual time; and once over real TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod castle;
mod determinism;
mod etcd;
mod interventions;
mod kubernetes;
mod life;
mod loopback;
mod refusals;
mod resources;
mod simulated;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../behaviour/site.rs"]
mod site;
#[allow(dead_code, reason = "shared with the replay of recordings, which uses more of it")]
mod wire;
