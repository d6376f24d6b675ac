//! Who manages which fields, as the API keeps it: `metadata.managedFields`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{MANAGER, Object};

/// How a manager came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By applying: it says what it wants of them.
    Apply,
    /// By any other write.
    Update,
}

/// One manager of an object, and its fields.
#[derive(Clone, Debug)]
pub struct Managed<'a> {
    /// Who.
    pub manager: &'a str,
    /// How.
    pub operation: Operation,
    /// The subresource it wrote to; empty for the object itself.
    pub subresource: &'a str,
    /// The fields, in the API's own notation.
    pub fields: &'a Map<String, Value>,
}

impl<'a> Managed<'a> {
    /// All managers of an object.
    pub fn of(object: &'a Object) -> impl Iterator<Item = Self> {
        object.list("/metadata/managedFields").iter().filter_map(|entry| {
            Some(Self {
                manager: entry["manager"].as_str()?,
                operation: if entry["operation"] == "Apply" { Operation::Apply } else { Operation::Update },
                subresource: entry["subresource"].as_str().unwrap_or_default(),
                fields: entry["fieldsV1"].as_object()?,
            })
        })
    }

    /// What castle has applied.
    #[must_use]
    pub fn castle(object: &'a Object) -> Option<Self> {
        let is_ours = |managed: &Self| {
            managed.manager == MANAGER && managed.operation == Operation::Apply && managed.subresource.is_empty()
        };
        Self::of(object).find(is_ours)
    }
}

/// The paths of all fields that are managed as a whole, each as people write it: `.spec.replicas`.
#[must_use]
pub fn leaves(fields: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather(fields, "", &mut found);
    found
}

fn gather(fields: &Map<String, Value>, path: &str, found: &mut BTreeSet<String>) {
    for (element, below) in fields {
        let here = format!("{path}{}", spoken(element));
        match below.as_object() {
            // `.` says that the thing itself is managed, beside what is in it.
            _ if element == "." => {}
            Some(below) if below.keys().any(|key| key != ".") => gather(below, &here, found),
            _ => {
                found.insert(here);
            }
        }
    }
}

/// An element of a path, as people write it.
fn spoken(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => match serde_json::from_str::<Map<String, Value>>(keys) {
            Ok(keys) => {
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            Err(_) => format!("[{keys}]"),
        },
        Some((_, rest)) => format!("[{rest}]"),
        None => String::new(),
    }
}

/// Whether what castle wants is what stands there, and what castle has applied before is neither more nor less.
///
/// A yes is certain. A no may only mean that the server writes the same thing otherwise (`1000m` as `1`): then a dry run tells.
///
/// # Errors
///
/// The path of a field that differs.
pub fn agrees(wanted: &Object, live: &Object) -> Result<(), String> {
    let Some(managed) = Managed::castle(live) else { return Err(".metadata.managedFields".to_owned()) };
    let mut wanted = wanted.value().clone();
    // What every object says of itself is managed by nobody.
    if let Value::Object(entries) = &mut wanted {
        entries.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        if let Some(Value::Object(metadata)) = entries.get_mut("metadata") {
            metadata.retain(|key, _| !matches!(key.as_str(), "name" | "namespace"));
        }
    }
    compare(&wanted, live.value(), managed.fields, "")
}

/// Whether castle manages the same in both, with the same values. What others write there meanwhile is none of its business.
#[must_use]
pub fn same_of_castle(one: &Object, other: &Object) -> bool {
    match (Managed::castle(one), Managed::castle(other)) {
        (Some(managed), Some(others)) => {
            managed.fields == others.fields && same_below(one.value(), other.value(), managed.fields)
        }
        _ => false,
    }
}

fn same_below(one: &Value, other: &Value, fields: &Map<String, Value>) -> bool {
    let mut below = fields.iter().filter(|(element, _)| *element != ".").peekable();
    if below.peek().is_none() {
        return one == other;
    }
    below.all(|(element, fields)| {
        match (find(one, element), find(other, element)) {
            (Some(one), Some(other)) => fields.as_object().is_some_and(|fields| same_below(one, other, fields)),
            // The server leaves out what is empty, though it is managed.
            (one, other) => one.is_none() && other.is_none(),
        }
    })
}

/// What an element of a path leads to.
fn find<'v>(value: &'v Value, element: &str) -> Option<&'v Value> {
    let (notation, rest) = element.split_once(':')?;
    match notation {
        "f" => value.get(rest),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
            value.as_array()?.iter().find(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value)))
        }
        _ => {
            let wanted: Value = serde_json::from_str(rest).ok()?;
            value.as_array()?.iter().find(|item| **item == wanted)
        }
    }
}

/// Walks down what is wanted, what is, and what castle manages, side by side.
fn compare(wanted: &Value, live: &Value, fields: &Map<String, Value>, path: &str) -> Result<(), String> {
    let differs = || Err(path.to_owned());
    if fields.keys().all(|key| key == ".") {
        return if wanted == live { Ok(()) } else { differs() };
    }
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, wanted) in wanted {
                let path = format!("{path}.{key}");
                // Where nothing is wanted below, nothing is managed.
                let is_bare = path == ".metadata" && wanted.as_object().is_some_and(Map::is_empty);
                match (fields.get(&format!("f:{key}")).and_then(Value::as_object), live.get(key)) {
                    (Some(fields), Some(live)) => compare(wanted, live, fields, &path)?,
                    _ if is_bare => {}
                    _ => return Err(path),
                }
            }
            let mut names = fields.keys().filter_map(|element| element.strip_prefix("f:"));
            match names.find(|name| !wanted.contains_key(*name)) {
                Some(dropped) => Err(format!("{path}.{dropped}")),
                None => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(live)) => items(wanted, live, fields, path),
        _ => differs(),
    }
}

/// The items of a list that are managed one by one: each is known by some of its own values.
fn items(wanted: &[Value], live: &[Value], fields: &Map<String, Value>, path: &str) -> Result<(), String> {
    let mut met = BTreeSet::new();
    for (element, below) in fields.iter().filter(|(element, _)| *element != ".") {
        let path = format!("{path}{}", spoken(element));
        let (Some((notation, keys)), Some(below)) = (element.split_once(':'), below.as_object()) else {
            return Err(path);
        };
        let Ok(keys) = serde_json::from_str::<Value>(keys) else { return Err(path) };
        let is_it = |item: &Value, may_lack: bool| match (notation, &keys) {
            // A key that the server has filled in is not among what is wanted.
            ("k", Value::Object(keys)) => keys.iter().all(|(key, value)| match item.get(key) {
                Some(own) => own == value,
                None => may_lack,
            }),
            _ => *item == keys,
        };
        let own = wanted.iter().position(|item| is_it(item, false));
        let own = own.or_else(|| wanted.iter().position(|item| is_it(item, true)));
        let (Some(own), Some(live)) = (own, live.iter().find(|item| is_it(item, false))) else { return Err(path) };
        if !met.insert(own) {
            return Err(path);
        }
        if notation == "k" {
            compare(&wanted[own], live, below, &path)?;
        }
    }
    if met.len() == wanted.len() { Ok(()) } else { Err(path.to_owned()) }
}

#[cfg(test)]
mod tests;
