//! Folders that the embedded datacenter serves as repositories: those that castle has announced, and no others. Each is read as it is judged
//! (`castle_gitops::Tree`): within bounds, without what Flux leaves out, and without links, which Flux drops.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use castle_gitops::{Tree, TreeError};
use castle_seams::{Disk, DiskError, DiskErrorKind};
use serde::{Deserialize, Serialize};

use crate::keeping::with_way_out;
use crate::notes::{self, Note};

/// Which folder it is.
#[derive(Serialize, Deserialize)]
struct Announced {
    folder: PathBuf,
}

/// An announcement is a path.
const MAX_PATH_BYTES: u64 = 16 << 10;

/// The file that tells which folder the repository of this name is.
fn announcement(state: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    (!name.is_empty() && name.chars().all(is_plain)).then(|| state.join("repositories").join(name))
}

/// Announces a folder, if it can be served now.
pub(super) fn announce(disk: &dyn Disk, state: &Path, name: &str, folder: &Path) -> Result<(), String> {
    let told = |error: DiskError| with_way_out(&error);
    let file = announcement(state, name).ok_or_else(|| format!("`{name}` is no name of a repository"))?;
    read(disk, folder)?;
    let real = disk.real_path(folder).map_err(told)?;
    if real.to_str().is_none() {
        return Err(format!("the folder {} has a name that is not text", real.display()));
    }
    disk.create_dir_all(&state.join("repositories"), 0o700).map_err(told)?;
    disk.replace(&file, &notes::bytes(&Announced { folder: real }), 0o600).map_err(told)
}

/// Whether this folder was announced as the repository of this name.
pub(super) fn is_announced(disk: &dyn Disk, state: &Path, name: &str, folder: &Path) -> Result<bool, String> {
    let announced = announced(disk, state, name)?;
    Ok(announced.is_some() && announced == disk.real_path(folder).ok())
}

/// The folder that was announced as the repository of this name.
fn announced(disk: &dyn Disk, state: &Path, name: &str) -> Result<Option<PathBuf>, String> {
    let Some(file) = announcement(state, name) else { return Ok(None) };
    let bytes = match disk.read(&file, MAX_PATH_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(with_way_out(&error)),
    };
    match notes::of::<Announced>(bytes) {
        Note::Read(announced) => Ok(Some(announced.folder)),
        Note::Newer(format) => Err(notes::newer(&file, format)),
        // What names no folder announces none: whoever raises the castle announces it anew.
        Note::None | Note::Damaged(_) => Ok(None),
    }
}

