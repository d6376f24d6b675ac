//! Definitions of further kinds: accepted, established after a moment, served, and gone with all their objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::{Custom, Resource, ScalePaths, Shape, VERBS};
use super::kube::{Due, Kube, SERVER_STATUS};
use super::status::Cause;
use super::{cel, value};

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
                    deprecation: value::is_true(version, "deprecated").then_some(told),
                })),
            }
        })
        .collect()
}

/// The formats of texts that are judged; another is warned of and ignored.
const FORMATS: [&str; 24] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "date-time",
];

/// The formats of texts in a definition that nobody knows.
pub(crate) fn unknown_formats(definition: &Value) -> Vec<String> {
    fn walk(schema: &Value, found: &mut Vec<String>) {
        let format = value::text(schema, "format");
        let is_known = FORMATS.contains(&format) || format == "datetime" || format.starts_with("k8s-");
        let warning = format!("unrecognized format {format:?}");
        if value::text(schema, "type") == "string" && !format.is_empty() && !is_known && !found.contains(&warning) {
            found.push(warning);
        }
        value::members(schema, "properties").for_each(|(_, schema)| walk(schema, found));
        ["items", "additionalProperties"]
            .iter()
            .filter_map(|key| schema.get(*key))
            .for_each(|schema| walk(schema, found));
    }
    let mut found = Vec::new();
    for version in value::items(definition, "spec.versions") {
        walk(value::at(version, "schema.openAPIV3Schema").unwrap_or(&Value::Null), &mut found);
    }
    found
}

/// What is wrong with a definition.
pub(crate) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (group, plural) = (value::text(object, "spec.group"), value::text(object, "spec.names.plural"));
    if value::name(object) != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &json!(value::name(object)), detail));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
    let is_protected = [".k8s.io", ".kubernetes.io"].iter().any(|end| group.ends_with(end));
    let approved =
        value::at(object, "metadata.annotations").is_some_and(|all| all.get("api-approved.kubernetes.io").is_some());
    if is_protected && !approved {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", detail));
    }
    let scope = value::text(object, "spec.scope");
    if scope.is_empty() {
        causes.push(Cause::required("spec.scope", ""));
    } else if !["Cluster", "Namespaced"].contains(&scope) {
        causes.push(Cause::unsupported("spec.scope", &json!(scope), &["Cluster", "Namespaced"]));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        if value::text(object, &format!("spec.names.{key}")).is_empty() {
            causes.push(Cause::required(&format!("spec.names.{key}"), ""));
        }
    }
    let versions = value::items(object, "spec.versions");
    if versions.iter().filter(|version| value::is_true(version, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(versions), detail));
    }
    for (at, version) in versions.iter().enumerate() {
        let place = format!("spec.versions[{at}]");
        if versions[..at].iter().any(|other| other["name"] == version["name"]) {
            causes.push(Cause::invalid("spec.versions", &json!(versions), "must contain unique version names"));
        }
        match value::at(version, "schema.openAPIV3Schema") {
            None => causes.push(Cause::required(&format!("{place}.schema.openAPIV3Schema"), "schemas are required")),
            Some(schema) => structure(schema, &format!("{place}.schema.openAPIV3Schema"), &mut causes),
        }
    }
    causes
}

/// A schema must say of every value what it is.
fn structure(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let kind = value::text(schema, "type");
    let is_free = flag("x-kubernetes-preserve-unknown-fields") || flag("x-kubernetes-int-or-string");
    if kind.is_empty() && !is_free {
        let detail = if path.ends_with("openAPIV3Schema") {
            "must not be empty at the root"
        } else {
            "must not be empty for specified object fields"
        };
        let detail = if path.contains(".items") && path.ends_with("items") {
            "must not be empty for specified array items"
        } else {
            detail
        };
        causes.push(Cause::required(&format!("{path}.type"), detail));
    }
    if path.ends_with("openAPIV3Schema") && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(&format!("{path}.type"), &json!(kind), "must be object at the root"));
    }
    if kind == "array" && schema.get("items").is_none() {
        causes.push(Cause::required(&format!("{path}.items"), "must be specified"));
    }
    if value::text(schema, "x-kubernetes-list-type") == "map"
        && value::items(schema, "x-kubernetes-list-map-keys").is_empty()
    {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(&format!("{path}.x-kubernetes-list-map-keys"), detail));
    }
    if flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(&format!("{path}.uniqueItems"), detail));
    }
    if value::at(schema, "properties").is_some() && schema.get("additionalProperties").is_some() {
        causes.push(Cause::forbidden(
            &format!("{path}.additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    for (at, rule) in value::items(schema, "x-kubernetes-validations").iter().enumerate() {
        let text = value::text(rule, "rule");
        if text.trim().is_empty() {
            causes
                .push(Cause::required(&format!("{path}.x-kubernetes-validations[{at}].rule"), "rule is not specified"));
        } else if let Some(fault) = cel::fault(text) {
            let detail = format!("compilation failed: {fault}");
            causes.push(Cause::invalid(&format!("{path}.x-kubernetes-validations[{at}].rule"), &json!(text), &detail));
        }
    }
    for (name, schema) in value::members(schema, "properties") {
        if path.ends_with("openAPIV3Schema") && ["metadata", "apiVersion", "kind"].contains(&name.as_str()) {
            continue;
        }
        structure(schema, &format!("{path}.properties[{name}]"), causes);
    }
    if let Some(schema) = schema.get("items").filter(|schema| schema.is_object()) {
        structure(schema, &format!("{path}.items"), causes);
    }
    if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
        structure(schema, &format!("{path}.additionalProperties"), causes);
    }
}
