//! Patches of the castle's owner, from files.

use castle_kubernetes::model::Object;
use castle_spec::ComponentName;
use serde_json::Value;

use super::PatchError;
use super::merge::merge;

/// Applies the patches of a file, in their order, to the objects of a component.
///
/// Each document is a part of an object, which is merged into the object of its kind and name (`$patch: delete` removes that object), or
/// has a `target` (`kind`, `name`, and `namespace` where it matters) and a `patch`: operations as RFC 6902 has them.
///
/// # Errors
///
/// [`PatchError::User`] if it is no such file, or if what it changes is not there.
pub fn apply_file(
    component: ComponentName,
    objects: &[Object],
    file: &str,
    text: &str,
) -> Result<Vec<Object>, PatchError> {
    let wrong = |document: usize, why: String| PatchError::User { component, file: file.to_owned(), document, why };
    let documents = castle_yaml::parse(text).map_err(|error| wrong(1, error.to_string()))?;
    let mut values: Vec<Value> = objects.iter().map(|object| object.value().clone()).collect();
    for (index, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        apply(&mut values, document).map_err(|why| wrong(index + 1, why))?;
    }
    let objects = values.into_iter().map(Object::new).collect::<Option<Vec<Object>>>();
    objects.ok_or_else(|| wrong(documents.len(), "it leaves an object without kind or name".to_owned()))
}

fn apply(objects: &mut Vec<Value>, document: &Value) -> Result<(), String> {
    let operations = document.get("patch").filter(|_| document.get("target").is_some());
    let place = find(objects, if operations.is_some() { &document["target"] } else { document })?;
    match operations {
        Some(operations) => {
            let operations: json_patch::Patch = serde_json::from_value(operations.clone())
                .map_err(|error| format!("`patch` is no list of operations: {error}"))?;
            json_patch::patch(&mut objects[place], &operations).map_err(|error| error.to_string())
        }
        None if document["$patch"] == "delete" => {
            objects.remove(place);
            Ok(())
        }
        None => {
            let api_version = objects[place]["apiVersion"].as_str().unwrap_or_default().to_owned();
            merge(&mut objects[place], document, &api_version)
        }
    }
}

/// The one object that a patch is for.
fn find(objects: &[Value], whom: &Value) -> Result<usize, String> {
    let text = |place: &str| whom.pointer(place).and_then(Value::as_str);
    let kind = text("/kind").ok_or("it names no kind")?;
    let name = text("/metadata/name").or_else(|| text("/name")).ok_or("it names no object")?;
    let namespace = text("/metadata/namespace").or_else(|| text("/namespace"));
    let fits = |object: &Value| {
        object["kind"] == kind
            && object["metadata"]["name"] == name
            && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
            && text("/apiVersion").is_none_or(|version| object["apiVersion"] == version)
    };
    let mut found = objects.iter().enumerate().filter(|(_, object)| fits(object)).map(|(index, _)| index);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => Err(format!("there are several {kind} {name}: name the namespace")),
        (None, _) => Err(format!("there is no {kind} {name} to change")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standin;

    fn patched(text: &str) -> Result<Vec<Object>, String> {
        let component = ComponentName::Metallb;
        apply_file(component, &standin::objects(component), "own.yaml", text).map_err(|error| error.to_string())
    }

    fn speaker(objects: &[Object]) -> &Object {
        objects.iter().find(|object| object.text("/kind") == "DaemonSet").unwrap()
    }

    #[test]
    fn parts_are_merged_and_operations_carried_out() {
        let merged = patched(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: speaker, namespace: metallb-system}\nspec:\n  template:\n    spec:\n      \
             nodeSelector: {edge: 'yes'}\n      containers:\n      - {name: speaker, args: [--log-level=debug]}\n---\n\
             target: {kind: DaemonSet, name: speaker}\npatch:\n- {op: test, path: /kind, value: DaemonSet}\n\
             - {op: add, path: /metadata/annotations, value: {a: b}}\n---\n# nothing\n",
        )
        .unwrap();
        let speaker = speaker(&merged);
        assert_eq!(speaker.text("/spec/template/spec/nodeSelector/edge"), "yes");
        assert_eq!(speaker.list("/spec/template/spec/containers")[0]["args"], serde_json::json!(["--log-level=debug"]));
        assert_eq!(speaker.text("/spec/template/spec/containers/0/image"), "quay.io/metallb/speaker:v0.16.1");
        assert_eq!(speaker.annotation("a"), Some("b"));
        let fewer = patched("kind: Secret\nmetadata: {name: metallb-webhook-cert}\n$patch: delete\n").unwrap();
        assert_eq!(fewer.len(), merged.len() - 1);
        assert_eq!(patched("").unwrap().len(), merged.len());
    }

    #[test]
    fn what_cannot_be_applied_is_told_with_its_place() {
        let all = [
            "kind: DaemonSet\nmetadata: {name: speakers}\n",
            "kind: ConfigMap\nmetadata: {}\n",
            "spec: {}\n",
            "kind: DaemonSet\nmetadata: {name: speaker, namespace: elsewhere}\n",
            "kind: ServiceAccount\nmetadata: {name: speaker}\n---\ntarget: {kind: DaemonSet, name: speaker}\npatch: [{op: remove, path: /spec/nothing}]\n",
            "target: {kind: DaemonSet, name: speaker}\npatch: [{op: test, path: /kind, value: Deployment}]\n",
            "target: {kind: DaemonSet, name: speaker}\npatch: {op: remove}\n",
            "target: {kind: DaemonSet, name: speaker}\npatch: [{op: remove, path: /metadata/name}]\n",
            "a: [\n",
        ]
        .map(|text| patched(text).unwrap_err());
        insta::assert_snapshot!(all.join("\n"));
    }
}
