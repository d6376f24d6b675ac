//! Where the variables of a Kustomization come from.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::SSA;
use super::makers::is_copied;
use crate::object::Object;
use crate::substitute::UNKNOWN;

/// A ConfigMap or Secret that variables can be taken from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Source {
    /// What is known of it.
    pub(crate) values: BTreeMap<String, String>,
    /// Whether it may hold more than that.
    pub(crate) is_open: bool,
}

impl Source {
    /// Adds what another object puts into it. Who comes last only the cluster knows.
    fn join(&mut self, other: Self) {
        self.is_open |= other.is_open;
        for (key, value) in other.values {
            let known = self.values.entry(key).or_insert_with(|| value.clone());
            if *known != value {
                UNKNOWN.clone_into(known);
            }
        }
    }
}

/// All that are known, by kind, namespace and name.
pub(crate) type Sources = BTreeMap<(String, String, String), Source>;

/// Adds the ConfigMaps and Secrets that some objects are, or make.
pub(crate) fn add(sources: &mut Sources, objects: &[Object]) {
    for object in objects {
        let reference = object.reference();
        let mut add = |kind: &str, name: &str, mut source: Source| {
            // Flux leaves what others have put there, or all that it finds.
            let ssa = object.text(SSA);
            source.is_open |= ["Merge", "IfNotPresent", "Ignore"].contains(&ssa) || is_copied(object, &["/metadata"]);
            if ["IfNotPresent", "Ignore"].contains(&ssa) {
                source.values.values_mut().for_each(|value| UNKNOWN.clone_into(value));
            }
            sources.entry((kind.to_owned(), reference.namespace.clone(), name.to_owned())).or_default().join(source);
        };
        let open = || Source { is_open: true, ..Source::default() };
        match (object.group(), object.kind()) {
            ("", "ConfigMap") => add("ConfigMap", object.name(), plain(object, &["data"], false)),
            ("", "Secret") if object.value.get("sops").is_some() => {
                let mut source = plain(object, &["data", "stringData"], false);
                source.values.values_mut().for_each(|value| UNKNOWN.clone_into(value));
                add("Secret", object.name(), source);
            }
            ("", "Secret") => {
                let mut source = plain(object, &["data"], true);
                source.values.extend(plain(object, &["stringData"], false).values);
                add("Secret", object.name(), source);
            }
            ("external-secrets.io", "ExternalSecret") => {
                let target = object.text("/spec/target/name");
                let name = if target.is_empty() { object.name() } else { target };
                let keys = object.list("/spec/data").filter_map(|entry| entry["secretKey"].as_str());
                let values = keys.map(|key| (key.to_owned(), UNKNOWN.to_owned())).collect();
                let is_open = object.text("/spec/target/creationPolicy") == "Merge"
                    || ["/spec/dataFrom", "/spec/target/template"].iter().any(|at| object.value.pointer(at).is_some());
                add("Secret", name, Source { values, is_open });
            }
            ("bitnami.com", "SealedSecret") => add("Secret", object.name(), open()),
            ("cert-manager.io", "Certificate") => add("Secret", object.text("/spec/secretName"), open()),
            _ => {}
        }
    }
}

fn plain(object: &Object, places: &[&str], is_encoded: bool) -> Source {
    let mut values = BTreeMap::new();
    for place in places {
        for (key, value) in object.value.get(*place).and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            // Generators break what is long into lines.
            let decoded = STANDARD
                .decode(text.replace(['\n', '\r'], "").trim())
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            let text = if is_encoded { decoded.unwrap_or_else(|| UNKNOWN.to_owned()) } else { text.to_owned() };
            values.insert(key.clone(), text.replace('\n', ""));
        }
    }
    Source { values, is_open: false }
}
