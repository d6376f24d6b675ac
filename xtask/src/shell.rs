//! Running programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The folder with what others have published, which tests are held against: the same that `castle_testbed::oracles` finds.
pub(crate) fn oracles() -> PathBuf {
    let named = std::env::var_os("CASTLE_ORACLES").filter(|folder| !folder.is_empty());
    named.map_or_else(|| root().join("../shared"), PathBuf::from)
}

/// A program, run from the root of the repository.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// cargo, as this very run was started.
pub(crate) fn cargo() -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program to its end; what it prints is shown.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a program to its end and returns what it printed on standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}:\n{}", shown(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a program can be started at all.
pub(crate) fn exists(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What only builds for tests listen to.
const TRAP: &[u8] = b"CASTLE_TRAP";

/// Builds castle in release mode and returns the binary, which has no trap in it.
pub(crate) fn castle() -> Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--locked", "--release", "--package", "castle"]))?;
    let castle = target().join("release/castle");
    if std::fs::read(&castle)?.windows(TRAP.len()).any(|bytes| bytes == TRAP) {
        bail!("{} can be made to panic: it was built with debug assertions", castle.display());
    }
    Ok(castle)
}

/// Builds an example of a package in release mode and returns the binary.
pub(crate) fn measured_example(package: &str, name: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--locked", "--release", "--package", package, "--example", name]))?;
    Ok(target().join("release/examples").join(name))
}

/// An example of any package, built as tests are. `cargo test` builds all of them with the features of the whole workspace; asked for in
/// any other way, half of the workspace would be built once more.
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--locked", "--workspace", "--examples"]))?;
    Ok(target().join("debug/examples").join(name))
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
