//! Files: read within a limit, written so that a crash leaves the old or the new, private from birth.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

mod calls;
mod durable;
mod error;
mod system;
#[cfg(test)]
mod tests;

pub use durable::TEMPORARY_SUFFIX;
pub use error::{DiskError, DiskErrorKind, DiskOperation};
pub use system::SystemDisk;

/// The door to files. Synchronous: what castle reads and writes is small, and its order is the point.
///
/// A `mode` is Unix permission bits for what is created; folders, and files that are added to, keep their own. The created file or folder never
/// has more than asked, not even for a moment, and its owner has all that was asked. What group and others were to get
/// additionally obeys the process's umask: `0o600` and `0o700` come out exactly so under any umask.
///
/// When a method that creates, replaces or removes returns `Ok`, the change survives a power cut.
pub trait Disk: Send + Sync {
    /// The whole content, if it is at most `limit_bytes` long. Never takes more than one byte beyond that, whatever the
    /// path leads to. Links are followed; a pipe is waited for.
    ///
    /// # Errors
    ///
    /// Among others [`DiskErrorKind::TooLarge`] and [`DiskErrorKind::IsDirectory`].
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, DiskError>;

    /// What is at `path`, following links.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::NotFound`] also for a link that leads nowhere.
    fn metadata(&self, path: &Path) -> Result<Metadata, DiskError>;

    /// The names in a folder, sorted by their bytes.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::NotDirectory`] for anything but a folder.
    fn list(&self, path: &Path) -> Result<Vec<OsString>, DiskError>;

    /// The absolute path without links, `.` and `..`.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::LinkLoop`] for links that lead in a circle.
    fn real_path(&self, path: &Path) -> Result<PathBuf, DiskError>;

    /// Where a file would lie that is written at `path`: links are followed, also one whose target is not there yet. The result is
    /// absolute or relative as the path and the links are.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::LinkLoop`] for links that lead in a circle.
    fn target(&self, path: &Path) -> Result<PathBuf, DiskError>;

    /// Makes a folder and those above it that are missing, all with `mode`.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::NotDirectory`] if something else is in the way.
    fn create_dir_all(&self, path: &Path, mode: u32) -> Result<(), DiskError>;

    /// Makes a new file with this content, and never touches one that exists (be it a link that leads nowhere). Whoever
    /// reads, at any time and after any crash, finds no file or all of it; of several who make it at once, one does.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::AlreadyExists`] if there is something at `path`. After any error there is no file of this call's, with the
    /// exception that [`Disk::replace`] has, too.
    fn create_new(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError>;

    /// Puts a file with this content at `path`, whether or not there was one. Whoever reads, at any time and after any
    /// crash, finds the old content or the new, never a mixture. A link at `path` is itself replaced, not followed.
    ///
    /// # Errors
    ///
    /// After an error the old content stands, with one exception: if only the last step failed (making the change
    /// survive a power cut), the new content is already in place.
    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError>;

    /// The same with a file that is there: the new one has exactly this mode, whatever the umask, as if the old one had kept it.
    ///
    /// # Errors
    ///
    /// As [`Disk::replace`].
    fn replace_keeping(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError>;

    /// Opens a file to add to its end, making it (empty) if it is missing.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::NotFound`] if the folder is missing.
    fn append(&self, path: &Path, mode: u32) -> Result<Box<dyn AppendFile>, DiskError>;

    /// Removes a file, or a link (never what it leads to).
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::NotFound`] if it is gone already.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;

    /// Takes the lock that the file at `path` stands for, without waiting, making the file if it is missing.
    ///
    /// The operating system lets go of the lock when the guard is dropped or the process dies, however it dies. The
    /// file stays, and must: removing it would let a third party lock a new one beside a holder of the old.
    ///
    /// # Errors
    ///
    /// [`DiskErrorKind::Locked`] if another holds it, in this process or elsewhere.
    fn try_lock(&self, path: &Path, mode: u32) -> Result<Box<dyn LockGuard>, DiskError>;
}

/// A file that grows at its end.
pub trait AppendFile: Debug + Send + Sync {
    /// Adds to the end. Not safe from a crash until [`AppendFile::sync`].
    ///
    /// # Errors
    ///
    /// A part may have been written: [`AppendFile::truncate`] to the length from before.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError>;

    /// Returns once all that was added survives a power cut.
    ///
    /// # Errors
    ///
    /// What was added since the last sync may be lost, and a second try proves nothing: the system forgets what it
    /// could not write. Open the file anew and read it back.
    fn sync(&mut self) -> Result<(), DiskError>;

    /// Cuts the file to `len` bytes. It never grows by this.
    ///
    /// # Errors
    ///
    /// Also if the file is shorter than `len`.
    fn truncate(&mut self, len: u64) -> Result<(), DiskError>;
}

/// Holds a lock until dropped.
pub trait LockGuard: Debug + Send + Sync {}

/// What is at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Its length in bytes; meaningful for files.
    pub len: u64,
    /// Its permission bits (`0o7777` at most).
    pub mode: u32,
    /// Whether it belongs to whoever runs this process.
    pub is_ours: bool,
}

/// What can be at a path, links followed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A pipe, a socket, a device.
    Other,
}
