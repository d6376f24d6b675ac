//! Strategic merge, as Kubernetes' own programs do it for the kinds it brings along.

use serde_json::{Map, Value};

/// The groups whose lists have keys; lists of other kinds are replaced whole.
const KEYED_GROUPS: [&str; 4] = ["", "apps", "batch", "admissionregistration.k8s.io"];

/// Merges a patch into an object of this `apiVersion`.
pub(super) fn merge(object: &mut Value, patch: &Value, api_version: &str) -> Result<(), String> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    merge_value(object, patch, KEYED_GROUPS.contains(&group))
}

fn merge_value(target: &mut Value, patch: &Value, is_keyed: bool) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match directive(patch)? {
        Some(Directive::Replace) => {
            *target = Value::Object(patch.iter().filter(|(key, _)| *key != DIRECTIVE).map(own).collect());
            return Ok(());
        }
        Some(Directive::Delete) => return Err("`$patch: delete` stands where nothing can be left".to_owned()),
        Some(Directive::Merge) | None => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return Ok(()) };
    for (key, value) in patch.iter().filter(|(key, _)| *key != DIRECTIVE) {
        let is_deleted = value.as_object().map(directive).transpose()?.flatten() == Some(Directive::Delete);
        if value.is_null() || is_deleted {
            target.shift_remove(key);
            continue;
        }
        let place = target.entry(key).or_insert(Value::Null);
        match (merge_key(key, value).filter(|_| is_keyed), value) {
            (Some(by), Value::Array(items)) => merge_list(place, items, by, is_keyed)?,
            _ => merge_value(place, value, is_keyed)?,
        }
    }
    Ok(())
}

/// What tells the items of a list apart.
fn merge_key(list: &str, items: &Value) -> Option<&'static str> {
    match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "webhooks" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "topologySpreadConstraints" => Some("topologyKey"),
        "hostAliases" => Some("ip"),
        "ports" if items[0].get("containerPort").is_some() => Some("containerPort"),
        "ports" => Some("port"),
        _ => None,
    }
}

fn merge_list(target: &mut Value, patch: &[Value], by: &str, is_keyed: bool) -> Result<(), String> {
    if patch.iter().any(|item| item[DIRECTIVE] == "replace") {
        *target = patch.iter().filter(|item| item[DIRECTIVE] != "replace").cloned().collect();
        return Ok(());
    }
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else { return Ok(()) };
    let order: Vec<Value> = target.iter().map(|item| item[by].clone()).collect();
    let mut patched = Vec::new();
    for item in patch {
        let key =
            item.get(by).ok_or_else(|| format!("an item of a list lacks `{by}`, which tells it from the others"))?;
        let old = target.iter().position(|one| one.get(by) == Some(key)).map(|place| target.remove(place));
        let is_deleted = item.as_object().map(directive).transpose()?.flatten() == Some(Directive::Delete);
        match (old, is_deleted) {
            (Some(_), true) => {}
            (None, true) => return Err(format!("there is no item with {by} {key} to delete")),
            (Some(mut old), false) => {
                merge_value(&mut old, item, is_keyed)?;
                patched.push(old);
            }
            (None, false) => patched.push(item.clone()),
        }
    }
    // The patch decides the order of what it names; what else there is stays before what it stood before.
    let place = |item: &Value| order.iter().position(|key| *key == item[by]);
    let mut others = std::mem::take(target).into_iter().peekable();
    for item in patched {
        let stands_before = |other: &Value| place(other).zip(place(&item)).is_some_and(|(other, item)| other < item);
        while let Some(other) = others.next_if(stands_before) {
            target.push(other);
        }
        target.push(item);
    }
    target.extend(others);
    Ok(())
}

const DIRECTIVE: &str = "$patch";

#[derive(PartialEq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, String> {
    if let Some(other) = patch.keys().find(|key| key.starts_with('$') && *key != DIRECTIVE) {
        return Err(format!("`{other}` is not supported: `$patch` is"));
    }
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => Ok(None),
        Some(Some("merge")) => Ok(Some(Directive::Merge)),
        Some(Some("replace")) => Ok(Some(Directive::Replace)),
        Some(Some("delete")) => Ok(Some(Directive::Delete)),
        Some(_) => Err("`$patch` is `merge`, `replace` or `delete`".to_owned()),
    }
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(api_version: &str, mut object: Value, patch: &Value) -> Result<Value, String> {
        merge(&mut object, patch, api_version).map(|()| object)
    }

    fn pod() -> Value {
        json!({"spec": {
            "containers": [
                {"name": "a", "image": "a:1", "args": ["x"], "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 1, "name": "p"}]},
                {"name": "b", "image": "b:1"},
            ],
            "nodeSelector": {"os": "linux", "disk": "fast"},
            "tolerations": [{"key": "a"}],
        }})
    }

    #[test]
    fn items_are_told_by_their_keys() {
        let patch = json!({"spec": {
            "containers": [
                {"name": "c", "image": "c:1"},
                {"name": "a", "args": ["y"], "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "3"}], "ports": [{"containerPort": 1, "protocol": "UDP"}]},
                {"name": "b", "$patch": "delete"},
            ],
            "nodeSelector": {"disk": null, "zone": "one"},
            "tolerations": [{"key": "b"}],
        }});
        let expected = json!({"spec": {
            "containers": [
                {"name": "c", "image": "c:1"},
                {
                    "name": "a", "image": "a:1", "args": ["y"], "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "3"}],
                    "ports": [{"containerPort": 1, "name": "p", "protocol": "UDP"}],
                },
            ],
            "nodeSelector": {"os": "linux", "zone": "one"},
            "tolerations": [{"key": "b"}],
        }});
        assert_eq!(merged("v1", pod(), &patch).unwrap(), expected);
    }

    /// As `kubectl patch --local` has it.
    #[test]
    fn the_patch_decides_the_order_of_what_it_names() {
        let order = |names: &[&str]| {
            let items: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let merged = merged("v1", pod(), &json!({"spec": {"containers": items}})).unwrap();
            let names =
                merged["spec"]["containers"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&["b", "z", "x"]), "a b z x");
        assert_eq!(order(&["z"]), "z a b");
        assert_eq!(order(&["b", "a"]), "b a");
        assert_eq!(order(&["z", "b"]), "z a b");
    }

    #[test]
    fn directives_replace_and_delete() {
        let replaced =
            merged("v1", pod(), &json!({"spec": {"nodeSelector": {"$patch": "replace", "a": "b"}}})).unwrap();
        assert_eq!(replaced["spec"]["nodeSelector"], json!({"a": "b"}));
        let list = json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}});
        assert_eq!(merged("v1", pod(), &list).unwrap()["spec"]["containers"], json!([{"name": "z"}]));
        let deleted = merged("v1", pod(), &json!({"spec": {"nodeSelector": {"$patch": "delete"}}})).unwrap();
        assert_eq!(deleted["spec"].get("nodeSelector"), None);
        for (patch, why) in [
            (json!({"spec": {"$retainKeys": ["a"]}}), "`$retainKeys` is not supported"),
            (json!({"spec": {"$patch": "append"}}), "`$patch` is `merge`, `replace` or `delete`"),
            (json!({"spec": {"containers": [{"image": "x"}]}}), "lacks `name`"),
            (json!({"spec": {"containers": [{"name": "z", "$patch": "delete"}]}}), "no item with name \"z\""),
        ] {
            let told = merged("v1", pod(), &patch).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn lists_of_other_kinds_are_replaced() {
        let patch = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(merged("example.net/v1", pod(), &patch).unwrap()["spec"]["containers"], json!([{"name": "a"}]));
    }
}
