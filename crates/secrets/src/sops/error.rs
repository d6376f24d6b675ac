//! What can be wrong with a SOPS file. No text holds a value, a key or an identity.

use castle_seams::{DiskError, EntropyError};
use thiserror::Error;

use super::path::BadPath;
use super::tree::Position;

/// A file, and what is wrong with it.
#[derive(Debug, Error)]
#[error("{}", whole(file, problem))]
pub struct SopsError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read or written.
    #[error("{0}")]
    Disk(DiskError),
    /// There is no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A key path is none.
    #[error(transparent)]
    BadPath(#[from] BadPath),
    /// It is not what its name says.
    #[error("it is not {format}{}: {why}", place(*at))]
    Unreadable {
        /// What it should be.
        format: &'static str,
        /// Where reading stopped.
        at: Option<Position>,
        /// Why; never quotes the file.
        why: String,
    },
    /// It is larger than any SOPS file may be.
    #[error("it is larger than {} MiB, the most that is read of a SOPS file", limit_bytes >> 20)]
    TooLarge {
        /// The most that is read.
        limit_bytes: u64,
    },
    /// It is an INI file.
    #[error(
        "INI files are not supported: keep the secrets in YAML, JSON or dotenv (sops decrypt --output-type json FILE converts one)"
    )]
    Ini,
    /// It is not encrypted.
    #[error(
        "it is not encrypted: it has no SOPS metadata; encrypt it in place: castle secrets encrypt --in-place FILE"
    )]
    NotEncrypted,
    /// It is encrypted already.
    #[error(
        "it is encrypted already: it has the key `sops`, which is reserved; change it with castle secrets edit or set"
    )]
    AlreadyEncrypted,
    /// Its metadata lacks the version, which real sops insists on.
    #[error(
        "its SOPS metadata has no `version`, so sops would refuse it: was it written by another program? Write the version back, for example `version: 3.11.0`"
    )]
    NoVersion,
    /// Its metadata cannot be used.
    #[error("its SOPS metadata cannot be used: {0}")]
    Metadata(String),
    /// No identity opens it.
    #[error(
        "no identity at hand opens it. It is encrypted for {}. {}{}{}",
        list(recipients, "nobody"),
        tried(tried_identities),
        notes(remarks),
        nothing(in_vain)
    )]
    NoKey {
        /// Who can read it, by public key.
        recipients: Vec<String>,
        /// Which identities were tried: source and, where known, public key.
        tried_identities: Vec<String>,
        /// What stood in the way of others.
        remarks: Vec<String>,
        /// The places where nothing was.
        in_vain: Vec<String>,
    },
    /// A value was changed, moved or damaged.
    #[error("`{path}`{} does not decrypt: it was changed, moved from another key, or damaged; restore it from version control", place(*at))]
    Tampered {
        /// Where in the tree.
        path: String,
        /// Where in the file.
        at: Option<Position>,
    },
    /// Something was added, removed, reordered or changed.
    #[error(
        "its MAC does not match: values were added, removed, reordered or changed without sops; restore it from version control"
    )]
    Mac,
    /// A value in clear where the rule of the file demands ciphertext.
    #[error("`{path}`{} is in clear, and the file's own rule says it is encrypted: it was written by hand; take it out, then add it with castle secrets set FILE {path}", place(*at))]
    Clear {
        /// Where in the tree.
        path: String,
        /// Where in the file.
        at: Option<Position>,
    },
    /// There is no such key.
    #[error("it has no `{path}`{}", near(suggestions))]
    Missing {
        /// The wanted path.
        path: String,
        /// Paths that are there and look alike; else all of them, cut short.
        suggestions: Vec<String>,
    },
    /// A path leads to more than one value.
    #[error("`{path}` is not a single value, but holds {}", list(holds, "nothing"))]
    NotSingle {
        /// The wanted path.
        path: String,
        /// What is there.
        holds: Vec<String>,
    },
    /// A value is not text.
    #[error("`{0}` holds bytes that are not text")]
    NotText(String),
    /// There is no place for a value.
    #[error("there is no place for `{0}`: something else is on the way there")]
    NoPlace(String),
    /// The values cannot be written in this format.
    #[error("`{path}` cannot be written as {format}: {why}")]
    Unwritable {
        /// Where in the tree.
        path: String,
        /// The format.
        format: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A recipient cannot be used.
    #[error("`{recipient}` cannot be encrypted for: {why}")]
    Recipient {
        /// The recipient, which is public.
        recipient: String,
        /// Why.
        why: String,
    },
    /// There is nobody to encrypt for.
    #[error(
        "there is nobody to encrypt for: name recipients with --age, in SOPS_AGE_RECIPIENTS, or in a creation rule of .sops.yaml"
    )]
    NoRecipient,
    /// Keys of other services take part, which only sops can wrap for.
    #[error("keys of {0} take part, which castle cannot wrap for: use sops itself for this")]
    Foreign(String),
    /// A configuration cannot be used.
    #[error("{file} cannot be used: {why}")]
    Config {
        /// The configuration.
        file: String,
        /// Why.
        why: String,
    },
}

impl Problem {
    pub(super) fn of(self, file: &str) -> SopsError {
        SopsError { file: file.to_owned(), problem: self }
    }
}

/// What the disk says names the file already.
fn whole(file: &str, problem: &Problem) -> String {
    if let Problem::Disk(error) = problem { error.to_string() } else { format!("{file}: {problem}") }
}

fn place(at: Option<Position>) -> String {
    at.map(|at| format!(" ({at})")).unwrap_or_default()
}

fn list(names: &[String], none: &str) -> String {
    if names.is_empty() { none.to_owned() } else { names.join(", ") }
}

fn tried(identities: &[String]) -> String {
    if identities.is_empty() {
        "No identity was found: make one with `age-keygen -o ~/.config/sops/age/keys.txt`, or name one by SOPS_AGE_KEY_FILE".to_owned()
    } else {
        format!("Tried: {}", identities.join("; "))
    }
}

fn notes(remarks: &[String]) -> String {
    if remarks.is_empty() { String::new() } else { format!(". Also: {}", remarks.join("; ")) }
}

fn nothing(in_vain: &[String]) -> String {
    if in_vain.is_empty() { String::new() } else { format!(". Looked at in vain: {}", in_vain.join("; ")) }
}

fn near(suggestions: &[String]) -> String {
    match suggestions {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        many => format!("; it has {}", many.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ")),
    }
}
