//! Infisical as a castle's vault: universal auth, and the secrets of one environment of one project.
//!
//! Three rooms: `client` speaks the wire, `model` is what is said; the steps are those of any vault
//! ([`crate::vault::keep`]).

mod client;
mod model;

pub use client::{Access, Client, LARGEST_BODY};
pub use model::{Identity, IdentityError, Region, RegionError};
