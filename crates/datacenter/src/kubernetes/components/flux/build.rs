//! Objects from files, by the same code that judges a repository before Flux sees it: it is held against Flux's own libraries.

use std::collections::BTreeMap;

use castle_gitops::{BuildError, Object, Tree};
use serde_json::{Value, json};

use crate::git::Files;
use crate::kubernetes::value;

/// What the source controller keeps of a commit.
pub(super) fn fetched(files: &Files) -> Tree {
    Tree::new(files.iter().map(|(path, bytes)| (path.clone(), bytes.to_vec()))).as_fetched()
}

/// The folder that a Kustomization names.
pub(super) fn folder(kustomization: &Value) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in value::text(kustomization, "spec.path").split('/') {
        match part {
            "" | "." => {}
            // The path is joined securely: nothing leads above the root.
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The objects of a Kustomization: built, and then given the variables, if they are there. Otherwise what the controller says of it.
pub(super) fn objects(
    tree: &Tree,
    kustomization: &Value,
    variables: Result<BTreeMap<String, String>, String>,
) -> Result<Vec<Value>, String> {
    let mut own = kustomization.clone();
    value::set(&mut own, "spec.path", folder(kustomization));
    let post_build = own["spec"].as_object_mut().and_then(|spec| spec.remove("postBuild"));
    let building = |own: &Value| castle_gitops::build(tree, &Object::written(own.clone(), "spec"));
    let mut built = building(&own).map_err(|error| format!("kustomize build failed: {error}"))?;
    if post_build.is_some_and(|it| !it.is_null()) {
        let open = built.iter().find(|object| !is_closed(&object.value));
        let variables = match (variables, open) {
            (Ok(variables), _) => variables,
            (Err(why), Some(first)) => return Err(format!("post build failed for '{}': {why}", named(first))),
            (Err(_), None) => BTreeMap::new(),
        };
        value::set(&mut own, "spec.postBuild", json!({ "substitute": variables }));
        built = building(&own).map_err(|error| said(&built, &error))?;
    }
    Ok(built.into_iter().map(|object| object.value).collect())
}

/// Whether an object is not to be given variables.
fn is_closed(object: &Value) -> bool {
    let places =
        ["labels", "annotations"].map(|place| &object["metadata"][place]["kustomize.toolkit.fluxcd.io/substitute"]);
    places.contains(&&json!("disabled"))
}

/// An object as the controller names it: `ConfigMap.v1.[noGrp]/a`.
fn named(object: &Object) -> String {
    let api = value::text(&object.value, "apiVersion");
    let (group, version) = api.split_once('/').unwrap_or(("[noGrp]", api));
    format!("{}.{version}.{group}/{}", object.kind(), object.name())
}

/// What the controller says of objects that could not be given their variables.
fn said(built: &[Object], error: &BuildError) -> String {
    let object = built.iter().find(|object| object.file == error.file && object.line("") == error.line);
    let why = match error.what.strip_prefix("no value for ") {
        Some(names) => {
            let first = names.split(", ").next().unwrap_or(names);
            format!("envsubst error: variable substitution failed: variable not set (strict mode): {first:?}")
        }
        None => error.what.clone(),
    };
    format!("post build failed for '{}': {why}", object.map(named).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tree(all: &[(&str, &str)]) -> Tree {
        fetched(&all.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(text.as_bytes()))).collect())
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${colour}'}\n";

    #[test]
    fn a_kustomization_is_built_with_generators_and_components_and_its_variables() {
        let tree = tree(&[
            (
                "top/kustomization.yaml",
                "resources: [../base]\ncomponents: [../more]\nnamespace: blue\nconfigMapGenerator:\n- name: made\n  literals: [x=y]\n",
            ),
            ("base/kustomization.yaml", "resources: [a.yaml]\n"),
            ("base/a.yaml", MAP),
            (
                "more/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {of: more}\n",
            ),
            ("base/picture.png", "no manifest"),
        ]);
        let kustomization = json!({ "spec": { "path": "./top", "postBuild": { "substituteFrom": [] } } });
        let variables = BTreeMap::from([("colour".to_owned(), "green".to_owned())]);
        let all = objects(&tree, &kustomization, Ok(variables)).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["data"]["k"], "green");
        assert!(all.iter().all(|object| value::namespace(object) == "blue"), "{all:?}");
        assert!(value::name(&all[1]).starts_with("made-"), "a generated name has a hash: {}", all[1]);
        let variables = BTreeMap::from([("other".to_owned(), "x".to_owned())]);
        let missing = objects(&tree, &kustomization, Ok(variables)).unwrap_err();
        let why = "envsubst error: variable substitution failed: variable not set (strict mode): \"colour\"";
        assert_eq!(missing, format!("post build failed for 'ConfigMap.v1.[noGrp]/a': {why}"));
        let absent = objects(&tree, &kustomization, Err("substitute from 'Secret/x' error".to_owned())).unwrap_err();
        assert_eq!(absent, "post build failed for 'ConfigMap.v1.[noGrp]/a': substitute from 'Secret/x' error");
    }

    #[test]
    fn what_cannot_be_built_says_where() {
        let tree = tree(&[("a/kustomization.yaml", "resources: [none.yaml]\n")]);
        for post_build in [json!(null), json!({ "substituteFrom": [] })] {
            let own = json!({ "spec": { "path": "/a", "postBuild": post_build } });
            let why = objects(&tree, &own, Err("no source".to_owned())).unwrap_err();
            assert!(why.starts_with("kustomize build failed: a/kustomization.yaml:1:"), "{why}");
        }
    }
}
