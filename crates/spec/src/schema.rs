//! The JSON Schema of `castle.yaml`, and the reference page made from it.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::model::Castle;
use crate::shape::{Definitions, Shape};

/// The schema, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let mut definitions = Definitions::new();
    Castle::schema(&mut definitions);
    let root = definitions.remove("Castle").unwrap_or_default();
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("castle.yaml"));
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    schema.insert("$defs".to_owned(), Value::Object(definitions));
    Value::Object(schema)
}

/// A key as the reference page lists it.
struct Key<'s> {
    path: String,
    schema: &'s Value,
    required: bool,
}

/// All keys, each as a dotted path; `*` stands for a name of the user's.
pub(crate) fn paths(schema: &Value) -> Vec<String> {
    keys(schema).into_iter().map(|key| key.path).collect()
}

fn keys(schema: &Value) -> Vec<Key<'_>> {
    let mut found = Vec::new();
    walk(schema, schema, "", &mut found);
    found
}

fn walk<'s>(root: &'s Value, schema: &'s Value, path: &str, found: &mut Vec<Key<'s>>) {
    let target = resolve(root, schema);
    let choices = target.get("anyOf").and_then(Value::as_array);
    let forms: Vec<&Value> =
        choices.map_or_else(|| vec![target], |forms| forms.iter().map(|form| resolve(root, form)).collect());
    for form in forms {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        for (key, value) in form.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let required = form["required"].as_array().is_some_and(|keys| keys.iter().any(|name| name == key));
            // Of a choice each is required in its own form, and none as such.
            let required = required && choices.is_none();
            found.push(Key { path: below(key), schema: value, required });
            walk(root, value, &below(key), found);
        }
        if let Some(values) = form.get("additionalProperties").filter(|values| values.is_object()) {
            walk(root, values, &below("*"), found);
        }
    }
}

fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap_or(schema),
        None => schema,
    }
}

/// The reference page, as Markdown.
#[must_use]
pub fn reference() -> String {
    let schema = schema();
    let mut page = String::from(
        "<!-- Generated from the types by `cargo xtask generate`; do not edit. -->\n\
         # castle.yaml\n\n\
         Every key, what it means, and its default. `*` stands for a name you choose. A key without a default that is \
         not marked *required* may be left out.\n\n\
         | key | value | default | meaning |\n|---|---|---|---|\n",
    );
    for Key { path, schema: key, required } in keys(&schema) {
        let default = match key.get("default") {
            Some(value) => format!("`{}`", flow(value)),
            None if required => "*required*".to_owned(),
            None => String::new(),
        };
        let description = key["description"].as_str().unwrap_or_default().replace('|', "\\|");
        page += &format!("| `{path}` | {} | {default} | {description} |\n", kind(&schema, key));
    }
    page
}

/// What is written there, in a few words.
fn kind(root: &Value, schema: &Value) -> String {
    if schema.get("$ref").and_then(Value::as_str).is_some_and(|target| target.ends_with("/SecretReference")) {
        return "secret reference".to_owned();
    }
    let target = resolve(root, schema);
    if let Some(words) = target.get("enum").and_then(Value::as_array) {
        return words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(forms) = target.get("anyOf").and_then(Value::as_array) {
        let words: Vec<_> =
            forms.iter().filter_map(|form| form["const"].as_str()).map(|word| format!("`{word}`")).collect();
        let is_mapping = forms.iter().any(|form| form["type"] == "object");
        return match (words.is_empty(), is_mapping) {
            (true, true) => "mapping".to_owned(),
            (true, false) => text(target),
            (false, _) => format!("{} or a mapping", words.join(", ")),
        };
    }
    text(target)
}

fn text(target: &Value) -> String {
    match target.get("type").and_then(Value::as_str) {
        Some("object") => "mapping".to_owned(),
        Some("array") => "list".to_owned(),
        Some("integer") => format!("{} to {}", target["minimum"], target["maximum"]),
        Some("boolean") => "`true`, `false`".to_owned(),
        // What it is, as messages call it, without the article and without the rules for names.
        _ => {
            let title = target["title"].as_str().unwrap_or("text");
            let noun = title.strip_prefix("a ").or_else(|| title.strip_prefix("an ")).unwrap_or(title);
            if noun.starts_with("name of ") { "name".to_owned() } else { noun.to_owned() }
        }
    }
}

/// A default as it would be written on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The section that has a key of exactly this name, if there is just one.
pub(crate) fn home_of(key: &str) -> Option<String> {
    static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| paths(&schema()));
    let homes: Vec<String> =
        PATHS.iter().filter_map(|path| path.strip_suffix(key)?.strip_suffix('.').map(str::to_owned)).collect();
    match homes.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        let schema = schema();
        for key in keys(&schema) {
            assert!(!key.schema["description"].as_str().unwrap_or_default().is_empty(), "{}", key.path);
        }
    }

    #[test]
    fn paths_reach_into_platforms_and_pools() {
        let paths = paths(&schema());
        for path in ["platform.proxmox.hardware.iso.drive", "nodes.pools.*.firstAddress", "secrets.infisical.identity"]
        {
            assert!(paths.iter().any(|known| known == path), "{path}");
        }
    }
}
