//! The datacenter's Talos nodes, used by a real `talosctl` over real TLS, from maintenance mode to a healthy cluster.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

/// The nodes of the example: control planes, then a worker.
const NODES: [&str; 4] = ["127.0.10.1", "127.0.10.2", "127.0.10.3", "127.0.10.4"];
const CONTROL_PLANES: usize = 3;
/// How many times faster than life the nodes live.
const SPEED: &str = "50";
/// No single command takes longer.
const BOUND: Duration = Duration::from_secs(60);
/// What comes about by itself does so within this.
const PATIENCE: Duration = Duration::from_secs(90);

/// What `talosctl` said, and whether it was content.
struct Said {
    is_well: bool,
    text: String,
}

struct Talosctl {
    program: PathBuf,
    folder: PathBuf,
    /// How many things have been held.
    held: Cell<usize>,
}

impl Talosctl {
    /// Runs it to its end, or ends it.
    fn run(&self, arguments: &[&str]) -> Result<Said> {
        let said = self.folder.join("said");
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder).env("HOME", &self.folder);
        command.env("TALOSCONFIG", self.folder.join("talosconfig")).env("NO_PROXY", "127.0.0.0/8");
        command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(File::options().append(true).open(&said)?);
        let mut child = command.spawn().context("cannot start talosctl")?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > BOUND {
                child.kill()?;
                child.wait()?;
                bail!("talosctl {arguments:?} does not come to its end");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Ok(Said { is_well: status.success(), text: std::fs::read_to_string(said)? })
    }

    fn hold(&self) {
        self.held.set(self.held.get() + 1);
    }

    /// Runs it, and holds that all went well.
    fn well(&self, arguments: &[&str]) -> Result<String> {
        let said = self.run(arguments)?;
        ensure!(said.is_well, "talosctl {arguments:?}: {}", said.text);
        self.hold();
        Ok(said.text)
    }

    /// Runs it until it says what is awaited.
    fn until(&self, arguments: &[&str], is_it: impl Fn(&Said) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let said = self.run(arguments)?;
            if is_it(&said) {
                self.hold();
                return Ok(said.text);
            }
            ensure!(start.elapsed() < PATIENCE, "talosctl {arguments:?} still says: {}", said.text);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs it, and holds that it is refused with these words.
    fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let said = self.run(arguments)?;
        ensure!(!said.is_well && said.text.contains(words), "talosctl {arguments:?} is not refused: {}", said.text);
        self.hold();
        Ok(())
    }
}

pub(crate) fn node(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let mut datacenter = shell::program(shell::example("castle-datacenter", "talos")?);
    let workers = (NODES.len() - CONTROL_PLANES).to_string();
    datacenter.args([&CONTROL_PLANES.to_string(), &workers, SPEED, "v1.13.9"]);
    let _datacenter = Server::start(&mut datacenter, |line| line.starts_with("the hypervisor is at"))?;
    let talosctl = Talosctl {
        program: bench.peer("talosctl")?.join("talosctl"),
        folder: folder.path().to_owned(),
        held: Cell::new(0),
    };
    maintenance(&talosctl)?;
    formation(&talosctl)?;
    health(&talosctl, folder.path())?;
    Ok(talosctl.held.get())
}

/// Configurations that `talosctl` made itself, given to nodes that wait for one.
fn maintenance(talosctl: &Talosctl) -> Result<()> {
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
fn formation(talosctl: &Talosctl) -> Result<()> {
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
fn health(talosctl: &Talosctl, folder: &Path) -> Result<()> {
    talosctl.until(&["health", "--wait-timeout", "30s"], |said| {
        said.is_well && said.text.contains("waiting for coredns to report ready: OK")
    })?;
    talosctl.well(&["kubeconfig", "kubeconfig"])?;
    let kubeconfig = std::fs::read_to_string(folder.join("kubeconfig"))?;
    ensure!(kubeconfig.contains("server: https://127.0.10.1:6443"), "the kubeconfig leads elsewhere");
    Ok(())
}
