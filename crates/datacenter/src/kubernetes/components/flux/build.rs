//! Objects from files: plain folders, and what is small of Kustomize. What is not built here is refused by name.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::git::Files;
use crate::kubernetes::{body, patch, value};

/// How deep folders may name each other.
const DEPTH: usize = 16;
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
const KNOWN: [&str; 10] = [
    "apiVersion",
    "kind",
    "metadata",
    "resources",
    "namespace",
    "labels",
    "commonLabels",
    "commonAnnotations",
    "patches",
    "images",
];

/// The path of a folder or a file, seen from another folder.
pub(super) fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn prefix(folder: &str) -> String {
    if folder.is_empty() { String::new() } else { format!("{folder}/") }
}

/// Whether there is anything in a folder.
pub(super) fn is_folder(files: &Files, folder: &str) -> bool {
    let prefix = prefix(folder);
    files.keys().any(|path| path.starts_with(&prefix))
}

/// The objects of a text with many.
fn documents(path: &str, bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{path}: this is no text"))?;
    let parts = format!("\n{text}");
    let parts = parts
        .split("\n---")
        .filter(|part| part.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')));
    let mut all = Vec::new();
    for part in parts {
        let read = body::yaml(format!("{}\n", part.trim_start_matches(['\r', ' '])).as_bytes());
        let read =
            read.map_err(|error| format!("accumulating resources from '{path}': MalformedYAMLError: {error}"))?;
        match value::text(&read.value, "kind") {
            "List" => all.extend(value::items(&read.value, "items").iter().cloned()),
            _ if read.value.is_object() => all.push(read.value),
            _ => {}
        }
    }
    Ok(all)
}

/// All objects of a folder.
pub(super) fn folder(files: &Files, folder: &str, depth: usize) -> Result<Vec<Value>, String> {
    if depth > DEPTH {
        return Err(format!("accumulating resources from '{folder}': cycle detected"));
    }
    let prefix = prefix(folder);
    if let Some((path, bytes)) = NAMES.iter().find_map(|name| files.get_key_value(&format!("{prefix}{name}"))) {
        let read = documents(path, bytes)?.into_iter().next().unwrap_or_else(|| json!({}));
        return kustomized(files, folder, &read, depth);
    }
    let mut all = Vec::new();
    let mut built: Vec<String> = Vec::new();
    for (path, bytes) in files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix)) {
        let own = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if built.iter().any(|done| own == done || own.starts_with(&format!("{done}/"))) {
            continue;
        }
        let is_base = own != folder && NAMES.iter().any(|name| files.contains_key(&format!("{own}/{name}")));
        if is_base {
            built.push(own.to_owned());
            all.append(&mut self::folder(files, own, depth + 1)?);
        } else if path.ends_with(".yaml") || path.ends_with(".yml") {
            all.append(&mut documents(path, bytes)?);
        }
    }
    Ok(all)
}

fn kustomized(files: &Files, folder: &str, own: &Value, depth: usize) -> Result<Vec<Value>, String> {
    if let Some((key, _)) = own.as_object().into_iter().flatten().find(|(key, _)| !KNOWN.contains(&key.as_str())) {
        return Err(format!("{folder}: {key} of Kustomize is not simulated here"));
    }
    let mut all = Vec::new();
    for named in value::items(own, "resources").iter().filter_map(Value::as_str) {
        let path = join(folder, named);
        match files.get(&path) {
            Some(bytes) => all.append(&mut documents(&path, bytes)?),
            None if !named.contains("://") && is_folder(files, &path) => {
                all.append(&mut self::folder(files, &path, depth + 1)?);
            }
            None => {
                return Err(format!(
                    "accumulating resources: accumulation err='accumulating resources from '{named}': open {path}: no such file or directory'"
                ));
            }
        }
    }
    for (patch, target) in patches(files, folder, own)? {
        patched(&mut all, &patch, &target)?;
    }
    let namespace = value::text(own, "namespace");
    let labels = value::items(own, "labels").iter().filter_map(|it| it.get("pairs"));
    let labels: Vec<&Value> = labels.chain(own.get("commonLabels")).collect();
    for object in &mut all {
        if !namespace.is_empty() {
            settle(object, namespace);
        }
        for pairs in &labels {
            mark(object, "labels", pairs);
        }
        if let Some(pairs) = own.get("commonAnnotations") {
            mark(object, "annotations", pairs);
        }
    }
    images(&mut all, value::items(own, "images"));
    Ok(all)
}

/// Adds labels or annotations.
pub(super) fn mark(object: &mut Value, part: &str, pairs: &Value) {
    for (key, text) in pairs.as_object().into_iter().flatten() {
        value::place(object, &format!("metadata.{part}"))[key.as_str()] = text.clone();
    }
}

/// Puts an object into a namespace, unless its kind has none.
pub(super) fn settle(object: &mut Value, namespace: &str) {
    const BARE: [&str; 8] = [
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "StorageClass",
        "PriorityClass",
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ];
    let kind = value::text(object, "kind").to_owned();
    if !BARE.contains(&kind.as_str()) && !kind.starts_with("Cluster") {
        value::set(object, "metadata.namespace", namespace);
    }
}

