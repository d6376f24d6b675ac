//! Objects of definitions: pruned, given their defaults, and judged by the schema that the definition holds.

use serde_json::{Map, Value};

use super::decode::{self, Findings};
use super::fields::node::{Form, Node};
use super::fields::walk;
use super::kinds::Custom;
use super::schema::definitions;
use super::status::{Cause, shown};
use super::value;

mod formats;
mod rules;
pub(crate) use rules::validate;

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn word<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn preserves(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-preserve-unknown-fields")
}

/// Tells what a body has that the schema does not know, or that was given twice.
pub(crate) fn check(custom: &Custom, object: &Value, twice: &[String]) -> Findings {
    let mut findings = Findings::default();
    if let (Some(metadata), Some(definition)) = (object.get("metadata"), definitions().named("meta.v1.ObjectMeta")) {
        let own: Vec<String> = twice.iter().filter_map(|path| path.strip_prefix("metadata.")).map(Into::into).collect();
        let found = decode::check(definition, metadata, &own);
        findings.mismatch = found.mismatch;
        for text in found.strict {
            findings.strict.push(text.replacen("field \"", "field \"metadata.", 1));
        }
    }
    for path in twice.iter().filter(|path| !path.starts_with("metadata.")) {
        findings.strict.push(format!("duplicate field {path:?}"));
    }
    let mut unknown = Vec::new();
    if !custom.preserves_unknown {
        walk_unknown(&custom.schema, object, "", true, &mut unknown);
    }
    unknown.sort();
    findings.strict.extend(unknown.into_iter().map(|path| format!("unknown field {path:?}")));
    findings
}

fn walk_unknown(schema: &Value, value: &Value, path: &str, is_root: bool, unknown: &mut Vec<String>) {
    let is_resource = is_root || flag(schema, "x-kubernetes-embedded-resource");
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if is_resource && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match child(schema, name) {
                    Some(schema) => walk_unknown(schema, member, &full, false, unknown),
                    None if preserves(schema) || flag(schema, "additionalProperties") => {}
                    None => unknown.push(full),
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (at, item) in items.iter().enumerate() {
                    walk_unknown(schema, item, &format!("{path}[{at}]"), false, unknown);
                }
            }
        }
        _ => {}
    }
}

/// The schema of a member.
fn child<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|all| all.get(name));
    named.or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

/// Takes away what the schema does not know, gives what it says, and writes metadata as all objects do.
pub(crate) fn complete(custom: &Custom, object: &mut Value) {
    if !custom.preserves_unknown {
        prune(&custom.schema, object);
    }
    if let (Some(metadata), Some(definition)) = (object.get_mut("metadata"), definitions().named("meta.v1.ObjectMeta"))
    {
        decode::normalise(definition, metadata);
    }
    fill(&custom.schema, object);
    drop_nulls(&custom.schema, object);
    fill(&custom.schema, object);
}

/// What is done to an object: by its schema, and whether it is the whole.
type Act<'a> = dyn FnMut(&Value, &mut Map<String, Value>, bool) + 'a;

/// Does something to every object within a value, from the outside in, each with its schema.
fn every_object(schema: &Value, value: &mut Value, is_root: bool, act: &mut Act<'_>) {
    match value {
        Value::Object(members) => {
            act(schema, members, is_root);
            for (name, member) in members.iter_mut() {
                if let Some(schema) = child(schema, name).filter(|_| !(is_root && name == "metadata")) {
                    every_object(schema, member, false, act);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| every_object(schema, item, false, act));
            }
        }
        _ => {}
    }
}

fn prune(schema: &Value, value: &mut Value) {
    every_object(schema, value, true, &mut |schema, members, is_root| {
        let is_resource = is_root || flag(schema, "x-kubernetes-embedded-resource");
        let keeps = preserves(schema) || flag(schema, "additionalProperties");
        members.retain(|name, _| {
            keeps
                || child(schema, name).is_some()
                || is_resource && ["apiVersion", "kind", "metadata"].contains(&name.as_str())
        });
    });
}

fn fill(schema: &Value, value: &mut Value) {
    every_object(schema, value, true, &mut |schema, members, is_root| {
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let is_null = members.get(name).is_some_and(Value::is_null) && !flag(schema, "nullable");
            if let Some(default) = schema.get("default")
                && (!members.contains_key(name) || is_null)
                && !(is_root && name == "metadata")
            {
                members.insert(name.clone(), default.clone());
            }
        }
    });
}

/// A `null` that is not allowed and has a default counts as nothing.
fn drop_nulls(schema: &Value, value: &mut Value) {
    every_object(schema, value, true, &mut |schema, members, _| {
        members.retain(|name, member| {
            let is_free = |schema: &Value| flag(schema, "nullable") || schema.get("default").is_none();
            !member.is_null() || child(schema, name).is_none_or(is_free)
        });
    });
}

/// What somebody applies that the schema does not declare, as server-side apply tells it.
pub(crate) fn undeclared(node: Node<'_>, object: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    walk_undeclared(node, object, "", &mut faults);
    faults
}

