//! Records in a bucket: an object store client (S3 and what is compatible with it) behind [`castle_engine::Store`].
//!
//! - [`S3Config`] and [`Credentials`] say where the bucket is and who asks.
//! - [`sign`] is AWS Signature Version 4: a pure function of a request, the credentials, the region and the time.
//! - [`S3Store`] asks, and tells from the answer what became of it: written, not written, or unknown.
//!
//! Every write is conditional (`If-None-Match: *` or `If-Match`), and the condition is among the signed headers: whoever
//! takes it away in between makes the request invalid instead of unconditional. The store at the other end must know
//! conditional writes; one that ignores the headers in silence cannot be told from here.
//!
//! # Architecture invariant
//!
//! This crate knows how a bucket is asked, not what is kept in it. It makes one attempt per request, bounded in time and
//! size, and never repeats one: whether that is safe is for the caller to say. It reaches the network and the time through
//! `castle-seams` alone. No error and no `Debug` of it holds a credential, a signature or a header of the request.

mod client;
mod model;
pub mod sign;
mod store;

pub use client::DEADLINE;
pub use model::{ConfigError, Credentials, S3Config};
pub use store::S3Store;
