//! Manifests: texts of YAML with many objects.

use castle_yaml::YamlError;
use serde_json::Value;
use thiserror::Error;

use super::Object;

/// Why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// It is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// Something in it is no object of Kubernetes.
    #[error("document {0} is no object of Kubernetes: it lacks apiVersion, kind or metadata.name")]
    NoObject(usize),
}

/// The objects of a manifest, in its order: lists taken apart, nulls left out, as is what only a server may say.
///
/// # Errors
///
/// [`ManifestError`] if it is no YAML, or holds something else.
pub fn manifest(text: &str) -> Result<Vec<Object>, ManifestError> {
    let mut objects = Vec::new();
    for (index, document) in castle_yaml::parse(text)?.into_iter().enumerate() {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let members = match document {
            Value::Object(mut list) if is_list && list.get("items").is_some_and(Value::is_array) => {
                match list.remove("items") {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                }
            }
            single => vec![single],
        };
        for mut member in members {
            strip(&mut member);
            objects.push(Object::new(member).ok_or(ManifestError::NoObject(index + 1))?);
        }
    }
    Ok(objects)
}

/// A null claims a field without saying anything of it, and what a server sets is not for others to say.
fn strip(object: &mut Value) {
    without_nulls(object);
    let Value::Object(entries) = object else { return };
    entries.remove("status");
    if let Some(Value::Object(metadata)) = entries.get_mut("metadata") {
        for told in ["creationTimestamp", "resourceVersion", "uid", "generation", "managedFields", "selfLink"] {
            metadata.remove(told);
        }
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, value| !value.is_null());
            entries.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart_and_nulls_left_out() {
        let text = "
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: a, creationTimestamp: null, uid: x}
  spec: {ports: [{port: 1, nodePort: null}]}
  status: {loadBalancer: {}}
---
# nothing but a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: n}
";
        let objects = manifest(text).unwrap();
        let told: Vec<String> = objects.iter().map(|object| object.key().to_string()).collect();
        assert_eq!(told, ["Service a", "ConfigMap n/b"]);
        let service = serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}});
        assert_eq!(*objects[0].value(), service);
    }

    #[test]
    fn what_is_no_object_is_told_by_its_place() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nfoo: bar\n";
        assert_eq!(manifest(text).unwrap_err(), ManifestError::NoObject(2));
        assert!(matches!(manifest("a: [").unwrap_err(), ManifestError::Yaml(_)));
    }
}
