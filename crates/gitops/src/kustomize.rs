//! Kustomize, as far as repositories use it: a folder of the tree to the objects it comes to.
//!
//! What is not understood is never passed over: it is a [`Note`] where the rest can still be built, and a [`BuildError`]
//! where Kustomize itself would stop.

mod fields;
mod file;
mod generate;
mod images;
mod json_patch;
mod merge;
mod meta;
mod names;
mod piece;
mod replace;
mod select;
mod transform;

use serde_json::Value;
use thiserror::Error;

use crate::git::is_ssh;
use crate::object::Object;
use crate::substitute::is_unknown;
use crate::tree::{Tree, joined};
use crate::yaml::Lines;
use file::{Kustomization, Read};
use generate::Place;
use piece::Piece;

/// The names a kustomization file can have.
pub(crate) const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// How deep kustomizations may include each other.
const MAX_DEPTH: usize = 32;
/// How many of them one build may read. Each may name another twice: without a bound, a few would be billions.
const MAX_FILES: usize = 5_000;

/// Why a folder cannot be built, and where.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{file}:{line}: {what}")]
pub struct BuildError {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl BuildError {
    pub(crate) fn new(file: &str, line: usize, what: &str) -> Self {
        Self { file: file.to_owned(), line, what: what.to_owned() }
    }
}

/// Something that was not built, and so cannot be judged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Note {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
    /// Whether objects may come from it of which nobody here knows.
    pub(crate) hides: bool,
}

/// Why a step of a build cannot be carried out.
#[derive(Debug)]
enum Failure {
    /// Nothing is what it names, among all that was read.
    Nobody(String),
    /// Anything else.
    Wrong(String),
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// The objects that a kustomization has so far.
struct Pile {
    pieces: Vec<Piece>,
    /// The first note about where they come from. Earlier ones are about others.
    from: usize,
}

/// What a folder comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Built {
    pub(crate) objects: Vec<Object>,
    pub(crate) notes: Vec<Note>,
    /// Encrypted files that generators read.
    pub(crate) sealed: Vec<Note>,
    /// Keys that Flux drops.
    pub(crate) dropped: Vec<Note>,
}

/// Builds a folder as kustomize-controller does for an object with this spec. Without a kustomization file everything below is taken.
pub(crate) fn build(tree: &Tree, folder: &str, spec: &Value) -> Result<Built, BuildError> {
    let (notes, sealed) = (Vec::new(), Vec::new());
    let mut builder = Builder { tree, files_left: MAX_FILES, notes, sealed };
    let mut dropped = Vec::new();
    let mut kustomization = match builder.file_of(folder) {
        Some(file) => {
            // Flux reads this one file and writes it anew: what it does not know is not in it any more.
            let (read, unknown) = builder.read(folder, &file)?;
            let note = |key: String| Note { file: file.clone(), line: read.line(&key), what: key, hides: false };
            dropped = unknown.into_iter().map(note).collect();
            read
        }
        None => builder.scanned(folder),
    };
    kustomization.overlaid(spec);
    let mut pile = Pile { pieces: Vec::new(), from: 0 };
    builder.accumulate(&kustomization, &mut pile, 0)?;
    let mut pieces = pile.pieces;
    let wrong = |what: String| BuildError::new(&kustomization.file, 1, &what);
    names::hash(&mut pieces);
    names::follow(&mut pieces).map_err(wrong)?;
    pieces.retain(|piece| {
        let local = piece.value.pointer("/metadata/annotations/config.kubernetes.io~1local-config");
        !piece.value.is_null() && local.is_none_or(|value| value != "true")
    });
    let objects = pieces.into_iter().map(Piece::into_object).collect();
    Ok(Built { objects, notes: builder.notes, sealed: builder.sealed, dropped })
}

struct Builder<'t> {
    tree: &'t Tree,
    /// How many more kustomization files may be read.
    files_left: usize,
    notes: Vec<Note>,
    sealed: Vec<Note>,
}

impl<'t> Builder<'t> {
    /// The kustomization file of a folder.
    fn file_of(&self, folder: &str) -> Option<String> {
        FILES.iter().filter_map(|name| joined(folder, name)).find(|path| self.tree.file(path).is_some())
    }

