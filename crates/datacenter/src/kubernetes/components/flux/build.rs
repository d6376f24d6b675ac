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

/// The objects of a Kustomization, with these variables.
pub(super) fn objects(
    tree: &Tree,
    kustomization: &Value,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Value>, String> {
    let mut own = kustomization.clone();
    value::set(&mut own, "spec.path", folder(kustomization));
    if value::at(kustomization, "spec.postBuild").is_some() {
        value::set(&mut own, "spec.postBuild", json!({ "substitute": variables }));
    }
    let built = castle_gitops::build(tree, &Object::written(own, "spec"));
    built.map(|objects| objects.into_iter().map(|object| object.value).collect()).map_err(|error| said(&error))
}

/// What the controller says of a build that failed.
fn said(error: &BuildError) -> String {
    match error.what.strip_prefix("no value for ") {
        Some(names) => {
            let first = names.split(", ").next().unwrap_or(names);
            format!("post build failed for '{}': envsubst error: variable not set (strict mode): {first:?}", error.file)
        }
        None => format!("kustomize build failed: {error}"),
    }
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
        let all = objects(&tree, &kustomization, &variables).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["data"]["k"], "green");
        assert!(all.iter().all(|object| value::namespace(object) == "blue"), "{all:?}");
        assert!(value::name(&all[1]).starts_with("made-"), "a generated name has a hash: {}", all[1]);
        let variables = BTreeMap::from([("other".to_owned(), "x".to_owned())]);
        let missing = objects(&tree, &kustomization, &variables).unwrap_err();
        assert!(missing.contains("variable not set (strict mode): \"colour\""), "{missing}");
    }

    #[test]
    fn what_cannot_be_built_says_where() {
        let tree = tree(&[("a/kustomization.yaml", "resources: [none.yaml]\n")]);
        let why = objects(&tree, &json!({ "spec": { "path": "/a" } }), &BTreeMap::new()).unwrap_err();
        assert!(why.starts_with("kustomize build failed: a/kustomization.yaml:1:"), "{why}");
    }
}
