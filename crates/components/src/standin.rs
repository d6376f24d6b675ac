//! Small manifests of our own: the same names as upstream's, and kinds as far as castle and its templates use them. The embedded
//! datacenter needs no more to act as the components do, and no network.

use castle_kubernetes::model::{Object, manifest};
use castle_spec::ComponentName;
use serde_json::{Map, Value, json};

use crate::known::row;

/// The manifest of a component. A document of kind `Definitions` in its file stands for many definitions of kinds.
#[must_use]
pub fn text(component: ComponentName) -> String {
    let documents = castle_yaml::parse(row(component).stand_in).unwrap_or_default();
    let written: Vec<String> = documents
        .iter()
        .flat_map(
            |document| if document["kind"] == "Definitions" { definitions(document) } else { vec![document.clone()] },
        )
        .map(|document| castle_yaml::emit_for_kubernetes(&document))
        .collect();
    written.join("---\n")
}

/// The objects of a component, before anything is adapted.
#[must_use]
pub fn objects(component: ComponentName) -> Vec<Object> {
    manifest(&text(component)).unwrap_or_default()
}

fn definitions(document: &Value) -> Vec<Value> {
    let kinds = document["kinds"].as_array().map(Vec::as_slice).unwrap_or_default();
    kinds.iter().map(|kind| definition(document, kind)).collect()
}

/// What is not said of a kind's fields may be anything.
fn wide() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn definition(document: &Value, told: &Value) -> Value {
    let group = document["group"].as_str().unwrap_or_default();
    let (kind, plural) = (told["kind"].as_str().unwrap_or_default(), told["plural"].as_str().unwrap_or_default());
    let mut properties = Map::new();
    for (name, schema) in told["properties"].as_object().into_iter().flatten() {
        properties.insert(name.clone(), schema.clone());
    }
    // A kind with fields beside these has no specification.
    if !properties.contains_key("value") {
        properties.entry("spec").or_insert_with(wide);
    }
    let status = properties.entry("status").or_insert_with(wide);
    // An object that its controller has not seen yet must not pass for one that is as it should be.
    if told["observes"] == true {
        status["default"] = json!({"observedGeneration": -1});
    }
    for known in ["apiVersion", "kind"] {
        properties.insert(known.to_owned(), json!({"type": "string"}));
    }
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(required) = told.get("required") {
        schema["required"] = required.clone();
    }
    let columns = told["columns"].as_object().into_iter().flatten();
    let columns = columns.map(|(name, path)| json!({"name": name, "type": "string", "jsonPath": path}));
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let mut names =
        json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()});
    if let Some(short) = told.get("short") {
        names["shortNames"] = json!([short]);
    }
    let mut metadata = json!({"name": format!("{plural}.{group}")});
    if let Some(labels) = document.get("labels") {
        metadata["labels"] = labels.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": names,
            "scope": if told["cluster"] == true { "Cluster" } else { "Namespaced" },
            "versions": [{
                "name": told.get("version").unwrap_or(&document["version"]),
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns.chain([age]).collect::<Vec<_>>(),
            }],
        },
    })
}

#[cfg(test)]
mod tests;
