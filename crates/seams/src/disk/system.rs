//! The machine's own disk.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::calls;
use super::durable::{create_dirs, create_temporary, discard, fill, folder_of, open_or_create, place, sync_folder_of};
use super::{AppendFile, Disk, DiskError, DiskErrorKind, DiskOperation, FileKind, LockGuard, Metadata};

/// As many links in a row as Linux follows.
const LINKS_MAX: u32 = 40;

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, DiskError> {
        let mut error = match read_at_most(path, limit_bytes.saturating_add(1)) {
            Ok(bytes) if bytes.len() as u64 <= limit_bytes => return Ok(bytes),
            Ok(_) => DiskError::new(DiskOperation::Read, path, io::ErrorKind::FileTooLarge.into()),
            Err(error) => return Err(DiskError::new(DiskOperation::Read, path, error)),
        };
        error.kind = DiskErrorKind::TooLarge { limit: limit_bytes };
        Err(error)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata, DiskError> {
        let found = fs::metadata(path).map_err(|error| DiskError::new(DiskOperation::Metadata, path, error))?;
        let kind = match found.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Directory,
            _ => FileKind::Other,
        };
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        Ok(Metadata { kind, len: found.len(), mode: found.permissions().mode() & 0o7777, is_ours })
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>, DiskError> {
        let names = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<OsString>>>();
        let mut names = names().map_err(|error| DiskError::new(DiskOperation::List, path, error))?;
        names.sort_unstable();
        Ok(names)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, DiskError> {
        fs::canonicalize(path).map_err(|error| DiskError::new(DiskOperation::RealPath, path, error))
    }

    fn target(&self, path: &Path) -> Result<PathBuf, DiskError> {
        let mut target = path.to_owned();
        for _ in 0..LINKS_MAX {
            match fs::read_link(&target) {
                Ok(next) => target = folder_of(&target).join(next),
                // No link, or nothing at all: here it ends.
                Err(_) => return Ok(target),
            }
        }
        Err(DiskError {
            kind: DiskErrorKind::LinkLoop,
            ..DiskError::new(DiskOperation::RealPath, path, io::Error::other("links"))
        })
    }

    fn create_dir_all(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        create_dirs(path, mode).map_err(|error| DiskError::new(DiskOperation::CreateDirAll, path, error))
    }

    fn create_new(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        let create = || {
            // Only to be spared the writing: who is faster from here on is found when the file is put in its place.
            if fs::symlink_metadata(path).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let (file, temporary) = create_temporary(folder_of(path), mode)?;
            fill(&file, bytes).and_then(|()| place(&temporary, path)).inspect_err(|_| discard(&temporary))?;
            sync_folder_of(path)
        };
        create().map_err(|error| DiskError::new(DiskOperation::CreateNew, path, error))
    }

    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        let replace = || {
            let (file, temporary) = create_temporary(folder_of(path), mode)?;
            fill(&file, bytes).and_then(|()| calls::rename(&temporary, path)).inspect_err(|_| discard(&temporary))?;
            sync_folder_of(path)
        };
        replace().map_err(|error| DiskError::new(DiskOperation::Replace, path, error))
    }

    fn replace_keeping(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
        let replace = || {
            // Private until it is whole.
            let (file, temporary) = create_temporary(folder_of(path), 0o600)?;
            fill(&file, bytes)
                .and_then(|()| fs::set_permissions(&temporary, Permissions::from_mode(mode)))
                .and_then(|()| calls::rename(&temporary, path))
                .inspect_err(|_| discard(&temporary))?;
            sync_folder_of(path)
        };
        replace().map_err(|error| DiskError::new(DiskOperation::Replace, path, error))
    }

    fn append(&self, path: &Path, mode: u32) -> Result<Box<dyn AppendFile>, DiskError> {
        let file = open_or_create(path, mode, OpenOptions::new().append(true))
            .map_err(|error| DiskError::new(DiskOperation::Append, path, error))?;
        Ok(Box::new(SystemAppendFile { file, path: path.to_owned() }))
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        calls::remove(path)
            .and_then(|()| sync_folder_of(path))
            .map_err(|error| DiskError::new(DiskOperation::RemoveFile, path, error))
    }

    fn try_lock(&self, path: &Path, mode: u32) -> Result<Box<dyn LockGuard>, DiskError> {
        let failed = |error| DiskError::new(DiskOperation::TryLock, path, error);
        let file = open_or_create(path, mode, OpenOptions::new().read(true).write(true)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(SystemLockGuard { file })),
            Err(TryLockError::WouldBlock) => {
                Err(DiskError { kind: DiskErrorKind::Locked, ..failed(io::ErrorKind::WouldBlock.into()) })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

#[derive(Debug)]
struct SystemAppendFile {
    file: File,
    path: PathBuf,
}

impl SystemAppendFile {
    fn cut(&self, len: u64) -> io::Result<()> {
        let present = self.file.metadata()?.len();
        // Asked because the system call would fill up with zeros.
        if len > present {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it has {present} bytes, fewer than {len}"),
            ));
        }
        self.file.set_len(len)
    }
}

impl AppendFile for SystemAppendFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        calls::write(&self.file, bytes).map_err(|error| DiskError::new(DiskOperation::Append, &self.path, error))
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        calls::sync_data(&self.file).map_err(|error| DiskError::new(DiskOperation::Sync, &self.path, error))
    }

    fn truncate(&mut self, len: u64) -> Result<(), DiskError> {
        self.cut(len).map_err(|error| DiskError::new(DiskOperation::Truncate, &self.path, error))
    }
}

/// The lock belongs to the open file, so that the operating system lets go of it when the holder dies.
#[derive(Debug)]
struct SystemLockGuard {
    file: File,
}

impl Drop for SystemLockGuard {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting has a copy of the open file until it
        // becomes its own program, and would hold the lock until then. If this fails, closing follows all the same.
        let _ = self.file.unlock();
    }
}

impl LockGuard for SystemLockGuard {}

fn read_at_most(path: &Path, count: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // Sized beforehand, so that a secret is not left behind in the smaller buffers that a growing one sheds.
    let expected = file.metadata()?.len().saturating_add(1).min(count);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(usize::MAX))?;
    file.take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letting_go_of_a_lock_does_not_wait_for_copies_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create_new(&path).unwrap();
        file.lock().unwrap();
        let _copy = file.try_clone().unwrap();
        let guard = SystemLockGuard { file };
        assert_eq!(SystemDisk.try_lock(&path, 0o600).unwrap_err().kind, DiskErrorKind::Locked);
        drop(guard);
        SystemDisk.try_lock(&path, 0o600).unwrap();
    }
}
