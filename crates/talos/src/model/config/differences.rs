//! How a live configuration differs from the wanted one.
//!
//! Compared by meaning: what Talos writes out without being asked (empty lists, defaults) is no difference. Secrets are compared and
//! never shown.

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value};

use super::super::merge::DocumentId;
use super::shared::is_blank;

/// One place at which a live configuration is not as wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where: `machine.certSANs`, `HostnameConfig.hostname`, `LinkConfig/net0.mtu`, or a whole document.
    pub path: String,
    /// What is there.
    pub is: Side,
    /// What should be.
    pub wanted: Side,
}

/// One side of a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// Nothing.
    Absent,
    /// This; secrets inside of it are hidden.
    Value(Value),
    /// A secret, which is not shown.
    Hidden,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Value(value) => write!(f, "{value}"),
            Self::Hidden => f.write_str(HIDDEN),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.is, &self.wanted) {
            (Side::Hidden, Side::Hidden) => write!(f, "{}: differs", self.path),
            (is, wanted) => write!(f, "{}: is {is}, wanted {wanted}", self.path),
        }
    }
}

/// The kind of what is no document of Talos.
const UNKNOWN: &str = "?";

/// What stands for a secret.
const HIDDEN: &str = "(hidden)";

/// What Talos tells instead of a secret to whom it does not trust with it.
const REDACTED: &str = "******";

/// What a node does when nothing is said, as far as generators write it out.
const DEFAULTS: [(&str, bool); 13] = [
    ("KubeCoreDNSConfig.enabled", true),
    ("KubeProxyConfig.enabled", true),
    ("RegistryMirrorConfig.skipFallback", false),
    ("UserVolumeConfig.provisioning.grow", true),
    ("cluster.allowSchedulingOnControlPlanes", false),
    ("cluster.discovery.registries.service.disabled", false),
    ("cluster.proxy.disabled", false),
    ("debug", false),
    ("machine.features.apidCheckExtKeyUsage", true),
    ("machine.features.rbac", true),
    ("machine.install.legacyBIOSSupport", false),
    ("machine.install.wipe", false),
    ("persist", true),
];

/// How the keys of secrets end, in any case of letters.
const SECRET_ENDINGS: [&str; 6] = ["key", "keys", "passphrase", "password", "secret", "token"];

/// Keys below which there may be a secret: what people write there is theirs.
const SECRET_SECTIONS: [&str; 16] = [
    "apiUrl",
    "auth",
    "configFiles",
    "content",
    "contents",
    "credentialProviderConfig",
    "env",
    "environment",
    "extraHeaders",
    "extraManifestHeaders",
    "headers",
    "inlineManifests",
    "manifest",
    "pod",
    "pods",
    "variables",
];

/// Keys below which nothing is a secret, whatever it is called: a taint has a `key` that everybody in the cluster reads.
const PUBLIC: [&str; 3] = ["nodeLabels", "nodeTaints", "registerWithTaints"];

/// What a live configuration would have to change to be the wanted one, in the order of the wanted one.
#[must_use]
pub fn differences(wanted: &[Value], live: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    for document in wanted {
        let place = Place::of(document);
        match live.iter().find(|other| Place::of(other) == place) {
            Some(other) => place.compare(Some(other), Some(document), &mut found),
            None => found.push(place.difference(None, Some(document))),
        }
    }
    for document in live {
        let place = Place::of(document);
        if !wanted.iter().any(|other| Place::of(other) == place) {
            found.push(place.difference(Some(document), None));
        }
    }
    found
}

/// A place in a configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Place {
    /// Empty for the main document.
    kind: String,
    name: String,
    keys: Vec<String>,
}

impl Place {
    fn of(document: &Value) -> Self {
        match DocumentId::of(document) {
            Ok(id) if id.is_main() => Self::default(),
            Ok(id) => Self { kind: id.kind, name: id.name, keys: Vec::new() },
            // No document of Talos: told apart by nothing, and shown as such.
            Err(_) => Self { kind: UNKNOWN.to_owned(), ..Self::default() },
        }
    }

