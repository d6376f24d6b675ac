//! castle against programs nobody here wrote.
//!
//! A *peer* is such a program, obtained once into a cache folder and pinned. A *suite* runs castle and peers side by side
//! and holds that they agree. What cannot be obtained on this machine is skipped and said so; in CI nothing may be, but for
//! what a budget of time was too small for (the next run comes further), and what nothing here can bring: that is told at the end, loudly.

pub(crate) mod obtain;
mod server;
mod suites;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell;
use obtain::{Budget, Obtained, PEERS};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only these suites
    suites: Vec<String>,
    /// List suites and the peers they need
    #[arg(long)]
    list: bool,
    /// Spend at most so many minutes on building peers that are not in the cache yet
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u64>,
}

/// What a suite works with.
pub(crate) struct Bench {
    /// The castle under test.
    pub(crate) castle: PathBuf,
    peers: BTreeMap<&'static str, PathBuf>,
}

impl Bench {
    /// The folder of a peer that the suite named as needed.
    fn peer(&self, name: &str) -> Result<&Path> {
        self.peers
            .get(name)
            .map(PathBuf::as_path)
            .with_context(|| format!("the suite does not name {name} among its needs"))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    run_within(args, &args.budget.map_or_else(Budget::unlimited, Budget::of_minutes)).map(|_| ())
}

/// Runs the suites; returns those that were not run because the budget for building their peers was used up, or because of what has to be on the machine
/// and is not.
pub(crate) fn run_within(args: &Args, budget: &Budget) -> Result<Vec<String>> {
    let suites = suites::SUITES;
    if let Some(unknown) = args.suites.iter().find(|name| !suites.iter().any(|suite| suite.name == *name)) {
        bail!(
            "there is no suite {unknown}; there are {}",
            suites.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
        );
    }
    let wanted =
        suites.iter().filter(|suite| args.suites.is_empty() || args.suites.iter().any(|name| name == suite.name));
    if args.list {
        wanted.for_each(|suite| println!("{:<14} needs {:<28} {}", suite.name, suite.needs.join(", "), suite.holds));
        return Ok(Vec::new());
    }
    let castle = shell::castle()?;
    let mut bench = Bench { castle, peers: BTreeMap::new() };
    let mut unavailable: BTreeMap<&str, Missing> = BTreeMap::new();
    let (mut passed, mut failed, mut skipped, mut not_run) = (0, 0, 0, Vec::new());
    for suite in wanted {
        let mut missing = suite
            .needs
            .iter()
            .map(|name| obtain_once(name, budget, &mut bench, &mut unavailable))
            .filter_map(Result::transpose);
        match missing.next().transpose()? {
            None => {}
            Some(Missing::Unavailable(reason)) => {
                println!("{:<14} skipped: {reason}", suite.name);
                skipped += 1;
                continue;
            }
            Some(Missing::Late(reason)) => {
                println!("{:<14} NOT RUN: {reason}", suite.name);
                not_run.push(suite.name.to_owned());
                continue;
            }
            Some(Missing::Absent(reason)) => {
                println!("{:<14} NOT RUN: {reason}", suite.name);
                not_run.push(format!("{}: {reason}", suite.name));
                continue;
            }
        }
        let start = Instant::now();
        match (suite.run)(&bench) {
            Ok(count) => {
                println!(
                    "{:<14} {count} cases hold in {:.1} s: {}",
                    suite.name,
                    start.elapsed().as_secs_f64(),
                    suite.holds
                );
                passed += 1;
            }
            Err(error) => {
                println!("{:<14} FAILED: {error:#}", suite.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped, {} not run", not_run.len());
    if failed > 0 {
        bail!("castle and its peers do not agree");
    }
    if skipped > 0 && std::env::var_os("CI").is_some() {
        bail!("CI has what the peers need, and may not skip a suite");
    }
    Ok(not_run)
}

/// Why a peer is not there.
#[derive(Clone)]
enum Missing {
    Unavailable(String),
    Late(String),
    Absent(String),
}

/// Obtains a peer unless that was done; returns why it is not to be had here, if so.
fn obtain_once(
    name: &'static str,
    budget: &Budget,
    bench: &mut Bench,
    unavailable: &mut BTreeMap<&'static str, Missing>,
) -> Result<Option<Missing>> {
    if bench.peers.contains_key(name) {
        return Ok(None);
    }
    if let Some(reason) = unavailable.get(name) {
        return Ok(Some(reason.clone()));
    }
    let peer = PEERS.iter().find(|peer| peer.name == name).with_context(|| format!("no peer is called {name}"))?;
    let missing = match peer.obtain(budget).with_context(|| format!("cannot obtain {name}"))? {
        Obtained::At(folder) => {
            bench.peers.insert(name, folder);
            return Ok(None);
        }
        Obtained::Unavailable(reason) => Missing::Unavailable(reason),
        Obtained::Late(reason) => Missing::Late(reason),
        Obtained::Absent(reason) => Missing::Absent(reason),
    };
    unavailable.insert(name, missing.clone());
    Ok(Some(missing))
}
