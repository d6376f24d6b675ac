//! Files with patches for the configuration of nodes and for the objects of components: that they are there, and in a form that is
//! merged.

use std::collections::BTreeMap;

use super::references::Look;
use crate::inventory::pools;
use crate::model::Castle;
use crate::model::{Component, ComponentName};
use crate::problem::{Code, Problem, Problems};
use crate::span::Origin;
use crate::yaml::{self, Limits};

/// Checks the files with patches that `castle` names, by what `look` finds at each path. Nothing in them is shown.
pub fn patches(castle: &Castle, look: &mut dyn FnMut(&str) -> Look) -> Vec<Problem> {
    let mut looked: BTreeMap<&str, Result<(), (String, &'static str)>> = BTreeMap::new();
    let mut problems = Problems::default();
    let of_pools = pools(castle).flat_map(|(.., pool)| pool.patches.iter());
    for file in castle.talos.patches.iter().chain(of_pools) {
        let path = file.as_str();
        if let Err((why, hint)) = looked.entry(path).or_insert_with(|| check(&look(path))) {
            let problem = Problem::new(Code::PatchFile, "a patch for the configuration of nodes cannot be merged");
            problems.report(problem.at(file.origin, why.clone()).hint(*hint));
        }
    }
    for name in ComponentName::ALL {
        let Some(Component::On(settings)) = castle.component(name).map(|component| &component.value) else { continue };
        for file in &settings.patches.value {
            if let Err((why, hint)) = check_objects(&look(file.as_str())) {
                let problem =
                    Problem::new(Code::PatchFile, format!("a patch for the objects of {name} cannot be merged"));
                problems.report(problem.at(file.origin, why).hint(hint));
            }
        }
        if let Some((file, Look::Missing(why))) = settings.source.as_ref().map(|file| (file, look(file.as_str()))) {
            let problem = Problem::new(Code::ComponentSource, format!("the manifest of {name} cannot be read"));
            problems.report(
                problem.at(file.origin, why).hint("paths are relative to castle.yaml; write the file, or name another"),
            );
        }
    }
    problems.sorted()
}

/// The files with patches for the configuration of nodes that `castle` names, and where it names them.
pub fn patch_files(castle: &Castle) -> Vec<(&str, Origin)> {
    let of_pools = pools(castle).flat_map(|(.., pool)| pool.patches.iter());
    castle.talos.patches.iter().chain(of_pools).map(|file| (file.as_str(), file.origin)).collect()
}

/// A patch for objects: each document a part of an object, or a target with operations.
fn check_objects(found: &Look) -> Result<(), (String, &'static str)> {
    const FORM: &str = "each document is a part of an object with its kind and name, or has a `target` and a `patch`";
    match check(found) {
        // What this says of lists is about Talos.
        Err((why, _)) if matches!(found, Look::File { .. }) => return Err((why, FORM)),
        other => other?,
    }
    let Look::File { bytes, .. } = found else { return Ok(()) };
    let stream = yaml::parse(std::str::from_utf8(bytes).unwrap_or_default(), Limits::REFERENCED);
    let documents = stream.iter().flat_map(yaml::Stream::documents);
    for entries in documents.filter_map(yaml::View::map) {
        let keys: Vec<&str> = entries.map(|(key, ..)| key).collect();
        let has = |key: &str| keys.contains(&key);
        if !(has("kind") && has("metadata") || has("target") && has("patch")) {
            return Err(("this has neither `kind` and `metadata` nor `target` and `patch`".to_owned(), FORM));
        }
    }
    Ok(())
}

fn check(found: &Look) -> Result<(), (String, &'static str)> {
    const FORM: &str = "a patch is written as the configuration is: mappings, several documents apart by `---`";
    let bytes = match found {
        Look::Missing(why) => {
            return Err((why.clone(), "paths are relative to castle.yaml; write the file, or name another"));
        }
        Look::File { bytes, .. } => bytes,
    };
    let text = std::str::from_utf8(bytes).map_err(|_| ("this is not text".to_owned(), FORM))?;
    let stream = yaml::parse(text, Limits::REFERENCED).map_err(|_| ("this is not YAML".to_owned(), FORM))?;
    match stream.documents().find(|document| document.map().is_none() && !document.is_null()) {
        Some(list) if list.list().is_some() => Err((
            "this is a list of operations".to_owned(),
            "castle merges as Talos does; what a JSON patch removes, `$patch: delete` removes here",
        )),
        Some(_) => Err(("this is a single value".to_owned(), FORM)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &[u8]) -> String {
        let found = Look::File { bytes: text.to_vec(), shared: true, tracked: true };
        check(&found).err().map(|(why, _)| why).unwrap_or_default()
    }

    #[test]
    fn patches_are_mappings() {
        for good in ["", "# nothing yet\n", "machine: {}\n", "machine: {}\n---\nkind: A\napiVersion: v1alpha1\n"] {
            assert_eq!(said(good.as_bytes()), "", "{good}");
        }
        assert_eq!(said(b"machine: ["), "this is not YAML");
        assert_eq!(said(b"\xff"), "this is not text");
        assert_eq!(said(b"machine\n"), "this is a single value");
        assert_eq!(said(b"machine: {}\n---\n- op: add\n"), "this is a list of operations");
        assert_eq!(check(&Look::Missing("all.yaml: no such file".into())).unwrap_err().0, "all.yaml: no such file");
    }
    #[test]
    fn patches_of_objects_name_their_object() {
        let said = |text: &str| {
            let found = Look::File { bytes: text.as_bytes().to_vec(), shared: true, tracked: true };
            check_objects(&found).err().map(|(why, _)| why).unwrap_or_default()
        };
        for good in [
            "",
            "kind: A\nmetadata: {name: a}\n",
            "target: {kind: A, name: a}\npatch: []\n---\nkind: A\nmetadata: {}\n",
        ] {
            assert_eq!(said(good), "", "{good}");
        }
        assert_eq!(said("spec: {}\n"), "this has neither `kind` and `metadata` nor `target` and `patch`");
        assert_eq!(said("- op: add\n"), "this is a list of operations");
        assert_eq!(said("a: ["), "this is not YAML");
        let missing = check_objects(&Look::Missing("a.yaml: no such file".into())).unwrap_err();
        assert_eq!(missing.0, "a.yaml: no such file");
        assert!(missing.1.contains("relative to castle.yaml"));
    }
}
