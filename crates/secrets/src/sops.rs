//! SOPS files, natively: read, verified, changed and written as sops itself does, with age alone.
//!
//! [`Sealed`] is a file as it lies there, [`Opened`] the same with its values in clear, in memory. Opening verifies every value in
//! its place and the MAC over all of them, and refuses values in clear where the file's rule demands ciphertext. What is not
//! changed keeps its ciphertext.
//!
//! Everything is synchronous and touches nothing but what is handed in: files through `Disk`, randomness through `Entropy`, and
//! the rest through [`Surroundings`]. A passphrase takes about a second to try.
//!
//! **What SOPS does not promise:** values in clear can be renamed, and characters moved between neighbours, without breaking the MAC;
//! and anyone who knows the recipients can write a valid file. Decide nothing by what stands in clear.

mod cipher;
mod config;
mod dotenv;
mod encrypt;
mod error;
mod identity;
mod json;
mod metadata;
mod moment;
mod opened;
mod path;
mod recipient;
mod rule;
mod sealed;
mod shamir;
mod tree;
mod yaml;

use std::path::Path;

pub use config::{Config, Layout, Policy};
pub use error::{Problem, SopsError};
pub use identity::{Command, Found, Keyring, Surroundings, VARIABLES, command_words};
pub use opened::{KeyChange, Opened};
pub use path::{BadPath, KeyPath, Part};
pub use rule::Rule;
pub use sealed::Sealed;
pub use tree::{Item, Kind, Node, Position, Value};

/// No SOPS file is larger.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// How deep values may nest.
const MAX_DEPTH: usize = 100;
/// How many values and comments there may be, aliases written out.
const MAX_VALUES: usize = 200_000;

/// What a file is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// YAML, of one document or several.
    Yaml,
    /// JSON.
    Json,
    /// `KEY=value` lines.
    Dotenv,
    /// Anything, as one value.
    Binary,
}

impl Format {
    /// By the ending of the name, as sops does.
    ///
    /// # Errors
    /// For INI files, which are not supported.
    pub fn of(file: &Path) -> Result<Self, SopsError> {
        let name = file.to_string_lossy();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends(&[".ini"]) {
            return Err(Problem::Ini.of(&name));
        }
        Ok(if ends(&[".yaml", ".yml"]) {
            Self::Yaml
        } else if ends(&[".json"]) {
            Self::Json
        } else if ends(&[".env"]) {
            Self::Dotenv
        } else {
            Self::Binary
        })
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Dotenv => "dotenv",
            Self::Binary => "binary",
        }
    }

    /// Reads what is not encrypted, or the outer form of what is.
    fn parse(self, bytes: &[u8], is_sealed: bool) -> Result<Vec<Node>, Problem> {
        let text = |bytes| {
            let why = || "it is not text in UTF-8".to_owned();
            std::str::from_utf8(bytes).map_err(|_| Problem::Unreadable { format: self.name(), at: None, why: why() })
        };
        match self {
            Self::Yaml => yaml::read(text(bytes)?),
            Self::Json => json::read(bytes).map(|node| vec![node]),
            Self::Dotenv => dotenv::read(text(bytes)?).map(|node| vec![node]),
            Self::Binary if is_sealed => json::read(bytes).map(|node| vec![node]).map_err(|_| Problem::NotEncrypted),
            Self::Binary => {
                let data = Node::Value(Value::new(Kind::Text, bytes));
                Ok(vec![Node::Map(vec![Item::entry("data", data)])])
            }
        }
    }
}
