//! Strategic merge patch: a merge patch that knows which lists are merged by which key.

use serde_json::{Map, Value, json};

use super::kinds::{Resource, Shape};
use super::schema::{Definition, Field, Type};
use super::status::Failure;

const DIRECTIVE: &str = "$patch";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";

/// Lays a patch over an object of a built-in kind.
pub(crate) fn patch(resource: &Resource, object: &Value, patch: &Value) -> Result<Value, Failure> {
    let Shape::Built(definition) = &resource.shape else { return Ok(object.clone()) };
    let (Some(under), Some(over)) = (object.as_object(), patch.as_object()) else {
        let text = "json: cannot unmarshal array into Go value of type map[string]interface {}";
        return Err(Failure::bad_request(format!("error decoding patch: {text}")));
    };
    structure(Some(definition), under, over).map(Value::Object)
}

fn structure(
    definition: Option<&Definition>,
    under: &Map<String, Value>,
    over: &Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    match over.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            let mut new = over.clone();
            new.shift_remove(DIRECTIVE);
            return Ok(new);
        }
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(Failure::bad_request(format!("unknown patch type found: {other}"))),
    }
    let mut new = under.clone();
    if let Some(kept) = over.get(RETAIN).and_then(Value::as_array) {
        new.retain(|key, _| kept.iter().any(|name| name == key));
    }
    for (key, change) in over {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            let gone = change.as_array().cloned().unwrap_or_default();
            if let Some(list) = new.get_mut(name).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        if change.is_null() {
            new.shift_remove(key);
            continue;
        }
        let field = definition.and_then(|definition| definition.fields.get(key));
        let value = match (new.get(key), change) {
            (Some(Value::Object(under)), Value::Object(over)) => Value::Object(structure(inner(field), under, over)?),
            (known, Value::Object(over)) if !known.is_some_and(Value::is_object) => {
                Value::Object(structure(inner(field), &Map::new(), over)?)
            }
            (known, Value::Array(over)) if field.is_some_and(|field| field.patching.merges) => {
                let under = known.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                Value::Array(list(field, under, over)?)
            }
            _ => change.clone(),
        };
        new.insert(key.clone(), value);
    }
    for (key, order) in over {
        if let Some(name) = key.strip_prefix(SET_ORDER)
            && let (Some(list), Some(order)) = (new.get_mut(name).and_then(Value::as_array_mut), order.as_array())
        {
            let key = definition
                .and_then(|definition| definition.fields.get(name))
                .and_then(|field| field.patching.key.as_deref());
            sort(list, order, key);
        }
    }
    Ok(new)
}

/// What is known of the structure that a field holds; maps have no known fields.
fn inner(field: Option<&Field>) -> Option<&'static Definition> {
    let mut ty = &field?.ty;
    while let Type::List(item) = ty {
        ty = item;
    }
    ty.definition()
}

fn list(field: Option<&Field>, under: &[Value], over: &[Value]) -> Result<Vec<Value>, Failure> {
    let is_replaced = over.iter().any(|item| item == &json!({ DIRECTIVE: "replace" }));
    let rest: Vec<&Value> = over.iter().filter(|item| **item != json!({ DIRECTIVE: "replace" })).collect();
    if is_replaced {
        return Ok(rest.into_iter().cloned().collect());
    }
    let mut new = under.to_vec();
    let Some(key) = field.and_then(|field| field.patching.key.as_deref()) else {
        let own: Vec<Value> = rest.into_iter().cloned().collect();
        let left: Vec<Value> = new.iter().filter(|item| !own.contains(item)).cloned().collect();
        return Ok(interleaved(own, left, |item| under.iter().position(|known| known == item)));
    };
    let mut order: Vec<Value> = Vec::new();
    for item in rest {
        let Some(change) = item.as_object() else { continue };
        let Some(id) = change.get(key) else {
            let text = format!("map: {item} does not contain declared merge key: {key}");
            return Err(Failure::bad_request(text));
        };
        let at = new.iter().position(|known| known.get(key) == Some(id));
        match (at, change.get(DIRECTIVE).and_then(Value::as_str)) {
            (Some(at), Some("delete")) => drop(new.remove(at)),
            (None, Some("delete")) => {}
            (Some(at), _) => {
                let known = new.remove(at).as_object().cloned().unwrap_or_default();
                order.push(Value::Object(structure(inner(field), &known, change)?));
            }
            (None, _) => order.push(Value::Object(structure(inner(field), &Map::new(), change)?)),
        }
    }
    Ok(interleaved(order, new, |item| under.iter().position(|known| known.get(key) == item.get(key))))
}

