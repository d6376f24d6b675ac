//! Definitions of further kinds: accepted, established after a moment, served, and gone with all their objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::{Custom, Resource, ScalePaths, Shape, VERBS};
use super::kube::{Due, Kube, SERVER_STATUS};
use super::value;

mod judge;
pub(crate) use judge::{unknown_formats, validate};

/// The collection that definitions are in.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The finalizer that waits for the objects of a definition.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Kube {
    /// A definition was written: its names are judged, and it is served, soon or at once.
    pub(crate) fn definition_changed(&mut self, name: &str) {
        let Some(definition) = self.get(DEFINITIONS, "", name) else { return };
        if is(&definition, "Established") {
            self.serve_definition(&definition);
            let names = definition["spec"]["names"].clone();
            self.amend(&SERVER_STATUS, (DEFINITIONS, "", name), |object| {
                value::set(object, "status.acceptedNames", names);
            });
            return;
        }
        let has_conflict = self.name_conflict(&definition);
        if has_conflict.is_none() && !self.stuck_definitions.contains(name) {
            let wait = self.draw("kubernetes establish", self.setup.latencies.establish);
            self.plan(wait, Due::Establish(name.to_owned()));
        }
        if let Some(message) = has_conflict {
            let now = self.stamp();
            self.amend(&SERVER_STATUS, (DEFINITIONS, "", name), |object| {
                let plural = object["spec"]["names"]["plural"].clone();
                value::set(object, "status.acceptedNames", json!({ "plural": plural, "kind": "" }));
                condition(object, &now, "NamesAccepted", "False", ("ListKindConflict", &message));
                condition(object, &now, "Established", "False", ("NotAccepted", "not all names are accepted"));
            });
        }
    }

    /// Another definition or a built-in kind of the group that has one of the names.
    fn name_conflict(&self, definition: &Value) -> Option<String> {
        let (group, own) = (value::text(definition, "spec.group"), value::name(definition));
        let kind = value::text(definition, "spec.names.kind");
        let others = self
            .store
            .all(DEFINITIONS, "")
            .filter(|other| value::name(other) != own && value::text(other, "spec.group") == group);
        let taken = others.into_iter().any(|other| value::text(other, "status.acceptedNames.kind") == kind);
        let list = value::text(definition, "spec.names.listKind");
        taken.then(|| format!("{list:?} is already in use"))
    }

    /// A definition is established: its kind is served from now on.
    pub(crate) fn establish(&mut self, name: &str) {
        let Some(definition) = self.get(DEFINITIONS, "", name) else { return };
        if value::is_deleting(&definition)
            || self.stuck_definitions.contains(name)
            || self.name_conflict(&definition).is_some()
        {
            return;
        }
        let now = self.stamp();
        self.amend(&SERVER_STATUS, (DEFINITIONS, "", name), |object| {
            let names = object["spec"]["names"].clone();
            value::set(object, "status.acceptedNames", names);
            condition(object, &now, "NamesAccepted", "True", ("NoConflicts", "no conflicts found"));
            condition(
                object,
                &now,
                "Established",
                "True",
                ("InitialNamesAccepted", "the initial names have been accepted"),
            );
        });
    }

    /// Serves what a definition says, and nothing that it said before.
    fn serve_definition(&mut self, definition: &Value) {
        let (group, plural) =
            (value::text(definition, "spec.group").to_owned(), value::text(definition, "spec.names.plural").to_owned());
        self.customs.retain(|(own_group, own_plural, _), _| *own_group != group || *own_plural != plural);
        for resource in resources(definition) {
            self.customs.insert((group.clone(), plural.clone(), resource.version.clone()), Arc::new(resource));
        }
    }

    /// A definition that ends takes its objects along.
    pub(crate) fn definition_ends(&mut self, name: &str) {
        let Some(definition) = self.get(DEFINITIONS, "", name) else { return };
        if !value::is_deleting(&definition) {
            return;
        }
        let Some(resource) = self.resource_of(name) else {
            return self.drop_cleanup(name);
        };
        let now = self.stamp();
        self.amend(&SERVER_STATUS, (DEFINITIONS, "", name), |object| {
            condition(
                object,
                &now,
                "Terminating",
                "True",
                ("InstanceDeletionInProgress", "CustomResource deletion is in progress"),
            );
        });
        let objects: Vec<Arc<Value>> = self.store.all(name, "").cloned().collect();
        for object in objects.iter().filter(|object| !value::is_deleting(object)) {
            self.end(&resource, object, &super::delete::Options::default());
        }
        if self.store.all(name, "").next().is_none() {
            self.drop_cleanup(name);
        }
    }

    fn drop_cleanup(&mut self, name: &str) {
        self.amend(&SERVER_STATUS, (DEFINITIONS, "", name), |object| {
            let left: Vec<Value> =
                value::finalizers(object).into_iter().filter(|own| *own != CLEANUP).map(Value::from).collect();
            value::set(object, "metadata.finalizers", left);
        });
    }

    /// A definition is gone.
    pub(crate) fn definition_gone(&mut self, definition: &Value) {
        let (group, plural) = (value::text(definition, "spec.group"), value::text(definition, "spec.names.plural"));
        self.customs.retain(|(own_group, own_plural, _), _| own_group != group || own_plural != plural);
    }
}

