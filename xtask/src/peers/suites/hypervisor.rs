//! The embedded datacenter, used by a client of Proxmox that nobody here wrote.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

/// Fewer checks mean that the script ended before its end.
const LEAST_CHECKS: usize = 50;

pub(super) fn hypervisor(bench: &Bench) -> Result<usize> {
    let python = bench.peer("proxmoxer")?.join("bin/python");
    let home = tempfile::tempdir()?;
    let mut castle = Command::new(&bench.castle);
    castle.args(["datacenter", "--json", "--listen", "127.0.0.1:0", "--speed", "200"]);
    castle.env("HOME", home.path()).env_remove("CASTLE_STATE_DIR").env_remove("XDG_STATE_HOME");
    // Whatever its first line is: one that tells of no datacenter is a failure at once.
    let server = Server::start(&mut castle, |_| true)?;
    let serving: Value = serde_json::from_str(&server.ready).context("castle datacenter printed no object")?;
    ensure!(serving["result"] == "serving", "castle datacenter does not serve: {serving}");
    let kept = |key: &str| -> Result<Value> {
        let file = serving[key].as_str().context("castle datacenter did not tell where its keys are")?;
        Ok(std::fs::read_to_string(file)?.trim().into())
    };
    let mut told = serving.clone();
    told["token"] = kept("token_file")?;
    told["password"] = kept("password_file")?;

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
