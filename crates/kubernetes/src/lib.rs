//! Kubernetes as castle needs it: apply objects safely, know when they truly work, know who owns them.
//!
//! - [`client`]: one API, over an injected connection; a failure says what it leaves behind.
//! - [`model`]: objects, the stages they are applied in, their status, and who owns which of their fields.
//! - [`steps`]: objects applied, gates that ask whether what comes next will work, inventories and what they forget.
//!
//! # Architecture invariant
//!
//! Nothing is ever applied by force (a dry run may suppose it), and nothing is removed that an inventory and its own mark do not both
//! claim. No error and no `Debug` holds the content of a Secret.

pub mod client;
pub mod model;
pub mod steps;