    /// Reads a kustomization file, and names the keys that Kustomize does not know.
    fn read(&mut self, folder: &str, file: &str) -> Result<(Kustomization, Vec<String>), BuildError> {
        self.files_left = self.files_left.checked_sub(1).ok_or_else(|| {
            BuildError::new(file, 1, "kustomizations include each other without end, or far too many of them")
        })?;
        let Read { kustomization, unsupported, unknown } = Kustomization::read(folder, file, self.text(file)?)?;
        for (key, hides) in unsupported {
            let (line, what) = (kustomization.line(key), format!("`{key}` of a kustomization file"));
            self.notes.push(Note { file: file.to_owned(), line, what, hides });
        }
        Ok((kustomization, unknown))
    }

    /// Reads one that another names: it must say something, and be of the kind that is named there.
    fn read_inner(&mut self, folder: &str, file: &str, kind: &str) -> Result<Kustomization, BuildError> {
        let (read, unknown) = self.read(folder, file)?;
        if let Some(key) = unknown.first() {
            let what = format!("`{key}` is no key of a kustomization file: Kustomize refuses it");
            return Err(read.wrong(read.line(key), &what));
        }
        if read.is_empty() {
            return Err(read.wrong(1, "a kustomization file that says nothing"));
        }
        let own = Some(read.text("kind")).filter(|own| !own.is_empty()).unwrap_or("Kustomization");
        if own != kind {
            return Err(read.wrong(read.line("kind"), &format!("this is a {own}, and is named where a {kind} must be")));
        }
        Ok(read)
    }

    /// What Flux makes of a folder without such a file: all manifests below it.
    fn scanned(&mut self, folder: &str) -> Kustomization {
        for file in self.tree.oversized_below(folder).filter(|path| path.ends_with(".yaml") || path.ends_with(".yml")) {
            let what = format!("{file}, which is larger than castle reads");
            self.notes.push(Note { file: file.to_owned(), line: 1, what, hides: true });
        }
        let mut resources: Vec<String> = Vec::new();
        for (path, _) in self.tree.below(folder) {
            if !path.ends_with(".yaml") && !path.ends_with(".yml") {
                continue;
            }
            let inner = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
            let taken = inner
                .match_indices('/')
                .map(|(at, _)| &inner[..at])
                .find(|below| joined(folder, below).is_some_and(|below| self.file_of(&below).is_some()));
            let resource = taken.unwrap_or(inner).to_owned();
            if resources.last() != Some(&resource) {
                resources.push(resource);
            }
        }
        // Folders are walked as a file system lists them: name by name, not path by path.
        resources.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        resources.dedup();
        let file = joined(folder, FILES[0]).unwrap_or_default();
        let value = serde_json::json!({ "resources": resources });
        Kustomization { folder: folder.to_owned(), file, value, lines: Lines::default() }
    }

