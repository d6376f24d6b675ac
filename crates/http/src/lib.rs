//! HTTP/1.1 over connections that are handed in: what the clients of all vendors speak through.
//!
//! - [`Endpoint`] says where requests go, [`Trust`] which certificate is believed there.
//! - [`Client`] asks once for each [`Ask`] and gives an [`Answer`], whatever its status, or a [`Failure`].
//!
//! A failure tells what the caller has to know before it asks again: after [`Failure::NotSent`] and
//! [`Failure::Untrusted`] the request has certainly had no effect, after the others it may have had one.
//!
//! Connections are used again for a short while. Nothing runs in the background: a connection moves only while somebody
//! asks.
//!
//! # Architecture invariant
//!
//! This crate knows no vendor. It sends a request at most once, bounded in time and size, and never repeats what may have
//! been sent. It reaches the network and the time through `castle-seams` alone. No error and no `Debug` of it holds a
//! header's sensitive value, a query, a body, or what the other end says in its answer.

mod client;
mod endpoint;
mod link;
mod message;
mod tls;

pub use client::{Client, DEADLINE, IDLE_CONNECTIONS, IDLE_TIME, LIMIT};
pub use endpoint::{Endpoint, EndpointError};
pub use hyper::body::Bytes;
pub use hyper::{Method, StatusCode, header};
pub use link::Stream;
pub use message::{Answer, Ask, Failure};
pub use tls::{Identity, Trust, TrustError};
