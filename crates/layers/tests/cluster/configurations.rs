//! Every configuration that castle makes of a file: judged by Talos' own schema and programs, and by a node.

use std::collections::BTreeMap;

use castle_layers::cluster::{ConfigurationError, Referred, configuration};
use castle_secrets::Secret;
use castle_spec::values::SecretReference;
use castle_spec::{Castle, Node};
use castle_talos::model::bundle::Bundle;
use castle_talos::model::config::Configuration;
use castle_testbed::in_virtual_time;
use serde_json::Value;

use crate::castle::{bundle, quick};
use crate::judge::{Schema, library, talosctl};
use crate::room::read;

/// A release of each contract, with a Kubernetes that it runs.
const RELEASES: [(&str, &str); 3] = [("v1.12.6", "v1.35.0"), ("v1.13.9", "v1.36.3"), ("v1.14.1", "v1.37.0")];

const LABELS: &str = "labels: {castle.dev/disk: fast}, taints: ['dedicated=storage:NoSchedule', 'lonely:NoExecute']";
const MIRRORS: &str = "mirrors: {docker.io: {endpoints: ['https://mirror.lan:5000', 'http://old.lan'], credential: env:MIRROR}, \
                       ghcr.io: {endpoints: ['https://mirror.lan:5000'], credential: env:MIRROR}, quay.io: {endpoints: ['https://quay.lan']}}";

/// What files can ask for: what to write instead of what.
const WISHES: [(&str, &[(&str, &str)]); 12] = [
    ("nothing", &[]),
    ("no shared address", &[(", vip: 10.0.255.1", "")]),
    ("no workers", &[("count: 2, firstAddress: 10.0.1.8", "count: 0, firstAddress: 10.0.1.8")]),
    ("no network for pods", &[("kubernetes: {", "kubernetes: {cni: none, ")]),
    ("no proxy", &[("kubernetes: {", "kubernetes: {kubeProxy: false, ")]),
    ("control planes that work", &[("kubernetes: {", "kubernetes: {scheduleOnControlPlanes: true, ")]),
    (
        "other networks",
        &[("kubernetes: {", "kubernetes: {podSubnets: [10.200.0.0/16], serviceSubnets: [10.100.0.0/20], ")],
    ),
    ("longhorn", &[("storage: none", "storage: longhorn")]),
    ("labels and taints", &[("dataDisk: 20GiB", LABELS)]),
    ("mirrors", &[("serviceAccountKey: p256", MIRRORS)]),
    (
        "modules and time",
        &[
            ("serviceAccountKey: p256", "kernelModules: [nbd, ublk_drv]"),
            ("nameservers:", "timeServers: [10.0.0.1, time.lan], nameservers:"),
        ],
    ),
    (
        "patches",
        &[
            ("serviceAccountKey: p256", "patches: [all.yaml]"),
            ("dataDisk: 20GiB", "dataDisk: 20GiB, patches: [workers.yaml]"),
        ],
    ),
];

/// A patch with a document of its own, one that is merged, and one that takes away.
const ALL: &str = "machine:\n    certSANs:\n        - castle.lan\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nsearchDomains:\n    domains:\n        - lan\n---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 3m0s\n";
const WORKERS: &str = "apiVersion: v1alpha1\nkind: LinkConfig\nname: net0\nmtu: 9000\n---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp:\n    servers:\n        - time.lan\n";

fn referred() -> Referred {
    let secret = |text: &str| Secret::from(text.to_owned());
    Referred {
        patches: [("all.yaml".to_owned(), secret(ALL)), ("workers.yaml".to_owned(), secret(WORKERS))].into(),
        credentials: [(SecretReference::Env("MIRROR".to_owned()), secret("robot:planted"))].into(),
    }
}

/// The file with this release and these wishes.
fn wished((talos, kubernetes): (&str, &str), wishes: &[(&str, &str)]) -> (Castle, Vec<Node>) {
    let text = quick(3, 2).replace("v1.13.9", talos).replace("v1.36.3", kubernetes);
    let text = wishes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    read(&text)
}

