//! A Kubernetes object, and where it was written.

use serde_json::Value;

use crate::kinds::is_cluster_scoped;
use crate::yaml::Lines;

/// An object that would be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The object itself.
    pub value: Value,
    /// The file it was written in, or that made it.
    pub file: String,
    /// The lines of that file.
    pub lines: Lines,
}

/// What tells one object from all others in a cluster, whatever its version.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reference {
    /// The group, empty for the core.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace, empty for what has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl Object {
    /// An object that stands at the beginning of a file.
    #[must_use]
    pub fn written(value: Value, file: &str) -> Self {
        Self { value, file: file.to_owned(), lines: Lines::default() }
    }

    /// The text at a JSON pointer; empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The items of the list at a JSON pointer.
    pub fn list(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The group of its API version, empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        group(self.text("/apiVersion"))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The namespace that is written in it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Whether it is of this group and kind, whatever the version.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group() == group && self.kind() == kind
    }

    /// What tells it from all others. What needs a namespace and names none is in `default`.
    #[must_use]
    pub fn reference(&self) -> Reference {
        let namespace = if is_cluster_scoped(self.group(), self.kind()) {
            ""
        } else if self.namespace().is_empty() {
            "default"
        } else {
            self.namespace()
        };
        Reference {
            group: self.group().to_owned(),
            kind: self.kind().to_owned(),
            namespace: namespace.to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// The line of the value at a JSON pointer.
    #[must_use]
    pub fn line(&self, pointer: &str) -> usize {
        self.lines.of(pointer)
    }
}

/// The group of an API version, empty for the core.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
