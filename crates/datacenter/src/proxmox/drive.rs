//! Drives as configurations hold them.

use std::collections::BTreeMap;

use super::api::{self, Version};

/// A drive: its volume, and the rest of its property string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    pub(crate) file: String,
    pub(crate) options: BTreeMap<String, String>,
}

/// The families of drives and how many there are of each.
const FAMILIES: &[(&str, u32)] =
    &[("efidisk", 1), ("ide", 4), ("sata", 6), ("scsi", 31), ("tpmstate", 1), ("virtio", 16)];

/// Whether an option is a drive.
pub(crate) fn is_drive(key: &str) -> bool {
    FAMILIES.iter().any(|(family, count)| {
        let number = key.strip_prefix(family).filter(|number| !number.is_empty());
        number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number < *count)
    })
}

impl Drive {
    /// Reads a drive that somebody wrote.
    pub(crate) fn parse(version: Version, key: &str, value: &str) -> Result<Self, String> {
        let mut options = api::properties(version, key, value)?;
        let file = options.remove("file").unwrap_or_else(|| "none".to_owned());
        Ok(Self { file, options })
    }

    /// The drive as it is printed.
    pub(crate) fn print(&self, version: Version, key: &str) -> Result<String, String> {
        let mut options = self.options.clone();
        options.insert("file".to_owned(), self.file.clone());
        api::print(version, key, &options)
    }

    /// Reads a drive that was printed before.
    fn stored(value: &str) -> Self {
        let mut parts = value.split(',');
        let file = parts.next().unwrap_or_default();
        let file = file.strip_prefix("file=").unwrap_or(file).to_owned();
        let options = parts.filter_map(|part| part.split_once('='));
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { file, options }
    }

    /// A drive of a configuration.
    pub(crate) fn of(config: &BTreeMap<String, String>, key: &str) -> Option<Self> {
        config.get(key).filter(|_| is_drive(key)).map(|value| Self::stored(value))
    }

    /// All drives of a configuration, in the order of their keys.
    pub(crate) fn all(config: &BTreeMap<String, String>) -> BTreeMap<String, Self> {
        let drives = config.iter().filter(|(key, _)| is_drive(key));
        drives.map(|(key, value)| (key.clone(), Self::stored(value))).collect()
    }

    pub(crate) fn is_cloud_init(&self) -> bool {
        let name = self.file.split(':').nth(1).unwrap_or_default();
        let last = name.rsplit('/').next().unwrap_or_default();
        last.split('.').next().is_some_and(|stem| stem == "cloudinit" || stem.ends_with("-cloudinit"))
    }

    pub(crate) fn is_cdrom(&self) -> bool {
        self.options.get("media").is_some_and(|media| media == "cdrom")
            || ["none", "cdrom"].contains(&self.file.as_str())
    }

    /// Whether it is a volume that belongs to the guest.
    pub(crate) fn is_owned(&self) -> bool {
        self.is_cloud_init() || (!self.is_cdrom() && self.file.contains(':'))
    }

    /// The size in bytes, as the drive says it.
    pub(crate) fn size(&self) -> u64 {
        self.options.get("size").and_then(|size| parse_size(size)).unwrap_or(0)
    }
}

/// `32G` as bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift),
        Err(_) => number.parse::<f64>().ok().map(|number| (number * (1_u64 << shift) as f64) as u64),
    }
}

/// Bytes as `32G`: the greatest unit that keeps the number whole.
pub(crate) fn print_size(bytes: u64) -> String {
    let mut left = bytes;
    let mut unit = "";
    for next in ["K", "M", "G", "T"] {
        if left == 0 || !left.is_multiple_of(1024) {
            break;
        }
        left /= 1024;
        unit = next;
    }
    format!("{left}{unit}")
}

/// The disk that a guest boots from.
pub(crate) fn boot_disk(config: &BTreeMap<String, String>) -> Option<Drive> {
    let order = config.get("boot").and_then(|boot| boot.strip_prefix("order=")).unwrap_or_default();
    let named = order.split(';').filter_map(|key| Drive::of(config, key)).find(|drive| !drive.is_cdrom());
    let is_disk =
        |key: &str, drive: &Drive| !drive.is_cdrom() && !key.starts_with("efidisk") && !key.starts_with("tpm");
    named.or_else(|| Drive::all(config).into_iter().find(|(key, drive)| is_disk(key, drive)).map(|(_, drive)| drive))
}

/// The size of the disk that a guest boots from.
pub(crate) fn boot_disk_size(config: &BTreeMap<String, String>) -> u64 {
    boot_disk(config).map_or(0, |drive| drive.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_from_other_options() {
        assert!(["ide0", "scsi30", "efidisk0", "virtio15", "sata5"].iter().all(|key| is_drive(key)));
        assert!(!["ide4", "scsihw", "scsi31", "virtio", "net0", "tpmstate1"].iter().any(|key| is_drive(key)));
    }

    #[test]
    fn a_drive_is_read_and_printed() {
        let drive =
            Drive::parse(Version::Nine, "scsi0", "iothread=on,file=local-lvm:vm-421-disk-1,size=32768M").unwrap();
        assert_eq!(drive.print(Version::Nine, "scsi0").unwrap(), "local-lvm:vm-421-disk-1,iothread=1,size=32G");
        assert_eq!(drive.size(), 32 << 30);
    }

    #[test]
    fn sizes_keep_their_meaning() {
        for (text, bytes) in [("4M", 4 << 20), ("528K", 528 << 10), ("32G", 32 << 30), ("1246M", 1246 << 20)] {
            assert_eq!((parse_size(text), print_size(bytes).as_str()), (Some(bytes), text));
        }
        assert_eq!(parse_size("1.5G"), Some(3 << 29));
        assert_eq!(parse_size("x"), None);
    }

    #[test]
    fn the_cloud_init_drive_is_known_by_its_name() {
        let is = |file: &str| Drive { file: file.to_owned(), options: BTreeMap::new() }.is_cloud_init();
        assert!(
            is("local-lvm:cloudinit") && is("local-lvm:vm-421-cloudinit") && is("local:421/vm-421-cloudinit.qcow2")
        );
        assert!(!is("local-lvm:vm-421-disk-0") && !is("none"));
    }
}
