//! A copy of the tree to plant bugs in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::planted::Mutant;
use crate::shell;

/// How closely a patch has to fit: lines around it may have changed.
pub(crate) const FITTING: [&str; 2] = ["--recount", "-C1"];

/// A copy under the target folder. What did not change since the last run keeps its times, so that cargo builds only what did.
pub(crate) struct Copy {
    folder: PathBuf,
    files: Vec<String>,
}

/// Files as they were before a bug was planted in them.
#[must_use]
pub(crate) struct Whole(Vec<(PathBuf, Vec<u8>)>);

impl Whole {
    /// Takes the bug out. The files get the time of now, so that cargo sees it.
    pub(crate) fn restore(self) -> Result<()> {
        for (path, bytes) in self.0 {
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Copy {
    /// The tree as it is: what git has, and what it would take.
    pub(crate) fn of_the_tree() -> Result<Self> {
        let around = shell::target().join("mutants");
        let folder = around.join("tree");
        std::fs::create_dir_all(&folder)?;
        let listing = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let listed = shell::output(shell::program("git").args(listing))?;
        let files: Vec<String> =
            listed.lines().filter(|name| shell::root().join(name).is_file()).map(str::to_owned).collect();
        let copy = Self { folder, files };
        copy.bring_up_to_date()?;
        copy.forget_others()?;
        take_along(&copy.target())?;
        Ok(copy)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the copy is built.
    pub(crate) fn target(&self) -> PathBuf {
        self.folder.with_file_name("built")
    }

    /// Plants a bug, and returns what takes it out again; or what git says if the patch does not fit.
    pub(crate) fn plant(&self, mutant: &Mutant) -> Result<Result<Whole, String>> {
        let whole = |name: &String| {
            let path = self.folder.join(name);
            std::fs::read(&path).map(|bytes| (path, bytes)).map_err(|_| format!("there is no {name}"))
        };
        let whole = match mutant.files.iter().map(whole).collect::<Result<Vec<_>, _>>() {
            Ok(files) => Whole(files),
            Err(missing) => return Ok(Err(missing)),
        };
        let mut git = Command::new("git");
        // Without a repository above: git would take the paths for those of that one, and skip them all.
        git.current_dir(&self.folder).env("GIT_CEILING_DIRECTORIES", self.folder.parent().unwrap_or(&self.folder));
        let said = git.arg("apply").args(FITTING).arg(&mutant.patch).output().context("cannot start git")?;
        Ok(if said.status.success() { Ok(whole) } else { Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()) })
    }

    /// Makes every file what it is in the tree. A new one gets the time that it has there, one that was changed that of now: so cargo sees what is built
    /// already, and what is not.
    fn bring_up_to_date(&self) -> Result<()> {
        for name in &self.files {
            let (from, to) = (shell::root().join(name), self.folder.join(name));
            let wanted = std::fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
            if std::fs::read(&to).is_ok_and(|there| there == wanted) {
                continue;
            }
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let is_new = !to.exists();
            std::fs::write(&to, wanted).with_context(|| format!("cannot write {}", to.display()))?;
            if is_new {
                let modified = std::fs::metadata(&from)?.modified()?;
                std::fs::File::options().write(true).open(&to)?.set_modified(modified)?;
            }
        }
        Ok(())
    }

    /// Removes what the tree has no more.
    fn forget_others(&self) -> Result<()> {
        let known: BTreeSet<PathBuf> = self.files.iter().map(|name| self.folder.join(name)).collect();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !known.contains(&path) {
                    std::fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}

/// Takes along what is built of the tree, so that only what a bug changes is built anew. It has a folder of its own: cargo knows a crate by its path within the
/// workspace, and in one folder would take the crate with a bug in for the one without.
fn take_along(built: &Path) -> Result<()> {
    let (from, to, part) = (shell::target().join("debug"), built.join("debug"), built.join("part"));
    if to.exists() || !from.is_dir() {
        return Ok(());
    }
    if part.exists() {
        std::fs::remove_dir_all(&part)?;
    }
    std::fs::create_dir_all(&part)?;
    // Compilers and linkers make new files, and give them their names; what others write into is copied.
    for (folder, how) in [("deps", "-al"), ("build", "-a"), (".fingerprint", "-a")] {
        shell::output(Command::new("cp").arg(how).arg(from.join(folder)).arg(&part))?;
    }
    for entry in std::fs::read_dir(part.join("deps"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "d") {
            std::fs::remove_file(path)?;
        }
    }
    std::fs::rename(part, to)?;
    Ok(())
}
