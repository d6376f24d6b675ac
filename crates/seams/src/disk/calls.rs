//! The calls that make bytes and names last, in one place: what survives a power cut is a matter of their order, and tests see it here.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub(super) fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    note("write", None);
    file.write_all(bytes)
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    note("sync", None);
    file.sync_all()
}

/// Without the times, which nobody needs after a crash: content and length are what counts.
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    note("sync data", None);
    file.sync_data()
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    let file = File::open(folder)?;
    note("sync folder", Some(folder));
    file.sync_all()
}

pub(super) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    note("make folder", Some(path));
    DirBuilder::new().mode(mode).create(path)
}

/// Gives a file a name that nothing else may have.
pub(super) fn name(from: &Path, to: &Path) -> rustix::io::Result<()> {
    note("name", Some(to));
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    note("rename", Some(to));
    fs::rename(from, to)
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    note("remove", Some(path));
    fs::remove_file(path)
}

#[cfg(not(test))]
fn note(_: &str, _: Option<&Path>) {}

#[cfg(test)]
use tests::note;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use crate::{Disk, SystemDisk};

    use super::*;

    thread_local! {
        /// What this thread has called. A test has one of its own.
        static CALLED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(call: &str, path: Option<&Path>) {
        let name = path.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        CALLED.with_borrow_mut(|called| called.push(format!("{call} {name}").trim_end().to_owned()));
    }

    /// What something calls, in a folder `home` of its own.
    fn calls(act: impl FnOnce(&Path)) -> Vec<String> {
        let around = tempfile::tempdir().unwrap();
        let home = around.path().join("home");
        fs::create_dir(&home).unwrap();
        CALLED.take();
        act(&home);
        CALLED.take()
    }

    #[test]
    fn a_new_file_is_whole_before_it_has_its_name_and_its_folder_is_synced_after() {
        let called = calls(|home| SystemDisk.create_new(&home.join("file"), b"x", 0o600).unwrap());
        assert_eq!(called, ["write", "sync", "name file", "sync folder home"]);
    }

    #[test]
    fn a_file_is_replaced_by_a_whole_one_and_its_folder_is_synced_after() {
        let expected = ["write", "sync", "rename file", "sync folder home"];
        assert_eq!(calls(|home| SystemDisk.replace(&home.join("file"), b"x", 0o600).unwrap()), expected);
        assert_eq!(calls(|home| SystemDisk.replace_keeping(&home.join("file"), b"x", 0o640).unwrap()), expected);
    }

    #[test]
    fn a_file_that_is_removed_stays_so() {
        let called = calls(|home| {
            fs::write(home.join("file"), b"x").unwrap();
            SystemDisk.remove_file(&home.join("file")).unwrap();
        });
        assert_eq!(called, ["remove file", "sync folder home"]);
    }

    #[test]
    fn every_folder_that_is_made_is_synced_into_the_one_above() {
        let called = calls(|home| SystemDisk.create_dir_all(&home.join("one/two"), 0o700).unwrap());
        assert_eq!(called, ["make folder one", "sync folder home", "make folder two", "sync folder one"]);
    }

    #[test]
    fn a_file_that_is_opened_for_the_first_time_is_there_to_stay_and_what_is_appended_once_it_is_synced() {
        let called = calls(|home| {
            let mut file = SystemDisk.append(&home.join("file"), 0o600).unwrap();
            file.append(b"x").unwrap();
            file.sync().unwrap();
            drop(SystemDisk.append(&home.join("file"), 0o600).unwrap());
            drop(SystemDisk.try_lock(&home.join("lock"), 0o600).unwrap());
        });
        assert_eq!(called, ["sync folder home", "write", "sync data", "sync folder home"]);
    }
}
