//! Goal: a test that lacks something is never skipped in silence, and never in CI. Method: such a test, as a process of its own.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test of tests stands outside of them")]

use std::process::{Command, Output};

/// Set in the other process.
const CHILD: &str = "CASTLE_TEST_SKIPS";

#[test]
fn this_is_the_other_process() {
    if std::env::var_os(CHILD).is_some() {
        castle_testbed::skipped("the moon is not here");
        castle_testbed::left_to_peers("nobody is asked");
    }
}

fn other(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "this_is_the_other_process"]).env(CHILD, "1").env_remove("CI");
    command.env_remove(castle_testbed::SKIPPED_LIST).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_skip_is_told_and_counted_and_fails_in_ci() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    let skipped = other(&[(castle_testbed::SKIPPED_LIST, list.to_str().unwrap())]);
    let said = String::from_utf8_lossy(&skipped.stderr);
    let told = "SKIPPED (1 in this program): this_is_the_other_process: the moon is not here";
    assert!(skipped.status.success() && said.contains(told), "{said}");
    assert!(said.contains("SKIPPED (2 in this program)"), "{said}");
    assert_eq!(std::fs::read_to_string(list).unwrap().lines().count(), 2);
    assert!(!other(&[("CI", "true")]).status.success());
    assert!(other(&[("CI", "")]).status.success());
}
