//! What the name of a volume tells. The vendor reads owner, content and format from it, whether there is such a volume or not.

use crate::blueprint::StorageKind;

/// The folder of every storage that is one.
pub(crate) const FOLDER: &str = "/var/lib/vz";
/// The volume group of every storage of logical volumes.
pub(crate) const GROUP: &str = "pve";
/// The dataset of every storage on ZFS.
pub(crate) const DATASET: &str = "rpool/data";
/// The pool of every storage on Ceph.
pub(crate) const CEPH_POOL: &str = "rbd";

/// A name that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName<'a> {
    /// The kind of content: `images`, `iso`.
    pub(crate) content: &'static str,
    /// The name without its folder and its parent.
    pub(crate) file: &'a str,
    /// The number of the guest that it belongs to.
    pub(crate) owner: Option<&'a str>,
    /// Whether others can be linked to it.
    pub(crate) is_base: bool,
    pub(crate) format: &'a str,
}

impl<'a> VolumeName<'a> {
    /// Reads a name as a storage of this kind does.
    pub(crate) fn parse(kind: StorageKind, name: &'a str) -> Result<Self, String> {
        let unread = |what: &str| format!("unable to parse {what} volume name '{name}'");
        match kind {
            StorageKind::Dir => in_folder(name)?.ok_or_else(|| unread("directory")),
            StorageKind::Lvm | StorageKind::LvmThin => {
                if !is_logical(name) {
                    return Err(format!("lvm name '{name}' contains illegal characters"));
                }
                let kinds: &[&str] = if kind == StorageKind::Lvm { &["vm"] } else { &["vm", "base"] };
                disk(name, kinds).ok_or_else(|| unread("lvm"))
            }
            StorageKind::ZfsPool => linked(name, &["vm", "base", "subvol", "basevol"]).ok_or_else(|| unread("zfs")),
            StorageKind::Rbd => linked(name, &["vm", "base"]).ok_or_else(|| unread("rbd")),
        }
    }

    /// Where a host finds it.
    pub(crate) fn path(&self, kind: StorageKind, storage: &str) -> String {
        let file = self.file;
        match kind {
            StorageKind::Dir => match self.owner.filter(|_| self.content == "images") {
                Some(owner) => format!("{FOLDER}/images/{owner}/{file}"),
                None => format!("{FOLDER}/{}/{file}", subfolder(self.content)),
            },
            StorageKind::Lvm | StorageKind::LvmThin => format!("/dev/{GROUP}/{file}"),
            StorageKind::ZfsPool if self.format == "subvol" => format!("/{DATASET}/{file}"),
            StorageKind::ZfsPool => format!("/dev/zvol/{DATASET}/{file}"),
            StorageKind::Rbd => {
                let keyring = format!("/etc/pve/priv/ceph/{storage}.keyring");
                format!("rbd:{CEPH_POOL}/{file}:conf=/etc/pve/ceph.conf:id=admin:keyring={keyring}")
            }
        }
    }
}

/// The folder that files of this content are in, within that of the storage.
fn subfolder(content: &str) -> &str {
    match content {
        "iso" => "template/iso",
        "vztmpl" => "template/cache",
        "backup" => "dump",
        other => other,
    }
}

/// A disk of a guest: `vm-421-disk-0`.
fn disk<'a>(name: &'a str, kinds: &[&str]) -> Option<VolumeName<'a>> {
    let (kind, rest) = name.split_once('-')?;
    let (owner, what) = rest.split_once('-')?;
    let is_disk = kinds.contains(&kind) && is_number(owner) && is_word(what);
    let format = if kind.ends_with("vol") { "subvol" } else { "raw" };
    is_disk.then_some(VolumeName {
        content: "images",
        file: name,
        owner: Some(owner),
        is_base: kind.starts_with("base"),
        format,
    })
}

/// A disk that may have its parent before it: `base-9000-disk-0/vm-421-disk-0`.
fn linked<'a>(name: &'a str, kinds: &[&str]) -> Option<VolumeName<'a>> {
    let Some((parent, own)) = name.split_once('/') else { return disk(name, kinds) };
    disk(parent, kinds).filter(|parent| parent.is_base)?;
    disk(own, kinds)
}

/// A name on a storage that is a folder; nothing if it has no such form.
fn in_folder(name: &str) -> Result<Option<VolumeName<'_>>, String> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [owner, file] if is_number(owner) => image(owner, file).map(Some),
        [base_owner, base, owner, file] if is_number(base_owner) && is_number(owner) => {
            image(base_owner, base)?;
            image(owner, file).map(Some)
        }
        [content, file] if !file.is_empty() => Ok(other_file(content, file)),
        _ => Ok(None),
    }
}

fn image<'a>(owner: &'a str, file: &'a str) -> Result<VolumeName<'a>, String> {
    let format = file.rsplit_once('.').filter(|(stem, _)| is_word(stem)).map(|(_, ending)| ending);
    let format = format.filter(|ending| ["raw", "qcow2", "vmdk", "subvol"].contains(ending));
    let format = format.ok_or_else(|| format!("unable to parse volume filename '{file}'"))?;
    Ok(VolumeName { content: "images", file, owner: Some(owner), is_base: file.starts_with("base-"), format })
}

