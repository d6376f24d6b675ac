//! Real control planes and the embedded one, asked the same.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::Bench;
use crate::shell;

/// Fewer answers mean that the suite ended before its end.
const LEAST_ANSWERS: usize = 600;

/// The minor version that the recordings are of, and that castle installs unless told otherwise.
pub(super) fn recorded(bench: &Bench) -> Result<usize> {
    conformance(bench, "1.36")
}

pub(super) fn next(bench: &Bench) -> Result<usize> {
    conformance(bench, "1.37")
}

fn conformance(bench: &Bench, version: &str) -> Result<usize> {
    let mut command = Command::new(shell::example("castle-datacenter", "conformance")?);
    command.arg(version).arg(bench.peer("etcd")?.join("etcd")).arg(bench.peer(&format!("kubernetes-{version}"))?);
    let output = command.arg(bench.peer("kubectl")?.join("kubectl")).output()?;
    let (said, complaints) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the servers do not agree:\n{said}{complaints}");
    let last = said.lines().last().unwrap_or_default();
    let agreed = last.split_once(" answers agree").map(|(count, _)| count.parse::<usize>());
    let agreed = agreed.with_context(|| format!("the suite did not come to its end:\n{said}"))??;
    ensure!(agreed >= LEAST_ANSWERS, "only {agreed} answers were compared");
    Ok(agreed)
}
