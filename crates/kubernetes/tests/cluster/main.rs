//! Castle's client and steps on a cluster of the embedded datacenter, in virtual time.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on should say so and stop"
)]

#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../../../datacenter/tests/talos/castle.rs"]
mod castle;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../../../datacenter/tests/behaviour/site.rs"]
mod site;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../../../datacenter/tests/talos/wire.rs"]
mod wire;

mod apply;
mod bad_days;
mod contract;
mod flux;
mod gates;
mod handover;
mod handover_contract;
mod leave;
mod leave_contract;
mod mirror;
mod ownership;
mod prune;
mod race;
mod room;
mod stalled;
