//! The older description, OpenAPI v2: one document of everything, as JSON or as the Protobuf that client-go asks for.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value, json};

use super::{document, minor};
use crate::kubernetes::api::Reply;
use crate::kubernetes::kube::Kube;
use crate::kubernetes::request::Ask;
use crate::kubernetes::value;

/// The media types, as they are asked for and as they are told.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// Answers in the form that is asked for.
pub(crate) fn reply(kube: &Kube, ask: &Ask) -> Reply {
    let described = described(kube);
    let wanted = ask.accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let first = wanted.into_iter().find(|kind| PROTOBUF.contains(kind) || kind.ends_with("json") || *kind == "*/*");
    match first {
        Some(kind) if PROTOBUF.contains(&kind) => Reply::Raw(200, PROTOBUF[1], encoded(&described)),
        _ => Reply::object(200, described),
    }
}

/// Whether somebody asks for the Protobuf of it.
pub(crate) fn is_asked_for(accept: &str) -> bool {
    PROTOBUF.iter().any(|kind| accept.contains(kind))
}

/// The document: what the newer ones say, in the words of the older.
fn described(kube: &Kube) -> Value {
    let mut versions: Vec<Vec<String>> = vec![vec!["api".to_owned(), "v1".to_owned()]];
    for (group, own) in kube.groups() {
        versions.extend(own.into_iter().map(|version| vec!["apis".to_owned(), group.clone(), version]));
    }
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for version in &versions {
        let parts: Vec<&str> = version.iter().map(String::as_str).collect();
        let Some(newer) = document(kube, &parts) else { continue };
        for (name, schema) in value::members(&newer["components"], "schemas") {
            // A type is described by every version that has it; only that of its own says what kind it is.
            let has_kind = schema.get("x-kubernetes-group-version-kind").is_some();
            if has_kind || !definitions.contains_key(name) {
                definitions.insert(name.clone(), older(schema));
            }
        }
        for (path, item) in value::members(&newer, "paths") {
            paths.insert(path.clone(), operations(item));
        }
    }
    json!({
        "swagger": "2.0", "info": { "title": "Kubernetes", "version": format!("v{}", minor(&kube.setup.version)) },
        "paths": paths, "definitions": definitions,
    })
}

/// A schema in the words of the older description, which knows no alternatives.
fn older(schema: &Value) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
        return json!({ "$ref": reference.replace("#/components/schemas/", "#/definitions/") });
    }
    let is_either = members.get("x-kubernetes-int-or-string") == Some(&json!(true));
    let is_nullable = members.get("nullable") == Some(&json!(true));
    let mut told = Map::new();
    for (key, member) in members {
        match key.as_str() {
            "oneOf" | "anyOf" | "not" | "nullable" | "x-kubernetes-validations" => {}
            "allOf" => {
                // One that is referred to is what the field is.
                if let Some([one]) = member.as_array().map(Vec::as_slice)
                    && let Some(own) = older(one).as_object()
                {
                    told.extend(own.clone());
                }
            }
            "properties" => {
                let own = member.as_object().into_iter().flatten();
                let own: Map<String, Value> = own.map(|(name, schema)| (name.clone(), older(schema))).collect();
                told.insert(key.clone(), Value::Object(own));
            }
            "items" | "additionalProperties" => drop(told.insert(key.clone(), older(member))),
            // What may be anything has no type there.
            "type" if is_either || is_nullable => {}
            _ => drop(told.insert(key.clone(), member.clone())),
        }
    }
    if members.contains_key("oneOf") && !is_either {
        told.insert("type".to_owned(), json!("string"));
    }
    Value::Object(told)
}

