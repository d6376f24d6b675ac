//! What a schema demands of values.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Value, json};

use super::{Cause, cause, child, flag, formats, shown, word};

/// What is wrong with an object, by the schema.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, object, "", true, &mut causes);
    let mut lists = Vec::new();
    unique(schema, object, "", &mut lists);
    causes.extend(lists);
    causes
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn fits(wanted: &str, value: &Value) -> bool {
    let own = kind_of(value);
    own == wanted
        || wanted == "number" && own == "integer"
        || wanted == "integer" && value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn walk(schema: &Value, value: &Value, path: &str, is_root: bool, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    let wanted = word(schema, "type");
    if flag(schema, "x-kubernetes-int-or-string") {
        if !value.is_string() && !fits("integer", value) {
            let own = kind_of(value);
            let detail = format!("{path} in body must be of type integer,string: {own:?}");
            causes.push(cause("type", path, &json!(own), &detail));
            return;
        }
    } else if !wanted.is_empty() && !fits(wanted, value) {
        let own = kind_of(value);
        let detail = format!("{path} in body must be of type {wanted}: {own:?}");
        causes.push(cause("type", path, &json!(own), &detail));
        return;
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array)
        && !words.contains(value)
    {
        let words: Vec<String> =
            words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), Into::into)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        causes.push(Cause::unsupported(path, value, &words));
    }
    match value {
        Value::String(text) => texts(schema, text, path, causes),
        Value::Number(_) => numbers(schema, value, path, causes),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (at, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{path}[{at}]"), false, causes);
                }
            }
            if let Some(most) = schema.get("maxItems").and_then(Value::as_u64).filter(|most| items.len() as u64 > *most)
            {
                causes.push(Cause::too_many(path, items.len(), most));
            }
            if let Some(least) =
                schema.get("minItems").and_then(Value::as_u64).filter(|least| (items.len() as u64) < *least)
            {
                causes.push(Cause::invalid(
                    path,
                    &json!(items.len()),
                    &format!("{path} in body should have at least {least} items"),
                ));
            }
            if flag(schema, "uniqueItems") && items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
                causes.push(Cause::invalid(path, value, "shouldn't contain duplicates"));
            }
        }
        Value::Object(members) => {
            for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            {
                if !members.contains_key(name) {
                    causes.push(Cause::required(&join(path, name), ""));
                }
            }
            for (name, member) in members {
                if is_root && ["metadata", "apiVersion", "kind"].contains(&name.as_str()) {
                    continue;
                }
                if let Some(schema) = child(schema, name) {
                    walk(schema, member, &join(path, name), false, causes);
                }
            }
            if let Some(most) =
                schema.get("maxProperties").and_then(Value::as_u64).filter(|most| members.len() as u64 > *most)
            {
                causes.push(Cause::too_many(path, members.len(), most));
            }
            if let Some(least) =
                schema.get("minProperties").and_then(Value::as_u64).filter(|least| (members.len() as u64) < *least)
            {
                let detail = format!("{path} in body should have at least {least} properties");
                causes.push(Cause::invalid(path, &json!(members.len()), &detail));
            }
        }
        _ => {}
    }
    junctors(schema, value, path, causes);
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn texts(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let (length, value) = (text.chars().count() as u64, json!(text));
    if let Some(most) = bound("maxLength").filter(|most| length > *most) {
        causes.push(Cause::too_long(path, most));
    }
    if let Some(least) = bound("minLength").filter(|least| length < *least) {
        causes.push(Cause::invalid(path, &value, &format!("{path} in body should be at least {least} chars long")));
    }
    let pattern = word(schema, "pattern");
    if !pattern.is_empty() && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text)) {
        causes.push(Cause::invalid(path, &value, &format!("{path} in body should match '{pattern}'")));
    }
    let format = word(schema, "format");
    if !format.is_empty() && !formats::has(format, text) {
        let detail = format!("{path} in body must be of type {format}: {text:?}");
        causes.push(cause("type", path, &value, &detail));
    }
}

fn numbers(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let text = |key: &str| schema.get(key).map(shown).unwrap_or_default();
    let (above, below) = (flag(schema, "exclusiveMinimum"), flag(schema, "exclusiveMaximum"));
    if let Some(most) = bound("maximum").filter(|most| number > *most || below && number >= *most) {
        let (how, _) = if below { ("less than", most) } else { ("less than or equal to", most) };
        causes.push(Cause::invalid(path, value, &format!("{path} in body should be {how} {}", text("maximum"))));
    }
    if let Some(least) = bound("minimum").filter(|least| number < *least || above && number <= *least) {
        let (how, _) = if above { ("greater than", least) } else { ("greater than or equal to", least) };
        causes.push(Cause::invalid(path, value, &format!("{path} in body should be {how} {}", text("minimum"))));
    }
    if let Some(factor) = bound("multipleOf").filter(|factor| (number / factor).fract() != 0.0) {
        causes.push(Cause::invalid(path, value, &format!("{path} in body should be a multiple of {factor}")));
    }
}

