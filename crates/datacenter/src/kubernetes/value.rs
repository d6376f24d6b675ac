//! Ways through objects.

use serde_json::{Map, Value, json};

/// What lies at a path: `spec.template.spec`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, key| value.get(key))
}

/// The text at a path; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a path.
pub(crate) fn number(object: &Value, path: &str) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// Whether there is a `true` at a path.
pub(crate) fn is_true(object: &Value, path: &str) -> bool {
    at(object, path) == Some(&Value::Bool(true))
}

/// The items of the list at a path.
pub(crate) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The members of the structure at a path.
pub(crate) fn members<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(object, path).and_then(Value::as_object).into_iter().flatten()
}

/// The place at a path, made on the way there.
pub(crate) fn place<'a>(object: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(object, |value, key| {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        &mut value[key]
    })
}

/// Writes a value at a path.
pub(crate) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    *place(object, path) = value.into();
}

/// Takes what lies at a path away.
pub(crate) fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = path.rsplit_once('.').map_or((None, path), |(parent, key)| (Some(parent), key));
    let parent = match parent {
        Some(path) => path.split('.').try_fold(object, |value, key| value.get_mut(key))?,
        None => object,
    };
    parent.as_object_mut()?.shift_remove(key)
}

/// Writes a value at a path where there is none, or `null`.
pub(crate) fn default(object: &mut Value, path: &str, value: impl Into<Value>) {
    let place = place(object, path);
    if place.is_null() {
        *place = value.into();
    }
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "metadata.namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "metadata.uid")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    at(object, "metadata.deletionTimestamp").is_some()
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    items(object, "metadata.finalizers").iter().filter_map(Value::as_str).collect()
}

/// The owner that controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    items(object, "metadata.ownerReferences").iter().find(|owner| is_true(owner, "controller"))
}

/// A reference to an owner that controls.
pub(crate) fn controlled_by(owner: &Value) -> Value {
    json!([{
        "apiVersion": text(owner, "apiVersion"), "kind": text(owner, "kind"), "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Removes every member that is `null`, however deep.
pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
