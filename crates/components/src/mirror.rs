//! Mirrors: manifests in a folder or an archive, with an index of what they are.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_seams::{Disk, DiskError, DiskErrorKind, FileKind};
use castle_spec::ComponentName;
use castle_spec::values::ComponentVersion;
use serde_json::{Value, json};
use thiserror::Error;

use crate::digest::{digest, is_digest};

/// The name of the index.
pub const INDEX: &str = "index.yaml";

/// No manifest is longer.
pub const MAX_MANIFEST_BYTES: u64 = 16 << 20;
/// No archive is longer.
const MAX_ARCHIVE_BYTES: u64 = 256 << 20;
/// No index is longer.
const MAX_INDEX_BYTES: u64 = 1 << 20;

/// What an index says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Of which component it is.
    pub component: ComponentName,
    /// Of which version.
    pub version: ComponentVersion,
    /// Its name.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Where it was had from.
    pub upstream: String,
    /// The images that its objects name.
    pub images: Vec<String>,
}

/// Why a mirror cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MirrorError {
    /// It cannot be read.
    #[error("the mirror cannot be read: {0}")]
    Unreadable(String),
    /// Its index is none.
    #[error("the mirror {place} has an index.yaml that cannot be used: {why}; `castle mirror pull` writes one")]
    Index {
        /// The mirror.
        place: String,
        /// What is wrong with its index.
        why: String,
    },
    /// A file of its index is not there.
    #[error("the mirror {place} lacks {file}, which its index lists; `castle mirror pull` fetches it")]
    Lacks {
        /// The mirror.
        place: String,
        /// The file.
        file: String,
    },
}

/// A mirror.
pub struct Mirror {
    place: PathBuf,
    files: Files,
    listed: Vec<Listed>,
}

enum Files {
    Folder(Arc<dyn Disk>),
    Archive(BTreeMap<String, Vec<u8>>),
}

/// How a file of a mirror is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// As the index says.
    Whole,
    /// Not there.
    Missing,
    /// There, with another digest.
    Differs(String),
}

impl Mirror {
    /// Opens a folder, or an archive of one (`tar`).
    ///
    /// # Errors
    ///
    /// [`MirrorError`] if it cannot be read, or has no index.
    pub fn open(disk: Arc<dyn Disk>, place: &Path) -> Result<Self, MirrorError> {
        let unreadable = |error: DiskError| MirrorError::Unreadable(error.to_string());
        let is_folder = disk.metadata(place).map_err(unreadable)?.kind == FileKind::Directory;
        let files = if is_folder {
            Files::Folder(disk)
        } else {
            let bytes = disk.read(place, MAX_ARCHIVE_BYTES).map_err(unreadable)?;
            Files::Archive(unpack(&bytes).map_err(|why| {
                MirrorError::Unreadable(format!("{} is no whole tar archive: {why}", place.display()))
            })?)
        };
        let mut mirror = Self { place: place.to_owned(), files, listed: Vec::new() };
        let text = mirror.bytes(INDEX, MAX_INDEX_BYTES)?;
        let wrong = |why: String| MirrorError::Index { place: place.display().to_string(), why };
        let text = String::from_utf8(text.ok_or_else(|| wrong("there is none".to_owned()))?);
        mirror.listed = read_index(&text.map_err(|_| wrong("it is not text".to_owned()))?).map_err(wrong)?;
        Ok(mirror)
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// What its index lists, in its order.
    #[must_use]
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// What it has of a component: the file of this digest.
    #[must_use]
    pub fn with_digest(&self, component: ComponentName, sha256: &str) -> Option<&Listed> {
        self.listed.iter().find(|listed| listed.component == component && listed.sha256 == sha256)
    }

    /// What it has of a version of a component.
    #[must_use]
    pub fn with_version(&self, component: ComponentName, version: &ComponentVersion) -> Option<&Listed> {
        self.listed.iter().find(|listed| listed.component == component && listed.version == *version)
    }

    /// The bytes of a file that it lists, as they are.
    ///
    /// # Errors
    ///
    /// [`MirrorError`] if it is not there, or cannot be read.
    pub fn read(&self, file: &str) -> Result<Vec<u8>, MirrorError> {
        let lacks = || MirrorError::Lacks { place: self.place.display().to_string(), file: file.to_owned() };
        self.bytes(file, MAX_MANIFEST_BYTES)?.ok_or_else(lacks)
    }

    /// How a file is that it lists.
    ///
    /// # Errors
    ///
    /// [`MirrorError`] if it cannot be read.
    pub fn look(&self, listed: &Listed) -> Result<Found, MirrorError> {
        let Some(bytes) = self.bytes(&listed.file, MAX_MANIFEST_BYTES)? else { return Ok(Found::Missing) };
        let found = digest(&bytes);
        Ok(if found == listed.sha256 { Found::Whole } else { Found::Differs(found) })
    }

    fn bytes(&self, file: &str, limit: u64) -> Result<Option<Vec<u8>>, MirrorError> {
        match &self.files {
            Files::Archive(files) => Ok(files.get(file).cloned()),
            Files::Folder(disk) => match disk.read(&self.place.join(file), limit) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind == DiskErrorKind::NotFound => Ok(None),
                Err(error) => Err(MirrorError::Unreadable(error.to_string())),
            },
        }
    }
}