    fn text(&self, file: &str) -> Result<&'t str, BuildError> {
        let bytes = self.tree.file(file).ok_or_else(|| BuildError::new(file, 1, "there is no such file"))?;
        std::str::from_utf8(bytes).map_err(|_| BuildError::new(file, 1, "this is not text in UTF-8"))
    }

    fn note(&mut self, file: &str, line: usize, what: &str) {
        self.notes.push(Note { file: file.to_owned(), line, what: what.to_owned(), hides: true });
    }

    /// How the build goes on after a step. What nobody is may be something that was not read: then that is told, and nothing is called wrong.
    fn after(&mut self, step: Result<(), Failure>, pile: &Pile, (file, line): (&str, usize)) -> Result<(), BuildError> {
        let what = match step {
            Ok(()) => return Ok(()),
            Err(Failure::Wrong(what)) => return Err(BuildError::new(file, line, &what)),
            Err(Failure::Nobody(what)) => what,
        };
        let unread = self.notes.get(pile.from..).and_then(|notes| notes.iter().find(|note| note.hides));
        let of = match unread {
            Some(unread) => format!("perhaps one of {}", unread.what),
            None if is_unknown(&what) => "only the cluster knows which".to_owned(),
            None => return Err(BuildError::new(file, line, &what)),
        };
        let what = format!("what is changed about an object that it has not read: {of}");
        self.notes.push(Note { file: file.to_owned(), line, what, hides: false });
        Ok(())
    }

    /// Why nothing is at a path.
    fn absent(&self, own: &Kustomization, path: &str, line: usize) -> BuildError {
        let link = joined(&own.folder, path).and_then(|place| self.tree.link(&place).map(str::to_owned));
        let what = match link {
            Some(link) => format!(
                "{path} is not in what Flux builds: {link} is a symbolic link, and Flux drops those; commit the file itself"
            ),
            None => format!("{path} is not there"),
        };
        own.wrong(line, &what)
    }

    /// Adds what a kustomization brings, and changes all that is there as it says.
    fn accumulate(&mut self, own: &Kustomization, pile: &mut Pile, depth: usize) -> Result<(), BuildError> {
        if depth > MAX_DEPTH {
            return Err(own.wrong(1, "kustomizations include each other without end"));
        }
        for (line, resource) in own.list("resources").chain(own.list("bases")) {
            self.resource(own, resource, line, pile, depth)?;
        }
        for (key, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
            for (line, args) in own.list(key) {
                let place = Place { tree: self.tree, folder: &own.folder, file: &own.file, line };
                let (made, sealed) = generate::generate(kind, args, &own.value["generatorOptions"], &place)?;
                self.sealed.extend(sealed.into_iter().map(|what| Note {
                    file: own.file.clone(),
                    line,
                    what,
                    hides: false,
                }));
                let made = generate::absorb(&mut pile.pieces, made, args["behavior"].as_str().unwrap_or("create"));
                self.after(made, pile, (&own.file, line))?;
            }
        }
        for (line, component) in own.list("components") {
            let path = component.as_str().unwrap_or_default();
            let folder = joined(&own.folder, path).filter(|folder| self.tree.is_folder(folder));
            let file = folder.as_ref().and_then(|folder| self.file_of(folder));
            let (Some(folder), Some(file)) = (folder, file) else {
                if is_unknown(path) {
                    self.note(&own.file, line, "a component whose name only the cluster knows");
                    continue;
                }
                if self.is_remote(own, path, line) {
                    continue;
                }
                return Err(self.absent(own, path, line));
            };
            let component = self.read_inner(&folder, &file, "Component")?;
            self.accumulate(&component, pile, depth + 1)?;
        }
        self.transform(own, pile)
    }

    fn resource(
        &mut self,
        own: &Kustomization,
        resource: &Value,
        line: usize,
        pile: &mut Pile,
        depth: usize,
    ) -> Result<(), BuildError> {
        let path = resource.as_str().ok_or_else(|| own.wrong(line, "a resource is a path"))?;
        let place = joined(&own.folder, path);
        let mut new = Pile { pieces: Vec::new(), from: self.notes.len() };
        match place {
            Some(file) if self.tree.file(&file).is_some() => new.pieces = piece::load(self.tree, &file)?,
            Some(folder) if self.tree.is_folder(&folder) => {
                let Some(file) = self.file_of(&folder) else {
                    return Err(own.wrong(line, &format!("the folder {path} has no kustomization.yaml")));
                };
                let inner = self.read_inner(&folder, &file, "Kustomization")?;
                self.accumulate(&inner, &mut new, depth + 1)?;
            }
            Some(file) if self.tree.is_oversized(&file) => {
                self.note(&own.file, line, &format!("{path}, which is larger than castle reads"));
            }
            _ if self.is_remote(own, path, line) => {}
            _ => return Err(self.absent(own, path, line)),
        }
        for piece in new.pieces {
            let id = piece.id();
            if pile.pieces.iter().any(|known| known.id().is(&id)) {
                return Err(BuildError::new(
                    &piece.file,
                    piece.lines.of(""),
                    &format!("{} {} is there twice", id.kind, id.name),
                ));
            }
            pile.pieces.push(piece);
        }
        Ok(())
    }

    /// Whether a path leads elsewhere, where nobody looks here.
    fn is_remote(&mut self, own: &Kustomization, path: &str, line: usize) -> bool {
        let begins = |with: &str| path.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
        let is_remote = path.contains("://") || is_ssh(path) || begins("github.com") || begins("gh:");
        if is_remote {
            self.note(&own.file, line, &format!("{path}, which is not in this repository"));
        }
        is_remote
    }
}
