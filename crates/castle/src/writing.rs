//! Files that somebody named to be written: what may be put there, and how what is there is kept.

use std::path::{Path, PathBuf};

use castle_seams::{Disk, DiskErrorKind, FileKind, Metadata};

use crate::doors::Doors;
use crate::project;
use crate::stand::Trouble;

/// The files of a castle that are no place for anything else.
const OWN_NAMES: [&str; 2] = ["castle.yaml", "castle.lock"];
/// What a sealed record begins with.
const RECORD: &[u8] = b"castle-state ";

/// Who may read what is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Readers {
    /// Its owner alone, whatever was there.
    Owner,
    /// Whoever could read what was there; of a new file, its owner alone.
    AsBefore,
    /// The same; of a new file, everybody.
    AsBeforeOrAll,
}

/// A place for a file, with its links followed.
#[derive(Debug)]
pub(crate) struct Place {
    target: PathBuf,
    found: Option<Metadata>,
}

impl Place {
    /// Looks at a place. Only a regular file can be written, or one that is not there.
    pub(crate) fn find(disk: &dyn Disk, file: &Path) -> Result<Self, Trouble> {
        let failed = |error: castle_seams::DiskError| Trouble::of(&error);
        let target = disk.target(file).map_err(failed)?;
        let found = match disk.metadata(&target) {
            Ok(found) => Some(found),
            Err(error) if error.kind == DiskErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        match found.map(|found| found.kind) {
            Some(FileKind::Directory) => Err(refused(file, "is a folder: name a file")),
            Some(FileKind::Other) => {
                Err(refused(file, "is no regular file (a device, a pipe or a socket): name a file"))
            }
            Some(FileKind::File) | None => Ok(Self { target, found }),
        }
    }

    /// The same for what is not castle's to decide: nothing of somebody else's, and none of castle's own files, is written over.
    pub(crate) fn judge(doors: &Doors, file: &Path) -> Result<Self, Trouble> {
        let disk = doors.disk.as_ref();
        let place = Self::find(disk, file)?;
        if place.found.is_some_and(|found| !found.is_ours) {
            return Err(refused(file, "belongs to another user: name another file"));
        }
        let name = place.target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(own) = OWN_NAMES.iter().find(|own| **own == name) {
            return Err(refused(file, &format!("is a {own}: name another file")));
        }
        if place.is_in_state_folder(doors) || place.begins_with(disk, RECORD) {
            return Err(refused(file, "is of what castle remembers: name a file outside of the state folder"));
        }
        if place.is_castle(disk) {
            return Err(refused(file, "describes a castle: name another file"));
        }
        Ok(place)
    }

    /// Puts a file there. One that is there keeps its links, and its mode if its readers are to stay.
    pub(crate) fn write(&self, disk: &dyn Disk, bytes: &[u8], readers: Readers) -> Result<(), Trouble> {
        let written = match (readers, self.found) {
            (Readers::AsBefore | Readers::AsBeforeOrAll, Some(found)) => {
                disk.replace_keeping(&self.target, bytes, found.mode)
            }
            (Readers::Owner, _) | (Readers::AsBefore, None) => disk.replace(&self.target, bytes, 0o600),
            (Readers::AsBeforeOrAll, None) => disk.replace(&self.target, bytes, 0o644),
        };
        written.map_err(|error| Trouble::of(&error))
    }

    /// Where it lies, links followed.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    fn is_in_state_folder(&self, doors: &Doors) -> bool {
        let disk = doors.disk.as_ref();
        let Some(state) = project::state_folder(&doors.variables).and_then(|state| disk.real_path(&state).ok()) else {
            return false;
        };
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.real_path(folder).is_ok_and(|folder| folder.starts_with(state))
    }

    fn begins_with(&self, disk: &dyn Disk, start: &[u8]) -> bool {
        self.content(disk).is_some_and(|content| content.starts_with(start))
    }

    /// Whether it is a castle's file under another name; also one that has a mistake, and so is none yet.
    fn is_castle(&self, disk: &dyn Disk) -> bool {
        let Some(content) = self.content(disk) else { return false };
        let text = String::from_utf8_lossy(&content);
        let has = |key: &str| text.lines().any(|line| line.starts_with(key));
        (has("castle:") && has("platform:")) || castle_spec::read(&content).castle.is_some()
    }

    fn content(&self, disk: &dyn Disk) -> Option<Vec<u8>> {
        self.found?;
        disk.read(&self.target, castle_spec::MAX_BYTES).ok()
    }
}

fn refused(file: &Path, why: &str) -> Trouble {
    Trouble::Refused(format!("{} {why}; nothing was written", file.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use castle_rehearsal::ModelDisk;

    use super::*;

    /// Goal: what belongs to somebody else is not written over, and what is one's own is. Method: one file, before and after it was given away.
    #[test]
    fn a_file_of_another_user_is_left_alone() {
        let disk = ModelDisk::default();
        let doors = Doors { disk: Arc::new(disk.clone()), ..Doors::system() };
        let file = Path::new("/project/kubeconfig");
        disk.tamper(file, b"theirs".to_vec());
        assert!(Place::judge(&doors, file).is_ok());
        disk.give_away(file);
        let refused = Place::judge(&doors, file).unwrap_err();
        assert!(matches!(&refused, Trouble::Refused(why) if why.contains("belongs to another user")), "{refused:?}");
    }

    #[test]
    fn a_castle_with_a_mistake_is_known_under_any_name() {
        let disk = ModelDisk::default();
        let doors = Doors { disk: Arc::new(disk.clone()), ..Doors::system() };
        let file = Path::new("/project/blue.yaml");
        for (content, is_refused) in [
            ("castle: blue\nplatform: embeded\n", true),
            ("castle: blue\nplatform: {proxmox: {endpoint: x\n", true),
            ("apiVersion: v1\nkind: Config\n", false),
            ("castles: 3\n", false),
        ] {
            disk.tamper(file, content.as_bytes().to_vec());
            assert_eq!(Place::judge(&doors, file).is_err(), is_refused, "{content}");
        }
    }
}