/// The patched items in their order, and those that were left alone where they stood among them.
fn interleaved(patched: Vec<Value>, left: Vec<Value>, place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let (mut all, mut left) = (Vec::new(), left.into_iter().peekable());
    for item in patched {
        if let Some(at) = place(&item) {
            while let Some(next) = left.next_if(|next| place(next).is_some_and(|own| own < at)) {
                all.push(next);
            }
        }
        all.push(item);
    }
    all.extend(left);
    all
}

/// A value as Go prints it.
pub(crate) fn as_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(as_go).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut parts: Vec<String> = members.iter().map(|(key, value)| format!("{key}:{}", as_go(value))).collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
        other => other.to_string(),
    }
}

/// Brings the items that are named into their order; the others stay behind the one they followed.
fn sort(list: &mut [Value], order: &[Value], key: Option<&str>) {
    let id = |item: &Value| match key {
        Some(key) => item.get(key).cloned().unwrap_or_default(),
        None => item.clone(),
    };
    let rank = |item: &Value| order.iter().position(|wanted| id(wanted) == id(item));
    let mut named: Vec<Value> = list.iter().filter(|item| rank(item).is_some()).cloned().collect();
    named.sort_by_key(|item| rank(item));
    let mut named = named.into_iter();
    for item in list.iter_mut() {
        if rank(item).is_some()
            && let Some(next) = named.next()
        {
            *item = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds;

    fn patched(object: &Value, change: &Value) -> Value {
        patch(kinds::named("deployments.apps").unwrap(), object, change).unwrap()
    }

    fn containers(list: &Value) -> Value {
        json!({ "spec": { "template": { "spec": { "containers": list } } } })
    }

    #[test]
    fn lists_are_merged_by_their_key() {
        let object = containers(&json!([{ "name": "a", "image": "1" }, { "name": "b", "image": "1" }]));
        let change =
            containers(&json!([{ "name": "b", "image": "2" }, { "name": "c" }, { "name": "a", "$patch": "delete" }]));
        assert_eq!(patched(&object, &change), containers(&json!([{ "name": "b", "image": "2" }, { "name": "c" }])));
    }

    #[test]
    fn directives_replace_and_delete() {
        let object = json!({ "metadata": { "labels": { "a": "1" }, "finalizers": ["x", "y"] }, "spec": { "strategy": { "type": "A", "rollingUpdate": {} } } });
        let change = json!({ "metadata": { "labels": { "$patch": "replace", "b": "2" }, "$deleteFromPrimitiveList/finalizers": ["x"] },
            "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } });
        let expected = json!({ "metadata": { "labels": { "b": "2" }, "finalizers": ["y"] }, "spec": { "strategy": { "type": "Recreate" } } });
        assert_eq!(patched(&object, &change), expected);
    }

    #[test]
    fn an_order_that_is_wanted_is_kept() {
        let object = containers(&json!([{ "name": "a" }, { "name": "b" }]));
        let change = json!({ "spec": { "template": { "spec": { "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }],
            "containers": [{ "name": "a", "image": "2" }] } } } });
        assert_eq!(patched(&object, &change), containers(&json!([{ "name": "b" }, { "name": "a", "image": "2" }])));
    }
}