/// Whether a condition of an object holds.
pub(crate) fn is(object: &Value, name: &str) -> bool {
    value::items(object, "status.conditions")
        .iter()
        .any(|it| value::text(it, "type") == name && value::text(it, "status") == "True")
}

/// Writes a condition, whose time changes only with its status.
pub(crate) fn condition(object: &mut Value, now: &str, name: &str, status: &str, (reason, message): (&str, &str)) {
    let list = value::place(object, "status.conditions");
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(items) = list.as_array_mut() else { return };
    let known = items.iter().position(|it| value::text(it, "type") == name);
    let since = known.map(|at| &items[at]).filter(|it| value::text(it, "status") == status);
    let since = since.map_or_else(|| now.to_owned(), |it| value::text(it, "lastTransitionTime").to_owned());
    let new =
        json!({ "type": name, "status": status, "lastTransitionTime": since, "reason": reason, "message": message });
    match known {
        Some(at) => items[at] = new,
        None => items.push(new),
    }
}

/// The resources that a definition adds.
fn resources(definition: &Value) -> Vec<Resource> {
    let names = &definition["spec"]["names"];
    let text = |key: &str| value::text(names, key).to_owned();
    let texts =
        |key: &str| value::items(names, key).iter().filter_map(Value::as_str).map(Into::into).collect::<Vec<String>>();
    let versions = value::items(definition, "spec.versions");
    let stored = versions
        .iter()
        .find(|version| value::is_true(version, "storage"))
        .map(|version| value::text(version, "name").to_owned());
    let served = versions.iter().filter(|version| value::is_true(version, "served"));
    served
        .map(|version| {
            let scale = value::at(version, "subresources.scale").map(|scale| ScalePaths {
                spec: value::text(scale, "specReplicasPath").to_owned(),
                status: value::text(scale, "statusReplicasPath").to_owned(),
                selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(Into::into),
            });
            let mut subresources = Vec::new();
            if value::at(version, "subresources.status").is_some() {
                subresources.push("status".to_owned());
            }
            if scale.is_some() {
                subresources.push("scale".to_owned());
            }
            let own = value::text(version, "name");
            let api_version = format!("{}/{own}", value::text(definition, "spec.group"));
            let told = value::text(version, "deprecationWarning");
            let better =
                versions.iter().find(|other| value::is_true(other, "served") && !value::is_true(other, "deprecated"));
            let better = better.map(|other| {
                format!(
                    "; use {}/{} {}",
                    value::text(definition, "spec.group"),
                    value::text(other, "name"),
                    text("kind")
                )
            });
            let plain = format!("{api_version} {} is deprecated{}", text("kind"), better.unwrap_or_default());
            let told = if told.is_empty() { plain } else { told.to_owned() };
            let schema = value::at(version, "schema.openAPIV3Schema").cloned().unwrap_or_else(|| json!({}));
            Resource {
                group: value::text(definition, "spec.group").to_owned(),
                version: own.to_owned(),
                plural: text("plural"),
                kind: text("kind"),
                list_kind: text("listKind"),
                singular: text("singular"),
                is_namespaced: value::text(definition, "spec.scope") == "Namespaced",
                short_names: texts("shortNames"),
                categories: texts("categories"),
                verbs: VERBS.iter().map(|verb| (*verb).to_owned()).collect(),
                subresources,
                shape: Shape::Custom(Box::new(Custom {
                    storage_version: stored.clone().unwrap_or_default(),
                    preserves_unknown: value::is_true(definition, "spec.preserveUnknownFields"),
                    schema,
                    scale,
                    columns: value::items(version, "additionalPrinterColumns").to_vec(),
                    selectable: value::items(version, "selectableFields")
                        .iter()
                        .map(|field| value::text(field, "jsonPath").trim_start_matches('.').to_owned())
                        .collect(),
                    deprecation: value::is_true(version, "deprecated").then_some(told),
                })),
            }
        })
        .collect()
}
