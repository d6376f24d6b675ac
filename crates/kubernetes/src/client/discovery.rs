//! What an API serves: which kinds, where, and whether in namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Trouble;
use super::words::given_or_default;
use crate::model::Kind;

/// Everything at once, please.
pub(super) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What one path tells: `APIGroupDiscoveryList`.
#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Group {
    #[serde(deserialize_with = "given_or_default")]
    metadata: Named,
    #[serde(deserialize_with = "given_or_default")]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    version: String,
    #[serde(deserialize_with = "given_or_default")]
    resources: Vec<Told>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answering {
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Told {
    resource: String,
    #[serde(deserialize_with = "given_or_default")]
    response_kind: Answering,
    scope: String,
    singular_resource: String,
    #[serde(deserialize_with = "given_or_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "given_or_default")]
    verbs: Vec<String>,
}

/// Where objects of one kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The kind.
    pub kind: Kind,
    /// What it is called in paths.
    pub plural: String,
    /// What else people call it: the singular and short names.
    pub names: Vec<String>,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// What can be done with them.
    pub verbs: Vec<String>,
}

impl Resource {
    /// The path of all of them, in one namespace if they are in any.
    pub(super) fn path(&self, namespace: &str) -> String {
        let Kind { group, version, .. } = &self.kind;
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            namespace if self.is_namespaced && !namespace.is_empty() => {
                format!("{base}/namespaces/{namespace}/{}", self.plural)
            }
            _ => format!("{base}/{}", self.plural),
        }
    }
}

/// All that an API serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    kinds: BTreeMap<Kind, Resource>,
    /// The version that the API prefers, by group and kind.
    preferred: BTreeMap<(String, String), Kind>,
}

impl Served {
    /// Adds what one path told.
    pub(super) fn add(&mut self, told: Value) -> Result<(), Trouble> {
        let groups: Groups = serde_json::from_value(told).map_err(|_| Trouble::nonsense("what it serves"))?;
        for group in groups.items {
            for version in group.versions {
                for resource in version.resources {
                    let kind = resource.response_kind.kind;
                    if kind.is_empty() || resource.resource.is_empty() {
                        continue;
                    }
                    let kind = Kind { group: group.metadata.name.clone(), version: version.version.clone(), kind };
                    let singular = Some(resource.singular_resource).filter(|name| !name.is_empty());
                    let names = singular.into_iter().chain(resource.short_names).collect();
                    let is_namespaced = resource.scope == "Namespaced";
                    let key = (kind.group.clone(), kind.kind.clone());
                    self.preferred.entry(key).or_insert_with(|| kind.clone());
                    let (plural, verbs) = (resource.resource, resource.verbs);
                    self.kinds.insert(kind.clone(), Resource { kind, plural, names, is_namespaced, verbs });
                }
            }
        }
        Ok(())
    }

    /// Where objects of a kind are.
    #[must_use]
    pub fn resource(&self, kind: &Kind) -> Option<&Resource> {
        self.kinds.get(kind)
    }

    /// A kind in the version that the API prefers.
    #[must_use]
    pub fn preferred(&self, group: &str, kind: &str) -> Option<&Kind> {
        self.preferred.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Every kind in the version that the API prefers.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.preferred.values().filter_map(|kind| self.kinds.get(kind))
    }

    /// What people mean by a word: `deployment`, `deploy`, `deployments.apps`, `Deployment`.
    #[must_use]
    pub fn called(&self, word: &str) -> Option<&Resource> {
        let word = word.to_lowercase();
        let (name, group) = word.split_once('.').map_or((word.as_str(), None), |(name, group)| (name, Some(group)));
        self.resources().find(|resource| {
            let is_group = group.is_none_or(|group| group == resource.kind.group);
            let is_name = resource.plural == name
                || resource.kind.kind.to_lowercase() == name
                || resource.names.iter().any(|own| own == name);
            is_group && is_name
        })
    }
}
