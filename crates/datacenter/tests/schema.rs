//! The tables of the Proxmox interface, held against the vendor's own description of it, 8.4 and 9.2: first that they say the same,
//! then that they judge the same requests the same way as a validator which knows nothing but the description.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};

use castle_datacenter::proxmox::api::{
    Choices, Field, Format, Operation, Permission, Version, operations as all_operations, privileges,
};
use castle_testbed::vendor::Vendor;
use serde_json::{Map, Value, json};

#[path = "schema/judge.rs"]
mod judge;

/// The releases whose description is here.
fn releases() -> Vec<(Version, Vendor)> {
    [(Version::Eight, 8), (Version::Nine, 9)]
        .into_iter()
        .filter_map(|(version, which)| Some((version, Vendor::load(which)?)))
        .collect()
}

/// What the vendor has, but its description here has not: directories and statistics.
const UNDESCRIBED: &[&str] =
    &["/", "/nodes/{node}/rrddata", "/nodes/{node}/qemu/{vmid}/rrddata", "/nodes/{node}/storage/{storage}/rrddata"];

/// The operations that are described.
fn operations(version: Version) -> impl Iterator<Item = &'static Operation> {
    all_operations(version).filter(|operation| !UNDESCRIBED.contains(&operation.path))
}

#[test]
fn what_is_left_out_is_not_described() {
    for (version, vendor) in releases() {
        for operation in all_operations(version).filter(|operation| UNDESCRIBED.contains(&operation.path)) {
            let described = &vendor.description()["paths"][operation.path][operation.method];
            assert!(described.is_null(), "{} {} is described", operation.method, operation.path);
        }
    }
}

fn described<'a>(vendor: &'a Vendor, operation: &Operation) -> &'a Value {
    let described = &vendor.description()["paths"][operation.path][operation.method];
    assert!(described.is_object(), "the vendor has no {} {}", operation.method, operation.path);
    described
}

/// The keys of a property string, whether the description has them in place, under a name, or as those of another parameter.
fn keys_of<'a>(vendor: &'a Vendor, format: &'a Value) -> Option<(&'a Map<String, Value>, Option<&'a str>)> {
    if let Some(keys) = format.as_object() {
        return Some((keys, None));
    }
    let named = &vendor.description()["_formats"][format.as_str()?];
    if let Some(keys) = named["properties"].as_object() {
        return Some((keys, None));
    }
    let [path, method, parameter, "without", left_out] =
        named["ref"].as_str().filter(|_| named["kind"] == "same-as")?.split(' ').collect::<Vec<_>>()[..]
    else {
        panic!("an unknown kind of reference: {named}")
    };
    let other = &vendor.description()["paths"][path][method]["parameters"]["properties"][parameter];
    Some((other["format"].as_object()?, Some(left_out)))
}

/// What the description says of a parameter or key, without defaults, and with numbers as numbers.
fn theirs(vendor: &Vendor, property: &Value) -> Value {
    let mut said = Map::new();
    for name in ["type", "requires", "maxLength", "pattern", "enum", "alias", "keyAlias"] {
        if let Some(value) = property.get(name).filter(|value| !value.is_null()) {
            said.insert(name.to_owned(), value.clone());
        }
    }
    for name in ["optional", "default_key"] {
        if property[name] == 1 {
            said.insert(name.to_owned(), json!(true));
        }
    }
    for name in ["minimum", "maximum"] {
        let value = &property[name];
        if let Some(number) = value.as_i64().or_else(|| value.as_str()?.parse().ok()) {
            said.insert(name.to_owned(), json!(number));
        }
    }
    if let Some((keys, left_out)) = keys_of(vendor, &property["format"]) {
        let kept = keys.iter().filter(|(key, _)| Some(key.as_str()) != left_out);
        let keys: BTreeMap<_, _> = kept.map(|(key, property)| (key, theirs(vendor, property))).collect();
        said.insert("format".to_owned(), json!(keys));
    } else if property["format"].is_string() {
        said.insert("format".to_owned(), property["format"].clone());
    }
    json!(said)
}

/// What a table says of a parameter or key, in the same words.
fn ours(version: Version, field: &Field) -> Value {
    let mut said = Map::new();
    let mut say = |name: &str, value: Value| drop(said.insert(name.to_owned(), value));
    if let Some(alias) = field.alias {
        say("alias", json!(alias));
        if let Some(names) = field.names {
            say("keyAlias", json!(names));
        }
        return json!(said);
    }
    say("type", json!(field.kind.name()));
    for (name, is_so) in [("optional", field.optional), ("default_key", field.is_default_key)] {
        if is_so {
            say(name, json!(true));
        }
    }
    for (name, bound) in [("minimum", field.minimum), ("maximum", field.maximum)] {
        if let Some(bound) = bound {
            say(name, json!(bound));
        }
    }
    for (name, word) in [("requires", field.requires), ("pattern", field.pattern)] {
        if let Some(word) = word {
            say(name, json!(word));
        }
    }
    if let Some(longest) = field.longest {
        say("maxLength", json!(longest));
    }
    if !matches!(field.choices, Choices::Free) {
        say("enum", json!(field.choices.list()));
    }
    match field.format {
        Format::Free => {}
        Format::Named(name) => say("format", json!(name)),
        Format::Keys(_) => say("format", json!(all_ours(version, field.keys_in(version)))),
    }
    json!(said)
}

