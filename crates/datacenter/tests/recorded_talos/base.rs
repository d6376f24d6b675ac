//! The machine that was recorded, made again: its guest, and a configuration of the same lines.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Blueprint, Latencies, Stage};
use castle_testbed::VirtualClock;

use crate::castle::Castle;
use crate::site::{IMAGE, Site};
use crate::wire::{AUTO, Node, Nodes};

const ADDRESS: &str = "10.77.0.11";
/// The number of its guest.
pub(crate) const VMID: u32 = 431;

/// A node as it was recorded: in maintenance, alone.
pub(crate) async fn machine(clock: &VirtualClock) -> Nodes {
    let mut latencies = Latencies::default();
    latencies.talos.failed_first_boot = 0.0;
    // Its kubelet never came up.
    (latencies.talos.kubelet.mean, latencies.talos.kubelet.p95) = (1e9, 1e9);
    let site = Site::new(Blueprint::embedded(&[]).with_latencies(latencies), clock);
    let image = [("content", "import"), ("filename", "talos.qcow2"), ("url", IMAGE)];
    assert_eq!(site.run("POST", "/nodes/pve/storage/local/download-url", &image).await, "OK");
    let address = format!("ip={ADDRESS}/24,gw=10.77.0.1");
    let vmid = VMID.to_string();
    let config = [
        ("vmid", vmid.as_str()),
        ("name", "n1"),
        ("memory", "2048"),
        ("scsihw", "virtio-scsi-single"),
        ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2"),
        ("ide2", "local-lvm:cloudinit"),
        ("net0", "virtio=02:00:00:00:00:11,bridge=vmbr0"),
        ("ipconfig0", address.as_str()),
    ];
    assert_eq!(site.run("POST", "/nodes/pve/qemu", &config).await, "OK");
    assert_eq!(site.run("POST", &format!("/nodes/pve/qemu/{VMID}/status/start"), &[]).await, "OK");
    let nodes = Nodes { site, clock: *clock, castle: Castle::new(40), addresses: vec![ADDRESS.to_owned()] };
    nodes.until("maintenance", async || nodes.stranger(0).version().await.is_ok()).await;
    nodes
}

/// The same as the one control plane of its cluster: bootstrapped, its etcd healthy.
pub(crate) async fn control_plane(clock: &VirtualClock) -> Nodes {
    let nodes = machine(clock).await;
    nodes.stranger(0).apply(&configuration(&nodes.castle), AUTO).await.unwrap();
    nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
    let is_healthy = async || {
        let node: Node = nodes.admin(0);
        node.resource("runtime", "Services.v1alpha1.talos.dev", "etcd")
            .await
            .is_ok_and(|it| it.contains("healthy: true"))
    };
    nodes.until("etcd", is_healthy).await;
    assert_eq!(stage(&nodes), Some(Stage::Booting), "its kubelet does not run");
    nodes
}

fn stage(nodes: &Nodes) -> Option<Stage> {
    nodes.datacenter().talos_nodes().first().and_then(|node| node.stage)
}

/// A configuration of the lines that the recorded one had: what is told by its line is told by the same.
pub(crate) fn configuration(castle: &Castle) -> String {
    let wrapped = |text: &str| STANDARD.encode(text);
    let pair = |authority: &crate::castle::Authority, indent: usize| {
        let space = " ".repeat(indent);
        format!("{space}crt: {}\n{space}key: {}\n", wrapped(&authority.pem()), wrapped(&authority.key_pem()))
    };
    let mut text = String::from("version: v1alpha1\ndebug: false\npersist: true\nmachine:\n    type: controlplane\n");
    let token = "abcdef.0123456789abcdef";
    let secret = STANDARD.encode([7; 32]);
    write!(text, "    token: {token}\n    ca:\n{}    certSANs:\n        - {ADDRESS}\n", pair(&castle.os, 8)).unwrap();
    text += "    kubelet:\n        image: ghcr.io/siderolabs/kubelet:v1.36.3\n        \
             defaultRuntimeSeccompProfileEnabled: true\n        disableManifestsDirectory: true\n    features:\n        \
             diskQuotaSupport: true\n        kubePrism:\n            enabled: true\n            port: 7445\n        hostDNS:\n            \
             enabled: true\n            forwardKubeDNSToHost: true\n";
    pad(&mut text, 23);
    text += "    nodeLabels:\n        castle.dev/rack: a\n";
    write!(
        text,
        "cluster:\n    id: {secret}\n    secret: {secret}\n    controlPlane:\n        endpoint: https://{ADDRESS}:6443\n    \
         clusterName: real\n    network:\n        dnsDomain: cluster.local\n        podSubnets:\n            - 10.244.0.0/16\n        \
         serviceSubnets:\n            - 10.96.0.0/12\n    token: {token}\n    secretboxEncryptionSecret: {secret}\n    ca:\n{}    \
         discovery:\n        enabled: true\n        registries:\n            kubernetes:\n                disabled: true\n            \
         service: {{}}\n    etcd:\n        ca:\n{}",
        pair(&castle.kubernetes, 8),
        pair(&castle.etcd, 12),
    )
    .unwrap();
    pad(&mut text, 83);
    text += "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: real-cp-1\n";
    text += "---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers:\n    - address: 10.77.0.1\n";
    text += "---\napiVersion: v1alpha1\nkind: LinkAliasConfig\nname: net0\nselector:\n    \
             match: mac(link.permanent_addr) == \"02:00:00:00:00:11\"\n";
    text += "---\napiVersion: v1alpha1\nkind: StaticHostConfig\nname: 10.77.0.1\nhostnames:\n";
    pad(&mut text, 116);
    text += "    - gateway\n";
    assert_eq!(text.lines().count(), 117);
    text
}

/// Lines that say nothing, until there are this many.
fn pad(text: &mut String, lines: usize) {
    while text.lines().count() < lines {
        text.push_str("    # so that what follows stands on its line\n");
    }
}
