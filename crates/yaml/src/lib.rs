//! YAML as programs written in Go read and write it: text to [`Value`] and back.
//!
//! Which plain words are numbers, what is quoted and how, and how far things are indented follow the library that Talos uses. A
//! text of Talos' own, read and written again, is the same text without its comments.
//!
//! What is read here may be decrypted secrets, so an error tells the place and never quotes the source.

mod edit;
mod emit;
mod parse;
mod plain;

use serde_json::Value;
use thiserror::Error;
use zeroize::Zeroize;

pub use edit::edit;
pub use emit::{emit, emit_all, emit_for_kubernetes};
pub use parse::parse;
pub use plain::{Plain, resolve};

/// Why a text cannot be read, and where.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("line {line}, column {column}: {kind}")]
pub struct YamlError {
    /// What is wrong.
    pub kind: YamlErrorKind,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
}

/// What can be wrong with a text.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum YamlErrorKind {
    /// The text breaks the rules of YAML.
    #[error("this is not YAML")]
    Syntax,
    /// Collections are nested deeper than any configuration is.
    #[error("values nest too deep")]
    Depth,
    /// A mapping has the same key twice.
    #[error("the same key is written twice")]
    DuplicateKey,
    /// A key is no text: a number, a truth value, nothing, a collection, or very long.
    #[error("a key must be a short text: quote it")]
    Key,
    /// `<<` is YAML 1.1; whether it is obeyed depends on the reader.
    #[error("merge keys (`<<`) are not supported: write the values out")]
    MergeKey,
    /// Aliases stand for too much, or for themselves.
    #[error("aliases stand for too much: write the values out")]
    Aliases,
    /// A tag other than `!!str`, `!!map` and `!!seq`.
    #[error("tags are not supported")]
    Tag,
    /// A number that 64 bits do not hold, infinity, or what is not a number.
    #[error("a number that cannot be kept as it is written: quote it")]
    Number,
}

/// Overwrites every text in it: for values that held secrets.
pub fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(entries) => entries.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
