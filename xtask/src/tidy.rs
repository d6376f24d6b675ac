//! House rules that no other tool checks.

use anyhow::{Result, bail};

use crate::shell;

/// A file a person can read in one sitting.
const MOST_LINES: usize = 700;

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
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    println!("{files} files are tidy");
    Ok(())
}
