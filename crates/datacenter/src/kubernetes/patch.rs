//! Changes of a part of an object: JSON patch, merge patch, strategic merge patch, and server-side apply.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::api::Call;
use super::body;
use super::fields::managers::{self, Managers, bare};
use super::fields::node::Node;
use super::fields::walk;
use super::kinds::Shape;
use super::kube::Kube;
use super::status::{Cause, Failure};
use super::write::{empty, ignored, place};
use super::{decode, strategic, structural, value};

/// The most operations of a JSON patch.
const OPERATIONS: usize = 10_000;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Kube {
    /// `PATCH`.
    pub(crate) fn patch(&mut self, call: &mut Call<'_>) -> Result<(u16, Arc<Value>), Failure> {
        let kind = call.ask.content_type.split(';').next().unwrap_or_default().trim().to_owned();
        let is_custom = call.resource.custom().is_some();
        match kind.as_str() {
            APPLY => return self.apply(call),
            JSON | MERGE => {}
            STRATEGIC if !is_custom => {}
            STRATEGIC => return Err(Failure::media_type(&[JSON, MERGE, APPLY])),
            _ => {
                let failure = Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                return Err(failure.with_details(json!({})));
            }
        }
        call.is_dry_run = call.ask.query.is_dry_run("PatchOptions")?;
        if call.ask.query.get("force").is_some() {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(Failure::invalid_kind("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let resource = call.resource.clone();
        let Some(old) = self.seen(&resource, &call.target.namespace, &call.target.name) else {
            return Err(Failure::not_found(&resource, &call.target.name));
        };
        let read = body::json(&call.ask.body);
        let read = read.map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
        let base =
            if call.target.subresource == "scale" { self.scale_of(&resource, &old)? } else { Value::clone(&old) };
        let patched = match kind.as_str() {
            JSON => json_patch(&base, &read.value)?,
            MERGE => {
                let mut patched = base.clone();
                merge(&mut patched, &read.value);
                patched
            }
            _ => strategic::patch(&resource, &base, &read.value)?,
        };
        if call.target.subresource == "scale" {
            return self.set_scale(call, &old, &patched).map(|object| (200, object));
        }
        let shown = if kind == STRATEGIC { strategic::as_go(&read.value) } else { sorted(&patched) };
        let wrong = |why: &str| {
            let cause = Cause::invalid("patch", &json!(shown), why);
            Failure::invalid_kind("", "", "", &[cause])
        };
        let findings = match &resource.shape {
            Shape::Built(definition) => decode::check(definition, &patched, &[]),
            Shape::Custom(custom) => structural::check(custom, &patched, &[]),
        };
        if let Some(mismatch) = findings.mismatch {
            return Err(wrong(&mismatch));
        }
        let twice = read.twice.iter().map(|path| format!("duplicate field {path:?}"));
        let strict: Vec<String> = twice.chain(findings.strict).collect();
        call.judge(&strict, |texts| wrong(&format!("strict decoding error: {texts}")))?;
        let new = self.checked(call, patched)?;
        self.finish_update(call, &old, new, None).map(|object| (200, object))
    }

    /// A patched object that still is this one, with its defaults.
    fn checked(&self, call: &Call<'_>, mut object: Value) -> Result<Value, Failure> {
        let (given, wanted) = (value::name(&object), call.target.name.as_str());
        if given != wanted {
            let text = format!("the name of the object ({given}) does not match the name on the URL ({wanted})");
            return Err(Failure::bad_request(text));
        }
        place(call, &mut object)?;
        self.complete(&call.resource, &mut object);
        Ok(object)
    }

    /// Server-side apply.
    fn apply(&mut self, call: &mut Call<'_>) -> Result<(u16, Arc<Value>), Failure> {
        let resource = call.resource.clone();
        let wrong_option = |cause| Failure::invalid_kind("meta.k8s.io", "PatchOptions", "", &[cause]);
        call.is_dry_run = call.ask.query.is_dry_run("PatchOptions")?;
        let Some(name) = call.ask.query.get("fieldManager") else {
            return Err(wrong_option(Cause::required("fieldManager", "is required for apply patch")));
        };
        if name.len() > 128 {
            return Err(wrong_option(Cause::too_long("fieldManager", 128)));
        }
        let read = body::yaml(&call.ask.body);
        let read = read.map_err(|error| {
            Failure::bad_request(format!("error decoding YAML: error converting YAML to JSON: {error}"))
        })?;
        let wanted = read.value;
        let (given, expected) = (value::text(&wanted, "apiVersion").to_owned(), resource.api_version());
        let kind = value::text(&wanted, "kind");
        if given.is_empty() || kind != resource.kind {
            let (group, version) = given.split_once('/').unwrap_or(("", &given));
            return Err(Failure::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        if value::name(&wanted).is_empty() {
            let name = &call.target.name;
            let text =
                format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
            return Err(Failure::bad_request(text));
        }
        if given != expected {
            let text = format!(
                "Incorrect version specified in apply patch. Specified patch version: {given}, expected: {expected}"
            );
            return Err(Failure::bad_request(text));
        }
        if value::at(&wanted, "metadata.managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let node = Node::root(&resource);
        let faults = faults(&resource, &wanted);
        if !faults.is_empty() {
            let place = format!("{}/{}", value::namespace(&wanted), value::name(&wanted));
            let (group, kind) = (&resource.group, value::text(&wanted, "kind"));
            let told = match faults.as_slice() {
                [one] => one.clone(),
                many => format!("errors:{}", many.iter().map(|fault| format!("\n  {fault}")).collect::<String>()),
            };
            let text = format!(
                "failed to create typed patch object ({place}; {group}/{}, Kind={kind}): {told}",
                resource.version
            );
            return Err(Failure::new(500, "", text));
        }
        let force = call.ask.query.is_true("force");
        let manager = call.manager(true);
        let old = self.seen(&resource, &call.target.namespace, &call.target.name);
        if old.is_none() && !call.target.subresource.is_empty() {
            return Err(Failure::not_found(&resource, &call.target.name));
        }
        if let Some(version) = wanted.pointer("/metadata/resourceVersion").and_then(Value::as_str)
            && old.as_ref().is_some_and(|old| value::text(old, "metadata.resourceVersion") != version)
        {
            return Err(Failure::modified(&resource, &call.target.name));
        }
        let mut live = old.as_deref().map_or_else(|| json!({}), bare);
        let mut managers = old.as_deref().and_then(Managers::read).unwrap_or_default();
        if let Some(old) = &old
            && managers.is_empty()
        {
            managers.begin(node, (&empty(&resource), &bare(old)), &expected, &self.stamp());
        }
        if let Shape::Built(_) = &resource.shape {
            value::without_nulls(&mut live);
        }
        let ignored = ignored(&resource, &call.target.subresource);
        let now = self.stamp();
        let merged = managers
            .apply(node, (&live, &wanted), &manager, ignored, force, &now)
            .map_err(|conflicts| conflict(&conflicts))?;
        if let Shape::Built(definition) = &resource.shape
            && let Some(told) = decode::check(definition, &merged, &[]).mismatch
        {
            return Err(unreadable(&resource, &wanted, &told));
        }
        let twice: Vec<String> =
            read.twice.iter().map(|path| format!("line: key {path:?} already set in map")).collect();
        call.judge(&twice, |texts| Failure::bad_request(format!("error strict decoding YAML: {texts}")))?;
        match old {
            None => {
                let mut object = self.checked(call, merged)?;
                value::remove(&mut object, "metadata.resourceVersion");
                self.finish_create(call, object, Some(managers)).map(|object| (201, object))
            }
            Some(old) => {
                let object = self.checked(call, merged)?;
                self.finish_update(call, &old, object, Some(managers)).map(|object| (200, object))
            }
        }
    }
}

/// An object as text, its first members in the order of their names.
fn sorted(object: &Value) -> String {
    let mut members: Vec<(&String, &Value)> = object.as_object().into_iter().flatten().collect();
    members.sort_by_key(|(name, _)| *name);
    let members: Map<String, Value> = members.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Value::Object(members).to_string()
}

/// What is wrong with an object that somebody applies, by its schema.
fn faults(resource: &super::kinds::Resource, wanted: &Value) -> Vec<String> {
    let mut faults = structural::undeclared(Node::root(resource), wanted);
    walk::list_faults(Node::root(resource), wanted, "", &mut faults);
    faults
}

/// What an apply comes to whose values fit the schema, and not the type behind it.
fn unreadable(resource: &super::kinds::Resource, wanted: &Value, told: &str) -> Failure {
    let kind = format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind);
    let (namespace, name) = (value::namespace(wanted), value::name(wanted));
    let text = format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: \
         unable to convert unstructured object to {kind}: error decoding from json: {told}"
    );
    Failure::new(500, "", text)
}

fn conflict(conflicts: &[managers::Conflict]) -> Failure {
    let causes: Vec<Value> = (conflicts.iter())
        .map(|conflict| {
            let message = format!("conflict with {}", conflict.rival);
            json!({ "reason": "FieldManagerConflict", "message": message, "field": conflict.path })
        })
        .collect();
    let failure = Failure::new(409, "Conflict", managers::message(conflicts));
    failure.with_details(json!({ "causes": causes }))
}

/// JSON merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (key, change) in changes {
        if change.is_null() {
            members.shift_remove(key);
        } else {
            merge(members.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// JSON patch (RFC 6902).
pub(crate) fn json_patch(target: &Value, patch: &Value) -> Result<Value, Failure> {
    let Some(operations) = patch.as_array() else {
        let text = "json: cannot unmarshal object into Go value of type jsonpatch.Patch";
        return Err(Failure::bad_request(text));
    };
    if operations.len() > OPERATIONS {
        let text = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Failure::new(413, "RequestEntityTooLarge", text));
    }
    stepped(target, operations).map_err(|_| {
        let text = "the server rejected our request due to an error in our request";
        Failure::new(422, "Invalid", text).with_details(json!({}))
    })
}

/// JSON patch by a webhook, whose author is told what is wrong with it.
pub(crate) fn hooked(target: &Value, patch: &Value) -> Result<Value, String> {
    let text = "json: cannot unmarshal object into Go value of type jsonpatch.Patch";
    let operations = patch.as_array().ok_or_else(|| text.to_owned())?;
    stepped(target, operations).map_err(|operation| {
        let (word, path) = (value::text(operation, "op"), value::text(operation, "path"));
        match word {
            "test" => format!("testing value {path} failed: test failed"),
            "add" | "move" | "copy" => {
                format!("{word} operation does not apply: doc is missing path: {path:?}: missing value")
            }
            "remove" | "replace" => {
                let what = if word == "remove" { "missing value" } else { "missing key" };
                format!("{word} operation does not apply: doc is missing path: {path:?}: {what}")
            }
            other => format!("Unexpected kind: {other}"),
        }
    })
}

/// All steps of a patch; or the one that cannot be made.
fn stepped<'a>(target: &Value, operations: &'a [Value]) -> Result<Value, &'a Value> {
    let mut object = target.clone();
    for operation in operations {
        step(&mut object, operation).ok_or(operation)?;
    }
    Ok(object)
}

fn step(object: &mut Value, operation: &Value) -> Option<()> {
    let path = operation.get("path")?.as_str()?;
    let given = || operation.get("value").cloned();
    match operation.get("op")?.as_str()? {
        "add" => add(object, path, given()?),
        "remove" => take(object, path).map(drop),
        "replace" => {
            *object.pointer_mut(path)? = given()?;
            Some(())
        }
        "test" => (*object.pointer(path).unwrap_or(&Value::Null) == given().unwrap_or_default()).then_some(()),
        "move" => {
            let moved = take(object, operation.get("from")?.as_str()?)?;
            add(object, path, moved)
        }
        "copy" => {
            let copied = object.pointer(operation.get("from")?.as_str()?)?.clone();
            add(object, path, copied)
        }
        _ => None,
    }
}

fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Some((object.pointer_mut(parent)?, last))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(members) => drop(members.insert(last, value)),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at: usize = last.parse().ok().filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = parent(object, path)?;
    match parent {
        Value::Object(members) => members.shift_remove(&last),
        Value::Array(items) => {
            let at: usize = last.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_sets_and_takes_away() {
        let mut object = json!({ "a": 1, "b": { "c": 1, "d": [1] } });
        merge(&mut object, &json!({ "a": null, "b": { "c": 2, "d": [2] }, "e": { "f": null } }));
        assert_eq!(object, json!({ "b": { "c": 2, "d": [2] }, "e": {} }));
    }

    #[test]
    fn a_json_patch_goes_step_by_step() {
        let object = json!({ "a": [1, 2], "b": { "c/d": 1 } });
        let patch = json!([
            { "op": "test", "path": "/b/c~1d", "value": 1 },
            { "op": "add", "path": "/a/-", "value": 3 },
            { "op": "add", "path": "/a/0", "value": 0 },
            { "op": "move", "from": "/b/c~1d", "path": "/x" },
            { "op": "copy", "from": "/x", "path": "/y" },
            { "op": "replace", "path": "/x", "value": 9 },
            { "op": "remove", "path": "/b" },
        ]);
        assert_eq!(json_patch(&object, &patch).unwrap(), json!({ "a": [0, 1, 2, 3], "x": 9, "y": 1 }));
        let failed = json_patch(&object, &json!([{ "op": "remove", "path": "/none" }])).unwrap_err();
        assert_eq!((failed.code, &*failed.reason), (422, "Invalid"));
    }
}
