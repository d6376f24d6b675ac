//! Folders that the embedded datacenter serves as repositories: those that castle has announced, and no others. Each within bounds,
//! without what git keeps for itself, and nothing from outside of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use castle_gitops::{MAX_FILE_BYTES, MAX_FILES, MAX_TREE_BYTES};
use castle_seams::{Disk, DiskError, DiskErrorKind, FileKind};

/// How deep folders may nest.
const MAX_DEPTH: usize = 64;

/// An announcement is a path.
const MAX_PATH_BYTES: u64 = 16 << 10;

/// The file that tells which folder the repository of this name is.
fn announcement(state: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    (!name.is_empty() && name.chars().all(is_plain)).then(|| state.join("repositories").join(name))
}

/// Announces a folder, if it can be served now.
pub(super) fn announce(disk: &dyn Disk, state: &Path, name: &str, folder: &Path) -> Result<(), String> {
    let told = |error: DiskError| error.to_string();
    let file = announcement(state, name).ok_or_else(|| format!("`{name}` is no name of a repository"))?;
    read(disk, folder)?;
    let real = disk.real_path(folder).map_err(told)?;
    let text = real.to_str().ok_or_else(|| format!("the folder {} has a name that is not text", real.display()))?;
    disk.create_dir_all(&state.join("repositories"), 0o700).map_err(told)?;
    disk.replace(&file, text.as_bytes(), 0o600).map_err(told)
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
        Err(error) => return Err(error.to_string()),
    };
    let folder = String::from_utf8(bytes).map_err(|_| format!("{} does not name a folder", file.display()))?;
    Ok(Some(folder.into()))
}

/// The files of the repository of this name; nothing if nobody has announced it.
pub(super) fn files(disk: &dyn Disk, state: &Path, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, String> {
    let folder = announced(disk, state, name)?;
    folder.map(|folder| read(disk, &folder)).transpose()
}

/// All files of a folder by their paths, or for people why it cannot be served.
pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let shown = folder.display();
    let unreadable = |error: DiskError| format!("the folder {shown} cannot be read: {error}");
    let gone = |error: DiskError| match error.kind {
        DiskErrorKind::NotFound | DiskErrorKind::NotDirectory => format!(
            "the folder {shown} is gone: `gitops.folder` in castle.yaml names what Flux follows, and `castle new` stamps one"
        ),
        _ => unreadable(error),
    };
    let too_large = |what: String| format!("the folder {shown} is too large: {what}; keep nothing but manifests in it");
    let root = disk.real_path(folder).map_err(gone)?;
    disk.list(&root).map_err(gone)?;
    let mut all = BTreeMap::new();
    let mut bytes_left = MAX_TREE_BYTES;
    let mut open = vec![(root.clone(), String::new(), 0)];
    while let Some((path, prefix, depth)) = open.pop() {
        for name in disk.list(&path).map_err(unreadable)? {
            let Some(name) = name.to_str().filter(|name| *name != ".git") else { continue };
            let (inner, place) = (path.join(name), format!("{prefix}{name}"));
            let real = match disk.real_path(&inner) {
                // A link that leads out is not followed: what is outside was not announced.
                Ok(real) if !real.starts_with(&root) => continue,
                Ok(real) => real,
                // So is one that leads nowhere, or what was removed meanwhile.
                Err(error) if matches!(error.kind, DiskErrorKind::NotFound | DiskErrorKind::LinkLoop) => continue,
                Err(error) => return Err(unreadable(error)),
            };
            match disk.metadata(&real).map_err(unreadable)?.kind {
                FileKind::Directory if depth < MAX_DEPTH => open.push((real, format!("{place}/"), depth + 1)),
                FileKind::Directory => return Err(too_large(format!("{place} lies {MAX_DEPTH} deep"))),
                FileKind::File => {
                    let bytes = disk.read(&real, MAX_FILE_BYTES).map_err(|error| match error.kind {
                        DiskErrorKind::TooLarge { .. } => too_large(format!("{place} has over {MAX_FILE_BYTES} bytes")),
                        _ => unreadable(error),
                    })?;
                    bytes_left = bytes_left
                        .checked_sub(bytes.len() as u64)
                        .ok_or_else(|| too_large(format!("its files have over {MAX_TREE_BYTES} bytes together")))?;
                    all.insert(place, bytes);
                }
                FileKind::Other => {}
            }
            if all.len() > MAX_FILES {
                return Err(too_large(format!("it has over {MAX_FILES} files")));
            }
        }
    }
    if all.is_empty() {
        return Err(format!(
            "the folder {shown} is empty: Flux follows it, so put manifests there, or let `castle new` stamp them"
        ));
    }
    Ok(all)
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
        assert_eq!(told.keys().collect::<Vec<_>>(), ["a.yaml", "b/c.yaml", "same.yaml"]);
        assert_eq!(told["same.yaml"], b"1");
        std::os::unix::fs::symlink("..", folder.join("b/up")).unwrap();
        let why = read(&SystemDisk, &folder).unwrap_err();
        assert!(why.contains("is too large: ") && why.contains(" lies 64 deep"), "it never ends: {why}");
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
        let large = vec![0; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        write(&folder, &[("large", &large)]);
        assert!(why(&folder).contains("large has over"), "{}", why(&folder));
    }
}
