//! A disk in memory that forgets what was not synced, as real ones do.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use castle_seams::{AppendFile, Disk, DiskError, DiskErrorKind, DiskOperation, FileKind, LockGuard, Metadata};

use crate::chance::Chance;
use crate::pulse::Pulse;

/// What a crash does to what was written but not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the process was killed, the machine went on.
    None,
    /// Everything: the machine is another one.
    All,
    /// The power went: each unsynced write is kept, lost or torn, in any combination.
    PowerCut(u64),
}

#[derive(Clone, Debug, Default)]
struct Stored {
    mode: u32,
    synced: Vec<u8>,
    /// Writes since the last sync, each at its place.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Whether it belongs to another user.
    is_anothers: bool,
}

impl Stored {
    fn content(&self) -> Vec<u8> {
        self.with(|_, bytes| Some(bytes.len()))
    }

    fn len(&self) -> usize {
        let ends = self.unsynced.iter().map(|(at, bytes)| at + bytes.len());
        ends.max().unwrap_or(0).max(self.synced.len())
    }

    /// The content with so many bytes of each unsynced write; what is missing before a later write reads as zeros.
    fn with(&self, keep: impl Fn(usize, &[u8]) -> Option<usize>) -> Vec<u8> {
        let mut content = self.synced.clone();
        for (index, (at, bytes)) in self.unsynced.iter().enumerate() {
            let Some(kept) = keep(index, bytes) else { continue };
            let end = at + kept;
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at..end].copy_from_slice(&bytes[..kept]);
        }
        content
    }
}

#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<PathBuf, Stored>,
    /// Folders that were put where files are expected. All others are there as soon as something is in them.
    folders: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    /// How many more bytes fit, if that is limited.
    room: Option<usize>,
    /// The sync of this number fails, counted from zero.
    failing_sync: Option<u64>,
    syncs: u64,
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub struct ModelDisk {
    files: Arc<Mutex<Files>>,
    pulse: Pulse,
}

impl ModelDisk {
    /// An empty disk whose effects are beats of `pulse`.
    #[must_use]
    pub fn new(pulse: &Pulse) -> Self {
        Self { files: Arc::default(), pulse: pulse.clone() }
    }

    /// The disk as it is found after a crash, by a process with another pulse.
    #[must_use]
    pub fn after_crash(&self, loss: Loss, pulse: &Pulse) -> Self {
        if loss == Loss::All {
            return Self::new(pulse);
        }
        let old = self.files();
        let chance = match loss {
            Loss::None | Loss::All => None,
            Loss::PowerCut(seed) => Some(Chance::new(seed)),
        };
        let survive = |stored: &Stored| {
            let content = stored.with(|_, bytes| match &chance {
                None => Some(bytes.len()),
                Some(chance) => match chance.below(3) {
                    0 => None,
                    1 => Some(usize::try_from(chance.below(bytes.len() as u64)).unwrap_or_default()),
                    _ => Some(bytes.len()),
                },
            });
            Stored { synced: content, unsynced: Vec::new(), ..*stored }
        };
        let files = old.files.iter().map(|(path, stored)| (path.clone(), survive(stored))).collect();
        let folders = old.folders.clone();
        Self { files: Arc::new(Mutex::new(Files { files, folders, ..Files::default() })), pulse: pulse.clone() }
    }

    /// Leaves room for so many more bytes.
    pub fn limit(&self, bytes: Option<usize>) {
        self.files().room = bytes;
    }

    /// Makes the sync of this number fail, counted from now.
    pub fn fail_sync(&self, number: u64) {
        let mut files = self.files();
        files.failing_sync = Some(files.syncs + number);
    }

