//! One tree for each kind of finding, and some that have none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use castle_gitops::{Code, EXTERNAL_SECRETS, FLUX, LONGHORN, METALLB, Severity, Tree, Verdict, World, judge};
use support::{folder, sections, text};

/// What castle makes for the castle of the fixtures.
fn world() -> World {
    let mut world = World::new("clusters/blue");
    for component in [EXTERNAL_SECRETS, METALLB, LONGHORN, FLUX] {
        world.install(&component);
    }
    world.give_variables("cluster-vars", BTreeMap::from([("domain".to_owned(), "example.net".to_owned())]));
    world.stores.insert("infisical".to_owned());
    world
}

fn judged(fixture: &str, world: &World) -> (Verdict, Vec<String>) {
    let mut files = sections(&text(&format!("tests/fixtures/{fixture}")));
    let expected = files.remove(0);
    assert_eq!(expected.0, "expect", "{fixture}");
    let tree = Tree::new(files.into_iter().map(|(path, text)| (path, text.into_bytes())));
    (judge(&tree, world), expected.1.lines().map(str::to_owned).collect())
}

#[test]
fn each_fixture_has_its_finding_and_no_other() {
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for fixture in folder("tests/fixtures") {
        let (verdict, expected) = judged(&fixture, &world());
        let name = fixture.trim_end_matches(".txt");
        let found: Vec<String> = verdict.findings.iter().map(|it| format!("{}:{}", it.file, it.line)).collect();
        if found != expected {
            wrong.push(format!("{fixture}: expected {expected:?}, found {:#?}", verdict.findings));
        }
        for finding in &verdict.findings {
            if !name.starts_with(finding.code.text()) {
                wrong.push(format!("{fixture}: {finding:#?}"));
            }
            assert!(!finding.subject.is_empty() && !finding.why.is_empty() && !finding.fix.is_empty());
            seen.insert(finding.code);
        }
        let has_errors = verdict.findings.iter().any(|finding| finding.code.severity() == Severity::Error);
        assert_eq!(verdict.has_errors(), has_errors);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let missing: Vec<&str> = Code::ALL.iter().filter(|code| !seen.contains(code)).map(|code| code.text()).collect();
    assert!(missing.is_empty(), "no fixture for {missing:?}");
}

/// Goal: the tables of what components serve are those of the real manifests. Method: the mirror, where it is.
#[test]
fn components_serve_what_their_manifests_define() {
    for (component, file) in [
        (EXTERNAL_SECRETS, "external-secrets-v2.9.0.yaml"),
        (METALLB, "metallb-native-v0.16.1.yaml"),
        (LONGHORN, "longhorn-v1.12.1.yaml"),
        (FLUX, "flux-v2.9.0-components.yaml"),
    ] {
        let Some(manifests) = support::mirror(file) else { return };
        let (mut by_table, mut by_manifests) = (World::new(""), World::new(""));
        by_table.install(&component);
        by_manifests.apply(component.name, &manifests).unwrap();
        assert_eq!(by_table.served, by_manifests.served, "{}", component.name);
        assert!(by_manifests.owned.len() > 20);
    }
}

/// The same findings, whether a component is known by its table or by its manifests.
#[test]
fn manifests_are_as_good_as_tables() {
    let Some(manifests) = support::mirror("metallb-native-v0.16.1.yaml") else { return };
    let mut world = world();
    world.apply("metallb", &manifests).unwrap();
    for fixture in ["owned-object.txt", "owned-object-definition.txt", "owned-component.txt", "clean.txt"] {
        let (verdict, expected) = judged(fixture, &world);
        assert_eq!(verdict.findings.len(), expected.len(), "{fixture}: {:#?}", verdict.findings);
    }
}
