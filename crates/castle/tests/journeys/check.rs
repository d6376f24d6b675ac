//! `castle check` of castles that are right.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::problems::GOOD;
use crate::world::World;

#[test]
fn a_valid_castle_is_summed_up() {
    let ran = World::with_castle(GOOD).castle(&["check", "-v"]);
    insta::assert_snapshot!(ran.transcript());
}

#[test]
fn a_valid_castle_as_objects() {
    let ran = World::with_castle(GOOD).castle(&["check", "--json"]);
    insta::assert_snapshot!(format!("{:#}\n", ran.result()));
}

const RICH: &str = r##"castle: blue
platform:
  proxmox:
    endpoint: https://pve.lan:8006
    token: env:PROXMOX_TOKEN
    nodes: [pve, pve2]
    vmids: 421-460
    vlan: 7
    hardware: {scsiController: virtio-scsi-single, iothread: true, iso: {file: "local:iso/rescue.iso"}}
talos: {version: v1.14.1, kernelArgs: ["console=ttyS0,115200", "a: b"]}
kubernetes: {version: v1.37.0}
network: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, nameservers: [192.168.1.1, "fd00::1"], vip: 192.168.1.210}
nodes:
  controlPlanes: {count: 3, firstAddress: 192.168.1.211}
  workers: {count: 2, firstAddress: 192.168.1.214, memory: 8 GiB, dataDisk: 100GiB}
  pools:
    gpu: {count: 1, firstAddress: 192.168.1.220, cores: 16}
    far: {count: 1, firstAddress: 192.168.1.20, firstVmid: 450}
  overrides:
    blue-worker-2: {memory: 16GiB, host: pve2, mac: "02:1a:2b:3c:4d:5e"}
    blue-gpu-1: {hostname: blue-brain, address: 192.168.1.99}
secrets:
  infisical: {region: eu, project: tazlab, environment: prod, identity: env:INFISICAL}
gitops: {repository: https://github.com/me/blue.git, credential: vault:GITHUB_TOKEN, vars: {domain: example.net, "odd key": "# odd: value"}}
"##;

#[test]
fn the_resolved_castle_names_the_origin_of_each_value() {
    insta::assert_snapshot!(World::with_castle(RICH).castle(&["check", "--resolved"]).transcript());
}

/// The resolved castle is itself a castle.yaml, of the same castle.
#[test]
fn the_resolved_castle_resolves_to_itself() {
    let world = World::with_castle(RICH);
    let first = world.castle(&["check", "--resolved"]).stdout;
    world.write("again/castle.yaml", &first);
    let second = world.castle(&["check", "again", "--resolved"]).stdout;
    let values = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| {
                line.split(" # line")
                    .next()
                    .unwrap()
                    .split(" # default")
                    .next()
                    .unwrap()
                    .split(" # follows")
                    .next()
                    .unwrap()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(values(&first), values(&second));
}

/// Names, addresses, VMIDs and hardware addresses that were given out stay what they are.
#[test]
fn nodes_are_the_same_whatever_is_added() {
    let nodes = |text: &str| -> BTreeSet<String> {
        let result = World::with_castle(text).castle(&["check", "--json"]).result();
        let nodes = result["nodes"].as_array().unwrap_or_else(|| panic!("{result:#}")).clone();
        nodes.iter().map(Value::to_string).collect()
    };
    let before = nodes(GOOD);
    let grown = [
        GOOD.replace("count: 2", "count: 4"),
        GOOD.replace("  workers:", "  pools: {a: {count: 2, firstAddress: 192.168.1.217}}\n  workers:"),
        GOOD.replace("421-432", "421-499"),
        GOOD.replace("v1.13.9", "v1.13.8"),
    ];
    for text in grown {
        assert!(before.is_subset(&nodes(&text)), "{text}");
    }
    assert_eq!(before, nodes(GOOD), "and from one run to the next");
}

#[test]
fn an_ipv6_castle_is_valid() {
    let text = "castle: six
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3, podSubnets: ['fd01::/56'], serviceSubnets: ['fd02::/112']}
network: {cidr: 'fd00::/64', gateway: 'fe80::1', nameservers: ['fd00::53', 9.9.9.9], vip: 'fd00::10', loadBalancers: 'fd00::1:0-fd00::1:ff'}
nodes:
  controlPlanes: {count: 3, firstAddress: 'fd00::11', dataDisk: 10GiB}
";
    let ran = World::with_castle(text).castle(&["check", "-v"]);
    assert_eq!((ran.stderr.as_str(), ran.code), ("", Some(0)));
    assert!(ran.stdout.contains("fd00::13"), "{}", ran.stdout);
}

#[test]
fn a_folder_without_a_castle_points_to_those_below() {
    let world = World::new();
    world.write("clusters/blue/proxmox/castle.yaml", GOOD);
    let ran = world.castle(&["check"]);
    insta::assert_snapshot!(ran.transcript(), @r"
    error[file-unreadable]: cannot read castle.yaml: no such file
    --> castle.yaml
     = help: there is clusters/blue/proxmox

    castle.yaml is not valid: 1 error. `castle check --explain CODE` tells more.
    exit 4
    ");
}

#[test]
fn codes_are_explained() {
    let world = World::new();
    let ran = world.castle(&["check", "--explain", "control-planes-even"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.stdout.starts_with("control-planes-even\n*Error.* The number of control planes is even."),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("control-planes-too-many"), "{}", ran.stdout);
    let ran = world.castle(&["check", "--explain", "control-plane-even"]);
    assert_eq!(
        (ran.code, ran.stderr.contains("did you mean `control-planes-even`?")),
        (Some(4), true),
        "{}",
        ran.stderr
    );
}