    /// All that is written, synced or not.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files().files.iter().map(|(path, stored)| (path.clone(), stored.content())).collect()
    }

    /// Whether a power cut now would leave this text on disk.
    #[must_use]
    pub fn is_synced(&self, text: &str) -> bool {
        let contains = |stored: &Stored| stored.synced.windows(text.len()).any(|part| part == text.as_bytes());
        self.files().files.values().any(contains)
    }

    /// Overwrites a file behind everybody's back.
    pub fn tamper(&self, path: &Path, content: Vec<u8>) {
        let mut files = self.files();
        files.folders.remove(&plain(path));
        files.files.insert(plain(path), Stored { mode: 0o600, synced: content, ..Stored::default() });
    }

    /// Gives a file to another user of the machine.
    pub fn give_away(&self, path: &Path) {
        if let Some(stored) = self.files().files.get_mut(&plain(path)) {
            stored.is_anothers = true;
        }
    }

    /// Puts an empty folder where a file is, or might be, behind everybody's back.
    pub fn supplant(&self, path: &Path) {
        self.lose(path);
        self.files().folders.insert(plain(path));
    }

    /// Removes everything below a folder behind everybody's back.
    pub fn lose(&self, folder: &Path) {
        let (mut files, folder) = (self.files(), plain(folder));
        files.files.retain(|path, _| !path.starts_with(&folder));
        files.folders.retain(|path| !path.starts_with(&folder));
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an effect on the files, if the process lives.
    fn effect<T>(
        &self,
        operation: DiskOperation,
        path: &Path,
        effect: impl FnOnce(&mut Files) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let result = self.pulse.effect(|| effect(&mut self.files()));
        // Nobody is left to hear this; it only has to end.
        let result = result.unwrap_or_else(|| Err(io::Error::other("killed")));
        result.map_err(|error| DiskError::new(operation, path, error))
    }
}

impl Files {
    fn is_folder(&self, path: &Path) -> bool {
        // What is in a folder comes right behind it.
        let behind = (Bound::Excluded(path), Bound::Unbounded);
        let next = self.files.range::<Path, _>(behind).map(|(known, _)| known).next();
        let next_folder = self.folders.range::<Path, _>(behind).next();
        self.folders.contains(path) || [next, next_folder].into_iter().flatten().any(|known| known.starts_with(path))
    }

