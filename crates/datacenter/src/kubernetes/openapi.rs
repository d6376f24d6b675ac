//! Descriptions of what is served, as clients read them: OpenAPI v3, one document a version, from the same tables; and [`old`], of
//! everything at once.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use super::discovery::by_kind;
use super::kinds::{Resource, Shape};
use super::kube::Kube;
use super::schema::{Definition, Field, Relation, Type, definitions};
use super::value;
use crate::world::guest::hex;

pub(crate) mod old;

/// The documents that there are.
pub(crate) fn index(kube: &Kube) -> Value {
    let mut paths = Map::new();
    let mut versions: Vec<(String, String)> = vec![(String::new(), "v1".to_owned())];
    versions.extend(
        kube.groups()
            .into_iter()
            .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group.clone(), version))),
    );
    for (group, version) in versions {
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        // A document changes with its resources, and clients ask for it anew by its hash.
        let mut hash = Sha512::new();
        for (kind, resource) in by_kind(kube, &group, &version) {
            hash.update(kind);
            if let Shape::Custom(custom) = &resource.shape {
                hash.update(custom.schema.to_string());
            }
        }
        let hash = hex(&hash.finalize()).to_uppercase();
        paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }));
    }
    json!({ "paths": paths })
}

/// The document of a version: `["apis", "apps", "v1"]`.
pub(crate) fn document(kube: &Kube, path: &[&str]) -> Option<Value> {
    let (group, version) = match path {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let resources = by_kind(kube, group, version);
    if resources.is_empty() {
        return None;
    }
    let (mut schemas, mut paths, mut wanted) = (Map::new(), Map::new(), BTreeSet::new());
    wanted.extend(definitions().number("meta.v1.DeleteOptions"));
    for resource in resources.values() {
        let name = schema_name(resource);
        match &resource.shape {
            Shape::Built(definition) => wanted.extend(definitions().number(&definition.name)),
            Shape::Custom(custom) => {
                let mut schema = custom.schema.clone();
                value::set(&mut schema, "properties.metadata", reference("meta.v1.ObjectMeta"));
                value::set(&mut schema, "properties.apiVersion", json!({ "type": "string" }));
                value::set(&mut schema, "properties.kind", json!({ "type": "string" }));
                wanted.extend(definitions().number("meta.v1.ObjectMeta"));
                schemas.insert(name.clone(), with_kind(schema, resource));
            }
        }
        for (path, item) in operations(resource, &name) {
            paths.insert(path, item);
        }
    }
    let mut queue: Vec<usize> = wanted.iter().copied().collect();
    while let Some(number) = queue.pop() {
        let definition = definitions().get(number);
        for field in definition.fields.values() {
            let mut ty = &field.ty;
            while let Type::List(inner) | Type::Map(inner) = ty {
                ty = inner;
            }
            if let Type::Named(number) = ty
                && wanted.insert(*number)
            {
                queue.push(*number);
            }
        }
    }
    for number in wanted {
        let definition = definitions().get(number);
        let mut schema = described(definition);
        if let Some(resource) =
            resources.values().find(|it| matches!(&it.shape, Shape::Built(own) if own.name == definition.name))
        {
            schema = with_kind(schema, resource);
        }
        schemas.insert(full_name(&definition.name), schema);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": minor(&kube.setup.version) },
        "paths": paths,
        "components": { "schemas": schemas },
    }))
}