    fn below(&self, key: &str) -> Self {
        let mut place = self.clone();
        place.keys.push(key.to_owned());
        place
    }

    /// As a person would write it.
    fn path(&self) -> String {
        let document = match (self.kind.as_str(), self.name.as_str()) {
            ("", _) if self.keys.is_empty() => "v1alpha1".to_owned(),
            (kind, "") => kind.to_owned(),
            (kind, name) => format!("{kind}/{name}"),
        };
        let mut parts = vec![document];
        parts.retain(|part| !part.is_empty());
        parts.extend(self.keys.iter().cloned());
        parts.join(".")
    }

    /// Without names and numbers: for tables.
    fn pattern(&self) -> String {
        let kind = [self.kind.as_str()].into_iter().filter(|kind| !kind.is_empty());
        kind.chain(self.keys.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
    }

    fn is_secret(&self) -> bool {
        let is_secret = |key: &String| {
            let lower = key.to_lowercase();
            SECRET_SECTIONS.contains(&key.as_str())
                || lower != "publickey" && SECRET_ENDINGS.iter().any(|ending| lower.ends_with(ending))
        };
        // What is no document of Talos may hold anything.
        self.kind == UNKNOWN || self.keys.iter().take_while(|key| !PUBLIC.contains(&key.as_str())).any(is_secret)
    }

    fn is_default(&self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return true };
        let pattern = self.pattern();
        is_blank(value) || DEFAULTS.iter().any(|(path, default)| *path == pattern && *value == Value::Bool(*default))
    }

    fn compare(&self, is: Option<&Value>, wanted: Option<&Value>, found: &mut Vec<Difference>) {
        match (is, wanted) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let more = old.keys().filter(|key| !new.contains_key(*key));
                for key in new.keys().chain(more) {
                    self.below(key).compare(old.get(key), new.get(key), found);
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
                for (index, (old, new)) in old.iter().zip(new).enumerate() {
                    self.below(&index.to_string()).compare(Some(old), Some(new), found);
                }
            }
            (is, wanted) if is == wanted => {}
            (is, wanted) if self.is_default(is) && self.is_default(wanted) => {}
            (Some(Value::String(text)), _) if self.is_secret() && text == REDACTED => {}
            // A section that holds only what goes without saying is as good as none.
            (Some(Value::Object(_)), None) if is.is_some_and(|value| self.is_trivial(value)) => {}
            (None, Some(Value::Object(_))) if wanted.is_some_and(|value| self.is_trivial(value)) => {}
            (is, wanted) => found.push(self.difference(is, wanted)),
        }
    }

    fn is_trivial(&self, value: &Value) -> bool {
        match value {
            Value::Object(entries) => entries.iter().all(|(key, value)| self.below(key).is_trivial(value)),
            _ => self.is_default(Some(value)),
        }
    }

    fn difference(&self, is: Option<&Value>, wanted: Option<&Value>) -> Difference {
        let show = |value: Option<&Value>| match value {
            None => Side::Absent,
            Some(_) if self.is_secret() => Side::Hidden,
            Some(Value::String(text)) if holds_secret(text) => Side::Hidden,
            Some(value) => Side::Value(self.shown(value)),
        };
        Difference { path: self.path(), is: show(is), wanted: show(wanted) }
    }

    /// The value, without secrets.
    fn shown(&self, value: &Value) -> Value {
        match value {
            _ if self.is_secret() => HIDDEN.into(),
            Value::Object(entries) => {
                let shown = entries.iter().map(|(key, value)| (key.clone(), self.below(key).shown(value)));
                Value::Object(shown.collect::<Map<_, _>>())
            }
            Value::Array(items) => {
                items.iter().enumerate().map(|(index, item)| self.below(&index.to_string()).shown(item)).collect()
            }
            Value::String(text) if holds_secret(text) => HIDDEN.into(),
            other => other.clone(),
        }
    }
}

/// A private key or the user of a URL, wherever it stands.
fn holds_secret(text: &str) -> bool {
    let host = text.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    text.contains("PRIVATE KEY") || host.is_some_and(|host| host.contains('@'))
}
