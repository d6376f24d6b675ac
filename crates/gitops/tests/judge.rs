//! One tree for each kind of finding, and some that have none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::BTreeSet;

use castle_gitops::{
    Code, EXTERNAL_SECRETS, FLUX, LONGHORN, METALLB, SOURCE_WATCHER, Severity, Tree, Verdict, World, judge,
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

/// The same for Flux 2.8, whose release has all controllers in one file.
#[test]
fn flux_2_8_serves_what_its_manifests_define() {
    let Some(manifests) = support::mirror("flux-v2.8.8-install.yaml") else { return };
    let (mut by_table, mut by_manifests) = (World::new("").with_flux(2, 8).with_image_automation(), World::new(""));
    by_table.install(&FLUX);
    by_table.served.add_all(SOURCE_WATCHER);
    by_manifests.apply("flux", &manifests).unwrap();
    assert_eq!(by_table.served, by_manifests.served);
    let fixture = "kind-not-served-image-automation.txt";
    for (world, findings) in [(world(""), 1), (by_image_automation(), 0)] {
        assert_eq!(judged(fixture, &world).0.findings.len(), findings);
    }
}

fn by_image_automation() -> World {
    world("").with_image_automation()
}

/// Goal: a mistake that was made many times is told once, with all its places. Method: each of them three times.
#[test]
fn what_has_one_cause_is_told_once() {
    let kustomization = |name: &str, spec: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
             spec: {{interval: 10m, retryInterval: 30s, prune: true, path: ./{name}, sourceRef: {{kind: GitRepository, name: flux-system}}{spec}}}\n"
        )
    };
    let release = |name: &str, spec: &str| {
        format!(
            "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {{name: {name}, namespace: flux-system}}\nspec: {spec}\n"
        )
    };
    let chart = |chart: &str, more: &str| {
        let source = "sourceRef: {kind: HelmRepository, name: charts}";
        format!("{{interval: 1h{more}, chart: {{spec: {{chart: {chart}, version: '1.x', {source}}}}}}}")
    };
    let pool = |name: &str| {
        format!(
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: {name}, namespace: metallb-system}}\n\
             spec: {{addresses: [10.0.0.58-10.0.0.70]}}\n"
        )
    };
    let workload = |name: &str| {
        let claim = "volumes: [{name: v, persistentVolumeClaim: {claimName: site}}]";
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  replicas: 2\n  \
             selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
             spec: {{containers: [{{name: a, image: 'nginx:1.29'}}], {claim}}}\n"
        )
    };
    let charts = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: charts, namespace: flux-system}\n\
                  spec: {interval: 1h, url: 'https://charts.example.org'}\n";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: site, namespace: default}\n\
                 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    let three = |of: &dyn Fn(&str) -> String| ["a", "b", "c"].map(of).join("---\n");
    let keys = "patchesStrategicMerges: []\nresources: []\n";
    let entry = |more: &str| ("clusters/blue/apps.yaml", kustomization("apps", more));
    let below = |text: String| ("apps/all.yaml", text);
    let with = |own: &str, text: String| below(format!("{own}---\n{text}"));
    for (code, files) in [
        (Code::FieldUnknown, vec![entry(""), below(three(&|name| release(name, "{chart: {spec: {chart: a}}}")))]),
        (Code::FieldUnknown, vec![entry(""), below(three(&|name| release(name, "")))]),
        (
            Code::Suspended,
            vec![entry(""), with(charts, three(&|name| release(name, &chart("podinfo", ", suspend: true"))))],
        ),
        (Code::AddressTaken, vec![entry(""), below(three(&pool))]),
        (Code::OwnedComponent, vec![entry(""), with(charts, three(&|name| release(name, &chart("metallb", ""))))]),
        (
            Code::SlowChartWaited,
            vec![entry(", wait: true"), with(charts, three(&|name| release(name, &chart("gitlab", ""))))],
        ),
        (
            Code::SlowChartWaited,
            vec![
                entry(", wait: true, timeout: 1m"),
                with(charts, three(&|name| release(name, &chart("podinfo", ", timeout: 5m")))),
            ],
        ),
        (Code::ReplicasOnOneVolume, vec![entry(""), with(claim, three(&workload))]),
        (
            Code::KeyDropped,
            vec![
                ("clusters/blue/apps.yaml", three(&|name| kustomization(name, ""))),
                ("a/kustomization.yaml", keys.to_owned()),
                ("b/kustomization.yaml", keys.to_owned()),
                ("c/kustomization.yaml", keys.to_owned()),
            ],
        ),
    ] {
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.into_bytes()));
        let findings = judge(&Tree::new(files), &world("")).findings;
        let told: Vec<_> = findings.iter().filter(|finding| finding.code == code).collect();
        assert!(!told.is_empty(), "{}: {findings:#?}", code.text());
        for finding in &told {
            assert_eq!(finding.also.len(), 2, "{}: {told:#?}", code.text());
        }
    }
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
