//! The datacenter as a client sees it: real HTTP over pipes in memory, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod access;
mod agent;
mod clone;
mod config;
mod create;
mod destroy;
mod determinism;
mod downloads;
mod interventions;
mod inventory;
mod loopback;
mod managed;
mod pools;
mod power;
mod site;
mod snapshots;
mod statistics;
mod storage;
mod swarm;
mod tasks;
mod transport;
mod weather;
