//! Real control planes and the embedded one, asked the same.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

use crate::peers::Bench;
use crate::shell;

/// Fewer answers mean that the suite ended before its end.
const LEAST_ANSWERS: usize = 600;
const LEAST_COMMANDS: usize = 150;

/// Fewer objects mean that not every kind was drawn.
const LEAST_STATUSES: usize = 20_000;

/// The minor version that the recordings are of, and that castle installs unless told otherwise.
pub(super) fn recorded(bench: &Bench) -> Result<usize> {
    conformance(bench, "1.36")
}

pub(super) fn next(bench: &Bench) -> Result<usize> {
    conformance(bench, "1.37")
}

/// Castle's own client and steps on both.
pub(super) fn client(bench: &Bench) -> Result<usize> {
    let program = shell::example("real")?;
    let mut held = 0;
    for version in ["1.36", "1.37"] {
        let mut command = Command::new(&program);
        command.arg(bench.peer("etcd")?.join("etcd")).arg(bench.peer(&format!("kubernetes-{version}"))?);
        let output = command.arg(shell::oracles().join("mirror")).output()?;
        let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "castle and Kubernetes {version} do not agree:\n{said}{complaints}");
        let checks = said.lines().filter(|line| line.starts_with("ok  ")).count();
        ensure!(said.ends_with(&format!("\n{checks} checks hold\n")), "it did not come to its end:\n{said}");
        held += checks;
    }
    Ok(held)
}

/// The status of objects, by castle and by `kstatus`.
pub(super) fn statuses(bench: &Bench) -> Result<usize> {
    let output = Command::new(shell::example("statuses")?).output()?;
    let ours = String::from_utf8(output.stdout)?;
    let pairs: Vec<(&str, &str)> = ours.lines().filter_map(|line| line.split_once('\t')).collect();
    let objects: Vec<&str> = pairs.iter().map(|(_, object)| *object).collect();
    let mut kstatus = Command::new(bench.peer("kstatus")?.join("kstatus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start kstatus")?;
    let mut input = kstatus.stdin.take().context("no input")?;
    let text = objects.join("\n");
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = kstatus.wait_with_output()?;
    writer.join().map_err(|_| anyhow!("the objects could not be told"))??;
    let theirs = String::from_utf8(output.stdout)?;
    let theirs: Vec<&str> = theirs.lines().collect();
    ensure!(theirs.len() == pairs.len(), "kstatus judged {} of {} objects", theirs.len(), pairs.len());
    for ((own, object), their) in pairs.iter().zip(&theirs) {
        ensure!(own == their, "castle says {own}, kstatus {their}, of {object}");
    }
    ensure!(pairs.len() >= LEAST_STATUSES, "only {} objects were judged", pairs.len());
    Ok(pairs.len())
}

/// The real `kubectl` against the embedded server.
pub(super) fn kubectl(bench: &Bench) -> Result<usize> {
    let mut command = Command::new(shell::example("conformance")?);
    command.arg("embedded").arg(bench.peer("kubectl")?.join("kubectl"));
    agreed(&mut command, LEAST_COMMANDS)
}

fn conformance(bench: &Bench, version: &str) -> Result<usize> {
    let mut command = Command::new(shell::example("conformance")?);
    command.arg(version).arg(bench.peer("etcd")?.join("etcd")).arg(bench.peer(&format!("kubernetes-{version}"))?);
    agreed(command.arg(bench.peer("kubectl")?.join("kubectl")), LEAST_ANSWERS)
}

/// How many answers agree; none may differ.
fn agreed(command: &mut Command, least: usize) -> Result<usize> {
    let output = command.output()?;
    let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the servers do not agree:\n{said}{complaints}");
    let last = said.lines().last().unwrap_or_default();
    let agreed = last.split_once(" answers agree").map(|(count, _)| count.parse::<usize>());
    let agreed = agreed.with_context(|| format!("the suite did not come to its end:\n{said}"))??;
    ensure!(agreed >= least, "only {agreed} answers were compared");
    Ok(agreed)
}
