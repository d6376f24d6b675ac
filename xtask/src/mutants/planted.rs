//! The patches, as they are kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A bug to be planted.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// What its file is called, without the ending.
    pub(crate) name: String,
    /// What goes wrong, in a sentence or two.
    pub(crate) bug: String,
    /// The package whose tests have to find it.
    pub(crate) package: String,
    /// Which of its test targets, as cargo is told.
    pub(crate) target: Vec<String>,
    /// The tests that have to fail, by their full names.
    pub(crate) must_fail: Vec<String>,
    pub(crate) patch: PathBuf,
    /// The files that it changes.
    pub(crate) files: Vec<String>,
}

impl Mutant {
    /// Whether another one's tests are in the same program.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (&self.package, &self.target) == (&other.package, &other.target)
    }
}

/// All mutants of the tree, in the order of their names.
pub(crate) fn all() -> Result<Vec<Mutant>> {
    let listing = ["ls-files", "--cached", "--others", "--exclude-standard", "--", "crates/*/mutants/*.patch"];
    let listed = shell::output(shell::program("git").args(listing))?;
    let paths = listed.lines().map(|name| shell::root().join(name)).filter(|path| path.is_file());
    let mut mutants = paths.map(|path| read(&path)).collect::<Result<Vec<_>>>()?;
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    let mut names = BTreeSet::new();
    match mutants.iter().find(|mutant| !names.insert(mutant.name.clone())) {
        Some(twice) => bail!("two mutants are called {}", twice.name),
        None => Ok(mutants),
    }
}

/// How much source a package has, in bytes: about what it costs to build.
pub(crate) fn size(package: &str) -> u64 {
    fn within(folder: &Path) -> std::io::Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.is_dir() {
                bytes += within(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                bytes += entry.metadata()?.len();
            }
        }
        Ok(bytes)
    }
    let folder = package.strip_prefix("castle-").unwrap_or(package);
    within(&shell::root().join("crates").join(folder)).unwrap_or(u64::MAX)
}

fn read(path: &Path) -> Result<Mutant> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    parse(name, &text, path).with_context(|| format!("{} is no mutant", path.display()))
}

fn parse(name: String, text: &str, path: &Path) -> Result<Mutant> {
    let (header, _) = text.split_once("\n--- a/").context("it has no difference")?;
    let (mut bug, mut package, mut target, mut must_fail) = (Vec::new(), None, Vec::new(), Vec::new());
    for line in header.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("diff --git")) {
        if let Some(named) = line.strip_prefix("package:") {
            package = Some(named.trim().to_owned());
        } else if let Some(named) = line.strip_prefix("target:") {
            target = named.split_whitespace().map(str::to_owned).collect();
        } else if let Some(named) = line.strip_prefix("must fail:") {
            must_fail.extend(named.split([',', ' ']).filter(|test| !test.is_empty()).map(str::to_owned));
        } else if !line.starts_with("index ") {
            bug.push(line);
        }
    }
    let package = package.context("it names no `package:`")?;
    if bug.is_empty() {
        bail!("it does not say what the bug is");
    }
    if must_fail.is_empty() {
        bail!("it names no test behind `must fail:`");
    }
    match target.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        // A test of the program has all of it built and linked, for each bug.
        ["--test", _] if package == "castle" => bail!("`target:` of castle itself can only be --lib"),
        ["--lib"] | ["--test", _] => {}
        _ => bail!("`target:` is --lib, or --test and a name"),
    }
    let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_owned).collect();
    Ok(Mutant { name, bug: bug.join(" "), package, target, must_fail, patch: path.to_owned(), files })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "A lease that is lost\nstops nobody.\n\npackage: castle-engine\ntarget: --test engine\nmust fail: \
                         running::one, running::other\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn a_patch_says_what_the_bug_is_and_who_finds_it() {
        let mutant = parse("x".into(), WHOLE, Path::new("x.patch")).unwrap();
        assert_eq!(mutant.bug, "A lease that is lost stops nobody.");
        assert_eq!((mutant.package.as_str(), mutant.target.join(" ").as_str()), ("castle-engine", "--test engine"));
        assert_eq!(mutant.must_fail, ["running::one", "running::other"]);
        assert_eq!(mutant.files, ["x"]);
    }

    #[test]
    fn what_a_patch_lacks_is_named() {
        let lacking = |from: &str, to: &str| {
            let error = parse("x".into(), &WHOLE.replace(from, to), Path::new("x.patch")).unwrap_err();
            error.to_string()
        };
        assert!(lacking("--- a/x", "").contains("no difference"));
        assert!(lacking("package: castle-engine\n", "").contains("`package:`"));
        assert!(lacking("must fail: ", "").contains("`must fail:`"));
        assert!(lacking("A lease that is lost\nstops nobody.", "").contains("what the bug is"));
        assert!(lacking("--test engine", "--bins").contains("--lib, or --test"));
        assert!(lacking("castle-engine", "castle").contains("only be --lib"));
    }
}
