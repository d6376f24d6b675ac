//! Bugs that are planted, to see whether the tests find them.
//!
//! A *mutant* is a patch beside the tests: a bug that somebody could make, in words and as a difference, and the tests that must fail
//! with it in, and only with it in: before the first bug of a test target its tests are run without any. A bug is applied to a copy of the tree, never to
//! the tree itself; only the test target that it names is built, and only the tests that it names are run.

mod copy;
mod planted;
mod trial;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use crate::shell;

use copy::Copy;
use planted::Mutant;
use trial::{Clean, Verdict};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only these mutants
    names: Vec<String>,
    /// List the mutants and what each of them breaks
    #[arg(long)]
    list: bool,
    /// Begin nothing more after so many minutes; what was not run is told
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Draw the order from this text
    #[arg(long, value_name = "TEXT")]
    draw: Option<String>,
}

impl Args {
    /// A share of all, drawn by a text.
    pub(crate) fn share(minutes: u64, draw: String) -> Self {
        Self { minutes: Some(minutes), draw: Some(draw), ..Self::default() }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    run_within(args).map(drop)
}

/// Runs the mutants; returns those that were not run for want of time.
pub(crate) fn run_within(args: &Args) -> Result<Vec<String>> {
    let mut mutants = planted::all()?;
    if let Some(unknown) = args.names.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name)) {
        bail!("there is no mutant {unknown}; cargo xtask mutants --list tells which there are");
    }
    mutants.retain(|mutant| args.names.is_empty() || args.names.contains(&mutant.name));
    if args.list {
        mutants.iter().for_each(|mutant| println!("{:<34} {}", mutant.name, mutant.bug));
        return Ok(Vec::new());
    }
    let draw = args.draw.as_deref().unwrap_or_default();
    mutants.sort_by_key(|mutant| order(mutant, draw));
    if args.minutes.is_some() {
        begin_small(&mut mutants, |mutant| planted::size(&mutant.package));
    }
    let end = args.minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
    let copy = Copy::of_the_tree()?;
    let (mut caught, mut failed, mut late) = (0, Vec::new(), Vec::new());
    let mut clean = Clean::default();
    for (index, mutant) in mutants.iter().enumerate() {
        let start = Instant::now();
        // One at least is tried: it may take as long again.
        let is_none_tried = caught == 0 && failed.is_empty();
        let end =
            end.map(|end| if is_none_tried { end + Duration::from_secs(args.minutes.unwrap_or(0) * 60) } else { end });
        let verdict = if end.is_some_and(|end| start >= end) {
            Verdict::Late
        } else {
            let same = mutants[index..].iter().take_while(|other| other.is_beside(mutant)).collect::<Vec<_>>();
            clean.held(&same, &copy, end)?.map_or_else(|| trial::run(mutant, &copy, end), Ok)?
        };
        println!("{:<34} {verdict} ({:.0} s)", mutant.name, start.elapsed().as_secs_f64());
        match verdict {
            Verdict::Caught => caught += 1,
            Verdict::Late => late.push(mutant.name.clone()),
            Verdict::Not(why) => failed.push(format!("{}: {}\n  {why}", mutant.name, mutant.bug)),
        }
    }
    println!("{caught} caught, {} not caught, {} not run for want of time", failed.len(), late.len());
    if caught == 0 && failed.is_empty() && !mutants.is_empty() {
        let why = "NOT ONE PLANTED BUG WAS TRIED: whether the tests find any was not seen. Take the time: cargo xtask mutants";
        // Whoever reads no more than that CI has passed would take them for tried.
        if std::env::var_os("CI").is_some() {
            bail!(why);
        }
        println!("{why}");
    }
    if !failed.is_empty() {
        bail!("mutants that no test has caught:\n{}", failed.join("\n"));
    }
    Ok(late)
}

/// The patches that do not fit the tree any more: what they would break has moved.
pub(crate) fn misfits() -> Result<Vec<String>> {
    let mut misfits = Vec::new();
    for mutant in planted::all()? {
        let mut git = shell::program("git");
        let said = git.args(["apply", "--check"]).args(copy::FITTING).arg(&mutant.patch).output()?;
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr);
            misfits.push(format!("{}: {}", mutant.patch.display(), why.lines().next().unwrap_or_default()));
        }
    }
    Ok(misfits)
}

/// Puts one of the smallest package first, the first in the order drawn: it costs the least to build, so that one at least is tried in little time.
fn begin_small(mutants: &mut [Mutant], size: impl Fn(&Mutant) -> u64) {
    if let Some(smallest) = (0..mutants.len()).min_by_key(|&index| size(&mutants[index])) {
        mutants[..=smallest].rotate_right(1);
    }
}

/// The order is drawn. Those of one test target stay together: the next one costs little where the last one was built.
fn order(mutant: &Mutant, draw: &str) -> [Vec<u8>; 2] {
    let drawn = |what: &str| Sha256::digest(format!("{draw}\n{what}")).to_vec();
    [drawn(&format!("{} {}", mutant.package, mutant.target.join(" "))), drawn(&mutant.name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_smallest_package_comes_first_and_the_others_as_they_were_drawn() {
        let mutant = |name: &str, package: &str| Mutant {
            name: name.to_owned(),
            bug: String::new(),
            package: package.to_owned(),
            target: Vec::new(),
            must_fail: Vec::new(),
            patch: std::path::PathBuf::new(),
            files: Vec::new(),
        };
        let mut mutants = [("a", "large"), ("b", "large"), ("c", "small"), ("d", "small"), ("e", "middle")]
            .map(|(name, package)| mutant(name, package));
        begin_small(&mut mutants, |mutant| match mutant.package.as_str() {
            "small" => 1,
            "middle" => 2,
            _ => 3,
        });
        assert_eq!(mutants.map(|mutant| mutant.name), ["c", "a", "b", "d", "e"]);
        begin_small(&mut [], |_| 0);
    }

    #[test]
    fn packages_have_a_size() {
        let (seams, castle) = (planted::size("castle-seams"), planted::size("castle"));
        assert!(0 < seams && seams < castle, "{seams} {castle}");
        assert_eq!(planted::size("castle-nobody"), u64::MAX, "what is not there is not small");
    }
}
