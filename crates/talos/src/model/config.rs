//! The configuration of a machine, and how two of them differ.
//!
//! [`generate`] makes one; with an [`Input`] that asks for nothing special it is what Talos' own generator makes. User patches
//! are merged into it by [`crate::model::merge`].

mod differences;
mod documents;
mod input;
mod legacy;
#[cfg(test)]
pub(crate) mod oracles;
#[cfg(test)]
mod samples;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;

use castle_secrets::Secret;
use castle_yaml::{self as yaml, YamlError};
use serde_json::Value;
use thiserror::Error;

use super::merge::{self, MergeError};

pub use differences::{Difference, Side, differences};
pub use input::{
    Authority, Cluster, Cni, Contract, Credential, Disk, Input, Install, Link, Mirror, Node, RegistryLogin, Role,
    Route, Secrets, Vip, Volume, factory_installer,
};

/// Documents of a machine configuration. They hold secrets: nothing shows them, and they are wiped when dropped.
#[derive(Clone, Default)]
pub struct Configuration(Vec<Value>);

impl Configuration {
    /// Reads documents.
    ///
    /// # Errors
    /// Where the text is no YAML, without quoting it.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        yaml::parse(text).map(Self)
    }

    /// The documents, in order.
    #[must_use]
    pub fn documents(&self) -> &[Value] {
        &self.0
    }

    /// The same documents give the same text, as Talos writes it.
    #[must_use]
    pub fn text(&self) -> Secret {
        Secret::from(yaml::emit_all(&self.0))
    }

    /// This configuration with a patch merged into it.
    ///
    /// # Errors
    /// Where Talos would refuse the patch, too.
    pub fn merged(&self, patch: &Self) -> Result<Self, MergeError> {
        merge::merge(&self.0, &patch.0).map(Self)
    }

    /// What a live configuration would have to change to be this one.
    #[must_use]
    pub fn differences(&self, live: &Self) -> Vec<Difference> {
        differences(&self.0, &live.0)
    }
}

impl From<Vec<Value>> for Configuration {
    fn from(documents: Vec<Value>) -> Self {
        Self(documents)
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(yaml::wipe);
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |document| merge::DocumentId::of(document).map_or_else(|_| "?".to_owned(), |id| id.to_string());
        f.debug_tuple("Configuration").field(&self.0.iter().map(name).collect::<Vec<_>>()).finish()
    }
}

/// What cannot be said to a node.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ConfigError {
    /// Up to 1.13 an install disk is told by serial number, world wide id or size.
    #[error(
        "contract {0} cannot choose the install disk by an expression: use a serial number, a world wide id or a size"
    )]
    DiskExpression(Contract),
    /// Before Talos is installed there is no system disk to tell others from.
    #[error("the install disk cannot be \"any but the system disk\"")]
    InstallBesideSystem,
    /// Talos asks time servers or a clock of the host.
    #[error("time comes from servers or from devices, not from both")]
    MixedClocks,
}

/// The configuration of a node.
///
/// # Errors
/// Where the input asks for what the contract has no words for.
pub fn generate(contract: Contract, role: Role, input: &Input<'_>) -> Result<Configuration, ConfigError> {
    let documents = if contract.has_documents() {
        documents::generate(role, input)?
    } else {
        legacy::generate(contract, role, input)?
    };
    Ok(Configuration(documents))
}
