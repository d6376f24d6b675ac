//! Talos Linux, as castle speaks with it.
//!
//! - [`model`] is what is said: the secrets bundle, certificates, machine configurations and how they are merged and compared.
//! - [`client`] speaks the wire: one call, one answer or one refusal, over mutual TLS or in maintenance mode.
//! - [`steps`] is what castle wants of it: nodes that have their configuration, one bootstrap, and a quorum of voters.
//!
//! **Architecture invariant:** nothing here knows of castle.yaml, of other vendors, or of the datacenter. No error, `Debug` or `Display`
//! holds a secret.

pub mod client;
pub mod model;
pub mod steps;
