//! Objects of built-in kinds as the real server reads and writes them: types checked, unknown fields told, empty ones left
//! out or written as their kind wants it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::quantity;
use super::schema::{Definition, Empty, Type};

/// What is wrong with an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The first value that has another type than its field.
    pub(crate) mismatch: Option<String>,
    /// Fields that there are not, and fields that were given twice, in the order of the text.
    pub(crate) strict: Vec<String>,
}

/// Compares an object with its type. `twice` are the paths of fields that were given more than once.
pub(crate) fn check(definition: &Definition, object: &Value, twice: &[String]) -> Findings {
    let mut findings = Findings::default();
    structure(definition, object, &Path::default(), twice, &mut findings);
    findings
}

/// Where a value is: for people, and as Go names it.
#[derive(Clone, Debug, Default)]
struct Path {
    full: String,
    go: String,
}

impl Path {
    fn field(&self, name: &str) -> Self {
        let join = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Self { full: join(&self.full), go: join(&self.go) }
    }

    fn item(&self, at: usize) -> Self {
        Self { full: format!("{}[{at}]", self.full), go: self.go.clone() }
    }
}

fn structure(definition: &Definition, value: &Value, path: &Path, twice: &[String], findings: &mut Findings) {
    for (name, member) in value.as_object().into_iter().flatten() {
        if findings.mismatch.is_some() {
            return;
        }
        note_twice(&path.field(name), twice, findings);
        match definition.fields.get(name) {
            Some(field) => {
                let owner = definition.name.rsplit('.').next().unwrap_or_default();
                typed(&field.ty, member, (owner, &path.field(name)), twice, findings);
            }
            None => findings.strict.push(format!("unknown field {:?}", path.field(name).full)),
        }
    }
}

fn note_twice(path: &Path, twice: &[String], findings: &mut Findings) {
    if twice.contains(&path.full) {
        findings.strict.push(format!("duplicate field {:?}", path.full));
    }
}

fn typed(ty: &Type, value: &Value, (owner, path): (&str, &Path), twice: &[String], findings: &mut Findings) {
    if value.is_null() || findings.mismatch.is_some() {
        return;
    }
    let fits = match ty.resolved() {
        Type::String => value.is_string(),
        Type::Bool => value.is_boolean(),
        Type::Int32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Type::Int64 => value.is_i64() || value.is_u64(),
        Type::Double => value.is_number(),
        Type::IntOrString => value.is_string() || value.is_i64(),
        Type::Bytes => match value.as_str().map(|text| (text, STANDARD.decode(without_ends(text)))) {
            Some((text, Err(error))) => {
                findings.mismatch = Some(illegal_base64(text, &error));
                return;
            }
            other => other.is_some(),
        },
        Type::Time => match value.as_str().filter(|text| !is_time(text)) {
            Some(text) => {
                let format = "2006-01-02T15:04:05Z07:00";
                findings.mismatch =
                    Some(format!("parsing time {text:?} as {format:?}: cannot parse {text:?} as \"2006\""));
                return;
            }
            None => value.is_string(),
        },
        Type::Scalar => match value {
            Value::String(text) if quantity::canonical(text).is_none() => {
                findings.mismatch = Some(quantity::FAULT.to_owned());
                return;
            }
            other => other.is_string() || other.is_number(),
        },
        Type::Any => true,
        Type::Object | Type::Named(_) | Type::Map(_) => value.is_object(),
        Type::List(_) => value.is_array(),
    };
    if !fits {
        let found = match value {
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if number.is_f64() || ["int32", "int64"].contains(&go_name(ty).as_str()) => {
                format!("number {number}")
            }
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            _ => "object".to_owned(),
        };
        findings.mismatch = Some(format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {}",
            path.go,
            go_name(ty)
        ));
        return;
    }
    match ty {
        Type::Named(_) => {
            if let Some(definition) = ty.definition().filter(|definition| definition.alias.is_none()) {
                structure(definition, value, path, twice, findings);
            }
        }
        Type::Map(item) => {
            for (name, member) in value.as_object().into_iter().flatten() {
                let path = Path { full: path.field(name).full, go: path.go.clone() };
                note_twice(&path, twice, findings);
                typed(item, member, (owner, &path), twice, findings);
            }
        }
        Type::List(item) => {
            for (at, member) in value.as_array().into_iter().flatten().enumerate() {
                typed(item, member, (owner, &path.item(at)), twice, findings);
            }
        }
        _ => {}
    }
}

fn illegal_base64(text: &str, error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        // An end that lacks something: half a padding is missed where it should go on, anything else where it began.
        _ if text.ends_with('=') => text.len(),
        _ => text.len() / 4 * 4,
    };
    format!("illegal base64 data at input byte {at}")
}

/// Base64 without the ends of its lines: Go does not mind them, and writes none.
fn without_ends(text: &str) -> String {
    text.replace(['\n', '\r'], "")
}

