//! One bug, planted, and the tests that have to find it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::copy::Copy;
use super::planted::Mutant;
use crate::shell;

/// The longest that building may take.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The longest that the tests of one bug may take, which may well let them run for ever.
const LONGEST_TESTS: Duration = Duration::from_secs(3 * 60);
/// What `timeout` ends with if it had to end the program.
const TIMED_OUT: i32 = 124;

/// What became of a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every test that it names was run, and failed.
    Caught,
    /// Why nobody can say that.
    Not(String),
    /// There was no time for it.
    Late,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => f.write_str("caught"),
            Self::Not(why) => write!(f, "NOT CAUGHT: {}", why.lines().next().unwrap_or_default()),
            Self::Late => f.write_str("NOT RUN"),
        }
    }
}

/// Plants a bug in the copy, runs its tests, and takes it out again.
pub(crate) fn run(mutant: &Mutant, copy: &Copy, end: Option<Instant>) -> Result<Verdict> {
    let whole = match copy.plant(mutant)? {
        Ok(whole) => whole,
        Err(said) => return Ok(Verdict::Not(format!("the patch does not apply\n{said}"))),
    };
    let verdict = planted(mutant, copy, end);
    whole.restore()?;
    verdict
}

/// What the tests of one program say without any bug. A test that fails anyway would be taken for one that finds every bug.
#[derive(Debug)]
pub(crate) struct Clean {
    /// The package and the target.
    program: Option<(String, Vec<String>)>,
    /// What was said; or why nothing was.
    said: Result<String, Verdict>,
}

impl Default for Clean {
    fn default() -> Self {
        Self { program: None, said: Err(Verdict::Late) }
    }
}

impl Clean {
    /// Why the first of these mutants, whose tests are all in one program, proves nothing; nothing if its tests pass without it.
    pub(crate) fn held(&mut self, same: &[&Mutant], copy: &Copy, end: Option<Instant>) -> Result<Option<Verdict>> {
        let Some(mutant) = same.first() else { return Ok(None) };
        let program = Some((mutant.package.clone(), mutant.target.clone()));
        if self.program != program || self.said == Err(Verdict::Late) {
            let tests: BTreeSet<&String> = same.iter().flat_map(|mutant| &mutant.must_fail).collect();
            let tests: Vec<String> = tests.into_iter().cloned().collect();
            let said = said(mutant, &tests, copy, end, LONGEST)?;
            *self = Self { program, said };
        }
        Ok(match &self.said {
            Ok(said) => unsound(&mutant.must_fail, said),
            Err(Verdict::Not(why)) => Some(Verdict::Not(format!("without the bug: {why}"))),
            Err(verdict) => Some(verdict.clone()),
        })
    }
}

/// What is wrong with tests, by what was said of them without a bug.
fn unsound(must_fail: &[String], said: &str) -> Option<Verdict> {
    let why: Vec<String> = must_fail
        .iter()
        .filter_map(|test| match ended(test, said) {
            Some(line) if line.ends_with("ok") => None,
            Some(_) => Some(format!("{test} fails without the bug, too")),
            None => Some(format!("there is no test {test}, or it was not run")),
        })
        .collect();
    (!why.is_empty()).then(|| Verdict::Not(why.join("; ")))
}

fn planted(mutant: &Mutant, copy: &Copy, end: Option<Instant>) -> Result<Verdict> {
    let said = said(mutant, &mutant.must_fail, copy, end, LONGEST_TESTS)?;
    Ok(said.map_or_else(|verdict| verdict, |said| judge(&mutant.must_fail, &said)))
}

/// Builds the tests of the copy as it is, and returns what these of them say; or why they say nothing.
fn said(
    mutant: &Mutant,
    tests: &[String],
    copy: &Copy,
    end: Option<Instant>,
    longest: Duration,
) -> Result<Result<String, Verdict>> {
    let left =
        |longest: Duration| end.map_or(longest, |end| end.saturating_duration_since(Instant::now()).min(longest));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = bounded(left(LONGEST));
    build.arg(cargo).args(["test", "--locked"]).args(chosen(mutant)).args(&mutant.target);
    build.args(["--no-run", "--message-format=json"]).env("CARGO_TARGET_DIR", copy.target());
    let built = output(build.current_dir(copy.folder()))?;
    if built.status.code() == Some(TIMED_OUT) {
        return Ok(Err(Verdict::Late));
    }
    if !built.status.success() {
        return Ok(Err(Verdict::Not(format!("it cannot be built\n{}", complaints(&built)))));
    }
    let (program, folder) = program(mutant, &built.stdout)?;
    let time = left(longest);
    let mut run = bounded(time);
    run.arg(program).arg("--exact").args(tests).current_dir(&folder);
    // A test that lacks something fails in CI, and would be taken for one that has found the bug.
    run.env("CARGO_MANIFEST_DIR", &folder).env("RUST_BACKTRACE", "0").env_remove("CI");
    // Beside the copy there is nothing.
    run.env("CASTLE_ORACLES", shell::oracles());
    let said = output(&mut run)?;
    if said.status.code() == Some(TIMED_OUT) {
        let why = || Verdict::Not(format!("its tests did not end within {} s", longest.as_secs()));
        return Ok(Err(if time < longest { Verdict::Late } else { why() }));
    }
    Ok(Ok(String::from_utf8_lossy(&said.stdout).into_owned()))
}

