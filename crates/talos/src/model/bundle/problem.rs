//! What can be wrong with a bundle.

use std::fmt;

use castle_yaml::YamlError;
use thiserror::Error;

use crate::model::pki::{Flaw, KeyError};

/// Why there is no bundle.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BundleError {
    /// The text is not YAML.
    #[error("cannot read the secrets: {0}")]
    Yaml(#[from] YamlError),
    /// The text is still sealed by SOPS.
    #[error("this is still encrypted with SOPS")]
    Sealed,
    /// The text is something else.
    #[error("this is neither a secrets bundle nor the configuration of a control plane")]
    Unknown,
    /// There are several documents of which there can be one.
    #[error("this holds more than one secrets bundle or machine configuration")]
    Several,
    /// The text is the configuration of a worker, which does not hold all secrets.
    #[error("this is the configuration of a worker: only that of a control plane holds all secrets")]
    Worker,
    /// Fields are wrong.
    #[error("the secrets cannot be used: {}", Listed(.0))]
    Problems(Vec<Problem>),
}

impl BundleError {
    /// The fields that are wrong, in the order of the bundle.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Problems(problems) => problems,
            _ => &[],
        }
    }
}

struct Listed<'p>(&'p [Problem]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{field} {kind}")]
pub struct Problem {
    /// The field, by its path in the text that was read.
    pub field: &'static str,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// What can be wrong with a field.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ProblemKind {
    /// It is not there, or empty.
    #[error("is missing")]
    Missing,
    /// It is a number, a list or a mapping.
    #[error("is not a text")]
    NotText,
    /// It is not a mapping.
    #[error("is not a mapping")]
    NotMapping,
    /// There is a key inside that no bundle has; saving would lose it.
    #[error("has a key that is not known")]
    UnknownKey,
    /// It is the marker that Talos shows in place of a secret.
    #[error("is the marker that stands for a hidden secret, not the secret")]
    Redacted,
    /// It is a sealed value of SOPS.
    #[error("is still encrypted")]
    Sealed,
    /// It is not base64.
    #[error("is not valid base64")]
    Base64,
    /// It is base64 of base64.
    #[error("is encoded twice")]
    EncodedTwice,
    /// It is not 32 bytes.
    #[error("must be 32 bytes in base64")]
    Length,
    /// It is not a token.
    #[error("must be a token: six characters, a dot and sixteen characters, each 0-9 or a-z")]
    Token,
    /// There are two ways to seal secrets, of which there can be one.
    #[error("cannot be there beside the other encryption secret")]
    Exclusive,
    /// The certificate or the key of an authority is wrong.
    #[error(transparent)]
    Flaw(Flaw),
    /// A key is wrong.
    #[error(transparent)]
    Key(KeyError),
}

/// What was put right in a field while reading it.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{field} {kind}")]
pub struct Note {
    /// The field, by its path in the text that was read.
    pub field: &'static str,
    /// What was put right.
    pub kind: NoteKind,
}

/// What can be put right without doubt.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum NoteKind {
    /// Spaces, tabs and line breaks in base64.
    #[error("had spaces or line breaks in its base64: they were left out")]
    Whitespace,
    /// One line break at the end of a token.
    #[error("had a line break at its end: it was left out")]
    FinalNewline,
}
