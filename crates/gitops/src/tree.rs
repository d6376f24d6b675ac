//! The files of a GitOps repository: read once, then only looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use castle_seams::{Disk, DiskError, DiskErrorKind, FileKind};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use thiserror::Error;

/// How large one file may be. The largest manifest anybody applies, all of External Secrets, has 2 MB.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// How large all files together may be.
pub const MAX_TREE_BYTES: u64 = 128 << 20;
/// How many files there may be.
pub const MAX_FILES: usize = 50_000;
/// How many may be looked at, those included that Flux leaves out.
const MAX_SEEN: usize = 20 * MAX_FILES;
/// How deep folders may nest.
const MAX_DEPTH: usize = 64;

/// Why a tree cannot be read.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum TreeError {
    /// There is nothing of this name, or it cannot be opened.
    #[error("{0}")]
    Unreadable(String),
    /// It is larger than any GitOps repository.
    #[error("{0}: a GitOps repository holds manifests, and this is more than castle reads of one")]
    TooLarge(String),
}

/// The files by their paths, `/` between the parts. Cheap to copy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tree {
    files: BTreeMap<String, Arc<[u8]>>,
    /// Symbolic links. Flux drops them when it packs what it has fetched, wherever they lead.
    links: BTreeSet<String>,
    /// Files that are larger than castle reads, and so were not.
    oversized: BTreeSet<String>,
}

/// The file that tells Flux what to leave out, in the words of `.gitignore`.
const IGNORE_FILE: &str = ".sourceignore";
/// What Flux leaves out unless told otherwise.
const IGNORED: &str = ".git/,.gitignore,.gitmodules,.gitattributes,*.jpg,*.jpeg,*.gif,*.png,*.wmv,*.flv,*.tar.gz,*.zip,.github/,\
                       .circleci/,.travis.yml,.gitlab-ci.yml,appveyor.yml,.drone.yml,cloudbuild.yaml,codeship-services.yml,\
                       codeship-steps.yml,**/.goreleaser.yml,**/.sops.yaml,**/.flux.yaml";

