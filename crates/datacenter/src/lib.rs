//! The embedded datacenter: a Proxmox VE in this process, the Talos nodes that its guests become, and the vaults beside it, as
//! their clients know them.
//!
//! - [`Blueprint`] says what it is made of, [`Datacenter`] is one.
//! - [`Datacenter::dial`] leads into it over pipes in memory, in whatever time its clock has: for tests and rehearsals.
//! - [`Datacenter::serve`] lets it listen on loopback with real TLS, for any client; [`ScaledClock`] compresses its time.
//! - [`Witness`] sees every request, and can refuse it, lose it, or lose its answer.
//! - [`Snapshot`] is what there is, told without a request; [`NodeView`] and [`ClusterView`] what became of the guests.
//!
//! A guest that was started from an image of Talos is a node once it has booted, at the addresses that its cloud-init drive
//! says: its Talos API at port 50000, and on control planes the Kubernetes API at 6443. Over pipes there is no TLS; a client
//! then tells its certificate in a header ([`CERTIFICATE_HEADER`]), and the node judges it as it judges one of a real session.
//!
//! A vault ([`blueprint::Infisical`]) is dialled by its name at port [`VAULT_PORT`], or listens by [`Datacenter::serve_vault`].
//! Repositories are pushed to ([`Datacenter::push`]) or follow files that their owner tells ([`Datacenter::follow_repositories`]),
//! and are cloned by any client once a host of them listens ([`Datacenter::serve_git`]).
//!
//! Nothing runs in the background: every request first lets the world catch up with the clock. The same seed and the same
//! requests at the same times give the same answers.
//!
//! # Architecture invariant
//!
//! It knows no client of castle's: both are readings of the same facts, made apart. One reading is shared: what Flux makes of a
//! repository's files is built by `castle-gitops`, which is held against Flux's own libraries. It reaches time through `castle-seams`
//! alone, and the network only where it listens, and at webhooks on this machine.

mod access;
pub mod blueprint;
mod chance;
mod clock;
mod datacenter;
mod git;
mod infisical;
mod kubernetes;
mod machines;
pub mod proxmox;
mod snapshot;
mod talos;
mod transport;
mod witness;
mod world;

pub use blueprint::{
    Blueprint, EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT, EMBEDDED_GIT, EMBEDDED_PASSWORD,
    EMBEDDED_PROJECT, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, EMBEDDED_VAULT, Keys, Latencies,
};
pub use clock::ScaledClock;
pub use datacenter::Datacenter;
pub use git::RepositorySource;
pub use infisical::VaultView;
pub use infisical::reply::{VaultAsked, VaultReply};
pub use kubernetes::components::{Component, ComponentFault};
pub use kubernetes::restriction::may_label_itself;
pub use kubernetes::webhooks::certificate::ServingCertificate;
pub use kubernetes::webhooks::served::{Asked as WebhookAsked, Verdict, Webhook};
pub use kubernetes::workloads::PodFault;
pub use kubernetes::workloads::volumes::{ProvisionedVolume, Provisioner, VolumeAsked};
pub use machines::{CloudInit, Machine};
pub use proxmox::api::Version;
pub use proxmox::{Download, checksum};
pub use snapshot::{GuestView, Snapshot, VolumeView};
pub use talos::config::misread::Misread;
pub use talos::config::objections::Objection;
pub use talos::credentials::CERTIFICATE_HEADER;
pub use talos::node::Stage;
pub use talos::views::{ClusterView, KubernetesNodeView, MemberView, NodeView};
pub use talos::{Hurdle, KUBERNETES_PORT, TALOS_PORT};
pub use transport::loopback::{ServeError, Serving};
pub use transport::{PORT, VAULT_PORT};
pub use witness::{Asked, Called, Fate, Reply, Witness};
pub use world::tasks::{Ending, TaskRecord};

/// What a node of this minor version of Talos 1 would not read in documents that are merged into its configuration. By the model that the
/// embedded nodes read by, which is held against the vendor's own schema; places are told, never values.
#[must_use]
pub fn misread(minor: u32, patch: &str) -> Vec<Misread> {
    talos::config::misread::misread(minor, patch)
}

/// All for which a node of this minor version of Talos 1 refuses a whole configuration, as far as that is certain: by the rules that the embedded nodes
/// judge by, which are held against what real nodes answered. Places are told, never values.
#[must_use]
pub fn objections(minor: u32, configuration: &str) -> Vec<Objection> {
    talos::config::objections::objections(minor, configuration)
}
