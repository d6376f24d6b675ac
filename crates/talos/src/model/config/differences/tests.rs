use castle_yaml::parse;
use serde_json::json;

use super::*;

fn found(wanted: &str, live: &str) -> Vec<String> {
    differences(&parse(wanted).unwrap(), &parse(live).unwrap()).iter().map(ToString::to_string).collect()
}

const LINK: &str = "apiVersion: v1alpha1\nkind: LinkConfig\nname: net0\nmtu: 1400\n";

#[test]
fn a_configuration_does_not_differ_from_itself_in_another_order() {
    let main = "machine:\n    type: worker\n    token: a.b\n";
    assert_eq!(
        found(&format!("{main}---\n{LINK}"), &format!("{LINK}---\nmachine:\n    token: a.b\n    type: worker\n")),
        [""; 0]
    );
}

#[test]
fn every_place_is_named() {
    let wanted = format!("machine:\n    type: worker\n    certSANs: [a, b]\n    nodeLabels: {{x: '1'}}\n---\n{LINK}");
    let live = "machine:\n    type: controlplane\n    certSANs: [a]\n    sysctls: {y: '2'}\n---\n\
                apiVersion: v1alpha1\nkind: LinkConfig\nname: net0\nmtu: 1500\naddresses: [{address: 10.0.0.1/8}]\n";
    assert_eq!(
        found(&wanted, live),
        [
            r#"machine.type: is "controlplane", wanted "worker""#,
            r#"machine.certSANs: is ["a"], wanted ["a","b"]"#,
            r#"machine.nodeLabels: is absent, wanted {"x":"1"}"#,
            r#"machine.sysctls: is {"y":"2"}, wanted absent"#,
            "LinkConfig/net0.mtu: is 1500, wanted 1400",
            r#"LinkConfig/net0.addresses: is [{"address":"10.0.0.1/8"}], wanted absent"#,
        ]
    );
}

#[test]
fn whole_documents_are_missed_and_found() {
    let other = "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n";
    assert_eq!(
        found(LINK, other),
        [
            r#"LinkConfig/net0: is absent, wanted {"apiVersion":"v1alpha1","kind":"LinkConfig","name":"net0","mtu":1400}"#,
            r#"HostnameConfig: is {"apiVersion":"v1alpha1","kind":"HostnameConfig","auto":"stable"}, wanted absent"#,
        ]
    );
    assert_eq!(
        found("machine:\n    type: worker\n", "")[0],
        r#"v1alpha1: is absent, wanted {"machine":{"type":"worker"}}"#
    );
}

#[test]
fn what_goes_without_saying_is_no_difference() {
    let wanted = "version: v1alpha1\nmachine:\n    type: worker\n    install: {image: x}\n";
    let live = "version: v1alpha1\ndebug: false\npersist: true\ncluster: null\nmachine:\n    type: worker\n    token: ''\n    certSANs: []\n    \
                network: {}\n    install: {image: x, wipe: false}\n    features: {rbac: true}\n";
    assert_eq!(found(wanted, live), [""; 0]);
    assert_eq!(found(live, wanted), [""; 0]);
    assert_eq!(
        found(wanted, &live.replace("wipe: false", "wipe: true")),
        ["machine.install.wipe: is true, wanted absent"]
    );
    assert_eq!(found(wanted, &live.replace("persist: true", "persist: false")), ["persist: is false, wanted absent"]);
}

#[test]
fn secrets_differ_and_are_not_shown() {
    let wanted = "machine:\n    token: wanted-secret\n    ca: {crt: public, key: wanted-secret}\n    env: {PASSWORD: wanted-secret}\n    \
                  files: [{path: /x, content: wanted-secret}]\ncluster:\n    secret: wanted-secret\n    \
                  inlineManifests: [{name: x, contents: wanted-secret}]\n---\n\
                  apiVersion: v1alpha1\nkind: KubeEtcdEncryptionConfig\nconfig: {a: [{name: b, secret: wanted-secret}]}\n---\n\
                  apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: r\npassword: wanted-secret\n---\n\
                  apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: k\nurl: https://me:wanted-secret@log.lan/\n";
    let live = wanted
        .replace("wanted-secret", "live-secret")
        .replace("kind: RegistryAuthConfig\nname: r", "kind: RegistryAuthConfig\nname: s");
    let differences = differences(&parse(wanted).unwrap(), &parse(&live).unwrap());
    let shown = differences.iter().map(ToString::to_string).collect::<Vec<_>>();
    let debug = format!("{differences:?}");
    assert!(!shown.join("\n").contains("-secret") && !debug.contains("-secret"), "{shown:#?}");
    assert_eq!(
        shown,
        [
            "machine.token: differs",
            "machine.ca.key: differs",
            "machine.env.PASSWORD: differs",
            "machine.files.0.content: differs",
            "cluster.secret: differs",
            "cluster.inlineManifests.0.contents: differs",
            "KubeEtcdEncryptionConfig.config.a.0.secret: differs",
            r#"RegistryAuthConfig/r: is absent, wanted {"apiVersion":"v1alpha1","kind":"RegistryAuthConfig","name":"r","password":"(hidden)"}"#,
            "KmsgLogConfig/k.url: differs",
            r#"RegistryAuthConfig/s: is {"apiVersion":"v1alpha1","kind":"RegistryAuthConfig","name":"s","password":"(hidden)"}, wanted absent"#,
        ]
    );
}

#[test]
fn what_the_node_does_not_tell_is_not_compared() {
    let wanted = "machine:\n    token: a.b\n    certSANs: [a]\n";
    assert_eq!(found(wanted, "machine:\n    token: '******'\n    certSANs: [a]\n"), [""; 0]);
    assert_eq!(found(wanted, "machine:\n    certSANs: [a]\n"), ["machine.token: is absent, wanted (hidden)"]);
}

#[test]
fn sides_are_typed() {
    let one = &differences(&parse(LINK).unwrap(), &parse(&LINK.replace("1400", "1500")).unwrap())[0];
    assert_eq!((&one.is, &one.wanted), (&Side::Value(json!(1500)), &Side::Value(json!(1400))));
}

#[test]
fn what_is_no_document_is_never_shown() {
    let live = [serde_json::json!("machine: {token: planted}")];
    let found = differences(&[], &live);
    assert_eq!(found.len(), 1);
    assert!(!format!("{found:?} {}", found[0]).contains("planted"), "{found:?}");
}

/// Everybody in the cluster reads a taint: its `key` opens nothing.
#[test]
fn the_key_of_a_taint_is_shown() {
    let taint = |key: &str| {
        format!(
            "machine:\n    type: worker\n    kubelet:\n        extraConfig:\n            registerWithTaints: [{{key: {key}, effect: NoSchedule}}]\n"
        )
    };
    let path = "machine.kubelet.extraConfig.registerWithTaints.0.key";
    let differs = found(&taint("b"), &taint("a"));
    assert_eq!(differs, [format!(r#"{path}: is "a", wanted "b""#)]);
    let other = "machine:\n    type: worker\n    kubelet:\n        extraConfig: {key: a}\n";
    assert!(found(other, "machine:\n    type: worker\n")[0].contains("(hidden)"));
}
