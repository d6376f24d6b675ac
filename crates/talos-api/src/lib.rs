//! The words of the Talos API: messages, and for each service what calls it and what answers it.
//!
//! Made by `cargo xtask generate` from the files under `proto`, which hold those parts of Talos 1.13 and 1.14 that castle calls, or that
//! `talosctl` calls of a node of the embedded datacenter. The modules are named as the packages on the wire.
//!
//! A server only has to answer the calls that it knows: every other is `Unimplemented`.
//!
//! **Architecture invariant:** words only, no behaviour. No `Debug` holds what a message carries in bytes, and none what a resource
//! says: configurations, keys and certificates travel there.

mod shown;

#[allow(missing_docs, unreachable_pub, unused_qualifications, reason = "generated; the words are the vendor's")]
#[allow(clippy::all, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated")]
mod generated {
    include!("generated/api.rs");
}

pub use generated::{cluster, common, cosi, google, machine, storage, time};
pub use prost_types::{Any, Duration, Timestamp};

/// What the type of an event's content starts with on the wire; the name of the message follows.
pub const EVENT_TYPE_PREFIX: &str = "talos/runtime/";
