//! What an API serves: which kinds, where, and whether in namespaces.

use std::collections::BTreeMap;

use kube_core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList};
use serde_json::Value;

use super::Trouble;
use crate::model::Kind;

/// Everything at once, please.
pub(super) const ACCEPT: &str = ACCEPT_AGGREGATED_DISCOVERY_V2;

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
        let list: APIGroupDiscoveryList =
            serde_json::from_value(told).map_err(|_| Trouble::nonsense("what it serves"))?;
        for group in list.items {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            for version in group.versions {
                let Some(version_name) = version.version else { continue };
                for resource in version.resources {
                    let Some(plural) = resource.resource else { continue };
                    let Some(kind) = resource.response_kind.and_then(|kind| kind.kind) else { continue };
                    let kind = Kind { group: name.clone(), version: version_name.clone(), kind };
                    let names = resource.singular_resource.into_iter().chain(resource.short_names).collect();
                    let is_namespaced = resource.scope.as_deref() == Some("Namespaced");
                    let key = (kind.group.clone(), kind.kind.clone());
                    self.preferred.entry(key).or_insert_with(|| kind.clone());
                    let resource = Resource { kind: kind.clone(), plural, names, is_namespaced, verbs: resource.verbs };
                    self.kinds.insert(kind, resource);
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