/// The operations of a path, with the schemas that they take and give.
fn operations(item: &Value) -> Value {
    let mut told = Map::new();
    for (verb, operation) in item.as_object().into_iter().flatten() {
        let schema = older(&operation["responses"]["200"]["content"]["application/json"]["schema"]);
        let query = value::items(operation, "parameters").iter();
        let mut parameters: Vec<Value> =
            query.map(|it| json!({ "name": it["name"], "in": "query", "type": "string" })).collect();
        if ["post", "put", "patch"].contains(&verb.as_str()) {
            parameters.push(json!({ "name": "body", "in": "body", "required": true, "schema": schema }));
        }
        let mut own =
            json!({ "parameters": parameters, "responses": { "200": { "description": "OK", "schema": schema } } });
        for key in ["x-kubernetes-action", "x-kubernetes-group-version-kind"] {
            value::set(&mut own, key, operation[key].clone());
        }
        told.insert(verb.clone(), own);
    }
    Value::Object(told)
}

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        encode_key(number, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn inner(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    /// A value with a name.
    fn named(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Self)) {
        self.inner(number, |own| {
            own.text(1, name);
            own.inner(2, write);
        });
    }

    /// What the format has no field for, as YAML, of which JSON is a part.
    fn extensions(&mut self, number: u32, object: &Value) {
        let own = object.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-"));
        for (key, extension) in own {
            self.named(number, key, |any| any.text(2, &extension.to_string()));
        }
    }

    fn schema(&mut self, schema: &Value) {
        for (number, key) in [(1, "$ref"), (2, "format"), (4, "description"), (13, "pattern")] {
            self.text(number, value::text(schema, key));
        }
        if let Some(default) = schema.get("default") {
            self.inner(5, |any| any.text(2, &default.to_string()));
        }
        for name in value::items(schema, "required").iter().filter_map(Value::as_str) {
            self.text(19, name);
        }
        for choice in value::items(schema, "enum") {
            self.inner(20, |any| any.text(2, &choice.to_string()));
        }
        match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => self.inner(21, |item| item.0.extend([2 << 3, 1])),
            Some(own @ Value::Object(_)) => self.inner(21, |item| item.inner(1, |inner| inner.schema(own))),
            _ => {}
        }
        let kind = value::text(schema, "type");
        if !kind.is_empty() {
            self.inner(22, |item| item.text(1, kind));
        }
        if let Some(items) = schema.get("items") {
            self.inner(23, |item| item.inner(1, |inner| inner.schema(items)));
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            self.inner(25, |all| {
                for (name, property) in properties {
                    all.named(1, name, |inner| inner.schema(property));
                }
            });
        }
        self.extensions(31, schema);
    }

    fn operation(&mut self, operation: &Value) {
        for parameter in value::items(operation, "parameters") {
            let name = value::text(parameter, "name");
            // An item, in it a parameter, in it one of both kinds.
            self.inner(8, |item| {
                item.inner(1, |either| match parameter.get("schema") {
                    Some(schema) => either.inner(1, |body| {
                        body.text(2, name);
                        body.text(3, "body");
                        body.0.extend([4 << 3, 1]);
                        body.inner(5, |inner| inner.schema(schema));
                    }),
                    None => either.inner(2, |other| {
                        other.inner(3, |query| {
                            query.text(2, "query");
                            query.text(4, name);
                            query.text(6, "string");
                        });
                    }),
                });
            });
        }
        self.inner(9, |responses| {
            for (code, response) in value::members(operation, "responses") {
                responses.named(1, code, |either| {
                    either.inner(1, |own| {
                        own.text(1, value::text(response, "description"));
                        own.inner(2, |item| item.inner(1, |inner| inner.schema(&response["schema"])));
                    });
                });
            }
        });
        self.extensions(13, operation);
    }
}

/// The document as Protobuf.
fn encoded(described: &Value) -> Vec<u8> {
    let mut document = Message::default();
    document.text(1, value::text(described, "swagger"));
    document.inner(2, |info| {
        info.text(1, value::text(described, "info.title"));
        info.text(2, value::text(described, "info.version"));
    });
    document.inner(8, |paths| {
        for (path, item) in value::members(described, "paths") {
            paths.named(2, path, |own| {
                for (number, verb) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
                    if let Some(operation) = item.get(verb) {
                        own.inner(number, |inner| inner.operation(operation));
                    }
                }
            });
        }
    });
    document.inner(9, |definitions| {
        for (name, schema) in value::members(described, "definitions") {
            definitions.named(1, name, |inner| inner.schema(schema));
        }
    });
    document.0
}
