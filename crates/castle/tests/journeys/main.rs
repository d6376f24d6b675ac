//! castle as its users meet it: the real binary, in an empty home, on real files.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests stand outside: they make the files castle looks at"
)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::exit,
    reason = "a test that cannot go on should say so and stop"
)]

mod bad_input;
mod bucket;
mod canary;
mod check;
mod commands;
mod datacenter;
mod driving;
mod foreign;
mod git;
mod gitops;
mod graceful;
mod handover;
mod keeping;
mod leaving;
mod manifests;
mod new;
mod opening;
mod planning;
mod preflight;
mod problems;
mod raising;
mod reborn;
mod rehearsing;
mod room;
mod scaling;
mod secrets;
mod seeing;
mod sharing;
mod side_by_side;
mod unwanted;
mod vault;
mod vault_days;
mod within;
mod world;
