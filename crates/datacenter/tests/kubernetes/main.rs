//! The Kubernetes API as its clients see it: HTTP over pipes in memory, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod bad_days;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/castle.rs"]
mod castle;
mod client;
mod cluster;
mod external_secrets;
mod flux;
mod follows;
mod git;
mod health;
mod longhorn;
mod metallb;
mod owners;
#[allow(dead_code, reason = "shared with the tests of the hypervisor, which use more of it")]
#[path = "../behaviour/site.rs"]
mod site;
mod stand;
mod stand_ins;
mod template;
mod webhooks;
#[allow(dead_code, reason = "shared with the tests of nodes, which use more of it")]
#[path = "../talos/wire.rs"]
mod wire;