fn all(castle: &Castle, nodes: &[Node], bundle: &Bundle) -> BTreeMap<String, Configuration> {
    let made = |node: &Node| configuration(castle, nodes, node, bundle, &referred()).unwrap();
    nodes.iter().map(|node| (node.name.value.clone(), made(node))).collect()
}

/// Every configuration of every file, by what it is of.
fn everything(bundle: &Bundle) -> Vec<(String, bool, Configuration)> {
    let mut made = Vec::new();
    for release in RELEASES {
        for (what, wishes) in WISHES {
            let (castle, nodes) = wished(release, wishes);
            let of =
                |(node, configuration)| (format!("{}, {what}, {node}", release.0), release.0 > "v1.14", configuration);
            made.extend(all(&castle, &nodes, bundle).into_iter().map(of));
        }
    }
    for file in [
        include_str!("../../../../examples/blue/castle.yaml"),
        include_str!("../../../../templates/embedded.yaml"),
        include_str!("../../../../templates/proxmox.yaml"),
    ] {
        let (castle, nodes) = read(&file.replace("PROJECT", "blue"));
        made.extend(
            all(&castle, &nodes, bundle)
                .into_iter()
                .map(|(node, made)| (format!("a file of ours, {node}"), false, made)),
        );
    }
    made
}

fn minted() -> Bundle {
    in_virtual_time(async |clock| bundle(clock).await)
}

#[test]
fn every_configuration_is_valid_by_the_vendors_schema() {
    let Some(schema) = Schema::load() else { return };
    let everything = everything(&minted());
    assert!(everything.len() > 150);
    for (what, is_moved, configuration) in &everything {
        for document in configuration.documents() {
            let verdict = schema.judge(*is_moved, document);
            assert_eq!(verdict, Ok(()), "{what}: {}", document["kind"]);
        }
    }
    // The judge is awake.
    let mut spoilt = everything[0].2.documents()[0].clone();
    spoilt["machine"]["tokens"] = "x".into();
    assert!(schema.judge(false, &spoilt).is_err());
}

#[test]
fn every_configuration_is_valid_by_the_vendors_programs() {
    let everything = everything(&minted());
    let texts: Vec<String> = everything.iter().map(|(.., made)| made.text().expose().to_owned()).collect();
    if let Some(verdicts) = library(&texts) {
        assert_eq!(verdicts.len(), texts.len());
        for ((what, ..), verdict) in everything.iter().zip(verdicts) {
            assert_eq!(verdict, "", "{what}");
        }
    }
    // This talosctl is of 1.13, and reads what it and its forebears know.
    for ((what, ..), text) in everything.iter().zip(&texts).filter(|((_, is_moved, _), _)| !is_moved) {
        let Some(verdict) = talosctl(text) else { return };
        assert_eq!(verdict, Ok(()), "{what}");
    }
}

#[test]
fn the_same_file_gives_the_same_bytes() {
    let bundle = minted();
    let texts =
        || everything(&bundle).into_iter().map(|(.., made)| made.text().expose().to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(), texts());
}

/// The document of this kind and name.
fn document<'c>(configuration: &'c Configuration, kind: &str, name: &str) -> &'c Value {
    let is_it = |document: &&Value| document["kind"] == kind && (name.is_empty() || document["name"] == name);
    configuration.documents().iter().find(is_it).unwrap_or(&Value::Null)
}

