//! The embedded datacenter, used by a client of Proxmox that nobody here wrote.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use super::server::Server;
use super::suites::Suite;
use crate::shell;

pub(super) const SUITE: Suite = Suite {
    name: "hypervisor",
    needs: &["python"],
    holds: "the embedded datacenter is a Proxmox to proxmoxer, from login to deletion",
    run: hypervisor,
};

/// The client, and what it speaks HTTP with.
const PACKAGES: [&str; 2] = ["proxmoxer==2.3.0", "requests==2.34.2"];
/// Fewer checks mean that the script ended before its end.
const LEAST_CHECKS: usize = 50;

fn hypervisor(bench: &Bench) -> Result<usize> {
    let python = client(bench.peer("python")?)?;
    let home = tempfile::tempdir()?;
    let mut castle = Command::new(&bench.castle);
    castle.args(["datacenter", "--json", "--listen", "127.0.0.1:0", "--speed", "200"]);
    castle.env("HOME", home.path()).env_remove("CASTLE_STATE_DIR").env_remove("XDG_STATE_HOME");
    // Whatever its first line is: one that tells of no datacenter is a failure at once.
    let server = Server::start(&mut castle, |_| true)?;
    let serving: Value = serde_json::from_str(&server.ready).context("castle datacenter printed no object")?;
    ensure!(serving["result"] == "serving", "castle datacenter does not serve: {serving}");

    let mut script = Command::new(python);
    // Nothing compiled is left beside the script.
    script.arg("-B").arg(shell::root().join("peers/hypervisor/proxmoxer_peer.py")).env("HOME", home.path());
    // A proxy of this machine has no business on loopback.
    script.env("NO_PROXY", "127.0.0.1");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    script.stdin.take().context("no input")?.write_all(server.ready.as_bytes())?;
    let output = script.wait_with_output()?;
    let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "proxmoxer and the datacenter do not agree:\n{complaints}");
    let checks = said.lines().filter(|line| line.starts_with("ok  ")).count();
    ensure!(said.ends_with(&format!("\n{checks} checks hold\n")), "the script did not come to its end:\n{said}");
    ensure!(checks >= LEAST_CHECKS, "only {checks} checks were made");
    Ok(checks)
}

/// Python with the client, in an environment beside the one of the other peers; made on first use.
fn client(beside: &Path) -> Result<PathBuf> {
    let folder = beside.with_file_name(PACKAGES.join("-").replace("==", "-"));
    let python = folder.join("bin/python");
    // Written last: an installation that was cut off leaves nothing that looks finished.
    let complete = folder.join(".complete");
    if !complete.is_file() {
        println!("obtaining proxmoxer ...");
        shell::output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        shell::output(Command::new(&python).args(install).args(PACKAGES))?;
        std::fs::write(complete, "")?;
    }
    Ok(python)
}