/// The files of an archive by their last names: it may hold the folder or just what is in it.
fn unpack(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(Cursor::new(bytes));
    for entry in archive.entries().map_err(told)? {
        let entry = entry.map_err(told)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().map_err(told)?.into_owned();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let size = entry.size();
        let mut content = Vec::new();
        entry.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut content).map_err(told)?;
        if content.len() as u64 != size {
            return Err(format!("{name} is cut off, or too large"));
        }
        if files.insert(name.to_owned(), content).is_some() {
            return Err(format!("it holds two files called {name}"));
        }
    }
    Ok(files)
}

fn read_index(text: &str) -> Result<Vec<Listed>, String> {
    let documents = castle_yaml::parse(text).map_err(|error| error.to_string())?;
    let [index] = documents.as_slice() else { return Err("it must be one document".to_owned()) };
    if index["schema"].as_u64() != Some(1) {
        return Err("castle reads `schema: 1` alone".to_owned());
    }
    let Some(manifests) = index["manifests"].as_array() else { return Err("it has no list `manifests`".to_owned()) };
    manifests
        .iter()
        .enumerate()
        .map(|(index, entry)| listed(entry).map_err(|why| format!("manifest {}: {why}", index + 1)))
        .collect()
}

fn listed(entry: &Value) -> Result<Listed, String> {
    let text = |key: &str| entry[key].as_str().ok_or_else(|| format!("it has no {key}"));
    let word = text("component")?;
    let component = ComponentName::of_word(word).ok_or_else(|| format!("no component is called {word}"))?;
    let (file, sha256) = (text("file")?, text("sha256")?);
    if file.is_empty() || file.contains('/') || file.starts_with('.') {
        return Err("its file is no plain name".to_owned());
    }
    if !is_digest(sha256) {
        return Err("its sha256 is no digest".to_owned());
    }
    let images = entry["images"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Listed {
        component,
        version: text("version")?.parse().map_err(|why| format!("its version: {why}"))?,
        file: file.to_owned(),
        sha256: sha256.to_owned(),
        upstream: entry["upstream"].as_str().unwrap_or_default().to_owned(),
        images: images.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// The index of a mirror with these files.
#[must_use]
pub fn write_index(listed: &[Listed]) -> String {
    let entry = |one: &Listed| {
        json!({
            "component": one.component.word(), "version": one.version.to_string(), "file": one.file, "sha256": one.sha256,
            "upstream": one.upstream, "images": one.images,
        })
    };
    let index = json!({"schema": 1, "manifests": listed.iter().map(entry).collect::<Vec<_>>()});
    let body = castle_yaml::emit_for_kubernetes(&index);
    format!("# Manifests for castles without a way to the web. Written by `castle mirror pull`.\n{body}")
}

#[cfg(test)]
mod tests;
