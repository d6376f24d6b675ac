//! What is shared with the conformance suite.

#[allow(dead_code, reason = "shared with the conformance suite, which uses more of it")]
#[path = "../../../datacenter/tests/conformance/suite/authority.rs"]
pub(crate) mod authority;
#[allow(dead_code, reason = "shared with the conformance suite, which uses more of it")]
#[path = "../../../datacenter/tests/conformance/suite/server.rs"]
pub(crate) mod server;
