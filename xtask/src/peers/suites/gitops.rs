//! Flux's own libraries and castle, given the same trees.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::Bench;
use crate::shell;

/// castle's tests of building, with Flux's libraries at hand: they are asked everything again, and castle must agree with all.
pub(super) fn kustomize(bench: &Bench) -> Result<usize> {
    let mut tests = shell::cargo();
    tests.args(["test", "--locked", "--package", "castle-gitops", "--test", "oracle"]);
    let output = tests.env("FLUX_BUILD", bench.peer("flux-build")?.join("flux-build")).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let recorded = std::fs::read(shell::root().join("crates/gitops/tests/recorded.json"))?;
    let recorded: Value = serde_json::from_slice(&recorded)?;
    let count = |key: &str| recorded[key].as_object().map(serde_json::Map::len).context("the recordings are damaged");
    Ok(count("builds")? + count("texts")?)
}
