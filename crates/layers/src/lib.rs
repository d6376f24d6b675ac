//! The layers of a castle: castle.yaml in, steps out.
//!
//! - [`Site`] is where a castle stands, whichever platform the file names.
//! - [`survey`] looks at the site once, with as many requests for five guests as for five hundred.
//! - [`place`] says which host carries which node, and why.
//! - [`doctor`] looks at all that a castle will need there, before anything is changed.
//! - [`beginning`] keeps and finds that the etcd of a life has begun.
//! - [`secrets`], [`platform`] and [`cluster`] have the steps of the layers that make a cluster.
//! - [`engine`], [`networking`], [`storage`] and [`gitops`] have those of the layers [`Inside`] it, up to the handover.
//! - [`unwanted`] names what the file wants no more, and removes it if that was said.
//! - [`foreign`] looks at machines that somebody else has made, and marks them.
//! - [`graceful`] calms a cluster before its machines go, and wakes it where that was called off.
//! - [`preflight`] is what a Git repository is held against before Flux follows it.
//!
//! **Architecture invariant:** a layer is handed the clients it needs and no others. Nothing here prints, and nothing here knows
//! the datacenter.

pub mod beginning;
pub mod cluster;
mod components;
pub mod doctor;
pub mod engine;
pub mod foreign;
pub mod gitops;
pub mod graceful;
mod inside;
pub mod names;
pub mod networking;
pub mod owners;
mod placement;
pub mod platform;
pub mod preflight;
pub mod secrets;
mod site;
pub mod storage;
mod survey;
mod turns;
pub mod unwanted;
pub mod vault;

pub use components::{layer_of, removable};
pub use inside::Inside;
pub use names::LAYERS;
pub use placement::{Crowded, Placed, Why, place};
pub use site::Site;
pub use survey::{Survey, survey};