/// `allOf`, `anyOf`, `oneOf`, `not`.
fn junctors(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let all = |key: &str| schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let holds = |schema: &Value| {
        let mut causes = Vec::new();
        walk(schema, value, path, false, &mut causes);
        causes.is_empty()
    };
    for schema in all("allOf") {
        walk(schema, value, path, false, causes);
    }
    let told = if path.is_empty() { "<nil>" } else { path };
    // An int-or-string is written with an `anyOf` that says nothing more.
    if !all("anyOf").is_empty() && !flag(schema, "x-kubernetes-int-or-string") && !all("anyOf").iter().any(holds) {
        causes.push(Cause::invalid(
            told,
            &Value::String(String::new()),
            &format!("{told:?} must validate at least one schema (anyOf)"),
        ));
    }
    let count = all("oneOf").iter().filter(|schema| holds(schema)).count();
    if !all("oneOf").is_empty() && count != 1 {
        let found =
            if count == 0 { "Found none valid".to_owned() } else { format!("Found {count} valid alternatives") };
        let detail = format!("{told:?} must validate one and only one schema (oneOf). {found}");
        causes.push(Cause::invalid(told, &Value::String(String::new()), &detail));
    }
    if let Some(schema) = schema.get("not")
        && holds(schema)
    {
        causes.push(Cause::invalid(
            told,
            &Value::String(String::new()),
            &format!("{told:?} must not validate the schema (not)"),
        ));
    }
}

/// Sets and lists with keys hold nothing twice.
fn unique(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(schema) = child(schema, name) {
                    unique(schema, member, &join(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            let keys: Vec<&str> = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let list = word(schema, "x-kubernetes-list-type");
            let mut seen = BTreeSet::new();
            for (at, item) in items.iter().enumerate() {
                let place = format!("{path}[{at}]");
                let id = match list {
                    "set" => Some(item.clone()),
                    "map" => {
                        Some(keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone()))).collect())
                    }
                    _ => None,
                };
                if let Some(id) = id
                    && !seen.insert(id.to_string())
                {
                    causes.push(Cause::duplicate(&place, &id));
                }
                if let Some(schema) = schema.get("items") {
                    unique(schema, item, &place, causes);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(schema: &Value, object: &Value) -> Vec<String> {
        validate(schema, object).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn values_are_judged_in_the_words_of_the_real_server() {
        let spec = json!({ "type": "object", "required": ["cron"], "properties": {
            "cron": { "type": "string", "pattern": "^\\d+$" },
            "replicas": { "type": "integer", "maximum": 10 },
            "mode": { "type": "string", "enum": ["a", "b"] },
            "list": { "type": "array", "maxItems": 1, "items": { "type": "string", "minLength": 2 } },
            "st": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "ios": { "x-kubernetes-int-or-string": true },
        } });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let object = json!({ "spec": { "cron": "x", "replicas": 20, "mode": "c", "list": ["a", "bb"], "st": ["a", "a"], "ios": true } });
        let expected = [
            "spec.cron: Invalid value: \"x\": spec.cron in body should match '^\\d+$'",
            "spec.replicas: Invalid value: 20: spec.replicas in body should be less than or equal to 10",
            "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            "spec.list[0]: Invalid value: \"a\": spec.list[0] in body should be at least 2 chars long",
            "spec.list: Too many: 2: must have at most 1 item",
            "spec.ios: Invalid value: \"boolean\": spec.ios in body must be of type integer,string: \"boolean\"",
            "spec.st[1]: Duplicate value: \"a\"",
        ];
        assert_eq!(told(&schema, &object), expected);
        assert_eq!(told(&schema, &json!({ "spec": {} })), ["spec.cron: Required value"]);
    }

    #[test]
    fn one_of_several_must_hold() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "object", "oneOf": [{ "required": ["x"] }, { "required": ["y"] }] } } });
        assert_eq!(told(&schema, &json!({ "a": { "x": 1 } })), Vec::<String>::new());
        let none = told(&schema, &json!({ "a": {} }));
        assert_eq!(
            none,
            ["a: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found none valid"]
        );
    }
}