fn other_file<'a>(content: &str, file: &'a str) -> Option<VolumeName<'a>> {
    let plain = |content| VolumeName { content, file, owner: None, is_base: false, format: "raw" };
    let small = file.to_lowercase();
    match content {
        "iso" => ends(&small, &[".iso", ".img"]).then(|| plain("iso")),
        "vztmpl" => ends(&small, &[".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"]).then(|| plain("vztmpl")),
        "backup" => {
            let unpacked = [".gz", ".lzo", ".zst", ".bz2"].iter().find_map(|packing| file.strip_suffix(packing));
            let is_dump = ends(unpacked.unwrap_or(file), &[".tar", ".vma"]) || ends(file, &[".tgz"]);
            is_dump.then(|| VolumeName { owner: dumped(file), ..plain("backup") })
        }
        "snippets" => Some(plain("snippets")),
        "import" => {
            let is_safe = file.chars().all(|letter| letter.is_ascii_alphanumeric() || " -.+=_".contains(letter));
            let is_image = is_safe && ends(file, &[".ova", ".ovf", ".qcow2", ".raw", ".vmdk"]);
            let (_, format) = file.rsplit_once('.')?;
            is_image.then(|| VolumeName { format, ..plain("import") })
        }
        _ => None,
    }
}

/// Whether a file has a name before one of these endings.
fn ends(file: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| file.strip_suffix(ending).is_some_and(|stem| !stem.is_empty()))
}

/// The guest that a dump is of: `vzdump-qemu-100-…`.
fn dumped(file: &str) -> Option<&str> {
    let (kind, rest) = file.strip_prefix("vzdump-")?.split_once('-')?;
    let (owner, _) = rest.split_once('-')?;
    (["qemu", "lxc", "openvz"].contains(&kind) && is_number(owner)).then_some(owner)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|letter: char| letter.is_whitespace() || letter == '/')
}

fn is_logical(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    name.len() > 1 && name.bytes().all(is_fit) && is_edge(name.as_bytes().first()) && is_edge(name.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: StorageKind, name: &str, owner: Option<&str>, path: &str) {
        let read = VolumeName::parse(kind, name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((read.owner, read.path(kind, "store").as_str()), (owner, path), "{name}");
    }

    #[test]
    fn a_name_tells_owner_and_path() {
        use StorageKind::{Dir, Lvm, LvmThin, Rbd, ZfsPool};
        check(LvmThin, "vm-101-disk-0", Some("101"), "/dev/pve/vm-101-disk-0");
        check(LvmThin, "base-9000-disk-0", Some("9000"), "/dev/pve/base-9000-disk-0");
        check(Lvm, "vm-101-cloudinit", Some("101"), "/dev/pve/vm-101-cloudinit");
        check(Dir, "421/vm-421-disk-0.qcow2", Some("421"), "/var/lib/vz/images/421/vm-421-disk-0.qcow2");
        let linked = "9000/base-9000-disk-0.qcow2/421/vm-421-disk-0.qcow2";
        check(Dir, linked, Some("421"), "/var/lib/vz/images/421/vm-421-disk-0.qcow2");
        check(Dir, "iso/A.ISO", None, "/var/lib/vz/template/iso/A.ISO");
        check(Dir, "import/talos.qcow2", None, "/var/lib/vz/import/talos.qcow2");
        check(Dir, "vztmpl/debian.tar.zst", None, "/var/lib/vz/template/cache/debian.tar.zst");
        let dump = "vzdump-qemu-100-2026_01_02-03_04_05.vma.zst";
        check(Dir, &format!("backup/{dump}"), Some("100"), &format!("/var/lib/vz/dump/{dump}"));
        check(ZfsPool, "base-9000-disk-0/vm-421-disk-0", Some("421"), "/dev/zvol/rpool/data/vm-421-disk-0");
        let ceph = "rbd:rbd/vm-421-disk-0:conf=/etc/pve/ceph.conf:id=admin:keyring=/etc/pve/priv/ceph/store.keyring";
        check(Rbd, "vm-421-disk-0", Some("421"), ceph);
    }

    #[test]
    fn a_name_tells_whether_it_is_a_base_and_its_format() {
        let brief = |kind, name| VolumeName::parse(kind, name).map(|read| (read.is_base, read.format));
        assert_eq!(brief(StorageKind::LvmThin, "base-9000-disk-0"), Ok((true, "raw")));
        assert_eq!(brief(StorageKind::Dir, "9000/base-9000-disk-0.vmdk"), Ok((true, "vmdk")));
        assert_eq!(brief(StorageKind::Dir, "import/talos.qcow2"), Ok((false, "qcow2")));
        assert_eq!(brief(StorageKind::ZfsPool, "subvol-1-disk-0"), Ok((false, "subvol")));
    }

    #[test]
    fn what_is_no_name_is_refused_in_the_vendors_words() {
        for (kind, name, message) in [
            (StorageKind::LvmThin, "disk-0", "unable to parse lvm volume name 'disk-0'"),
            (StorageKind::LvmThin, "iso/a.iso", "lvm name 'iso/a.iso' contains illegal characters"),
            (StorageKind::Lvm, "base-1-disk-0", "unable to parse lvm volume name 'base-1-disk-0'"),
            (StorageKind::Dir, "iso/a.txt", "unable to parse directory volume name 'iso/a.txt'"),
            (StorageKind::Dir, "421/disk", "unable to parse volume filename 'disk'"),
            (StorageKind::ZfsPool, "vm-1-a/vm-2-b", "unable to parse zfs volume name 'vm-1-a/vm-2-b'"),
            (StorageKind::Rbd, "vm-x-disk-0", "unable to parse rbd volume name 'vm-x-disk-0'"),
        ] {
            assert_eq!(VolumeName::parse(kind, name), Err(message.to_owned()));
        }
    }
}
