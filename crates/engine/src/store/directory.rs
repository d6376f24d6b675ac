//! Records in a folder of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_seams::{Disk, DiskError, DiskErrorKind};
use sha2::{Digest, Sha256};

use super::{Expect, Found, Store, StoreError, StoreErrorKind, Stored, Tag};
use crate::id::hex;

/// No record is larger.
const MAX_BYTES: u64 = 64 << 20;

/// A folder. Writers take turns by a lock of the operating system, which ends with the process that holds it.
pub struct DirectoryStore {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl DirectoryStore {
    /// The store in this folder; it is made when first written to.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, folder: &Path) -> Self {
        Self { disk, folder: folder.to_owned() }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    fn read(&self, key: &str) -> Result<Option<Found>, StoreError> {
        match self.disk.read(&self.path(key), MAX_BYTES) {
            Ok(bytes) => Ok(Some(Found { tag: tag(&bytes), bytes })),
            Err(error) if error.kind == DiskErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    fn write(&self, key: &str, bytes: &[u8], expect: Expect<'_>) -> Result<Tag, StoreError> {
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.folder);
        self.disk.create_dir_all(folder, 0o700).map_err(|error| refused(&error))?;
        // Held while it is looked and written, so that nobody writes in between. Each folder has its own: castles do not wait for each other.
        let _turn = self.disk.try_lock(&folder.join(".lock"), 0o600).map_err(|error| match error.kind {
            DiskErrorKind::Locked => failure(StoreErrorKind::Unavailable, &path, "someone else is just writing"),
            _ => refused(&error),
        })?;
        let found = self.read(key)?;
        let as_expected = match (&found, expect) {
            (None, Expect::Nothing) => true,
            (Some(found), Expect::Version(tag)) => found.tag == *tag,
            _ => false,
        };
        if !as_expected {
            return Err(failure(StoreErrorKind::Conflict, &path, "someone else wrote in between"));
        }
        self.disk.replace(&path, bytes, 0o600).map_err(|error| refused(&error))?;
        Ok(tag(bytes))
    }

    fn walk(&self, folder: &str, found: &mut Vec<String>) -> Result<(), StoreError> {
        let names = match self.disk.list(&self.path(folder)) {
            Ok(names) => names,
            Err(error) if matches!(error.kind, DiskErrorKind::NotFound | DiskErrorKind::NotDirectory) => return Ok(()),
            Err(error) => return Err(refused(&error)),
        };
        for name in names.iter().filter_map(|name| name.to_str()).filter(|name| !name.starts_with('.')) {
            let key = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            match self.disk.metadata(&self.path(&key)) {
                Ok(metadata) if metadata.kind == castle_seams::FileKind::Directory => self.walk(&key, found)?,
                Ok(_) => found.push(key),
                // Removed just now.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

fn tag(bytes: &[u8]) -> Tag {
    Tag(hex(&Sha256::digest(bytes)[..16]))
}

fn failure(kind: StoreErrorKind, path: &Path, evidence: &str) -> StoreError {
    StoreError { kind, subject: path.display().to_string(), evidence: evidence.to_owned() }
}

fn refused(error: &DiskError) -> StoreError {
    let evidence = match error.kind {
        // Nobody knows whose it is, and what is in it.
        DiskErrorKind::IsDirectory => {
            "it is a folder\n  next: move it away, and run castle adopt: what stands tells the same".to_owned()
        }
        _ => error.to_string(),
    };
    failure(StoreErrorKind::Refused, &error.path, &evidence)
}

impl Store for DirectoryStore {
    fn get<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Found>> {
        Box::pin(std::future::ready(self.read(key)))
    }

    fn put<'a>(&'a self, key: &'a str, bytes: &'a [u8], expect: Expect<'a>) -> Stored<'a, Tag> {
        Box::pin(std::future::ready(self.write(key, bytes, expect)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<String>> {
        let list = || {
            let mut found = Vec::new();
            self.walk("", &mut found)?;
            found.retain(|key| key.starts_with(prefix));
            found.sort_unstable();
            Ok(found)
        };
        Box::pin(std::future::ready(list()))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        let removed = match self.disk.remove_file(&self.path(key)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind == DiskErrorKind::NotFound => Ok(()),
            Err(error) => Err(refused(&error)),
        };
        Box::pin(std::future::ready(removed))
    }
}
