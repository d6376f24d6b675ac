//! The datacenter as a client sees it: real HTTP over pipes in memory, in virtual time.

mod access;
mod agent;
mod clone;
mod config;
mod create;
mod destroy;
mod determinism;
mod interventions;
mod inventory;
mod loopback;
mod power;
mod site;
mod storage;
mod tasks;
mod transport;
mod weather;
