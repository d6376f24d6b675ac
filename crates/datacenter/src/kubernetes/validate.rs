//! What is refused: the mistakes that people make, in the words of the real server.

use serde_json::{Value, json};

use super::kinds::{Custom, Resource, Shape};
use super::status::Cause;
use super::{cel, certificates, crd, events, structural, value};

mod autoscaling;
mod changes;
pub(crate) mod kinds;
pub(crate) mod names;
pub(crate) mod pods;

/// What is wrong with a new object.
pub(crate) fn create(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = metadata(resource, object);
    causes.extend(content(resource, object));
    if resource.is(events::NEW) {
        causes.extend(events::faults_of_new(object));
    }
    if let Shape::Custom(custom) = &resource.shape
        && causes.is_empty()
    {
        causes.extend(cel::judge(&custom.schema, object, None));
    }
    causes
}

/// What is wrong with a change.
pub(crate) fn update(resource: &Resource, subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = metadata(resource, new);
    // The metadata is judged twice: once for all objects, once by the kind.
    causes.extend(finalizers(old, new));
    causes.extend(finalizers(old, new));
    // Data is judged after what may not change of it; all else before.
    let changes = match subresource {
        "" => changes::change(resource, old, new),
        _ if resource.is(certificates::REQUESTS) => certificates::changes(subresource, old, new),
        _ => Vec::new(),
    };
    let is_data = resource.is("secrets") || resource.is("configmaps");
    let (first, second) = if is_data { (changes, content(resource, new)) } else { (content(resource, new), changes) };
    causes.extend(first);
    causes.extend(second);
    if let Shape::Custom(custom) = &resource.shape
        && causes.is_empty()
    {
        causes.extend(cel::judge(&custom.schema, new, Some(old)));
    }
    causes
}

fn content(resource: &Resource, object: &Value) -> Vec<Cause> {
    match &resource.shape {
        Shape::Custom(custom) => {
            let mut causes = structural::validate(&custom.schema, object);
            causes.splice(0..0, scale(custom, object));
            causes
        }
        Shape::Built(_) if resource.is("customresourcedefinitions.apiextensions.k8s.io") => crd::validate(object),
        Shape::Built(_) => kinds::content(&resource.qualified(), object),
    }
}

/// What is wrong with the numbers of a scale.
fn scale(custom: &Custom, object: &Value) -> Option<Cause> {
    let path = &custom.scale.as_ref()?.spec;
    let given = structural::at_path(object, path)?;
    if given.is_i64() {
        return None;
    }
    let (shown, kind) = match given {
        Value::String(text) => (text.clone(), "string"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::Array(_) => ("[]".to_owned(), "[]interface {}"),
        Value::Object(_) => ("map[]".to_owned(), "map[string]interface {}"),
        Value::Null => ("<nil>".to_owned(), "<nil>"),
    };
    let detail = format!("{path} accessor error: {shown} is of the type {kind}, expected int64");
    Some(Cause::invalid(path, &json!(0), &detail))
}

/// What is wrong with the metadata that all objects have.
fn metadata(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, generated) = (value::name(object), value::text(object, "metadata.generateName"));
    if name.is_empty() && generated.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let rule = names::rule_of(resource);
        // A prefix may end as a name may not: something follows.
        let masked = generated.strip_suffix('-').map(|prefix| format!("{prefix}a"));
        let faults = names::faults(rule, masked.as_deref().unwrap_or(generated));
        let faults = faults.into_iter().filter(|_| !generated.is_empty());
        causes.extend(faults.map(|fault| Cause::invalid("metadata.generateName", &json!(generated), &fault)));
        causes.extend(
            names::faults(rule, name).into_iter().map(|fault| Cause::invalid("metadata.name", &json!(name), &fault)),
        );
    }
    for (key, value) in value::members(object, "metadata.labels") {
        for fault in names::qualified(key) {
            causes.push(Cause::invalid("metadata.labels", &json!(key), &fault));
        }
        if let Some(fault) = names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, &fault));
        }
    }
    let mut size = 0;
    for (key, value) in value::members(object, "metadata.annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        for fault in names::qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), &fault));
        }
    }
    if size > 256 << 10 {
        causes.push(Cause::too_long("metadata.annotations", 256 << 10));
    }
    let owners = value::items(object, "metadata.ownerReferences");
    for owner in owners {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if value::text(owner, key).is_empty() {
                let detail = if key == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                causes.push(Cause::invalid(&format!("metadata.ownerReferences.{key}"), &json!(""), detail));
            }
        }
    }
    let mut controllers = owners.iter().filter(|owner| value::is_true(owner, "controller"));
    if let (Some(one), Some(other)) = (controllers.next(), controllers.next()) {
        let named = |owner: &Value| format!("{}/{}", value::text(owner, "kind"), value::text(owner, "name"));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            named(one),
            named(other)
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &json!(owners), &detail));
    }
    for (at, finalizer) in value::finalizers(object).into_iter().enumerate() {
        let is_plain = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer);
        if !finalizer.contains('/') && !is_plain && !resource.is("pods") && resource.custom().is_none() {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&format!("metadata.finalizers[{at}]"), &json!(finalizer), detail));
        }
    }
    causes
}

/// What ends gets no new finalizers.
fn finalizers(old: &Value, new: &Value) -> Vec<Cause> {
    if !value::is_deleting(old) {
        return Vec::new();
    }
    let known = value::finalizers(old);
    let added: Vec<&str> = value::finalizers(new).into_iter().filter(|own| !known.contains(own)).collect();
    if added.is_empty() {
        return Vec::new();
    }
    let words: Vec<String> = added.iter().map(|word| format!("{word:?}")).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        words.join(", ")
    );
    vec![Cause::forbidden("metadata.finalizers", &detail)]
}
