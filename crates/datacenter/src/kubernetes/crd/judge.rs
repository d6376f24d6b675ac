//! What a definition may not be.

use serde_json::{Value, json};

use crate::kubernetes::status::Cause;
use crate::kubernetes::{cel, structural, value};

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
    versions(value::items(object, "spec.versions"), &mut causes);
    causes
}

fn versions(versions: &[Value], causes: &mut Vec<Cause>) {
    let schema_of = |version: &Value| value::at(version, "schema.openAPIV3Schema").cloned();
    let first = versions.first().and_then(schema_of);
    // A schema that all versions share is judged once, where the server keeps it.
    let is_shared = first.is_some() && versions.iter().all(|version| schema_of(version) == first);
    let mut wrong = |detail: &str| {
        let shown: Vec<Value> = versions.iter().map(|version| shown(version, is_shared)).collect();
        causes.push(Cause::invalid("spec.versions", &json!(shown), detail));
    };
    let is_twice = |at: usize| versions[..at].iter().any(|other| other["name"] == versions[at]["name"]);
    if (0..versions.len()).any(is_twice) {
        wrong("must contain unique version names");
    }
    let stored = versions.iter().filter(|version| value::is_true(version, "storage")).count();
    if stored != 1 {
        wrong("must have exactly one version marked as storage version");
    }
    if let Some(schema) = first.filter(|_| is_shared) {
        structure(&schema, "spec.validation.openAPIV3Schema", causes);
    } else {
        for (at, version) in versions.iter().enumerate() {
            let place = format!("spec.versions[{at}].schema.openAPIV3Schema");
            match schema_of(version) {
                None => causes.push(Cause::required(&place, "")),
                Some(schema) => structure(&schema, &place, causes),
            }
        }
    }
    if stored == 0 {
        let detail = "must have at least one stored version";
        causes.push(Cause::invalid("status.storedVersions", &Value::Null, detail));
    }
}

/// A version as Go writes it, which has no words for what it leaves out.
fn shown(version: &Value, is_shared: bool) -> Value {
    let schema = if is_shared { Value::Null } else { version["schema"].clone() };
    json!({
        "Name": version["name"], "Served": version["served"], "Storage": version["storage"],
        "Deprecated": value::is_true(version, "deprecated"), "DeprecationWarning": version["deprecationWarning"], "Schema": schema,
        "Subresources": version["subresources"], "AdditionalPrinterColumns": version["additionalPrinterColumns"],
        "SelectableFields": version["selectableFields"],
    })
}

/// What a value can be.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

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
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::unsupported(&format!("{path}.type"), &json!(kind), &TYPES));
    } else if let Some(default) = schema.get("default") {
        let place = format!("{path}.default");
        causes.extend(structural::validate(schema, default).into_iter().map(|cause| {
            let field = if cause.field.is_empty() { place.clone() } else { format!("{place}.{}", cause.field) };
            Cause { field, ..cause }
        }));
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
