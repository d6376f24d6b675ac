//! Proxmox VE, as castle speaks with it.
//!
//! - [`model`] is what is said: property strings, forms, the names of tasks, and the classes of errors.
//! - [`client`] speaks the wire: one request, one answer or one [`model::Refusal`]; tasks followed to their end.
//! - [`steps`] is what castle wants of it: an image, guests, and their end.
//!
//! **Architecture invariant:** nothing here knows of castle.yaml, of other vendors, or of the datacenter. What Proxmox prints is
//! compared by meaning, never as text.

pub mod client;
pub mod model;
pub mod steps;
