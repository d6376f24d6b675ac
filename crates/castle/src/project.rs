//! Where a castle's files are, and what git would take along.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use castle_seams::{Disk, DiskErrorKind, FileKind};
use castle_spec::{Castle, Node, Severity};
use ignore::gitignore::GitignoreBuilder;

use crate::doors::Variables;

/// No `.gitignore` is longer.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// The `castle.yaml` that `path` means: itself, or the one in that folder.
pub(crate) fn castle_file(disk: &dyn Disk, path: &Path) -> PathBuf {
    match disk.metadata(path) {
        // `./castle.yaml` is not worth saying.
        Ok(found) if found.kind == FileKind::Directory => path.strip_prefix(".").unwrap_or(path).join("castle.yaml"),
        _ => path.to_owned(),
    }
}

/// A castle whose file is valid.
pub(crate) struct Read {
    /// The file.
    pub(crate) file: PathBuf,
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
}

/// Reads the castle that `path` means.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Read, String> {
    let file = castle_file(disk, path);
    let bytes = disk.read(&file, castle_spec::MAX_BYTES).map_err(|error| error.to_string())?;
    let reading = castle_spec::read(&bytes);
    let errors = reading.problems.iter().filter(|problem| problem.code.severity() == Severity::Error).count();
    match reading.castle {
        Some(castle) => Ok(Read { file, castle, nodes: reading.nodes }),
        None => Err(format!("{} is not valid ({errors} errors): castle check {}", file.display(), path.display())),
    }
}

/// The castles below a folder, for someone who named none: `clusters/PROJECT/PLATFORM/castle.yaml`.
pub(crate) fn castles_below(disk: &dyn Disk, folder: &Path) -> Vec<PathBuf> {
    let names = |folder: &Path| disk.list(folder).unwrap_or_default();
    let clusters = if folder.ends_with("clusters") { folder.to_owned() } else { folder.join("clusters") };
    let mut found = Vec::new();
    for project in names(&clusters).iter().take(50).map(|name| clusters.join(name)) {
        for platform in names(&project).iter().take(20).map(|name| project.join(name)) {
            if disk.metadata(&platform.join("castle.yaml")).is_ok() {
                found.push(platform);
            }
        }
    }
    found
}

/// The folder for generated files that hold secrets: `clusters/PROJECT/configs`, beside the platforms' folders.
pub(crate) fn configs_folder(castle_file: &Path, platform: &str) -> PathBuf {
    let folder = castle_file.parent().unwrap_or(Path::new(""));
    match folder.parent() {
        Some(project) if folder.file_name() == Some(OsStr::new(platform)) => project.join("configs"),
        _ => folder.join("configs"),
    }
}

/// The folder for castle's own state, outside of any project.
pub(crate) fn state_folder(variables: &Variables) -> Option<PathBuf> {
    let variable = |name| variables.filled(name).map(PathBuf::from);
    variable("CASTLE_STATE_DIR")
        .or_else(|| variable("XDG_STATE_HOME").map(|folder| folder.join("castle")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/state/castle")))
}

/// A git work tree.
pub(crate) struct WorkTree<'d> {
    disk: &'d dyn Disk,
    root: PathBuf,
}

impl<'d> WorkTree<'d> {
    /// The work tree that `folder` is in, if any.
    pub(crate) fn around(disk: &'d dyn Disk, folder: &Path) -> Option<Self> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let real = disk.real_path(folder).ok()?;
        let root = real.ancestors().find(|above| disk.metadata(&above.join(".git")).is_ok())?;
        Some(Self { disk, root: root.to_owned() })
    }

    /// Whether git would take a file at `path` along: it is inside, and nothing ignores it. It need not exist.
    pub(crate) fn takes(&self, path: &Path) -> bool {
        let Some(inside) = self.inside(path) else { return false };
        // From the top: below an ignored folder git does not look, so nothing there can be taken along after all.
        let mut place = self.root.clone();
        let mut parts = inside.iter().peekable();
        while let Some(part) = parts.next() {
            place.push(part);
            if self.ignores(&place, parts.peek().is_some()) {
                return false;
            }
        }
        true
    }

    /// Whether some rule ignores just this file or folder. The rules nearest to it decide.
    fn ignores(&self, place: &Path, is_folder: bool) -> bool {
        let folders = place.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.root));
        let sources = folders.map(|folder| (folder, folder.join(".gitignore")));
        for (base, file) in sources.chain([(self.root.as_path(), self.root.join(".git/info/exclude"))]) {
            let Ok(bytes) = self.disk.read(&file, MAX_IGNORE_BYTES) else { continue };
            let mut rules = GitignoreBuilder::new(base);
            for line in String::from_utf8_lossy(&bytes).lines() {
                // A rule that cannot be read ignores nothing, for git neither.
                let _ = rules.add_line(None, line);
            }
            let Ok(rules) = rules.build() else { continue };
            let verdict = rules.matched(place, is_folder);
            if !verdict.is_none() {
                return verdict.is_ignore();
            }
        }
        false
    }

    /// The path from the root, links and `..` resolved as far as it exists.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let mut missing = Vec::new();
        let mut existing = path;
        loop {
            let candidate = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
            match self.disk.real_path(candidate) {
                Ok(real) => {
                    let whole = missing.iter().rev().fold(real, |whole: PathBuf, name| whole.join(name));
                    return whole.strip_prefix(&self.root).ok().map(Path::to_owned);
                }
                Err(error) if error.kind == DiskErrorKind::NotFound => {
                    missing.push(existing.file_name()?);
                    existing = existing.parent()?;
                }
                Err(_) => return None,
            }
        }
    }
}
