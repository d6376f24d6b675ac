//! Proxmox VE, as castle speaks with it.
//!
//! - [`model`] is what is said: property strings, forms, the names of tasks, and the classes of errors.
//!
//! **Architecture invariant:** nothing here knows of castle.yaml, of other vendors, or of the datacenter. What Proxmox prints is
//! compared by meaning, never as text.

pub mod model;
