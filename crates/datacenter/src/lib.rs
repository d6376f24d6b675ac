//! The embedded datacenter: a Proxmox VE in this process, as its clients know it.
//!
//! - [`Blueprint`] says what it is made of, [`Datacenter`] is one.
//! - [`Datacenter::dial`] leads into it over pipes in memory, in whatever time its clock has: for tests and rehearsals.
//! - [`Datacenter::serve`] lets it listen on loopback with real TLS, for any client; [`ScaledClock`] compresses its time.
//! - [`Witness`] sees every request, and can refuse it, lose it, or lose its answer.
//! - [`Snapshot`] is what there is, told without a request.
//!
//! Nothing runs in the background: every request first lets the world catch up with the clock. The same seed and the same
//! requests at the same times give the same answers.
//!
//! # Architecture invariant
//!
//! It knows no client of castle's: both are readings of the same facts, made apart. It reaches time through `castle-seams`
//! alone, and the network only where it listens.

mod access;
pub mod blueprint;
mod chance;
mod clock;
mod datacenter;
mod kubernetes;
mod machines;
pub mod proxmox;
mod snapshot;
mod talos;
mod transport;
mod witness;
mod world;

pub use blueprint::{Blueprint, EMBEDDED_PASSWORD, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Latencies};
pub use clock::ScaledClock;
pub use datacenter::Datacenter;
pub use machines::{CloudInit, Machine};
pub use proxmox::api::Version;
pub use proxmox::checksum;
pub use snapshot::{GuestView, Snapshot, VolumeView};
pub use talos::credentials::CERTIFICATE_HEADER;
pub use talos::node::Stage;
pub use talos::views::{ClusterView, KubernetesNodeView, MemberView, NodeView};
pub use talos::{KUBERNETES_PORT, TALOS_PORT};
pub use transport::PORT;
pub use transport::loopback::{ServeError, Serving};
pub use witness::{Asked, Called, Fate, Reply, Witness};
pub use world::tasks::{Ending, TaskRecord};
