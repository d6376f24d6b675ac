//! An object, and what it is called.

use std::fmt;

use serde_json::Value;

/// A kind of object in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl Kind {
    /// Of an `apiVersion` and a kind.
    #[must_use]
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// Group and version, as objects say them.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.api_version())
    }
}

/// Which object it is, whatever the version it is asked for in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The group; empty for the core.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty if it is in none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// Of something in a namespace, or in none.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.to_owned(), kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// What follows `kubectl get` or `kubectl describe`.
    #[must_use]
    pub fn for_kubectl(&self) -> String {
        let kind = self.kind.to_lowercase();
        let kind = if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) };
        if self.namespace.is_empty() {
            format!("{kind} {}", self.name)
        } else {
            format!("--namespace {} {kind} {}", self.namespace, self.name)
        }
    }

    /// The line of an inventory.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}/{}/{}/{}", self.group, self.kind, self.namespace, self.name)
    }

    /// Reads the line of an inventory. Names of objects hold no slash.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.split('/');
        let (group, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && !kind.is_empty() && !name.is_empty();
        is_whole.then(|| Self::new(group, kind, namespace, name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// An object as it is sent or as it was told. Its `Debug` tells its name alone: it may be a Secret.
#[derive(Clone, PartialEq)]
pub struct Object(Value);

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.key())
    }
}

impl Object {
    /// What is called an object is one if it has a kind, a version and a name.
    #[must_use]
    pub fn new(value: Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        (text("/apiVersion") && text("/kind") && text("/metadata/name")).then_some(Self(value))
    }

    /// One that the API told. What lacks its kind, as the items of a list do, is given it.
    pub(crate) fn told(mut value: Value, kind: &Kind) -> Option<Self> {
        if let Value::Object(entries) = &mut value {
            entries.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            entries.entry("kind").or_insert_with(|| kind.kind.clone().into());
        }
        Self::new(value)
    }

    /// All of it.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    pub(crate) fn value_mut(&mut self) -> &mut Value {
        &mut self.0
    }

    /// What is at this JSON pointer; null if nothing is.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.0.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The text at this JSON pointer; empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    /// The whole number at this JSON pointer.
    #[must_use]
    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).as_i64()
    }

    /// The list at this JSON pointer; empty if there is none.
    #[must_use]
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Its kind, in the version it is written in.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::new(self.text("/apiVersion"), self.text("/kind"))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace; empty if it is in none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Which object it is.
    #[must_use]
    pub fn key(&self) -> Key {
        let Kind { group, kind, .. } = self.kind();
        Key { group, kind, namespace: self.namespace().to_owned(), name: self.name().to_owned() }
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.0["metadata"]["labels"][name].as_str()
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][name].as_str()
    }

    /// Whether it is on its way out.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }
}
