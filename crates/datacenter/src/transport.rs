//! How requests come in: over pipes in memory or over loopback, always as HTTP/1.1.

pub(crate) mod connection;
pub(crate) mod form;
pub(crate) mod loopback;
pub(crate) mod pipes;

/// The port that Proxmox listens at.
pub const PORT: u16 = 8006;

/// The port that vaults are dialled at over pipes, where there is no TLS.
pub const VAULT_PORT: u16 = 80;