#[test]
fn patches_are_merged_in_their_order_and_where_they_belong() {
    let (bundle, wishes) = (minted(), WISHES[11].1);
    for release in RELEASES {
        let (castle, nodes) = wished(release, wishes);
        let made = all(&castle, &nodes, &bundle);
        let (control_plane, worker) = (&made["blue-cp-1"], &made["blue-worker-1"]);
        for node in [control_plane, worker] {
            assert_eq!(node.documents()[0]["machine"]["certSANs"][1], "castle.lan", "lists grow");
            assert_eq!(document(node, "ResolverConfig", "")["searchDomains"]["domains"][0], "lan");
            assert_eq!(document(node, "ResolverConfig", "")["nameservers"][0]["address"], "10.0.0.1", "mappings merge");
            assert_eq!(document(node, "WatchdogTimerConfig", "")["device"], "/dev/watchdog0", "documents are added");
        }
        assert_eq!(document(worker, "LinkConfig", "net0")["mtu"], 9000);
        assert_eq!(document(control_plane, "LinkConfig", "net0")["mtu"], Value::Null, "the pool's are the pool's");
    }
}

#[test]
fn mirrors_have_their_logins_once_a_host() {
    let (bundle, wishes) = (minted(), WISHES[9].1);
    for release in RELEASES {
        let (castle, nodes) = wished(release, wishes);
        let made = all(&castle, &nodes, &bundle);
        let node = &made["blue-worker-1"];
        let logins = node.documents().iter().filter(|document| document["kind"] == "RegistryAuthConfig");
        let logins: Vec<_> =
            logins.map(|it| (it["name"].as_str().unwrap(), &it["username"], &it["password"])).collect();
        let (robot, password) = (Value::from("robot"), Value::from("planted"));
        assert_eq!(logins, [("mirror.lan:5000", &robot, &password), ("old.lan", &robot, &password)]);
        assert_eq!(document(node, "RegistryMirrorConfig", "docker.io")["endpoints"][1]["url"], "http://old.lan");
        assert!(!format!("{node:?}").contains("planted"));
    }
}

#[test]
fn what_cannot_be_made_is_named_with_what_to_do() {
    let bundle = minted();
    let made = |change: &[(&str, &str)], referred: &Referred| {
        let (castle, nodes) = wished(RELEASES[1], change);
        configuration(&castle, &nodes, nodes.last().unwrap(), &bundle, referred).unwrap_err()
    };
    let said = |error: &ConfigurationError| {
        let fault = error.fault("blue-worker-2");
        assert!(fault.is_final());
        format!("{fault} / {}", fault.next)
    };
    let patch = |text: &str| Referred {
        patches: [("all.yaml".to_owned(), Secret::from(text.to_owned()))].into(),
        ..Referred::default()
    };
    let patches = &[("serviceAccountKey: p256", "patches: [all.yaml]")][..];
    for (text, expected) in [
        (
            "machine: [",
            "blue-worker-2: the patch all.yaml: line 1, column 10: this is not YAML / correct all.yaml, then: castle check",
        ),
        (
            "- op: add\n  path: /machine/token\n  value: planted\n",
            "blue-worker-2: the patch all.yaml cannot be merged: a document is no mapping / correct all.yaml, then: castle check",
        ),
        (
            "machine: planted\n",
            "blue-worker-2: the patch all.yaml cannot be merged: v1alpha1: machine is of another type than in the configuration / correct all.yaml, then: castle check",
        ),
    ] {
        assert_eq!(said(&made(patches, &patch(text))), expected);
    }
    assert_eq!(
        said(&made(patches, &Referred::default())),
        "blue-worker-2: the patch all.yaml was not read / correct all.yaml, then: castle check"
    );
    let mirrors = &[("serviceAccountKey: p256", MIRRORS)][..];
    assert_eq!(
        said(&made(mirrors, &Referred::default())),
        "blue-worker-2: the credential of the mirror for docker.io was not read from env:MIRROR / correct what env:MIRROR holds, then run the same command again"
    );
    let odd = [(SecretReference::Env("MIRROR".to_owned()), Secret::from("planted".to_owned()))].into();
    assert_eq!(
        said(&made(mirrors, &Referred { credentials: odd, ..Referred::default() })),
        "blue-worker-2: the credential of the mirror for docker.io, from env:MIRROR, is neither USERNAME:PASSWORD nor a mapping with username and password / correct what env:MIRROR holds, then run the same command again"
    );
}
