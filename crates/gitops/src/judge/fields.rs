//! Fields of Flux's own kinds. Their definitions have schemas, and Flux applies on the server's side: a field that is not declared there
//! fails the dry run of all that is applied with it.

use serde_json::{Map, Value};

use super::{Case, Code, Finding};
use crate::kinds::fields::{self, Field};
use crate::object::Object;
use crate::yaml::escaped;

/// What an object as a whole may have. What SOPS adds is told elsewhere.
const WHOLE: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "status", "sops"];

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for (_, object) in case.forest.objects() {
        let version = object.text("/apiVersion").rsplit('/').next().unwrap_or_default();
        // Of what is not served, or not in this version, that is told.
        let served = case.world.served.get(object.group(), object.kind());
        if !served.is_some_and(|known| known.versions.contains(version)) {
            continue;
        }
        let Some(known) = fields::of(object.text("/apiVersion"), object.kind()) else { continue };
        let mut tell = |pointer: &str, wrong: &Wrong<'_>| found.push(told(case, object, pointer, wrong));
        let keys = object.value.as_object().into_iter().flat_map(Map::keys);
        let strange: Vec<&String> = keys.filter(|key| !WHOLE.contains(&key.as_str())).collect();
        for key in &strange {
            tell(&format!("/{}", escaped(key)), &Wrong::Unknown(key, WHOLE.to_vec()));
        }
        match object.value.get("spec").filter(|spec| !spec.is_null()) {
            Some(spec) => held(spec, "/spec", known, &mut tell),
            // Whoever misspelt it has been told.
            None if strange.is_empty() && known.iter().any(|field| field.is_required) => tell("", &Wrong::Empty),
            None => {}
        }
    }
    case.findings.extend(found);
}

enum Wrong<'w> {
    Unknown(&'w str, Vec<&'static str>),
    Missing(&'static str),
    /// There is no spec at all. The API server takes that: it asks for what is in a spec only where there is one.
    Empty,
}

/// Holds a value against the fields that it may have.
fn held(value: &Value, pointer: &str, known: &'static [Field], tell: &mut dyn FnMut(&str, &Wrong<'_>)) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                held(item, &format!("{pointer}/{index}"), known, tell);
            }
        }
        Value::Object(entries) => {
            for (key, value) in entries {
                let place = format!("{pointer}/{}", escaped(key));
                match known.iter().find(|field| field.name == key) {
                    None => tell(&place, &Wrong::Unknown(key, known.iter().map(|field| field.name).collect())),
                    Some(field) if field.is_open || field.below.is_empty() => {}
                    Some(field) => held(value, &place, &field.below, tell),
                }
            }
            for field in known.iter().filter(|field| field.is_required) {
                if entries.get(field.name).is_none_or(Value::is_null) {
                    tell(pointer, &Wrong::Missing(field.name));
                }
            }
        }
        _ => {}
    }
}

fn told(case: &Case<'_>, object: &Object, pointer: &str, wrong: &Wrong<'_>) -> Finding {
    let place = pointer.trim_start_matches('/').replace('/', ".");
    let kind = object.kind();
    let (why, fix, cause) = match wrong {
        Wrong::Unknown(key, known) => {
            let near = known.iter().min_by_key(|name| distance(name, key)).filter(|name| distance(name, key) <= 3);
            let fix = match near {
                Some(near) => format!("write {near}, or remove it"),
                None => "remove it, or move it to where it belongs".to_owned(),
            };
            (format!("{kind} has no field {place}"), fix, format!("{kind} {key}"))
        }
        Wrong::Missing(name) => {
            let why = format!("{place}.{name} is missing, which every {kind} must have");
            // Whichever item of a list it is.
            let whole: Vec<&str> = place.split('.').filter(|part| part.parse::<usize>().is_err()).collect();
            (why, format!("add {name}"), format!("{kind} without {}.{name}", whole.join(".")))
        }
        Wrong::Empty => {
            let why = format!("spec is missing, which every {kind} must have: nothing comes of it");
            return Finding::of(Code::FieldUnknown, object, pointer, why, "add spec")
                .because(format!("{kind} without spec"));
        }
    };
    if case.world.flux_is_known() {
        let why = format!("{why}: the API server refuses it, and Flux applies nothing of its Kustomization");
        return Finding::of(Code::FieldUnknown, object, pointer, why, fix).because(cause);
    }
    let why = format!("{why} in any Flux that castle knows, and Flux {} is none of them", case.world.flux);
    Finding::of(Code::NotJudged, object, pointer, why, fix).because(cause)
}

/// How many letters two words differ by.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) =
        (one.to_lowercase().chars().collect(), other.to_lowercase().chars().collect());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for (at, wanted) in other.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = (above + 1).min(row[at] + 1).min(corner + usize::from(letter != wanted));
            corner = above;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ_by_letters() {
        assert_eq!(distance("dependsOn", "dependOn"), 1);
        assert_eq!(distance("path", "paht"), 2);
        assert_eq!(distance("", "abc"), 3);
    }
}