/// The files of the repository of this name; nothing if nobody has announced it.
pub(super) fn files(disk: &dyn Disk, state: &Path, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, String> {
    let folder = announced(disk, state, name)?;
    folder.map(|folder| read(disk, &folder)).transpose()
}

/// The files of a folder by their paths, as far as Flux would fetch them, or for people why it cannot be served.
pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let shown = folder.display();
    let root = disk.real_path(folder).and_then(|root| disk.list(&root).map(|_| root));
    let root = root.map_err(|error| match error.kind {
        DiskErrorKind::NotFound | DiskErrorKind::NotDirectory => format!(
            "the folder {shown} is gone: `gitops.folder` in castle.yaml names what Flux follows, and `castle new` stamps one"
        ),
        _ => format!("the folder {shown} cannot be read: {error}"),
    })?;
    let tree = Tree::of_folder(disk, &root).map_err(|error| match error {
        TreeError::Unreadable(why) => format!("the folder {shown} cannot be read: {why}"),
        TreeError::TooLarge(what) => {
            format!("the folder {shown} is too large: {what}; keep nothing but manifests in it, or name the rest in .sourceignore")
        }
    })?;
    let files: BTreeMap<_, _> = tree.below("").map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
    if files.is_empty() {
        return Err(format!(
            "the folder {shown} is empty: Flux follows it, so put manifests there, or let `castle new` stamp them"
        ));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use castle_seams::SystemDisk;

    use super::*;

    fn write(folder: &Path, files: &[(&str, &[u8])]) {
        for (path, bytes) in files {
            let path = folder.join(path);
            SystemDisk.create_dir_all(path.parent().unwrap(), 0o755).unwrap();
            SystemDisk.create_new(&path, bytes, 0o644).unwrap();
        }
    }

    #[test]
    fn a_folder_is_its_files_and_nothing_from_outside() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("gitops");
        write(home.path(), &[("secret.yaml", b"token: 1"), ("other/more.yaml", b"x: 1")]);
        write(&folder, &[("a.yaml", b"1"), ("b/c.yaml", b"2"), (".git/config", b"url"), ("b/.git/x", b"3")]);
        for (link, target) in [
            ("out.yaml", "../secret.yaml"),
            ("outside", "../other"),
            ("nowhere", "none"),
            ("loop", "loop"),
            ("same.yaml", "a.yaml"),
        ] {
            std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
        }
        let told = read(&SystemDisk, &folder).unwrap();
        assert_eq!(told.keys().collect::<Vec<_>>(), ["a.yaml", "b/c.yaml"], "Flux drops links, wherever they lead");
        std::os::unix::fs::symlink("..", folder.join("b/up")).unwrap();
        assert_eq!(read(&SystemDisk, &folder).unwrap(), told, "one that never ends, too");
        let tree = Tree::of_folder(&SystemDisk, &folder).unwrap();
        assert_eq!(tree.below("").count(), told.len(), "what is judged is what is followed");
    }

    #[test]
    fn only_what_was_announced_is_served() {
        let home = tempfile::tempdir().unwrap();
        let (state, folder) = (home.path().join("state"), home.path().join("gitops"));
        let told = |name: &str| files(&SystemDisk, &state, name);
        assert_eq!(told("blue"), Ok(None));
        assert!(announce(&SystemDisk, &state, "blue", &folder).unwrap_err().contains("is gone"));
        write(&folder, &[("a.yaml", b"1")]);
        announce(&SystemDisk, &state, "blue", &folder).unwrap();
        assert_eq!(told("blue").unwrap().unwrap()["a.yaml"], b"1");
        let mode = SystemDisk.metadata(&state.join("repositories/blue")).unwrap().mode;
        assert_eq!(mode, 0o600);
        let (file, recorded) = (state.join("repositories/blue"), |folder: &Path| {
            String::from_utf8(notes::bytes(&Announced { folder: folder.to_owned() })).unwrap()
        });
        let written = SystemDisk.read(&file, MAX_PATH_BYTES).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), recorded(&SystemDisk.real_path(&folder).unwrap()));
        // A part of a path may be the path of another folder.
        for damaged in [String::new(), home.path().display().to_string(), recorded(home.path())[..9].to_owned()] {
            SystemDisk.replace(&file, damaged.as_bytes(), 0o600).unwrap();
            assert_eq!(told("blue"), Ok(None), "{damaged}");
        }
        announce(&SystemDisk, &state, "blue", &folder).unwrap();
        write(&folder, &[("b.yaml", b"2")]);
        assert_eq!(told("blue").unwrap().unwrap().len(), 2, "as it is now");
        for name in ["green", "", "..", "../repositories/blue", "blue/..", "."] {
            assert_eq!(told(name), Ok(None), "{name}");
            assert!(name == "green" || announce(&SystemDisk, &state, name, &folder).is_err(), "{name}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_served_says_why() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("gitops");
        let why = |folder: &Path| read(&SystemDisk, folder).unwrap_err();
        assert!(why(&folder).contains("gitops is gone"), "{}", why(&folder));
        write(home.path(), &[("gitops/.git/HEAD", b"ref"), ("file", b"")]);
        assert!(why(&folder).contains("gitops is empty"), "what git keeps is nothing: {}", why(&folder));
        assert!(why(&home.path().join("file")).contains("file is gone"));
        let large = vec![0; usize::try_from(castle_gitops::MAX_FILE_BYTES).unwrap() + 1];
        write(&folder, &[("large", &large), ("video.wmv", &large), ("a.yaml", b"1")]);
        let served = read(&SystemDisk, &folder).unwrap();
        assert_eq!(
            served.keys().collect::<Vec<_>>(),
            ["a.yaml"],
            "Flux ignores the one, and castle cannot judge the other"
        );
    }
}
