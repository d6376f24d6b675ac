//! One tree for each kind of finding, and some that have none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::BTreeSet;

use castle_gitops::{
    Code, EXTERNAL_SECRETS, FLUX, IMAGE_AUTOMATION, LONGHORN, METALLB, Severity, Tree, Verdict, World, judge,
};
use support::fixtures::{Fixture, world};
use support::folder;

fn judged(name: &str, world: &World) -> (Verdict, Vec<String>) {
    let fixture = Fixture::read(name);
    (judge(&fixture.tree(), world), fixture.expected)
}

#[test]
fn each_fixture_has_its_finding_and_no_other() {
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for fixture in folder("tests/fixtures") {
        let (verdict, expected) = judged(&fixture, &world(&fixture));
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

/// The same for the kinds of image automation, in a release that has them in one file with all others.
#[test]
fn image_automation_serves_what_its_manifests_define() {
    let Some(manifests) = support::mirror("flux-v2.8.8-install.yaml") else { return };
    let (mut by_table, mut by_manifests) = (World::new(""), World::new(""));
    by_manifests.apply("flux", &manifests).unwrap();
    by_table.served = by_manifests.served.clone();
    by_table.served.add_all(IMAGE_AUTOMATION);
    assert_eq!(by_table.served, by_manifests.served, "the table adds nothing that is not there");
    let fixture = "kind-not-served-image-automation.txt";
    for (world, findings) in [(world(""), 1), (by_image_automation(), 0)] {
        assert_eq!(judged(fixture, &world).0.findings.len(), findings);
    }
}

fn by_image_automation() -> World {
    let mut world = world("");
    world.served.add_all(IMAGE_AUTOMATION);
    world
}

/// What castle makes is its own: the key to the repository, and the one that opens what is sealed.
#[test]
fn secrets_of_castle_are_given_and_owned() {
    let mut world = world("");
    let sealed = "sops-without-decryption.txt";
    assert!(judged(sealed, &world).0.has_errors());
    world.give_secret("flux-system");
    world.decrypt_with("sops-age");
    let object = |name: &str| {
        let path = "clusters/blue/a.yaml".to_owned();
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: flux-system}}\n");
        judge(&Tree::new([(path, text.into_bytes())]), &world)
    };
    for own in ["flux-system", "sops-age"] {
        let codes: Vec<Code> = object(own).findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::OwnedObject], "{own}");
    }
    assert!(object("mine").findings.is_empty());
    let path = "clusters/blue/a.yaml".to_owned();
    let sealed = b"apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: default}\nsops: {mac: x}\n".to_vec();
    assert!(!judge(&Tree::new([(path, sealed)]), &world).has_errors());
}

/// The same findings, whether a component is known by its table or by its manifests.
#[test]
fn manifests_are_as_good_as_tables() {
    let Some(manifests) = support::mirror("metallb-native-v0.16.1.yaml") else { return };
    let mut world = world("");
    world.apply("metallb", &manifests).unwrap();
    for fixture in ["owned-object.txt", "owned-object-definition.txt", "owned-component.txt", "clean.txt"] {
        let (verdict, expected) = judged(fixture, &world);
        assert_eq!(verdict.findings.len(), expected.len(), "{fixture}: {:#?}", verdict.findings);
    }
}

/// What is not read may be what a patch is for, but only where the patch can reach it.
#[test]
fn a_patch_for_nobody_is_wrong_where_all_is_read() {
    let patch = "patches: [{patch: '{apiVersion: v1, kind: Service, metadata: {name: nobody}}'}]\n";
    let remote = "resources: ['https://github.com/acme/base//deploy']\n";
    let judged = |base: &str, sibling: &str, patched: &str| {
        let files = [
            ("clusters/blue/kustomization.yaml", format!("resources: [base, sibling]\n{patched}")),
            ("clusters/blue/base/kustomization.yaml", format!("namePrefix: a\n{base}")),
            ("clusters/blue/sibling/kustomization.yaml", format!("namePrefix: a\n{sibling}")),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.into_bytes()));
        let mut codes: Vec<Code> = judge(&Tree::new(files), &world("")).findings.iter().map(|it| it.code).collect();
        codes.dedup();
        codes
    };
    assert_eq!(judged(remote, "", patch), [Code::NotJudged]);
    assert_eq!(judged("generators: [a.yaml]\n", "", patch), [Code::NotJudged]);
    assert_eq!(judged(&format!("{remote}{patch}"), "", ""), [Code::NotJudged]);
    assert_eq!(judged(remote, patch, ""), [Code::BuildFailed]);
    assert_eq!(judged("", "", patch), [Code::BuildFailed]);
    // What is named there is read as a path by nobody: Kustomize knows these as addresses, too.
    for address in ["gh:acme/base", "org-1@github.com:acme/base.git", "GitHub.com/acme/base"] {
        assert_eq!(judged(&format!("resources: ['{address}']\n"), "", patch), [Code::NotJudged], "{address}");
    }
}