/// Which packages are asked for the target. Features are those of all that are asked: only if all are, whatever is built of others is what
/// the other tests were built with, and is there already. Of a library that would build the tests of every other one, too.
fn chosen(mutant: &Mutant) -> Vec<&str> {
    if mutant.target[0] == "--lib" { vec!["--package", &mutant.package] } else { vec!["--workspace"] }
}

/// Whether cargo's name for a package is that of this one: `path+file:///castle/crates/engine#castle-engine@0.1.0`, and without the name
/// where the folder has it.
fn is_called(id: &str, package: &str) -> bool {
    let Some((folder, name)) = id.rsplit_once('#') else { return false };
    name.split_once('@').map_or_else(|| folder.ends_with(&format!("/{package}")), |(name, _)| name == package)
}

/// How a test ended, as its program says.
fn ended<'s>(test: &str, said: &'s str) -> Option<&'s str> {
    said.lines().find_map(|line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(" "))
}

/// What the test program said of each test that has to fail.
fn judge(must_fail: &[String], said: &str) -> Verdict {
    let told = |test: &String| match ended(test, said) {
        Some(line) if line.ends_with("FAILED") => None,
        Some(line) if line.ends_with("ok") => Some(format!("{test} passes with the bug in")),
        Some(_) => Some(format!("{test} did not come to an end")),
        None => Some(format!("there is no test {test}, or it was not run")),
    };
    let why: Vec<String> = must_fail.iter().filter_map(told).collect();
    if why.is_empty() { Verdict::Caught } else { Verdict::Not(why.join("; ")) }
}

/// The test program that cargo has built, and the folder of its package.
fn program(mutant: &Mutant, messages: &[u8]) -> Result<(PathBuf, PathBuf)> {
    let messages = messages.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| {
        let is_its = is_called(message["package_id"].as_str()?, &mutant.package);
        let is_test = is_its && message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let (program, manifest) = (message["executable"].as_str()?, message["manifest_path"].as_str()?);
        is_test.then(|| (PathBuf::from(program), PathBuf::from(manifest)))
    });
    let (program, manifest) = programs.next().with_context(|| format!("{} has no such test target", mutant.package))?;
    let folder = manifest.parent().context("a manifest is in a folder")?;
    Ok((program, folder.to_owned()))
}

/// What the compiler said, in short.
fn complaints(built: &Output) -> String {
    let lines = built.stdout.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let errors = lines.filter(|line| line["message"]["level"] == "error");
    let mut said: Vec<String> =
        errors.filter_map(|line| line["message"]["rendered"].as_str().map(str::to_owned)).take(3).collect();
    if said.is_empty() {
        said.push(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    said.join("\n")
}

/// A program that is ended when its time is, with its children.
fn bounded(time: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &time.as_secs().max(1).to_string()]);
    command
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().context("cannot start timeout, a program of coreutils")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_known_by_what_cargo_calls_them() {
        let engine = "path+file:///castle/crates/engine#castle-engine@0.1.0";
        let castle = "path+file:///castle/crates/castle#0.1.0";
        assert!(is_called(engine, "castle-engine") && is_called(castle, "castle"));
        assert!(!is_called(engine, "engine") && !is_called(engine, "castle") && !is_called(castle, "castle-engine"));
    }

    #[test]
    fn only_a_test_that_was_run_and_failed_has_caught_it() {
        let said = "running 2 tests\ntest a::one ... FAILED\ntest a::one_more ... ok\ntest a::cut ... \n";
        let of = |tests: &[&str]| judge(&tests.iter().map(|&test| test.to_owned()).collect::<Vec<_>>(), said);
        assert_eq!(of(&["a::one"]), Verdict::Caught);
        let Verdict::Not(why) = of(&["a::one", "a::one_more", "a::on", "a::cut"]) else { panic!() };
        assert!(!why.contains("one passes"), "{why}");
        for told in ["one_more passes with the bug in", "no test a::on,", "a::cut did not come to an end"] {
            assert!(why.contains(told), "{told}: {why}");
        }
    }

    #[test]
    fn a_test_that_fails_anyway_finds_nothing() {
        let said = "test a::one ... ok\ntest a::other ... FAILED\ntest a::cut ... \n";
        let of = |tests: &[&str]| unsound(&tests.iter().map(|&test| test.to_owned()).collect::<Vec<_>>(), said);
        assert_eq!(of(&["a::one"]), None);
        let Some(Verdict::Not(why)) = of(&["a::one", "a::other", "a::none", "a::cut"]) else { panic!() };
        assert!(!why.contains("a::one "), "{why}");
        for told in ["a::other fails without the bug", "no test a::none,", "a::cut fails without the bug"] {
            assert!(why.contains(told), "{told}: {why}");
        }
    }
}