fn all_ours(version: Version, fields: impl Iterator<Item = &'static Field>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for field in fields {
        let name = if field.highest_index.is_some() { format!("{}[n]", field.name) } else { field.name.to_owned() };
        assert!(all.insert(name, ours(version, field)).is_none(), "{} is there twice", field.name);
    }
    all
}

#[test]
fn every_parameter_is_the_vendors() {
    for (version, vendor) in releases() {
        for operation in operations(version) {
            let here = format!("{version:?}: {} {}", operation.method, operation.path);
            let schema = &described(&vendor, operation)["parameters"];
            assert_eq!(schema["additionalProperties"], 0, "{here}");
            let none = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&none);
            let ours = all_ours(version, operation.parameters(version));
            let names: BTreeSet<&String> = properties.keys().collect();
            assert_eq!(ours.keys().collect::<BTreeSet<_>>(), names, "{here}");
            for (name, property) in properties {
                assert_eq!(ours[name], theirs(&vendor, property), "{here}: {name}");
            }
        }
    }
}

#[test]
fn every_family_has_the_vendors_bounds() {
    for (version, vendor) in releases() {
        for field in operations(version).flat_map(|operation| operation.parameters(version)) {
            if let Some(highest) = field.highest_index {
                assert_eq!(vendor.description()["_index_bounds"][field.name], json!([0, highest]), "{}", field.name);
            }
        }
    }
}

fn checks(permission: Permission) -> Value {
    let each =
        |word: &str, of: &[Permission]| json!([vec![json!(word)], of.iter().copied().map(checks).collect()].concat());
    match permission {
        Permission::Any(of) => each("or", of),
        Permission::All(of) => each("and", of),
        Permission::Check { path, privileges, any, only_with } => {
            let mut check = vec![json!("perm"), json!(path), json!(privileges)];
            if any {
                check.extend([json!("any"), json!(1)]);
            }
            if let Some(parameter) = only_with {
                check.extend([json!("require_param"), json!(parameter)]);
            }
            json!(check)
        }
        Permission::World | Permission::Everyone | Permission::InHandler => panic!("{permission:?} is no check"),
    }
}

#[test]
fn who_may_ask_and_who_answers_is_the_vendors() {
    for (version, vendor) in releases() {
        for operation in operations(version) {
            let mut permissions = match operation.permission {
                Permission::World => json!({"user": "world"}),
                Permission::Everyone => json!({"user": "all"}),
                Permission::InHandler => json!({"user": "all", "checked_in_code": true}),
                check => json!({"check": checks(check)}),
            };
            if operation.checks_more {
                permissions["checked_in_code"] = json!(true);
            }
            let described = described(&vendor, operation);
            let here = format!("{version:?}: {} {}", operation.method, operation.path);
            let mut theirs = described["permissions"].clone();
            // Whoever is known may, whatever else is said.
            if let Some(said) = theirs.as_object_mut().filter(|said| said.get("user") == Some(&json!("all"))) {
                said.remove("check");
            }
            assert_eq!(theirs, permissions, "{here}");
            assert_eq!(described["protected"], operation.protected, "{here}");
            assert_eq!(described["allowtoken"], operation.allow_token, "{here}");
            let proxied_to = if operation.proxied_to_node { json!("node") } else { Value::Null };
            assert_eq!(described["proxyto"], proxied_to, "{here}");
        }
        assert_eq!(vendor.description()["_privileges"], json!(privileges(version)), "{version:?}");
    }
}

#[test]
fn every_call_is_one_operation() {
    for version in [Version::Eight, Version::Nine] {
        let calls: BTreeSet<_> = all_operations(version).map(|operation| operation.call).collect();
        let places: BTreeSet<_> = all_operations(version).map(|operation| (operation.method, operation.path)).collect();
        assert_eq!((calls.len(), places.len(), all_operations(version).count()), (84, 84, 84), "{version:?}");
    }
}

#[test]
fn requests_to_8_are_judged_as_the_vendor_would() {
    judge_all(Version::Eight);
}

#[test]
fn requests_to_9_are_judged_as_the_vendor_would() {
    judge_all(Version::Nine);
}

fn judge_all(release: Version) {
    for (version, vendor) in releases().into_iter().filter(|(version, _)| *version == release) {
        judge::judge_all(version, &vendor);
    }
}
