//! Whatever the tree: no panic, no endless build, and every finding has a place and a way out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::BTreeMap;

use castle_gitops::{EXTERNAL_SECRETS, FLUX, Tree, World, judge, substitute};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::{folder, sections, text};

/// The trees of the corpus and of the fixtures, each as its files.
fn trees() -> Vec<Vec<(String, String)>> {
    let of = |place: &str| {
        folder(place).into_iter().map(|file| sections(&text(&format!("{place}/{file}")))).collect::<Vec<_>>()
    };
    [of("tests/corpus"), of("tests/fixtures")].concat()
}

fn world() -> World {
    let mut world = World::new("app");
    world.install(&FLUX);
    world.install(&EXTERNAL_SECRETS);
    world.give_variables("cluster-vars", BTreeMap::from([("name".to_owned(), "blue".to_owned())]));
    world
}

/// One change to a text: a line gone, twice, or moved; or some bytes replaced.
fn changed(text: &str, kind: u8, at: usize, by: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return by.to_owned();
    }
    let at = at % lines.len();
    match kind % 5 {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at]),
        2 => {
            let line = lines.remove(at);
            lines.insert(at / 2, line);
        }
        3 => lines[at] = by,
        _ => {
            let (key, _) = lines[at].split_once(':').unwrap_or((lines[at], ""));
            let line = format!("{key}: {by}");
            lines[at] = "";
            return lines.join("\n").replacen("\n\n", &format!("\n{line}\n"), 1);
        }
    }
    lines.join("\n") + "\n"
}

const WORDS: &[&str] = &[
    "",
    "[]",
    "{}",
    "null",
    "- a",
    "a: b",
    "${x}",
    "${",
    "*a",
    "&a [*a]",
    "../..",
    ".",
    "app",
    "'",
    "\"",
    "|",
    "%",
    "-1",
    "true",
    "\t",
    "é",
    "[1, {a: b}]",
    "apiVersion: v1",
    "kind: List",
    "kind: Kustomization",
    "\u{feff}",
    "$patch: delete",
    "path: ./",
    "[[[[[[[[",
    "!!x y",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_judged(
        tree in 0_usize..1000,
        changes in prop::collection::vec((0_usize..20, any::<u8>(), any::<usize>(), prop::sample::select(WORDS)), 0..6),
    ) {
        let mut trees = trees();
        let at = tree % trees.len();
        let mut files = trees.swap_remove(at);
        for (file, kind, line, by) in changes {
            let count = files.len();
            let text = &mut files[file % count].1;
            *text = changed(text, kind, line, by);
        }
        let tree = Tree::new(files.into_iter().map(|(path, text)| (path, text.into_bytes())));
        for entry in ["app", "clusters/blue", ""] {
            let mut world = world();
            world.entry.value["spec"]["path"] = entry.into();
            let verdict = judge(&tree, &world);
            for finding in &verdict.findings {
                prop_assert!(finding.line > 0 && !finding.file.is_empty() && !finding.fix.is_empty(), "{finding:?}");
            }
            prop_assert_eq!(verdict.findings, judge(&tree, &world).findings);
        }
    }

    #[test]
    fn any_text_is_substituted(text in "[$\\{\\}a-c:=#%/^,\\\\ -]{0,40}|\\PC{0,40}") {
        let variables = BTreeMap::from([("a".to_owned(), "é value".to_owned()), ("b".to_owned(), String::new())]);
        let done = substitute(&text, &variables);
        if !text.contains('$') {
            prop_assert_eq!(done.unwrap(), text);
        }
    }

    #[test]
    fn any_bytes_are_a_tree(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let tree = Tree::new([("app/a.yaml".to_owned(), bytes.clone()), ("app/kustomization.yaml".to_owned(), bytes)]);
        prop_assert!(!judge(&tree, &world()).forest.groups.is_empty());
    }
}

/// Kustomizations that each name the next one twice: a few files, and more builds than anybody has time for.
#[test]
fn what_grows_without_end_is_cut() {
    let inner = |level: usize| format!("resources: [../{}, ../x/../{}]\n", level + 1, level + 1);
    let mut files: Vec<(String, Vec<u8>)> =
        (0..30).map(|level| (format!("{level}/kustomization.yaml"), inner(level).into_bytes())).collect();
    files.push(("30/kustomization.yaml".to_owned(), b"resources: []\n".to_vec()));
    let mut world = world();
    world.entry.value["spec"]["path"] = "0".into();
    let findings = judge(&Tree::new(files), &world).findings;
    assert!(findings.len() == 1 && findings[0].why.contains("far too many"), "{findings:?}");
}
