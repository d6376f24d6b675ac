//! Making files and folders: private from birth, and there to stay.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::calls;

/// How the names of the temporary files of [`Disk`](super::Disk) end. A process that is killed may
/// leave one behind; it is then of no use to anyone, and whoever holds the lock of the folder may remove it.
pub const TEMPORARY_SUFFIX: &str = ".castle-tmp";

/// How many names are tried for a temporary file. Each one taken is the remains of a killed process that had the same
/// id, so more than a few mean that something else is wrong.
const TEMPORARY_NAMES_MAX: u32 = 64;

pub(super) fn create_dirs(path: &Path, mode: u32) -> io::Result<()> {
    let path = or_here(path);
    let absent = |path: &&Path| {
        !path.as_os_str().is_empty() && fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<&Path> = path.ancestors().take_while(absent).collect();
    for folder in missing.into_iter().rev() {
        match calls::make_folder(folder, mode) {
            Ok(()) => {
                let born = fs::metadata(folder)?.permissions();
                owner_shortfall(&born, mode).map_or(Ok(()), |full| fs::set_permissions(folder, full))?;
                sync_folder_of(folder)?;
            }
            // Somebody was faster, or it is a `..`: what counts is what is there in the end.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    if fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// The permissions that give the owner what the umask withheld, if it withheld anything.
fn owner_shortfall(born: &Permissions, mode: u32) -> Option<Permissions> {
    let full = born.mode() | (mode & 0o700);
    (full != born.mode()).then(|| Permissions::from_mode(full))
}

fn create_exclusively(path: &Path, mode: u32) -> io::Result<File> {
    create_with(path, mode, OpenOptions::new().write(true))
}

fn create_with(path: &Path, mode: u32, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.create_new(true).mode(mode).open(path)?;
    let grant =
        || owner_shortfall(&file.metadata()?.permissions(), mode).map_or(Ok(()), |full| file.set_permissions(full));
    grant().inspect_err(|_| discard(path))?;
    Ok(file)
}

/// Creation first, because only it tells whether the mode and the folder are ours to see to.
pub(super) fn open_or_create(path: &Path, mode: u32, options: &mut OpenOptions) -> io::Result<File> {
    match create_with(path, mode, &mut options.clone()) {
        Ok(file) => sync_folder_of(path).map(|()| file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(error) => Err(error),
    }
}

/// In the same folder, because a rename is atomic only within one file system. The name is not derived from the final
/// one, which may already be as long as names can be.
pub(super) fn create_temporary(folder: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..TEMPORARY_NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".{}-{number}{TEMPORARY_SUFFIX}", process::id()));
        match create_exclusively(&path, mode) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("too many old *{TEMPORARY_SUFFIX} files in its folder")))
}

pub(super) fn fill(file: &File, bytes: &[u8]) -> io::Result<()> {
    calls::write(file, bytes)?;
    calls::sync(file)
}

/// Gives a file its name, if nothing has that name.
pub(super) fn place(temporary: &Path, path: &Path) -> io::Result<()> {
    match calls::name(temporary, path) {
        // Network file systems cannot, and have hard links, which others cannot have.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link(temporary, path),
        placed => Ok(placed?),
    }
}

/// The same in two steps. A process that is killed in between leaves both names.
fn link(temporary: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(temporary, path)?;
    fs::remove_file(temporary)
}

/// Takes back a file of our own making. A failure here would only hide the one that led here.
pub(super) fn discard(path: &Path) {
    let _ = fs::remove_file(path);
}

/// A name survives a power cut once the folder that holds it is synced, and not before.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match calls::sync_folder(folder_of(path)) {
        // Some network file systems cannot sync a folder and say so: there is nothing more to be had.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

pub(super) fn folder_of(path: &Path) -> &Path {
    or_here(path.parent().unwrap_or(path))
}

/// The empty path, which is what is above a bare name, means the current folder.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_its_name_only_if_that_is_free() {
        for give in [place, link] {
            let folder = tempfile::tempdir().unwrap();
            let [temporary, path] = ["temporary", "file"].map(|name| folder.path().join(name));
            fs::write(&temporary, "first").unwrap();
            give(&temporary, &path).unwrap();
            assert!(!temporary.exists());
            fs::write(&temporary, "second").unwrap();
            assert_eq!(give(&temporary, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        }
    }
}
