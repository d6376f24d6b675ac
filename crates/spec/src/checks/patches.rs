//! Files with patches for the configuration of nodes: that they are there, and in a form that Talos merges.

use std::collections::BTreeMap;

use super::references::Look;
use crate::inventory::pools;
use crate::model::Castle;
use crate::problem::{Code, Problem, Problems};
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
    problems.sorted()
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
}