/// Gives containers other images.
pub(super) fn images(objects: &mut [Value], images: &[Value]) {
    for container in objects.iter_mut().flat_map(containers) {
        let own = value::text(container, "image").to_owned();
        let (name, tag) = own.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((&own, ""));
        let Some(image) = images.iter().find(|image| value::text(image, "name") == name) else { continue };
        let text = |key: &str, otherwise: &str| {
            Some(value::text(image, key)).filter(|text| !text.is_empty()).unwrap_or(otherwise).to_owned()
        };
        let (name, tag) = (text("newName", name), text("newTag", tag));
        value::set(container, "image", if tag.is_empty() { name } else { format!("{name}:{tag}") });
    }
}

fn containers(object: &mut Value) -> Vec<&mut Value> {
    let paths = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
    let Some(path) = paths.into_iter().find(|path| object.pointer(path).is_some()) else { return Vec::new() };
    let spec = object.pointer_mut(path).and_then(Value::as_object_mut);
    let lists = spec.into_iter().flat_map(|spec| spec.iter_mut()).filter(|(key, _)| key.ends_with("ontainers"));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().collect()
}

/// The patches of a file, each with what it is for.
pub(super) fn patches(files: &Files, folder: &str, own: &Value) -> Result<Vec<(Value, Value)>, String> {
    let mut all = Vec::new();
    for given in value::items(own, "patches") {
        let path = value::text(given, "path");
        let bytes = match path {
            "" => value::text(given, "patch").as_bytes().to_vec(),
            path => {
                let at = join(folder, path);
                files.get(&at).ok_or_else(|| format!("failed to get the patch file from path({at})"))?.to_vec()
            }
        };
        let read = body::yaml(&[bytes.as_slice(), b"\n"].concat()).map_err(|error| format!("patch: {error}"))?;
        all.push((read.value, given.get("target").cloned().unwrap_or_default()));
    }
    Ok(all)
}

/// Lays a patch over the objects that it is for: a JSON patch, or a merge that knows containers by their names.
pub(super) fn patched(objects: &mut Vec<Value>, patch: &Value, target: &Value) -> Result<(), String> {
    let is_meant = |object: &Value| {
        let fits = |key: &str, own: &str| {
            let wanted = value::text(target, key);
            let pattern = regex::Regex::new(&format!("^(?:{wanted})$"));
            wanted.is_empty() || pattern.is_ok_and(|pattern| pattern.is_match(own))
        };
        if target.is_null() {
            let alike = |path: &str| value::text(object, path) == value::text(patch, path);
            return alike("kind") && alike("metadata.name");
        }
        fits("kind", value::text(object, "kind"))
            && fits("name", value::name(object))
            && fits("namespace", value::namespace(object))
    };
    let mut is_used = false;
    let mut left = Vec::new();
    for mut object in std::mem::take(objects) {
        if is_meant(&object) {
            is_used = true;
            if patch.is_array() {
                object = patch::hooked(&object, patch)?;
            } else if value::text(patch, "$patch") == "delete" {
                continue;
            } else {
                let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
                merge(&mut object, patch);
                (object["kind"], object["metadata"]["name"]) = (kind, name);
            }
        }
        left.push(object);
    }
    *objects = left;
    let name = value::name(patch);
    if is_used || !target.is_null() {
        Ok(())
    } else {
        Err(format!("no resource matches strategic merge patch {name:?}"))
    }
}

fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(own), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    own.shift_remove(key);
                } else {
                    merge(own.entry(key.clone()).or_insert(Value::Null), change);
                }
            }
        }
        (Value::Array(own), Value::Array(changes)) if changes.iter().all(|it| it.get("name").is_some()) => {
            for change in changes {
                match own.iter_mut().find(|it| it.get("name") == change.get("name")) {
                    Some(item) => merge(item, change),
                    None => own.push(change.clone()),
                }
            }
        }
        (own, change) => *own = change.clone(),
    }
}

/// The variables that a Kustomization gives itself.
pub(super) fn own_variables(kustomization: &Value) -> BTreeMap<String, String> {
    let own = value::members(kustomization, "spec.postBuild.substitute");
    own.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(text.as_bytes()))).collect()
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n";

    #[test]
    fn folders_are_built_plain_or_by_their_file() {
        let plain = files(&[("apps/x.yaml", MAP), ("apps/readme.md", "no"), ("other/y.yaml", MAP)]);
        assert_eq!(folder(&plain, "apps", 0).unwrap().len(), 2);
        let built = files(&[
            ("base/kustomization.yaml", "resources: [x.yaml]\n"),
            ("base/x.yaml", MAP),
            ("base/ignored.yaml", MAP),
            (
                "top/kustomization.yaml",
                "resources: [../base]\nnamespace: blue\ncommonLabels: {of: top}\npatches:\n- patch: |\n    - {op: add, path: /data, value: {k: v}}\n  target: {kind: ConfigMap, name: a}\n",
            ),
        ]);
        let all = folder(&built, "top", 0).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((&all[0]["data"]["k"], &all[1]["data"]), (&json!("v"), &Value::Null));
        assert!(all.iter().all(|it| value::namespace(it) == "blue" && it["metadata"]["labels"]["of"] == "top"));
        let wrong = files(&[
            ("a/kustomization.yaml", "resources: [none.yaml]\n"),
            ("b/kustomization.yaml", "helmCharts: []\n"),
        ]);
        assert!(folder(&wrong, "a", 0).unwrap_err().contains("no such file"));
        assert!(folder(&wrong, "b", 0).unwrap_err().contains("helmCharts"));
    }
}
