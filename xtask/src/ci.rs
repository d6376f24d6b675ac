//! What CI does, in three tiers: what one asks after every change, all that needs no outside program, and the rest.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::peers::obtain::Budget;
use crate::shell::{self, cargo};
use crate::{deny, mutants, peers, readme, tidy};

/// How long peers that no earlier run has left in the cache may take to be built. A machine that is new to castle has an hour for all of
/// CI; what does not fit is told, and the next run on that machine comes further.
const PEERS_MINUTES: u64 = 6;
/// How long planted bugs may take: which of them come first is drawn by the commit.
const MUTANTS_MINUTES: u64 = 4;

/// Names the file to which tests add what they skip: `castle_testbed::skipped`.
const SKIPPED: &str = "CASTLE_SKIPPED";

/// Names what tests draw their part of many worlds by: `castle_testbed::draw`.
const DRAW: &str = "CASTLE_DRAW";

/// Returns what was not run for want of time, or of something else.
type Step = fn(&Budget) -> Result<Vec<String>>;

const FORMAT: (&str, Step) = ("format", |_| all(cargo().args(["fmt", "--all", "--check"])));
const TIDY: (&str, Step) = ("tidy", |_| tidy::run().map(|()| Vec::new()));
const LICENCES: (&str, Step) = ("licences", |_| deny::run().map(|()| Vec::new()));
const CLIPPY: (&str, Step) = ("clippy", |_| {
    all(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
});

/// What one asks after every change.
const QUICK: [(&str, Step); 5] = [FORMAT, TIDY, LICENCES, CLIPPY, ("unit tests", |_| units())];
/// All that needs no outside program.
const TEST: [(&str, Step); 5] = [FORMAT, TIDY, LICENCES, CLIPPY, ("test", |_| test())];
/// What CI does besides.
const REST: [(&str, Step); 4] = [
    ("mutants", |_| planted()),
    ("doc", |_| {
        let mut doc = cargo();
        all(doc.args(["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
    }),
    ("readme", |budget| readme::run_within(&readme::Args::default(), budget)),
    ("peers", |budget| peers::run_within(&peers::Args::default(), budget)),
];

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only what comes after `cargo xtask test`
    #[arg(long)]
    after_test: bool,
}

fn all(command: &mut Command) -> Result<Vec<String>> {
    shell::run(command).map(|()| Vec::new())
}

/// The crates whose unit tests live through whole castles.
const SLOW: [&str; 2] = ["castle", "castle-datacenter"];

/// Runs the tests beside the code, where they take no more than seconds; returns those that were skipped.
fn units() -> Result<Vec<String>> {
    let mut tests = cargo();
    tests.args(["test", "--locked", "--quiet", "--workspace", "--lib"]);
    tests.args(SLOW.iter().flat_map(|name| ["--exclude", name]));
    telling_skips(&mut tests)
}

/// Runs all tests, and returns those that were skipped.
fn test() -> Result<Vec<String>> {
    let draw = draw();
    println!("worlds are drawn by {DRAW}={draw}");
    telling_skips(cargo().args(["test", "--locked", "--workspace", "--no-fail-fast"]).env(DRAW, draw))
}

/// Runs tests, and returns those that were skipped for want of something. Where `CI` is set, a skip is a failure of its test.
fn telling_skips(tests: &mut Command) -> Result<Vec<String>> {
    let list = tempfile::NamedTempFile::new()?;
    shell::run(tests.env(SKIPPED, list.path()))?;
    let skipped = std::fs::read_to_string(list.path())?;
    Ok(skipped.lines().map(|line| format!("skipped: {line}")).collect())
}

/// What whoever runs CI has drawn by, or the commit: the next one lives through other worlds.
fn draw() -> String {
    let commit = || shell::output(shell::program("git").args(["rev-parse", "--short", "HEAD"])).unwrap_or_default();
    std::env::var(DRAW).unwrap_or_else(|_| commit().trim().to_owned())
}

/// A share of the planted bugs, drawn by the commit; returns those for which there was no time.
fn planted() -> Result<Vec<String>> {
    let commit = shell::output(shell::program("git").args(["rev-parse", "HEAD"]))?;
    mutants::run_within(&mutants::Args::share(MUTANTS_MINUTES, commit.trim().to_owned()))
}

/// Everything, or what `cargo xtask test` leaves.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tested = if args.after_test { &[][..] } else { &TEST };
    walk("CI", &[tested, &REST].concat())
}

/// What one asks after every change.
pub(crate) fn quick() -> Result<()> {
    walk("quick", &QUICK)
}

/// All that needs no outside program.
pub(crate) fn tests() -> Result<()> {
    walk("test", &TEST)
}

fn walk(what: &str, steps: &[(&str, Step)]) -> Result<()> {
    let budget = Budget::of_minutes(PEERS_MINUTES);
    let (mut times, mut not_run) = (Vec::new(), Vec::new());
    for (name, step) in steps {
        println!("\n== {name}");
        let start = Instant::now();
        let left_out = step(&budget).with_context(|| format!("{what} stopped at: {name}"))?;
        not_run.extend(left_out.into_iter().map(|what| format!("{name}: {what}")));
        times.push(format!("{name} {:.0} s", start.elapsed().as_secs_f64()));
    }
    println!("\n{what} passed: {}", times.join(", "));
    if !not_run.is_empty() {
        println!(
            "\nNOT RUN ({}), for something is not there, or takes longer than CI has for it ({PEERS_MINUTES} minutes for building peers, \
             {MUTANTS_MINUTES} for planted bugs):",
            not_run.len()
        );
        not_run.iter().for_each(|what| println!("  {what}"));
        println!(
            "Run CI again on this machine, or `cargo xtask peers` and `cargo xtask mutants`, which take their time."
        );
    }
    Ok(())
}
