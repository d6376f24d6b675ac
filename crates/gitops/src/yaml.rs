//! YAML as Kubernetes' programs read it: text to values that know their lines.
//!
//! Two readers of Go's meet here. Kustomize takes `yes` for a text; what Flux reads back after substituting variables
//! follows the older rules, where it is a truth value. Everything else is the same for both.

mod emit;
mod plain;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

pub(crate) use emit::emit;
pub(crate) use read::{read, read_old};

/// One document of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) lines: Lines,
}

/// Where the values of a document are written. Cheap to copy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lines(Arc<BTreeMap<String, usize>>);

impl Lines {
    /// The line of the value at a JSON pointer, or of the nearest value around it. Counted from 1.
    #[must_use]
    pub fn of(&self, pointer: &str) -> usize {
        let mut pointer = pointer;
        loop {
            if let Some(&line) = self.0.get(pointer) {
                return line;
            }
            match pointer.rfind('/') {
                Some(cut) => pointer = &pointer[..cut],
                None => return 1,
            }
        }
    }

    pub(crate) fn at(line: usize) -> Self {
        Self(Arc::new(BTreeMap::from([(String::new(), line)])))
    }
}

/// Why a text cannot be read, and where. Never quotes the text.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{what}")]
pub struct YamlError {
    /// What is wrong.
    pub what: &'static str,
    /// The line, counted from 1.
    pub line: usize,
}

/// A part of a JSON pointer as it is written in one.
pub(crate) fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
