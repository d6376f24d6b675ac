//! What is answered when something is refused: the Status object, in the words of the real server.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::kinds::Resource;

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) details: Option<Box<Value>>,
    /// The token by which a list that cannot go on as it was goes on nevertheless.
    pub(crate) resumes: Option<String>,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self { reason, message, field: field.to_owned() }
    }

    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new("FieldValueRequired", field, message)
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)))
    }

    pub(crate) fn not_found(field: &str, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", shown(value)))
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let words: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        let text = format!("Unsupported value: {}: supported values: {}", shown(value), words.join(", "));
        Self::new("FieldValueNotSupported", field, text)
    }

    pub(crate) fn too_many(field: &str, has: usize, most: u64) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        Self::new("FieldValueTooMany", field, format!("Too many: {has}: must have at most {most} {unit}"))
    }

    pub(crate) fn too_long(field: &str, most: u64) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {most} {unit}"))
    }

    pub(crate) fn wrong_type(field: &str, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueTypeInvalid", field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    fn text(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }
}

/// A value as Go prints it in these messages: structures as JSON in quotes of their own.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

/// Several errors as one text.
pub(crate) fn aggregate<T: AsRef<str>>(texts: &[T]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts.iter().map(AsRef::as_ref) {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason: Cow::Borrowed(reason), message: message.into(), details: None, resumes: None }
    }

    pub(crate) fn with_details(self, details: Value) -> Self {
        Self { details: Some(Box::new(details)), ..self }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        let mut details = named(name);
        put(&mut details, "group", &resource.group);
        put(&mut details, "kind", &resource.plural);
        self.with_details(Value::Object(details))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(crate) fn not_allowed() -> Self {
        let text = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", text).with_details(json!({}))
    }

    /// There is no such path below a group that is served.
    pub(crate) fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with_details(json!({}))
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The object changed since it was read.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{subject} is forbidden: {why}", resource.qualified());
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let texts: Vec<String> = causes.iter().map(Cause::text).collect();
        let mut details = named(name);
        put(&mut details, "group", group);
        put(&mut details, "kind", kind);
        let list: Vec<Value> = (causes.iter())
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        details.insert("causes".to_owned(), Value::Array(list));
        let message = format!("{qualified} {name:?} is invalid: {}", aggregate(&texts));
        Self::new(422, "Invalid", message).with_details(Value::Object(details))
    }

    pub(crate) fn internal(why: &str) -> Self {
        let details = json!({ "causes": [{ "message": why }] });
        let message = format!("Internal error occurred: {why}");
        Self::new(500, "InternalError", message).with_details(details)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The object that says so.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
        });
        if let Some(members) = status.as_object_mut() {
            if !self.reason.is_empty() {
                members.insert("reason".to_owned(), json!(self.reason));
            }
            if let Some(token) = &self.resumes {
                members.insert("metadata".to_owned(), json!({ "continue": token }));
            }
            if let Some(details) = &self.details {
                members.insert("details".to_owned(), Value::clone(details));
            }
            members.insert("code".to_owned(), json!(self.code));
        }
        status
    }
}

fn named(name: &str) -> Map<String, Value> {
    let mut details = Map::new();
    put(&mut details, "name", name);
    details
}

fn put(details: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        details.insert(key.to_owned(), json!(value));
    }
}
