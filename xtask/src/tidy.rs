//! House rules that no other tool checks.

mod arrows;
mod imports;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{mutants, shell};

/// A file a person can read in one sitting.
const MOST_LINES: usize = 700;
/// Crates whose modules are still to be parted.
const UNPARTED: [&str; 2] = ["crates/castle", "crates/datacenter"];

pub(crate) fn run() -> Result<()> {
    let listed = shell::output(shell::program("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    let mut problems = Vec::new();
    let mut files = 0;
    for name in listed.lines() {
        // A file that was removed but not yet committed, or that is not text, has no rules.
        let Ok(text) = std::fs::read_to_string(shell::root().join(name)) else { continue };
        files += 1;
        let is_made = name.ends_with(".snap")
            || name.starts_with("fuzz/corpus/")
            || name.contains("/src/generated/")
            || name.contains("/tests/recordings/")
            || name.ends_with(".lock")
            || name.ends_with(".patch")
            || name.ends_with("go.sum");
        if is_made {
            continue;
        }
        let lines = text.lines().count();
        if name.ends_with(".rs") && lines > MOST_LINES {
            problems.push(format!("{name}: {lines} lines; {MOST_LINES} are the most"));
        }
        if (name.ends_with("/lib.rs") || name.ends_with("/main.rs")) && !text.starts_with("//!") {
            problems.push(format!("{name}: the crate does not say what it is"));
        }
        if name.ends_with("utils.rs") || name.ends_with("helpers.rs") {
            problems.push(format!("{name}: name it after what it does"));
        }
        for (number, line) in text.lines().enumerate() {
            let mut say = |what: &str| problems.push(format!("{name}:{}: {what}", number + 1));
            if line.ends_with([' ', '\t']) {
                say("white space at the end of the line");
            }
            let is_rust = name.ends_with(".rs") && name != "xtask/src/tidy.rs";
            if is_rust && line.contains("#[ignore") {
                say("a test that is not run proves nothing");
            }
            if is_rust && (line.contains("TODO") || line.contains("FIXME")) {
                say("open ends belong into an issue");
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push(format!("{name}: no line break at the end"));
        }
    }
    problems.extend(circles(&listed)?);
    problems.extend(arrows::wrong()?);
    problems.extend(mutants::misfits()?);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    println!("{files} files are tidy");
    Ok(())
}

/// The modules of a crate's root that use each other in a circle: nobody could read one of them alone.
fn circles(listed: &str) -> Result<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<(&Path, String)>> = BTreeMap::new();
    for name in listed.lines().filter(|name| name.ends_with(".rs")) {
        let Some((house, file)) = name.split_once("/src/").filter(|(house, _)| house.starts_with("crates/")) else {
            continue;
        };
        let Ok(text) = std::fs::read_to_string(shell::root().join(name)) else { continue };
        crates.entry(house).or_default().push((Path::new(file), text));
    }
    let mut found = Vec::new();
    for (name, sources) in crates.into_iter().filter(|(name, _)| !UNPARTED.contains(name)) {
        let uses = imports::of_crate(&sources).with_context(|| name.to_owned())?;
        let told = |circle: Vec<String>| {
            let within = |module: &String| {
                let used: Vec<&str> =
                    uses[module].iter().filter(|used| circle.contains(used)).map(String::as_str).collect();
                format!("  {module} uses {}", used.join(", "))
            };
            let lines: Vec<String> = circle.iter().map(within).collect();
            format!("{name}: these modules use each other in a circle:\n{}", lines.join("\n"))
        };
        found.extend(imports::circles(&uses).into_iter().map(told));
    }
    Ok(found)
}
