//! A castle raised by castle, used by real clients with the files that castle issued for them.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::peers::Bench;
use crate::peers::suites::program::Program;

/// The nodes: control planes, then a worker.
const NODES: [&str; 4] = ["127.43.200.11", "127.43.200.12", "127.43.200.13", "127.43.200.21"];
const CONTROL_PLANES: usize = 3;
const SHARED: &str = "127.43.200.10";

const CASTLE: &str = "castle: peer
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network: {cidr: 127.43.200.0/24, gateway: 127.43.200.1, nameservers: [127.43.200.1], vip: 127.43.200.10}
nodes:
  controlPlanes: {count: 3, firstAddress: 127.43.200.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.43.200.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";

pub(crate) fn raised(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("castle.yaml"), CASTLE)?;
    let castle = Program::new(bench.castle.clone(), folder.path());
    let held = clients(bench, &castle, folder.path());
    // Whatever was held: the datacenter ends with its suite.
    castle.well(&["datacenter", "stop"])?;
    Ok(held? + castle.held())
}

fn clients(bench: &Bench, castle: &Program, folder: &Path) -> Result<usize> {
    let start = Instant::now();
    castle.well(&["up"])?;
    println!("  raised in {:.1} s", start.elapsed().as_secs_f64());
    castle.well(&["talosconfig", "--out", "talosconfig"])?;
    castle.well(&["kubeconfig", "--out", "kubeconfig"])?;
    let talosctl = Program::new(bench.peer("talosctl")?.join("talosctl"), folder);
    let kubectl = Program::new(bench.peer("kubectl")?.join("kubectl"), folder);
    talos(&talosctl, folder)?;
    kubernetes(&kubectl)?;
    Ok(talosctl.held() + kubectl.held())
}

fn talos(talosctl: &Program, folder: &Path) -> Result<()> {
    let [first, ..] = NODES;
    let contexts = talosctl.well(&["config", "info"])?;
    ensure!(contexts.contains("os:admin") && contexts.contains(first), "another talosconfig: {contexts}");
    for node in NODES {
        let version = talosctl.well(&["version", "--nodes", node])?;
        ensure!(version.contains("v1.13.9") && version.contains("RBAC"), "another node: {version}");
    }
    let members = talosctl.well(&["get", "members", "--nodes", first])?;
    ensure!(NODES.iter().all(|node| members.contains(node)), "not every node is a member: {members}");
    let voters = talosctl.well(&["etcd", "members", "--nodes", first])?;
    ensure!(voters.matches(" false").count() == CONTROL_PLANES, "not every member votes: {voters}");
    talosctl.refused(&["bootstrap", "--nodes", first], "AlreadyExists")?;
    let health = talosctl.well(&["health", "--nodes", first, "--wait-timeout", "30s"])?;
    ensure!(health.contains("waiting for coredns to report ready: OK"), "not well: {health}");
    // Asked by the client itself, of the nodes that it is told.
    let (control_planes, workers) = NODES.split_at(CONTROL_PLANES);
    let (control_planes, workers) = (control_planes.join(","), workers.join(","));
    let asked = ["health", "--server=false", "--nodes", first, "--wait-timeout", "30s"];
    let of = ["--control-plane-nodes", &control_planes, "--worker-nodes", &workers];
    let health = talosctl.well(&[&asked[..], &of[..]].concat())?;
    ensure!(health.contains("waiting for coredns to report ready: OK"), "not well: {health}");
    talosctl.well(&["kubeconfig", "of-talosctl", "--nodes", first])?;
    let (theirs, ours) = (read(folder, "of-talosctl")?, read(folder, "kubeconfig")?);
    for line in [format!("server: https://{SHARED}:6443"), authority(&ours)?] {
        ensure!(theirs.contains(&line) && ours.contains(&line), "talosctl's kubeconfig differs in {line:?}");
    }
    Ok(())
}

