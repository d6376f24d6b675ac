//! The embedded vault, used by the vendor's own clients.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

/// Fewer checks mean that a client ended before its end.
const LEAST_CHECKS: usize = 15;
/// Who logs in. It opens nothing but the simulation.
const CLIENT: [&str; 2] = ["ca571e00-0000-4000-8000-000000000002", "of-no-use-anywhere-else"];

pub(super) fn vault(bench: &Bench) -> Result<usize> {
    let python = bench.peer("infisicalsdk")?.join("bin/python");
    let batch = bench.peer("vault-batch")?.join("vault-batch");
    let mut vault = Command::new(shell::example("vault")?);
    let server = Server::start(vault.arg("120").args(CLIENT), |line| line.starts_with("https://"))?;
    let [address, _, authority] = server.ready.split(' ').collect::<Vec<_>>()[..] else {
        bail!("the vault does not say where and who it is");
    };
    let mut script = Command::new(python);
    // Nothing compiled is left beside the script.
    script.arg("-B").arg(shell::root().join("peers/vault/infisicalsdk_peer.py")).arg(address);
    Ok(agreed(&mut script)? + agreed(Command::new(batch).args([address, authority]))?)
}

/// Runs a client to its end, and counts the checks that it has made.
fn agreed(client: &mut Command) -> Result<usize> {
    // A proxy of this machine has no business on loopback.
    let output = client.args(CLIENT).env("NO_PROXY", "127.0.0.1").output()?;
    let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the vendor's client and the vault do not agree:\n{said}{complaints}");
    let checks = said.lines().filter(|line| line.starts_with("ok  ")).count();
    ensure!(said.ends_with(&format!("\n{checks} checks hold\n")), "the client did not come to its end:\n{said}");
    ensure!(checks >= LEAST_CHECKS, "only {checks} checks were made");
    Ok(checks)
}