fn walk_undeclared(node: Node<'_>, value: &Value, path: &str, faults: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match node {
        Node::Named(number) => {
            let definition = definitions().get(number);
            if let Some(alias) = &definition.alias {
                return walk_undeclared(Node::Built(alias, None), value, path, faults);
            }
            let Some(members) = value.as_object() else {
                return faults.push(format!("{path}: expected map, got {}", unstructured(value)));
            };
            for (name, member) in members {
                match definition.fields.get(name) {
                    Some(field) => {
                        walk_undeclared(Node::Built(&field.ty, Some(field)), member, &format!("{path}.{name}"), faults);
                    }
                    None => faults.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
        Node::Built(ty, _) => walk_built(node, ty, value, path, faults),
        Node::Custom { schema, is_root } => walk_custom(node, schema, is_root, value, path, faults),
        Node::Loose => {}
    }
}

fn walk_built(node: Node<'_>, ty: &super::schema::Type, value: &Value, path: &str, faults: &mut Vec<String>) {
    use super::schema::Type;
    let expected = |what: &str, faults: &mut Vec<String>| {
        faults.push(format!("{path}: expected {what}, got {}", unstructured(value)));
    };
    match ty {
        Type::Named(number) => walk_undeclared(Node::Named(*number), value, path, faults),
        Type::List(_) => match value.as_array() {
            Some(items) => {
                for (at, item) in items.iter().enumerate() {
                    walk_undeclared(
                        node.item(),
                        item,
                        &format!("{path}{}", walk::shown_step(node, value, at, item)),
                        faults,
                    );
                }
            }
            None => expected("list", faults),
        },
        Type::Map(_) => match value.as_object() {
            Some(members) => {
                for (name, member) in members {
                    walk_undeclared(node.field(name).0, member, &format!("{path}.{name}"), faults);
                }
            }
            None => expected("map", faults),
        },
        Type::String | Type::Bytes | Type::Time if !value.is_string() => expected("string", faults),
        Type::Bool if !value.is_boolean() => expected("boolean", faults),
        Type::Int32 | Type::Int64 | Type::Double if !value.is_number() => expected("numeric (int or float)", faults),
        _ => {}
    }
}

fn walk_custom(node: Node<'_>, schema: &Value, is_root: bool, value: &Value, path: &str, faults: &mut Vec<String>) {
    match (node.form(value), value) {
        (_, Value::Object(members)) => {
            let is_resource = is_root || flag(schema, "x-kubernetes-embedded-resource");
            for (name, member) in members {
                let full = format!("{path}.{name}");
                let is_own = is_resource && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
                if is_own || child(schema, name).is_some() {
                    walk_undeclared(node.field(name).0, member, &full, faults);
                } else if !preserves(schema) && !flag(schema, "additionalProperties") {
                    faults.push(format!("{full}: field not declared in schema"));
                }
            }
        }
        (Form::List(_) | Form::Leaf, Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                walk_undeclared(
                    node.item(),
                    item,
                    &format!("{path}{}", walk::shown_step(node, value, at, item)),
                    faults,
                );
            }
        }
        _ => {
            let expected = match word(schema, "type") {
                "array" => "list",
                "object" => "map",
                _ => return,
            };
            faults.push(format!("{path}: expected {expected}, got {}", plain(value)));
        }
    }
}

/// A value as Go prints one that it points to.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

fn unstructured(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&value.valueUnstructured{{Value:{text:?}}}"),
        other => format!("&value.valueUnstructured{{Value:{other}}}"),
    }
}

/// The numbers of a scale, where a definition says they are: `.spec.replicas`.
pub(crate) fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    value::at(object, path.trim_start_matches('.'))
}

fn cause(reason: &str, path: &str, value: &Value, detail: &str) -> Cause {
    match reason {
        "type" => Cause::wrong_type(path, value, detail),
        _ => Cause::invalid(path, value, detail),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn custom(schema: Value) -> Custom {
        Custom {
            storage_version: "v1".to_owned(),
            schema,
            preserves_unknown: false,
            scale: None,
            columns: Vec::new(),
            selectable: Vec::new(),
            deprecation: None,
        }
    }

    #[test]
    fn what_the_schema_does_not_know_is_taken_away_and_defaults_are_given() {
        let custom = custom(json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "a": { "type": "string", "default": "x" },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "list": { "type": "array", "items": { "type": "object", "properties": { "n": { "type": "integer", "default": 1 } } } },
            } },
        } }));
        let mut object = json!({ "apiVersion": "x.io/v1", "kind": "X", "metadata": { "name": "a", "labels": {} },
            "spec": { "bad": 1, "a": null, "free": { "y": 1 }, "list": [{ "z": 1 }] }, "more": 1 });
        assert_eq!(
            check(&custom, &object, &[]).strict,
            ["unknown field \"more\"", "unknown field \"spec.bad\"", "unknown field \"spec.list[0].z\""]
        );
        complete(&custom, &mut object);
        assert_eq!(object["spec"], json!({ "a": "x", "free": { "y": 1 }, "list": [{ "n": 1 }] }));
        assert_eq!(object.get("more"), None);
        assert_eq!(object["metadata"], json!({ "name": "a" }));
    }
}
