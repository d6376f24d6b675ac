//! Images and replica counts of a kustomization.

use regex::Regex;
use serde_json::Value;

use super::Failure;
use super::fields::visit;
use super::piece::Piece;

/// Replaces an image wherever it is used.
pub(super) fn image(pieces: &mut [Piece], image: &Value) -> Result<(), String> {
    let text = |key: &str| image.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = text("name");
    let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
    let pattern = Regex::new(&pattern).map_err(|_| format!("the image `{name}` is no pattern"))?;
    let mut replace = |value: &mut Value| {
        if let Some(used) = value.as_str().filter(|used| pattern.is_match(used)) {
            *value = replaced(used, text("newName"), text("newTag"), text("digest"), text("tagSuffix")).into();
        }
    };
    for piece in pieces.iter_mut().filter(|piece| piece.id().kind != "CustomResourceDefinition") {
        containers(&mut piece.value, &mut replace);
        for path in ["spec/volumes/image/reference", "spec/template/spec/volumes/image/reference"] {
            visit(&mut piece.value, path, None, &mut replace);
        }
    }
    Ok(())
}

/// Visits the image of every container, however deep it lies.
fn containers(value: &mut Value, replace: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| containers(item, replace)),
        Value::Object(entries) => {
            for (key, inner) in entries {
                if matches!(key.as_str(), "containers" | "initContainers") {
                    visit(inner, "image", None, replace);
                }
                containers(inner, replace);
            }
        }
        _ => {}
    }
}

fn replaced(used: &str, new_name: &str, new_tag: &str, new_digest: &str, suffix: &str) -> String {
    let (name, mut tag, mut digest) = split(used);
    let name = if new_name.is_empty() { name } else { new_name.to_owned() };
    match (new_tag.is_empty(), new_digest.is_empty()) {
        (true, true) if !suffix.is_empty() => {
            tag += suffix;
            digest.clear();
        }
        (true, true) => {}
        _ => {
            new_tag.clone_into(&mut tag);
            new_digest.clone_into(&mut digest);
        }
    }
    let mut image = name;
    if !tag.is_empty() {
        image += &format!(":{tag}");
    }
    if !digest.is_empty() {
        image += &format!("@{digest}");
    }
    image
}

/// The name, the tag and the digest. What is before the first slash may have a port.
fn split(image: &str) -> (String, String, String) {
    let from = image.find('/').unwrap_or(0);
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let (name, tag) = match rest.get(from..).and_then(|tail| tail.find(':')) {
        Some(colon) => (&rest[..from + colon], &rest[from + colon + 1..]),
        None => (rest, ""),
    };
    (name.to_owned(), tag.to_owned(), digest.to_owned())
}

/// Sets how many replicas what has this name shall have.
pub(super) fn replicas(pieces: &mut [Piece], entry: &Value) -> Result<(), Failure> {
    let name = entry["name"].as_str().unwrap_or_default();
    let mut found = false;
    for piece in pieces.iter_mut() {
        let id = piece.id();
        let is_named = id.name == name || piece.previous.iter().any(|id| id.name == name);
        let scales = ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"].contains(&id.kind.as_str());
        if is_named && scales {
            found = true;
            visit(&mut piece.value, "spec/replicas", Some(&Value::Null), &mut |value| *value = entry["count"].clone());
        }
    }
    let nobody = || Failure::Nobody(format!("`replicas` names {name}, and nothing that scales has this name"));
    found.then_some(()).ok_or_else(nobody)
}
