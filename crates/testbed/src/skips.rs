//! Tests that lack something from outside: never in silence, and never in CI.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the file to which every skip of a run is added, a line each: whoever runs all tests tells them at the end.
pub const LIST: &str = "CASTLE_SKIPPED";

/// How many there were in this program.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Says that a test is skipped, wherever its output goes, and counts it.
///
/// # Panics
/// In CI, where everything must be there.
pub fn skipped(why: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    assert!(!in_ci, "CI has everything that tests need: {why}");
    tell(why);
}

/// The same for what a program of somebody else's is asked, which `cargo xtask peers` runs, in CI too.
pub fn left_to_peers(why: &str) {
    tell(&format!("{why} (cargo xtask peers asks it)"));
}

#[expect(clippy::disallowed_types, reason = "the list is on disk")]
fn tell(why: &str) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    told(&format!("SKIPPED ({number} in this program): {test}: {why}"));
    if let Some(file) = std::env::var_os(LIST) {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        let _ = opened.and_then(|mut list| writeln!(list, "{test}: {why}"));
    }
}

/// Says something of a test that passes, wherever its output goes.
pub fn told(what: &str) {
    // Written by hand: what tests print by the usual macros is kept from whoever runs them unless they fail.
    let _ = writeln!(std::io::stderr().lock(), "{what}");
}
