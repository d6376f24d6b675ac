//! The components of a cluster, from what upstream publishes to the objects that castle applies.
//!
//! - [`pins`]: the versions that castle knows, and what their manifests must be, byte for byte.
//! - [`lock`]: `castle.lock`, which pins version, source and digest of each component of a castle.
//! - [`supply`]: where manifests are had from: the web, a mirror, a file, a cache; each checked before it is used.
//! - [`patches`]: what castle changes in them, and what the castle's owner wants changed.
//! - [`standin`]: small manifests of our own, for castles in the embedded datacenter.
//!
//! [`choose`] says which manifest a castle has of each component, [`supply::Supply::objects`] gives the objects.
//!
//! # Architecture invariant
//!
//! No manifest is used whose digest is not the pinned one. A patch that does not find what it changes is an error. Nothing here
//! applies anything: objects in, objects out.

mod choice;
mod digest;
mod fetch;
mod fit;
pub mod images;
mod known;
pub mod lock;
pub mod mirror;
pub mod patches;
pub mod pins;
pub mod source;
pub mod standin;
pub mod supply;

pub use choice::{ChoiceError, Chosen, choose, stand_ins};
pub use digest::digest;
pub use fit::Fit;
pub use known::{adapt, namespace};