/// `1.36` of `v1.36.3`.
fn minor(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

fn with_kind(mut schema: Value, resource: &Resource) -> Value {
    let kind = json!([{ "group": resource.group, "version": resource.version, "kind": resource.kind }]);
    value::set(&mut schema, "x-kubernetes-group-version-kind", kind);
    schema
}

fn schema_name(resource: &Resource) -> String {
    match &resource.shape {
        Shape::Built(definition) => full_name(&definition.name),
        Shape::Custom(_) => {
            let group: Vec<&str> = resource.group.split('.').rev().collect();
            format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
        }
    }
}

/// A type by the name that the real server has for it.
fn full_name(name: &str) -> String {
    let prefix = match name.split('.').next().unwrap_or_default() {
        "meta" => "io.k8s.apimachinery.pkg.apis.",
        "resource" => "io.k8s.apimachinery.pkg.api.",
        "runtime" | "util" => "io.k8s.apimachinery.pkg.",
        "apiextensions" => "io.k8s.apiextensions-apiserver.pkg.apis.",
        "apiregistration" => "io.k8s.kube-aggregator.pkg.apis.",
        _ => "io.k8s.api.",
    };
    format!("{prefix}{name}")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", full_name(name)) })
}

fn described(definition: &Definition) -> Value {
    if let Some(alias) = &definition.alias {
        return type_of(alias);
    }
    let mut properties = Map::new();
    for (name, field) in &definition.fields {
        properties.insert(name.clone(), property(field));
    }
    let required: Vec<&String> =
        definition.fields.iter().filter(|(_, field)| field.is_required).map(|(name, _)| name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        value::set(&mut schema, "required", json!(required));
    }
    if definition.is_atomic {
        value::set(&mut schema, "x-kubernetes-map-type", "atomic");
    }
    schema
}

fn property(field: &Field) -> Value {
    let mut schema = match &field.ty {
        Type::Named(number) => json!({ "allOf": [reference(&definitions().get(*number).name)] }),
        ty => type_of(ty),
    };
    match &field.relation {
        Relation::Keys(keys) => {
            value::set(&mut schema, "x-kubernetes-list-type", "map");
            value::set(&mut schema, "x-kubernetes-list-map-keys", json!(keys));
        }
        Relation::Set => value::set(&mut schema, "x-kubernetes-list-type", "set"),
        Relation::Atomic if matches!(field.ty, Type::List(_)) => {
            value::set(&mut schema, "x-kubernetes-list-type", "atomic");
        }
        Relation::Atomic => {}
    }
    if field.patching.merges {
        value::set(
            &mut schema,
            "x-kubernetes-patch-strategy",
            if field.patching.retains_keys { "merge,retainKeys" } else { "merge" },
        );
    } else if field.patching.retains_keys {
        value::set(&mut schema, "x-kubernetes-patch-strategy", "retainKeys");
    }
    if let Some(key) = &field.patching.key {
        value::set(&mut schema, "x-kubernetes-patch-merge-key", key.as_str());
    }
    if let Some(default) = &field.default {
        value::set(&mut schema, "default", default.clone());
    }
    schema
}

fn type_of(ty: &Type) -> Value {
    match ty {
        Type::String => json!({ "type": "string" }),
        Type::Bytes => json!({ "type": "string", "format": "byte" }),
        Type::Time => json!({ "type": "string", "format": "date-time" }),
        Type::IntOrString => {
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
        }
        Type::Int32 => json!({ "type": "integer", "format": "int32" }),
        Type::Int64 => json!({ "type": "integer", "format": "int64" }),
        Type::Double => json!({ "type": "number", "format": "double" }),
        Type::Bool => json!({ "type": "boolean" }),
        Type::Scalar => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        Type::Any => json!({}),
        Type::Object => json!({ "type": "object" }),
        Type::Named(number) => reference(&definitions().get(*number).name),
        Type::List(item) => json!({ "type": "array", "items": type_of(item) }),
        Type::Map(item) => json!({ "type": "object", "additionalProperties": type_of(item) }),
    }
}

/// The paths of a resource, as far as clients look at them.
fn operations(resource: &Resource, schema: &str) -> Vec<(String, Value)> {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let place = if resource.is_namespaced { "/namespaces/{namespace}" } else { "" };
    let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    let parameters =
        json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation"), parameter("force")]);
    let content = json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } });
    let operation = |action: &str| {
        json!({
            "parameters": parameters, "responses": { "200": { "description": "OK", "content": content } },
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
        })
    };
    let mut many = json!({ "post": operation("post") });
    let mut one = json!({});
    if resource.can("get") {
        many = json!({ "get": operation("list"), "post": operation("post") });
        one = json!({ "get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete") });
    }
    let path = format!("{base}{place}/{}", resource.plural);
    let mut paths = vec![(path.clone(), many)];
    if resource.can("get") {
        paths.push((format!("{path}/{{name}}"), one));
    }
    paths
}
