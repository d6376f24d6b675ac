//! What is said to Talos, and what it says.

pub mod bundle;
pub mod clients;
pub mod config;
pub mod merge;
pub mod pki;
