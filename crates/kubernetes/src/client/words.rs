//! What is asked of an API, and what is answered.

use castle_secrets::Secret;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::model::Object;

/// How an API is reached, and as whom.
#[derive(Clone, Debug)]
pub struct Access {
    /// `https://` and the rest.
    pub address: String,
    /// The certificate, as PEM, of the authority that signed the API's own.
    pub authority: String,
    /// Castle's certificate, as PEM.
    pub certificate: String,
    /// Its key, as PEM.
    pub key: Secret,
    /// Whether the API is in this process, behind connections without TLS. The certificate is then told in a header.
    pub is_plain: bool,
}

/// Why an API cannot even be asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct AccessError(pub(super) String);

/// Some objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The namespace; empty for all.
    pub namespace: String,
    /// A selector of labels; empty for none.
    pub labels: String,
    /// A selector of fields; empty for none.
    pub fields: String,
}

impl Scope {
    /// Those in one namespace.
    #[must_use]
    pub fn within(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Those that a selector of labels selects, wherever they are.
    #[must_use]
    pub fn labelled(labels: &str) -> Self {
        Self { labels: labels.to_owned(), ..Self::default() }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(namespace: &str, name: &str) -> Self {
        Self { fields: format!("metadata.name={name}"), ..Self::within(namespace) }
    }
}

/// A list, and the moment it was true.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The objects, in the API's order.
    pub objects: Vec<Object>,
    /// From where a watch goes on.
    pub version: String,
}

/// Whether a change is kept, or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is kept.
    Real,
    /// It is judged by everyone who has a say, and then forgotten.
    DryRun,
    /// It is supposed that nobody else manages any field, and then forgotten: tells whether others want anything else at all.
    Suppose,
}

/// What an apply came to.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object as it is now, or would be.
    pub object: Object,
    /// Whether there was none before.
    pub is_new: bool,
}

/// What the API tells, where it writes `null` for what it has nothing to say of.
pub(super) fn given_or_default<'de, T, D>(told: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(told).map(Option::unwrap_or_default)
}
