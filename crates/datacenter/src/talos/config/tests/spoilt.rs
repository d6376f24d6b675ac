//! A judge that knows nothing but the schema, and documents that differ from a good one in one place.

use regex::Regex;
use serde_json::{Value, json};

use super::resolved;
use crate::talos::config::yaml::{Content, Meaning, Yaml};

/// A value as the schema sees it.
pub(super) fn typed(value: &Yaml) -> Value {
    match &value.content {
        Content::List(items) => items.iter().map(typed).collect(),
        Content::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), typed(value))).collect(),
        Content::Scalar(text, _) => match value.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Bool(truth) => truth.into(),
            Meaning::Int | Meaning::Float => serde_json::from_str(text).unwrap_or(Value::String(text.clone())),
            Meaning::Text => Value::String(text.clone()),
        },
    }
}

/// Whether the schema takes a value. Knows what this schema uses, and nothing else.
pub(super) fn takes(schema: &Value, rule: &Value, value: &Value) -> bool {
    let rule = resolved(schema, rule);
    if let Some(words) = rule["enum"].as_array() {
        return words.contains(value);
    }
    if let Some(ways) = rule["oneOf"].as_array() {
        return ways.iter().filter(|way| takes(schema, way, value)).count() == 1;
    }
    let is_type = match rule["type"].as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let fits = rule["pattern"]
        .as_str()
        .is_none_or(|pattern| value.as_str().is_some_and(|text| Regex::new(pattern).unwrap().is_match(text)));
    let items = value.as_array().filter(|_| rule.get("items").is_some());
    let items = items.into_iter().flatten().all(|item| takes(schema, &rule["items"], item));
    let members = value.as_object().into_iter().flatten().all(|(key, member)| {
        let known = rule["properties"].get(key).or(rule["patternProperties"].get(".*"));
        match (known, &rule["additionalProperties"]) {
            (Some(known), _) => takes(schema, known, member),
            (None, Value::Bool(is_free)) => *is_free,
            (None, Value::Null) => true,
            (None, rule) => takes(schema, rule, member),
        }
    });
    let required = rule["required"].as_array().into_iter().flatten();
    let is_whole = required.filter_map(Value::as_str).all(|key| value.get(key).is_some());
    is_type && fits && items && members && is_whole
}

/// All ways to a value and its parts, as JSON pointers.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    all.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| pointers(member, &format!("{at}/{}", escaped(key)), all));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), all));
        }
        _ => {}
    }
}

/// Configurations that differ from a good one in one place: what was done, and the document.
pub(super) fn mutants(document: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut places = Vec::new();
    pointers(document, "", &mut places);
    for place in places {
        let mut change = |what: &str, to: &dyn Fn(&mut Value)| {
            let mut changed = document.clone();
            to(changed.pointer_mut(&place).unwrap());
            if changed != *document {
                all.push((format!("{what} at {place:?}"), changed));
            }
        };
        change("unknown key", &|value| {
            if let Some(members) = value.as_object_mut() {
                members.insert("castleUnknown".to_owned(), json!("x"));
            }
        });
        // A map in the place of a map, or a list in that of a list, is no other type.
        change("a map", &|value| {
            if !value.is_object() {
                *value = json!({ "castleUnknown": "x" });
            }
        });
        change("a list", &|value| {
            if !value.is_array() {
                *value = json!([["x"]]);
            }
        });
        change("a word", &|value| {
            if !value.is_string() {
                *value = json!("castle");
            }
        });
        let keys: Vec<String> = document
            .pointer(&place)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            change(&format!("without {key}"), &|value| {
                if let Some(members) = value.as_object_mut() {
                    members.remove(&key);
                }
            });
        }
    }
    all
}