    /// The place of a file, unless a file is where its folder should be.
    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let place = plain(path);
        let is_blocked = place.ancestors().skip(1).any(|folder| self.files.contains_key(folder));
        if is_blocked { Err(io::ErrorKind::NotADirectory.into()) } else { Ok(place) }
    }

    /// The same, unless a folder is there.
    fn place_of_file(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.place(path)?;
        if self.is_folder(&place) { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(place) }
    }

    fn take_room(&mut self, bytes: usize) -> io::Result<()> {
        match &mut self.room {
            Some(room) if *room < bytes => Err(io::ErrorKind::StorageFull.into()),
            Some(room) => {
                *room -= bytes;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The path without `.` and `..`: there are no links on this disk.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for ModelDisk {
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, DiskError> {
        let files = self.files();
        let found = files.place_of_file(path).and_then(|place| files.files.get(&place).ok_or_else(not_found));
        let content = found.map_err(|error| DiskError::new(DiskOperation::Read, path, error))?.content();
        if content.len() as u64 > limit_bytes {
            let error = DiskError::new(DiskOperation::Read, path, io::ErrorKind::FileTooLarge.into());
            return Err(DiskError { kind: DiskErrorKind::TooLarge { limit: limit_bytes }, ..error });
        }
        Ok(content)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata, DiskError> {
        let files = self.files();
        let failed = |error| DiskError::new(DiskOperation::Metadata, path, error);
        let place = files.place(path).map_err(failed)?;
        if let Some(stored) = files.files.get(&place) {
            let (len, is_ours) = (stored.len() as u64, !stored.is_anothers);
            return Ok(Metadata { kind: FileKind::File, len, mode: stored.mode, is_ours });
        }
        if files.is_folder(&place) {
            return Ok(Metadata { kind: FileKind::Directory, len: 0, mode: 0o700, is_ours: true });
        }
        Err(failed(not_found()))
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, DiskError> {
        let files = self.files();
        let failed = |error| DiskError::new(DiskOperation::List, path, error);
        let place = files.place(path).map_err(failed)?;
        if files.files.contains_key(&place) {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let all = files.files.keys().chain(&files.folders);
        let below = all.filter_map(|known| known.strip_prefix(&place).ok());
        let names: BTreeSet<OsString> = below.filter_map(|rest| rest.iter().next().map(OsString::from)).collect();
        Ok(names.into_iter().collect())
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, DiskError> {
        Ok(plain(path))
    }

    fn target(&self, path: &Path) -> Result<PathBuf, DiskError> {
        Ok(plain(path))
    }

    fn create_dir_all(&self, path: &Path, _: u32) -> Result<(), DiskError> {
        let files = self.files();
        let made = files.place(path).and_then(|place| match files.files.contains_key(&place) {
            true => Err(io::ErrorKind::NotADirectory.into()),
            false => Ok(()),
        });
        made.map_err(|error| DiskError::new(DiskOperation::CreateDirAll, path, error))
    }

    fn create_new(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        self.effect(DiskOperation::CreateNew, path, |files| {
            let place = files.place(path)?;
            if files.files.contains_key(&place) || files.is_folder(&place) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            files.take_room(bytes.len())?;
            files.files.insert(place, Stored { mode, synced: bytes.to_vec(), ..Stored::default() });
            Ok(())
        })
    }

    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        self.effect(DiskOperation::Replace, path, |files| {
            let place = files.place_of_file(path)?;
            files.take_room(bytes.len())?;
            files.files.insert(place, Stored { mode, synced: bytes.to_vec(), ..Stored::default() });
            Ok(())
        })
    }

    fn replace_keeping(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        self.replace(path, bytes, mode)
    }

    fn append(&self, path: &Path, mode: u32) -> Result<Box<dyn AppendFile>, DiskError> {
        self.effect(DiskOperation::Append, path, |files| {
            let place = files.place_of_file(path)?;
            files.files.entry(place).or_insert_with(|| Stored { mode, ..Stored::default() });
            Ok(())
        })?;
        Ok(Box::new(Appending { disk: self.clone(), path: plain(path) }))
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.effect(DiskOperation::RemoveFile, path, |files| {
            let place = files.place_of_file(path)?;
            files.files.remove(&place).map(|_| ()).ok_or_else(not_found)
        })
    }

    fn try_lock(&self, path: &Path, mode: u32) -> Result<Box<dyn LockGuard>, DiskError> {
        let mut files = self.files();
        let place = files.place_of_file(path).map_err(|error| DiskError::new(DiskOperation::TryLock, path, error))?;
        if files.locked.insert(place.clone()) {
            // The file remains, as the system's does; it is no effect that anybody goes by.
            if !self.pulse.is_dead() {
                files.files.entry(place.clone()).or_insert_with(|| Stored { mode, ..Stored::default() });
            }
            return Ok(Box::new(Locked { disk: self.clone(), path: place }));
        }
        let error = DiskError::new(DiskOperation::TryLock, path, io::ErrorKind::WouldBlock.into());
        Err(DiskError { kind: DiskErrorKind::Locked, ..error })
    }
}

#[derive(Debug)]
struct Appending {
    disk: ModelDisk,
    path: PathBuf,
}

impl AppendFile for Appending {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.effect(DiskOperation::Append, &self.path, |files| {
            let room = files.room;
            let fits = files.take_room(bytes.len());
            let stored = files.files.entry(self.path.clone()).or_default();
            let at = stored.len();
            // A full disk takes what fits before it complains.
            let part = if fits.is_ok() { bytes.len() } else { room.unwrap_or_default() };
            stored.unsynced.push((at, bytes[..part].to_vec()));
            fits
        })
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.disk.effect(DiskOperation::Sync, &self.path, |files| {
            files.syncs += 1;
            if files.failing_sync == Some(files.syncs - 1) {
                return Err(io::Error::other("input/output error"));
            }
            let stored = files.files.entry(self.path.clone()).or_default();
            stored.synced = stored.content();
            stored.unsynced.clear();
            Ok(())
        })
    }

    fn truncate(&mut self, len: u64) -> Result<(), DiskError> {
        self.disk.effect(DiskOperation::Truncate, &self.path, |files| {
            let stored = files.files.entry(self.path.clone()).or_default();
            let mut content = stored.content();
            content.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            stored.synced = content;
            stored.unsynced.clear();
            Ok(())
        })
    }
}

#[derive(Debug)]
struct Locked {
    disk: ModelDisk,
    path: PathBuf,
}

impl LockGuard for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.disk.files().locked.remove(&self.path);
    }
}

#[cfg(test)]
mod tests;
