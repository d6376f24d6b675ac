//! One suite for every API server: scenarios in text files, driven over HTTP, told as transcripts that can be compared.
//!
//! `scenarios` says what is asked ([`script`]), `recorded` what the real server answered, with names for what differs from run
//! to run ([`normal`]). A new scenario is written down, recorded with `peer.rs`, and read: what the real server says is right.

pub(crate) mod authority;
pub(crate) mod compare;
pub(crate) mod exceptions;
pub(crate) mod hooks;
pub(crate) mod mirror;
pub(crate) mod normal;
pub(crate) mod path;
pub(crate) mod play;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod transcript;

/// A file of scenarios and what the real server answered to them.
pub(crate) struct Theme {
    pub(crate) name: &'static str,
    pub(crate) scenarios: &'static str,
    pub(crate) recorded: &'static str,
}

macro_rules! themes {
    ($($name:literal)*) => {
        &[$(Theme {
            name: $name,
            scenarios: include_str!(concat!("scenarios/", $name, ".txt")),
            recorded: include_str!(concat!("recorded/", $name, ".txt")),
        }),*]
    };
}

/// What is played over HTTP alone.
pub(crate) const THEMES: &[Theme] = themes![
    "objects"
    "apply"
    "patch"
    "lists"
    "workloads"
    "crds"
    "webhooks"
    "access"
    "nodes"
    "endings"
    "discovery"
];

/// What is played with the real `kubectl`.
pub(crate) const JOURNEYS: &[Theme] = themes!["kubectl" "rollouts"];

/// The manifests that are applied as they come, and the digests of what the real server made of them.
pub(crate) const MIRROR: &str = include_str!("recorded/mirror.txt");
