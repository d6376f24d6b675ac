//! The datacenter's Talos nodes, used by a real `talosctl` over real TLS, from maintenance mode to a healthy cluster.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::peers::suites::program::Program;
use crate::shell;

/// The nodes of the example: control planes, then a worker.
const NODES: [&str; 4] = ["127.0.10.1", "127.0.10.2", "127.0.10.3", "127.0.10.4"];
const CONTROL_PLANES: usize = 3;
/// How many times faster than life the nodes live.
const SPEED: &str = "50";
pub(crate) fn node(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let mut datacenter = shell::program(shell::example("talos")?);
    let workers = (NODES.len() - CONTROL_PLANES).to_string();
    datacenter.args([&CONTROL_PLANES.to_string(), &workers, SPEED, "v1.13.9"]);
    let _datacenter = Server::start(&mut datacenter, |line| line.starts_with("the hypervisor is at"))?;
    let talosctl = Program::new(bench.peer("talosctl")?.join("talosctl"), folder.path());
    maintenance(&talosctl)?;
    formation(&talosctl)?;
    health(&talosctl, folder.path())?;
    Ok(talosctl.held())
}

/// Configurations that `talosctl` made itself, given to nodes that wait for one.
fn maintenance(talosctl: &Program) -> Result<()> {
    talosctl.well(&["gen", "config", "blue", "https://127.0.10.1:6443"])?;
    for (place, node) in NODES.iter().enumerate() {
        let file = if place < CONTROL_PLANES { "controlplane.yaml" } else { "worker.yaml" };
        talosctl
            .until(&["version", "--insecure", "--nodes", node], |said| said.is_well && said.text.contains("NODE:"))?;
        talosctl.well(&["apply-config", "--insecure", "--nodes", node, "--file", file])?;
    }
    Ok(())
}

/// One etcd of three, and one cluster of four.
fn formation(talosctl: &Program) -> Result<()> {
    let [first, ..] = NODES;
    talosctl.well(&[&["config", "endpoint"][..], &NODES[..CONTROL_PLANES]].concat())?;
    talosctl.well(&["config", "node", first])?;
    talosctl.until(&["version"], |said| said.is_well && said.text.contains("Enabled:     RBAC"))?;
    // Whether the refusal is read before the connection is found closed is a matter of luck.
    let insecure = ["version", "--insecure", "--nodes", first];
    talosctl.until(&insecure, |said| !said.is_well && said.text.contains("certificate required"))?;
    talosctl.until(&["bootstrap"], |said| said.is_well)?;
    talosctl.until(&["etcd", "members"], |said| said.text.matches(" false").count() == CONTROL_PLANES)?;
    talosctl.refused(&["bootstrap"], "AlreadyExists")?;
    talosctl.until(&["get", "members"], |said| NODES.iter().all(|node| said.text.contains(node)))?;
    for node in NODES {
        talosctl.until(&["get", "machinestatus", "--nodes", node], |said| said.text.contains("running   true"))?;
    }
    Ok(())
}

/// What `talosctl` itself takes for a cluster that is well.
fn health(talosctl: &Program, folder: &Path) -> Result<()> {
    talosctl.until(&["health", "--wait-timeout", "30s"], |said| {
        said.is_well && said.text.contains("waiting for coredns to report ready: OK")
    })?;
    talosctl.well(&["kubeconfig", "kubeconfig"])?;
    let kubeconfig = std::fs::read_to_string(folder.join("kubeconfig"))?;
    ensure!(kubeconfig.contains("server: https://127.0.10.1:6443"), "the kubeconfig leads elsewhere");
    Ok(())
}