impl Tree {
    /// The tree of these files.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let files = files.into_iter().map(|(path, bytes)| (path, bytes.into())).collect();
        Self { files, ..Self::default() }
    }

    /// The same tree with symbolic links at these paths.
    #[must_use]
    pub fn with_links(self, links: impl IntoIterator<Item = String>) -> Self {
        Self { links: links.into_iter().collect(), ..self }
    }

    /// The same tree with files at these paths that are too large to be read.
    #[must_use]
    pub fn with_oversized(self, oversized: impl IntoIterator<Item = String>) -> Self {
        Self { oversized: oversized.into_iter().collect(), ..self }
    }

    /// Reads a folder, as far as Flux would fetch it. What git keeps for itself is left out, and so is what is neither a file nor a folder. Links are
    /// remembered and not followed; of a file that is too large only its name is known.
    ///
    /// # Errors
    ///
    /// [`TreeError`] if something in it cannot be read, or is too much.
    pub fn of_folder(disk: &dyn Disk, folder: &Path) -> Result<Self, TreeError> {
        let unreadable = |error: DiskError| TreeError::Unreadable(error.to_string());
        let too_many = || TreeError::TooLarge(format!("{} has over {MAX_FILES} files", folder.display()));
        let (mut tree, mut all, mut rules) = (Self::default(), Vec::new(), Vec::new());
        // Whether somebody misses what cannot be read is known only by all rules.
        let mut closed = Vec::new();
        let mut open = vec![(folder.to_path_buf(), String::new(), 0)];
        while let Some((path, prefix, depth)) = open.pop() {
            let real = disk.real_path(&path).map_err(unreadable)?;
            let names = match disk.list(&path) {
                Ok(names) => names,
                Err(error) if depth > 0 => {
                    closed.push((format!("{prefix}content"), error));
                    continue;
                }
                Err(error) => return Err(unreadable(error)),
            };
            for name in names {
                let Some(name) = name.to_str() else { continue };
                if name == ".git" {
                    continue;
                }
                let (inner, place) = (path.join(name), format!("{prefix}{name}"));
                let kind = match disk.metadata(&inner) {
                    Ok(found) => found.kind,
                    // A link that leads nowhere, or to itself.
                    Err(error) if matches!(error.kind, DiskErrorKind::NotFound | DiskErrorKind::LinkLoop) => {
                        tree.links.insert(place);
                        continue;
                    }
                    Err(error) => {
                        closed.push((place, error));
                        continue;
                    }
                };
                if disk.real_path(&inner).is_ok_and(|led| led != real.join(name)) {
                    tree.links.insert(place);
                    continue;
                }
                match kind {
                    FileKind::Directory if depth < MAX_DEPTH => open.push((inner, format!("{place}/"), depth + 1)),
                    FileKind::Directory => return Err(TreeError::TooLarge(format!("{place} lies {MAX_DEPTH} deep"))),
                    FileKind::File => {
                        if name == IGNORE_FILE {
                            rules.push((prefix.clone(), disk.read(&inner, MAX_FILE_BYTES).map_err(unreadable)?));
                        }
                        all.push((place, inner));
                    }
                    FileKind::Other => {}
                }
                if all.len() + tree.links.len() > MAX_SEEN {
                    return Err(too_many());
                }
            }
        }
        // Only what Flux fetches is read, and counts.
        let ignored = Ignored::of(rules.iter().map(|(folder, bytes)| (folder.as_str(), bytes.as_slice())));
        if let Some((_, error)) = closed.into_iter().find(|(place, _)| ignored.keeps(place)) {
            return Err(unreadable(error));
        }
        tree.links.retain(|path| ignored.keeps(path));
        all.retain(|(place, _)| ignored.keeps(place));
        if all.len() + tree.links.len() > MAX_FILES {
            return Err(too_many());
        }
        let mut bytes_left = MAX_TREE_BYTES;
        for (place, path) in all {
            let bytes = match disk.read(&path, MAX_FILE_BYTES) {
                Ok(bytes) => bytes,
                Err(error) if matches!(error.kind, DiskErrorKind::TooLarge { .. }) => {
                    tree.oversized.insert(place);
                    continue;
                }
                Err(error) => return Err(unreadable(error)),
            };
            let too_large = || TreeError::TooLarge(format!("all files of {} together", folder.display()));
            bytes_left = bytes_left.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
            tree.files.insert(place, bytes.into());
        }
        Ok(tree)
    }

    /// The content of a file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// Whether there is a folder of this path. The root is one, even of an empty tree.
    #[must_use]
    pub fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || self.below(path).next().is_some()
    }

    /// The files below a folder, at any depth, in order.
    pub fn below(&self, folder: &str) -> impl Iterator<Item = (&str, &[u8])> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.files
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, bytes)| (path.as_str(), bytes.as_ref()))
    }

    /// What is left of it once Flux has fetched it: without pictures, settings of other programs, and what a `.sourceignore` names.
    #[must_use]
    pub fn as_fetched(&self) -> Self {
        let rules = self.files.iter().filter_map(|(path, bytes)| {
            let folder = path.strip_suffix(IGNORE_FILE)?;
            (folder.is_empty() || folder.ends_with('/')).then_some((folder, bytes.as_ref()))
        });
        let ignored = Ignored::of(rules);
        let is_kept = |path: &str| ignored.keeps(path);
        let files = self.files.iter().filter(|(path, _)| is_kept(path));
        let named = |paths: &BTreeSet<String>| paths.iter().filter(|path| is_kept(path)).cloned().collect();
        Self {
            files: files.map(|(path, bytes)| (path.clone(), bytes.clone())).collect(),
            links: named(&self.links),
            oversized: named(&self.oversized),
        }
    }

    /// The symbolic link at a path, or that a path leads through.
    pub(crate) fn link(&self, path: &str) -> Option<&str> {
        let parts = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]);
        parts.into_iter().find_map(|part| self.links.get(part)).map(String::as_str)
    }

    /// The symbolic links below a folder.
    pub(crate) fn links_below(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.links.iter().filter(move |link| link.starts_with(&prefix)).map(String::as_str)
    }

    /// Whether a file is there that was too large to be read.
    pub(crate) fn is_oversized(&self, path: &str) -> bool {
        self.oversized.contains(path)
    }

    /// The files below a folder that were too large to be read.
    pub(crate) fn oversized_below(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.oversized.iter().filter(move |path| path.starts_with(&prefix)).map(String::as_str)
    }

    /// Whether there are no files at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// What Flux leaves out of what it fetches.
struct Ignored(Vec<(String, Gitignore)>);

impl Ignored {
    /// By the files that tell it, each with its folder.
    fn of<'f>(files: impl Iterator<Item = (&'f str, &'f [u8])>) -> Self {
        let rules = |lines: &mut dyn Iterator<Item = &str>| {
            let mut rules = GitignoreBuilder::new("");
            for line in lines {
                // A rule that cannot be read ignores nothing.
                let _ = rules.add_line(None, line);
            }
            rules.build().unwrap_or_else(|_| Gitignore::empty())
        };
        let mut all = vec![(String::new(), rules(&mut IGNORED.split(',')))];
        all.extend(
            files.map(|(folder, bytes)| (folder.to_owned(), rules(&mut String::from_utf8_lossy(bytes).lines()))),
        );
        // The deeper it lies, the more it says.
        all.sort_by_key(|(folder, _)| folder.len());
        Self(all)
    }

    fn keeps(&self, path: &str) -> bool {
        let verdicts = self.0.iter().rev().filter_map(|(folder, rules)| {
            Some(rules.matched_path_or_any_parents(path.strip_prefix(folder.as_str())?, false))
        });
        verdicts.into_iter().find(|verdict| !verdict.is_none()).is_none_or(|verdict| !verdict.is_ignore())
    }
}

/// A path in the tree, from a folder of it and what is written there; nothing if it leads out of the tree.
pub(crate) fn joined(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { folder };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests;
