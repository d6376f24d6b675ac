//! What can go wrong with files, in words for people and kinds for programs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// "Too many levels of symbolic links". The standard library's own kind for it is not stable yet.
const ELOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

/// Something could not be done to a path.
#[derive(Debug, Error)]
#[error("cannot {operation} {}: {}", path.display(), self.reason())]
pub struct DiskError {
    /// What was to be done.
    pub operation: DiskOperation,
    /// To what, as the caller wrote it.
    pub path: PathBuf,
    /// What kept it from being done.
    pub kind: DiskErrorKind,
    /// The operating system's word for it. Spelled raw so that it is no link of the error chain: `Display` tells it
    /// already, and a cause is told once.
    pub r#source: io::Error,
}

impl DiskError {
    /// The error for what the operating system said.
    #[must_use]
    pub fn new(operation: DiskOperation, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), kind: DiskErrorKind::from(&source), source }
    }

    fn reason(&self) -> String {
        let words = match self.kind {
            DiskErrorKind::NotFound => self.operation.missing(),
            DiskErrorKind::AlreadyExists => "it exists already",
            DiskErrorKind::PermissionDenied => "permission denied",
            DiskErrorKind::IsDirectory => "it is a folder",
            DiskErrorKind::NotDirectory => "a part of the path is not a folder",
            DiskErrorKind::LinkLoop => "its symbolic links lead in a circle",
            DiskErrorKind::TooLarge { limit } => return format!("larger than the limit of {limit} bytes"),
            DiskErrorKind::NoSpace => "no space left",
            DiskErrorKind::Locked => "another process holds it",
            DiskErrorKind::Other => return self.r#source.to_string(),
        };
        words.to_owned()
    }
}

/// What can be done to a path.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DiskOperation {
    /// [`Disk::read`](super::Disk::read).
    Read,
    /// [`Disk::metadata`](super::Disk::metadata).
    Metadata,
    /// [`Disk::list`](super::Disk::list).
    List,
    /// [`Disk::real_path`](super::Disk::real_path).
    RealPath,
    /// [`Disk::create_dir_all`](super::Disk::create_dir_all).
    CreateDirAll,
    /// [`Disk::create_new`](super::Disk::create_new).
    CreateNew,
    /// [`Disk::replace`](super::Disk::replace).
    Replace,
    /// [`Disk::append`](super::Disk::append), [`AppendFile::append`](super::AppendFile::append).
    Append,
    /// [`AppendFile::sync`](super::AppendFile::sync).
    Sync,
    /// [`AppendFile::truncate`](super::AppendFile::truncate).
    Truncate,
    /// [`Disk::remove_file`](super::Disk::remove_file).
    RemoveFile,
    /// [`Disk::try_lock`](super::Disk::try_lock).
    TryLock,
}

impl DiskOperation {
    /// What is missing when the operation finds something missing: those that create miss the folder around it.
    fn missing(self) -> &'static str {
        match self {
            Self::Read | Self::RemoveFile | Self::Sync | Self::Truncate => "no such file",
            Self::Metadata | Self::RealPath => "no such file or folder",
            Self::List | Self::CreateDirAll | Self::CreateNew | Self::Replace | Self::Append | Self::TryLock => {
                "no such folder"
            }
        }
    }
}

/// The verb, as in "cannot …".
impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Metadata => "inspect",
            Self::List => "list",
            Self::RealPath => "resolve",
            Self::CreateDirAll => "create the folder",
            Self::CreateNew => "create",
            Self::Replace => "write",
            Self::Append => "append to",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::RemoveFile => "remove",
            Self::TryLock => "lock",
        })
    }
}

/// What keeps something from being done to a path, as far as callers decide by it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DiskErrorKind {
    /// The path, or a folder on the way to it, is missing.
    NotFound,
    /// There is something where nothing was to be.
    AlreadyExists,
    /// The operating system forbids it.
    PermissionDenied,
    /// A folder where a file was expected.
    IsDirectory,
    /// Something else where a folder was expected.
    NotDirectory,
    /// Symbolic links that lead in a circle.
    LinkLoop,
    /// More content than the caller is willing to take.
    TooLarge {
        /// What the caller is willing to take, in bytes.
        limit: u64,
    },
    /// The disk, or the share of it that the user may use, is full.
    NoSpace,
    /// Another holds the lock.
    Locked,
    /// Anything else.
    Other,
}

impl From<&io::Error> for DiskErrorKind {
    fn from(error: &io::Error) -> Self {
        if error.raw_os_error() == Some(ELOOP) {
            return Self::LinkLoop;
        }
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::AlreadyExists,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::IsADirectory => Self::IsDirectory,
            io::ErrorKind::NotADirectory => Self::NotDirectory,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[track_caller]
    fn check(operation: DiskOperation, source: io::ErrorKind, expected: &str) {
        let error = DiskError::new(operation, Path::new("clusters/blue/castle.yaml"), source.into());
        assert_eq!(error.to_string(), expected);
        assert!(error.source().is_none(), "the cause is in the message already");
    }

    #[test]
    fn errors_read_as_sentences() {
        use io::ErrorKind as Io;
        check(DiskOperation::Read, Io::NotFound, "cannot read clusters/blue/castle.yaml: no such file");
        check(DiskOperation::List, Io::NotFound, "cannot list clusters/blue/castle.yaml: no such folder");
        check(
            DiskOperation::CreateNew,
            Io::AlreadyExists,
            "cannot create clusters/blue/castle.yaml: it exists already",
        );
        check(DiskOperation::Replace, Io::StorageFull, "cannot write clusters/blue/castle.yaml: no space left");
        check(DiskOperation::Sync, Io::UnexpectedEof, "cannot sync clusters/blue/castle.yaml: unexpected end of file");
    }

    #[test]
    fn kinds_follow_the_operating_system() {
        let kind = |kind: io::ErrorKind| DiskErrorKind::from(&io::Error::from(kind));
        assert_eq!(kind(io::ErrorKind::PermissionDenied), DiskErrorKind::PermissionDenied);
        assert_eq!(kind(io::ErrorKind::StorageFull), DiskErrorKind::NoSpace);
        assert_eq!(kind(io::ErrorKind::QuotaExceeded), DiskErrorKind::NoSpace);
        assert_eq!(kind(io::ErrorKind::ReadOnlyFilesystem), DiskErrorKind::Other);
        assert_eq!(DiskErrorKind::from(&io::Error::from_raw_os_error(ELOOP)), DiskErrorKind::LinkLoop);
    }
}
