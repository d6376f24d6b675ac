//! Embedded nodes, held against what a real one of Talos 1.13.9 answered: every line of the recordings is asked again of a node
//! in the same state, and what differs stands in a list, with the reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod base;
mod configurations;
mod differences;
mod probes;
mod replay;
mod told;

#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/castle.rs"]
mod castle;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../behaviour/site.rs"]
mod site;
mod tls;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/wire.rs"]
mod wire;

/// What a node told in maintenance, before it had a configuration.
const IN_MAINTENANCE: &str = include_str!("../recordings/talos-1.13.9-maintenance.txt");
/// What it told as the one control plane of a cluster.
const AS_CONTROL_PLANE: &str = include_str!("../recordings/talos-1.13.9-cp-one-member.txt");
