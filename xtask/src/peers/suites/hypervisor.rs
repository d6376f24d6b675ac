//! The embedded datacenter, used by a client of Proxmox that nobody here wrote.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

/// Fewer checks mean that the script ended before its end.
const LEAST_CHECKS: usize = 170;

/// A datacenter that is served for a suite, and ends with it.
pub(super) struct Datacenter {
    serving: Value,
    _server: Server,
}

impl Datacenter {
    /// Serves one on loopback, with its keys below a folder.
    pub(super) fn serve(bench: &Bench, home: &Path) -> Result<Self> {
        let mut castle = Command::new(&bench.castle);
        castle.args(["datacenter", "--json", "--listen", "127.0.0.1:0", "--speed", "200"]);
        castle.env("HOME", home).env_remove("CASTLE_STATE_DIR").env_remove("XDG_STATE_HOME");
        // Whatever its first line is: one that tells of no datacenter is a failure at once.
        let server = Server::start(&mut castle, |_| true)?;
        let serving: Value = serde_json::from_str(&server.ready).context("castle datacenter printed no object")?;
        ensure!(serving["result"] == "serving", "castle datacenter does not serve: {serving}");
        Ok(Self { serving, _server: server })
    }

    /// What it said of itself.
    pub(super) fn told(&self, key: &str) -> Result<String> {
        let told = self.serving[key].as_str().map(str::to_owned);
        told.with_context(|| format!("castle datacenter did not tell its {key}"))
    }

    /// What it keeps in the file that it named.
    pub(super) fn kept(&self, key: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.told(key)?)?.trim().to_owned())
    }
}

pub(super) fn hypervisor(bench: &Bench) -> Result<usize> {
    let python = bench.peer("proxmoxer")?.join("bin/python");
    let home = tempfile::tempdir()?;
    let datacenter = Datacenter::serve(bench, home.path())?;
    let mut told = datacenter.serving.clone();
    told["token"] = datacenter.kept("token_file")?.into();
    told["password"] = datacenter.kept("password_file")?.into();

    let mut script = Command::new(python);
    // Nothing compiled is left beside the script.
    script.arg("-B").arg(shell::root().join("peers/hypervisor/proxmoxer_peer.py")).env("HOME", home.path());
    // A proxy of this machine has no business on loopback.
    script.env("NO_PROXY", "127.0.0.1");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    script.stdin.take().context("no input")?.write_all(told.to_string().as_bytes())?;
    let output = script.wait_with_output()?;
    let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "proxmoxer and the datacenter do not agree:\n{complaints}");
    let checks = said.lines().filter(|line| line.starts_with("ok  ")).count();
    ensure!(said.ends_with(&format!("\n{checks} checks hold\n")), "the script did not come to its end:\n{said}");
    ensure!(checks >= LEAST_CHECKS, "only {checks} checks were made");
    Ok(checks)
}
