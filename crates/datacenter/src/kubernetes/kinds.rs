//! Which resources are served: the built-in ones from `schema/kinds.txt`, and those that definitions add.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::schema::{Definition, definitions};

const KINDS: &str = include_str!("schema/kinds.txt");

/// What every resource can do that can do more than to be created.
pub(crate) const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A resource of one version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Empty for the core.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) singular: String,
    pub(crate) is_namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<String>,
    pub(crate) shape: Shape,
}

/// What its objects are made of.
#[derive(Debug)]
pub(crate) enum Shape {
    Built(&'static Definition),
    Custom(Box<Custom>),
}

/// What a definition says of one version.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) storage_version: String,
    pub(crate) schema: Value,
    pub(crate) preserves_unknown: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Value>,
    /// The fields that objects can be chosen by: `spec.mode`.
    pub(crate) selectable: Vec<String>,
    pub(crate) deprecation: Option<String>,
}

/// Where the numbers of a scale are.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl Resource {
    /// `deployments.apps`, or `pods`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The name of the collection that its objects are kept in.
    pub(crate) fn collection(&self) -> String {
        if self.is(super::events::NEW) { super::events::KEPT.to_owned() } else { self.qualified() }
    }

    /// `apps/v1`, or `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|own| own == subresource)
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.shape {
            Shape::Custom(custom) => Some(custom),
            Shape::Built(_) => None,
        }
    }

    /// Whether this is the built-in resource of that name.
    pub(crate) fn is(&self, qualified: &str) -> bool {
        matches!(self.shape, Shape::Built(_)) && self.qualified() == qualified
    }
}

/// The built-in resources, in the order of discovery.
pub(crate) fn built_in() -> &'static [Arc<Resource>] {
    static ALL: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    ALL.get_or_init(|| read(KINDS))
}

/// The built-in resource of that qualified name.
pub(crate) fn named(qualified: &str) -> Option<&'static Arc<Resource>> {
    built_in().iter().find(|resource| resource.qualified() == qualified)
}

fn read(text: &str) -> Vec<Arc<Resource>> {
    let mut all = Vec::new();
    let (mut group, mut version) = ("", "");
    for line in text.lines() {
        let Some(line) = line.strip_prefix("  ") else {
            (group, version) = line.split_once('/').unwrap_or_default();
            group = if group == "core" { "" } else { group };
            continue;
        };
        let words: Vec<&str> = line.split(' ').collect();
        let [plural, kind, singular, scope, shape, rest @ ..] = words.as_slice() else { continue };
        let Some(definition) = definitions().named(shape) else { continue };
        let listed = |key: &str| -> Vec<String> {
            let found = rest.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.map(|list| list.split(',').filter(|it| !it.is_empty()).map(Into::into).collect()).unwrap_or_default()
        };
        let mut verbs = listed("verbs");
        if verbs.is_empty() {
            verbs = VERBS
                .iter()
                .filter(|verb| *plural != "namespaces" || **verb != "deletecollection")
                .map(|it| (*it).to_owned())
                .collect();
        }
        all.push(Arc::new(Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: (*plural).to_owned(),
            kind: (*kind).to_owned(),
            list_kind: format!("{kind}List"),
            singular: (*singular).to_owned(),
            is_namespaced: *scope == "ns",
            short_names: listed("short"),
            categories: listed("categories"),
            verbs,
            subresources: listed("sub"),
            shape: Shape::Built(definition),
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_resource() {
        let lines = KINDS.lines().filter(|line| line.starts_with("  ")).count();
        assert_eq!(built_in().len(), lines);
        let deployments = named("deployments.apps").unwrap();
        assert_eq!((deployments.kind.as_str(), deployments.api_version().as_str()), ("Deployment", "apps/v1"));
        assert!(deployments.has("scale") && deployments.is_namespaced);
        assert!(!named("namespaces").unwrap().can("deletecollection"));
    }
}