fn kubernetes(kubectl: &Program) -> Result<()> {
    let nodes = kubectl.well(&["get", "nodes"])?;
    ensure!(nodes.matches(" Ready ").count() == NODES.len(), "not every node is Ready: {nodes}");
    kubectl.well(&["wait", "--for=condition=Available", "deployment/coredns", "-n", "kube-system", "--timeout=30s"])?;
    let leases = kubectl.well(&["get", "leases", "-n", "kube-node-lease", "-o", "name"])?;
    ensure!(leases.lines().count() == NODES.len(), "not every node holds a lease: {leases}");
    drained(kubectl)
}

/// A worker is emptied and opened again, as people do it before they work on a machine.
fn drained(kubectl: &Program) -> Result<()> {
    let named = |selector: &str| -> Result<String> {
        let names = kubectl.well(&["get", "nodes", "-l", selector, "-o", "name"])?;
        let first = names.lines().next().and_then(|line| line.strip_prefix("node/"));
        Ok(first.with_context(|| format!("no node is {selector}"))?.to_owned())
    };
    let control_plane = named("node-role.kubernetes.io/control-plane")?;
    let worker = named("!node-role.kubernetes.io/control-plane")?;
    let (worker, control_plane) = (worker.as_str(), control_plane.as_str());
    // What only its agent ends is nothing to whoever drains.
    let told = kubectl.well(&["drain", control_plane, "--ignore-daemonsets", "--dry-run=server"])?;
    ensure!(!told.contains("kube-apiserver") && told.contains("kube-proxy"), "static Pods are drained: {told}");
    kubectl.well(&["create", "deployment", "web", "--image=example.test/web", "--replicas=2"])?;
    kubectl.well(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"])?;
    let scratch = r#"--overrides={"spec":{"volumes":[{"name":"s","emptyDir":{}}]}}"#;
    kubectl.well(&["run", "scratch", "--image=example.test/scratch", scratch])?;
    kubectl.well(&["wait", "--for=condition=Ready", "pod/scratch", "--timeout=60s"])?;
    kubectl.refused(&["drain", worker], "cannot delete DaemonSet-managed Pods")?;
    kubectl.refused(&["drain", worker, "--ignore-daemonsets"], "cannot delete Pods with local storage")?;
    kubectl.well(&["delete", "pod", "scratch", "--wait=true"])?;
    kubectl.well(&["run", "lone", "--image=example.test/lone"])?;
    kubectl.well(&["uncordon", worker])?;
    kubectl.well(&["wait", "--for=condition=Ready", "pod/lone", "--timeout=60s"])?;
    kubectl.refused(&["drain", worker, "--ignore-daemonsets"], "cannot delete Pods that declare no controller")?;
    kubectl.well(&["delete", "pod", "lone", "--wait=true"])?;
    kubectl.well(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2"])?;
    let held = ["drain", worker, "--ignore-daemonsets", "--timeout=6s"];
    kubectl.refused(&held, "Cannot evict pod as it would violate the pod's disruption budget.")?;
    kubectl.well(&["delete", "poddisruptionbudget", "web"])?;
    let told = kubectl.well(&["drain", worker, "--ignore-daemonsets", "--timeout=50s"])?;
    ensure!(told.contains(&format!("node/{worker} drained")) && told.contains("evicting pod default/web-"), "{told}");
    let on_worker = format!("--field-selector=spec.nodeName={worker}");
    let left = kubectl.well(&["get", "pods", "-A", &on_worker, "-o", "name"])?;
    let are_daemons = left.lines().all(|pod| pod.contains("kube-proxy") || pod.contains("kube-flannel"));
    ensure!(are_daemons && left.lines().count() == 2, "more than the daemons is left: {left}");
    kubectl.well(&["uncordon", worker])?;
    kubectl.well(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"])?;
    kubectl.well(&["delete", "deployment", "web"])?;
    Ok(())
}

fn read(folder: &Path, file: &str) -> Result<String> {
    Ok(std::fs::read_to_string(folder.join(file))?)
}

/// The line of a kubeconfig with the cluster's certificate authority.
fn authority(kubeconfig: &str) -> Result<String> {
    let line = kubeconfig.lines().find(|line| line.contains("certificate-authority-data"));
    Ok(line.context("a kubeconfig without an authority")?.trim().to_owned())
}
