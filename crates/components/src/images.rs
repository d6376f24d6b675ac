//! The images that the objects of a manifest name, for those who have to carry them.

use std::collections::BTreeSet;

use castle_kubernetes::model::Object;
use serde_json::Value;

/// All images: of containers, and those that containers are told to run, in arguments and variables.
#[must_use]
pub fn images<'o>(objects: impl IntoIterator<Item = &'o Object>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in objects {
        let pods = [object.at("/spec/template/spec"), object.at("/spec/jobTemplate/spec/template/spec")];
        for pod in pods {
            for list in ["containers", "initContainers"] {
                for container in pod[list].as_array().map(Vec::as_slice).unwrap_or_default() {
                    of_container(container, &mut found);
                }
            }
        }
    }
    found
}

fn of_container(container: &Value, found: &mut BTreeSet<String>) {
    let list = |key: &str| container[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut add = |image: Option<&str>| found.extend(image.filter(|image| !image.is_empty()).map(str::to_owned));
    add(container["image"].as_str());
    let words: Vec<&str> = list("command").iter().chain(list("args")).filter_map(Value::as_str).collect();
    for (index, word) in words.iter().enumerate() {
        match word.split_once("-image=") {
            Some((flag, image)) if flag.starts_with("--") => add(Some(image)),
            _ if word.starts_with("--") && word.ends_with("-image") => add(words.get(index + 1).copied()),
            _ => {}
        }
    }
    for variable in list("env") {
        if variable["name"].as_str().is_some_and(|name| name.ends_with("_IMAGE")) {
            add(variable["value"].as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_found_where_containers_are_told_of_them() {
        let object = Object::new(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {
                "initContainers": [{"image": "h/init:1"}],
                "containers": [{
                    "image": "h/a:1", "command": ["a", "--engine-image", "h/engine:1", "--verbose"], "args": ["--sidecar-image=h/side:1"],
                    "env": [{"name": "CSI_IMAGE", "value": "h/csi:1"}, {"name": "MODE", "value": "h/none:1"}],
                }],
            }}},
        }));
        let found: Vec<String> = images(&[object.unwrap()]).into_iter().collect();
        assert_eq!(found, ["h/a:1", "h/csi:1", "h/engine:1", "h/init:1", "h/side:1"]);
    }
}
