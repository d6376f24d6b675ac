//! A file in memory that an editor can work on, gone when it is done.

use std::path::{Path, PathBuf};

use castle_seams::{Disk, Entropy};
use zeroize::Zeroizing;

use crate::stand::Trouble;

/// What every such file is called, before the process and a random token.
const PREFIX: &str = "castle-edit-";
/// No list of mounts is longer.
const MAX_MOUNTS_BYTES: u64 = 4 << 20;

/// A file in clear, in memory, for its owner alone. Whatever an editor put beside it goes with it.
pub(super) struct Workbench<'d> {
    disk: &'d dyn Disk,
    folder: PathBuf,
    token: String,
    pub(super) file: PathBuf,
}

impl<'d> Workbench<'d> {
    /// Lays `clear` out in the first of `folders` that is kept in memory.
    pub(super) fn lay_out(
        folders: &[PathBuf],
        ending: &str,
        clear: &[u8],
        disk: &'d dyn Disk,
        entropy: &dyn Entropy,
    ) -> Result<Self, Trouble> {
        let failed = |error: &dyn std::fmt::Display| Trouble::of(error);
        let mounts = disk.read(Path::new("/proc/self/mounts"), MAX_MOUNTS_BYTES).unwrap_or_default();
        let mounts = String::from_utf8_lossy(&mounts);
        let real = folders.iter().filter_map(|folder| disk.real_path(folder).ok());
        let Some(folder) = real.into_iter().find(|folder| is_in_memory(&mounts, folder)) else {
            return Err(Trouble::Refused(
                "there is no folder in memory to edit secrets in, and a disk would keep them: mount a tmpfs and name it by \
                 XDG_RUNTIME_DIR, or change single values with castle secrets set"
                    .to_owned(),
            ));
        };
        sweep(disk, &folder);
        let mut drawn = [0; 8];
        entropy.fill(&mut drawn).map_err(|error| failed(&error))?;
        let token: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = folder.join(format!("{PREFIX}{}-{token}{ending}", std::process::id()));
        let bench = Self { disk, folder, token, file };
        disk.create_new(&bench.file, clear, 0o600).map_err(|error| failed(&error))?;
        Ok(bench)
    }

    /// What is in the file now.
    pub(super) fn read(&self) -> Result<Zeroizing<Vec<u8>>, Trouble> {
        let bytes = self.disk.read(&self.file, castle_secrets::sops::MAX_FILE_BYTES);
        bytes.map(Zeroizing::new).map_err(|error| Trouble::of(&error))
    }
}

impl Drop for Workbench<'_> {
    fn drop(&mut self) {
        for name in self.disk.list(&self.folder).unwrap_or_default() {
            if name.to_string_lossy().contains(&self.token) {
                let _ = self.disk.remove_file(&self.folder.join(name));
            }
        }
    }
}

/// Removes what processes left that were killed outright and are gone.
fn sweep(disk: &dyn Disk, folder: &Path) {
    for name in disk.list(folder).unwrap_or_default() {
        let text = name.to_string_lossy();
        let process = text.trim_start_matches('.').strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_gone = process
            .filter(|process| process.bytes().all(|byte| byte.is_ascii_digit()))
            .is_some_and(|process| disk.metadata(&Path::new("/proc").join(process)).is_err());
        if is_gone {
            let _ = disk.remove_file(&folder.join(&name));
        }
    }
}

/// Whether a folder, without links, is kept in memory: by the mount that is nearest above it.
fn is_in_memory(mounts: &str, folder: &Path) -> bool {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?.replace("\\040", " ");
        Some((PathBuf::from(point), fields.next()?))
    });
    let above = mounts.filter(|(point, _)| folder.starts_with(point));
    let nearest = above.max_by_key(|(point, _)| point.components().count());
    nearest.is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

#[cfg(test)]
mod tests {
    use castle_seams::{SystemDisk, SystemEntropy};

    use super::*;

    #[test]
    fn the_nearest_mount_tells() {
        let mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\ntmpfs /run/user/1\\0400 tmpfs rw 0 0\n/dev/sdb /run/disk ext4 rw 0 0\n";
        for (folder, expected) in
            [("/run", true), ("/run/user/1 0/x", true), ("/run/disk/x", false), ("/home", false), ("/runner", false)]
        {
            assert_eq!(is_in_memory(mounts, Path::new(folder)), expected, "{folder}");
        }
        assert!(!is_in_memory("", Path::new("/run")));
    }

    #[test]
    fn a_disk_is_refused() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bench = Workbench::lay_out(&[folder.path().to_owned()], ".yaml", b"x", &SystemDisk, &SystemEntropy);
        assert!(matches!(bench, Err(Trouble::Refused(_))));
        assert!(SystemDisk.list(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn leftovers_of_the_dead_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let living = format!("{PREFIX}{}-aa.yaml", std::process::id());
        for name in [living.as_str(), "castle-edit-4194999-aa.yaml", ".castle-edit-4194999-aa.yaml.swp", "other"] {
            SystemDisk.create_new(&folder.path().join(name), b"x", 0o600).unwrap();
        }
        sweep(&SystemDisk, folder.path());
        assert_eq!(SystemDisk.list(folder.path()).unwrap(), [living.as_str(), "other"]);
    }
}