/// The name that Go has for a type.
fn go_name(ty: &Type) -> String {
    match ty {
        Type::String | Type::Bytes | Type::Time | Type::IntOrString | Type::Scalar => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::Any | Type::Object => "map[string]interface {}".to_owned(),
        Type::List(item) => format!("[]{}", go_name(item)),
        Type::Map(item) => format!("map[string]{}", go_name(item)),
        Type::Named(_) => {
            let name = ty.definition().map(|definition| definition.name.as_str()).unwrap_or_default();
            let mut parts = name.rsplit('.');
            let (last, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{version}.{last}")
        }
    }
}

/// Whether a text is a moment: `2026-09-21T14:13:20Z`, with or without parts of a second.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = "dddd-dd-ddTdd:dd:dd";
    bytes.len() > shape.len()
        && shape.bytes().zip(bytes).all(|(want, have)| if want == b'd' { have.is_ascii_digit() } else { want == *have })
        && (text.ends_with('Z') || text[shape.len()..].contains(['+', '-']))
}

/// Writes an object as the real server does: no unknown fields, empty ones as their type wants it.
pub(crate) fn normalise(definition: &Definition, object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    let mut written = Map::new();
    // The order of what was given stays; what is added comes last.
    for (name, mut value) in std::mem::take(members) {
        let Some(field) = definition.fields.get(&name) else { continue };
        if value.is_null() {
            continue;
        }
        normalise_value(&field.ty, &mut value);
        if field.empty == Empty::Dropped && is_zero(&value) {
            continue;
        }
        written.insert(name, value);
    }
    for (name, field) in &definition.fields {
        if written.contains_key(name) {
            continue;
        }
        let value = match field.empty {
            Empty::Kept => zero(&field.ty),
            Empty::Null => Value::Null,
            Empty::Structure => {
                let mut value = json!({});
                normalise_value(&field.ty, &mut value);
                value
            }
            Empty::AsGiven | Empty::Dropped => continue,
        };
        written.insert(name.clone(), value);
    }
    *members = written;
}

fn normalise_value(ty: &Type, value: &mut Value) {
    match ty {
        Type::Named(_) => match ty.definition() {
            Some(definition) if definition.alias.is_none() => normalise(definition, value),
            Some(definition) if definition.alias == Some(Type::Scalar) => {
                let text = value.as_str().map_or_else(|| value.to_string(), Into::into);
                if let Some(short) = quantity::canonical(&text) {
                    *value = Value::String(short);
                }
            }
            _ => {}
        },
        Type::List(item) => value.as_array_mut().into_iter().flatten().for_each(|member| normalise_value(item, member)),
        Type::Map(item) => {
            value.as_object_mut().into_iter().flatten().for_each(|(_, member)| normalise_value(item, member));
        }
        Type::Time => {
            // Moments are written in whole seconds of Greenwich unless their field is for parts of them.
            if let Some(text) =
                value.as_str().filter(|text| text.contains('.') && text.ends_with('Z') && text.len() != 27)
            {
                *value = Value::String(format!("{}Z", text.split('.').next().unwrap_or_default()));
            }
        }
        Type::Bytes => {
            if let Some(text) = value.as_str() {
                *value = Value::String(without_ends(text));
            }
        }
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn zero(ty: &Type) -> Value {
    match ty.resolved() {
        Type::Bool => json!(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => json!(0),
        Type::Scalar => json!("0"),
        _ => json!(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::schema::definitions;

    fn deployment() -> &'static Definition {
        definitions().named("apps.v1.Deployment").unwrap()
    }

    #[test]
    fn base64_may_come_in_lines() {
        let secret = definitions().named("core.v1.Secret").unwrap();
        let mut object = json!({ "data": { "a": "YWJj\nZGVm\n" } });
        assert_eq!(check(secret, &object, &[]).mismatch, None);
        normalise(secret, &mut object);
        assert_eq!(object["data"]["a"], "YWJjZGVm");
    }

    #[test]
    fn a_wrong_type_is_told_as_go_tells_it() {
        let findings = check(deployment(), &json!({ "spec": { "replicas": "two" } }), &[]);
        let told = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
        assert_eq!(findings.mismatch.as_deref(), Some(told));
    }

    #[test]
    fn unknown_fields_are_told_by_their_path() {
        let object =
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "a", "imagee": "x" }] } }, "x": 1 } });
        let told = check(deployment(), &object, &["spec.template".to_owned()]).strict;
        let expected = [
            "duplicate field \"spec.template\"",
            "unknown field \"spec.template.spec.containers[0].imagee\"",
            "unknown field \"spec.x\"",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn empty_fields_are_written_as_their_type_wants_it() {
        let mut object = json!({ "metadata": { "name": "a", "labels": {} }, "spec": { "paused": false, "replicas": 0, "bad": 1,
            "template": { "spec": { "containers": [{ "name": "a", "resources": { "limits": { "cpu": "1000m" } } }] } } } });
        normalise(deployment(), &mut object);
        assert_eq!(object["metadata"], json!({ "name": "a" }));
        assert_eq!(object["spec"]["replicas"], 0);
        assert_eq!(object["spec"].get("paused"), None);
        assert_eq!(object["spec"]["selector"], Value::Null);
        assert_eq!(object["spec"]["strategy"], json!({}));
        assert_eq!(object["status"], json!({}));
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(*container, json!({ "name": "a", "resources": { "limits": { "cpu": "1" } } }));
    }
}
