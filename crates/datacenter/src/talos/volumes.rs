//! The volumes that a configuration asks for beside the system's, and what became of each.

use serde_json::{Value, json};

use super::config::Config;
use super::disks::BlockDevice;

/// What the node says of each volume. One that finds no disk fails, and is tried again for ever; nothing else stops for it.
pub(crate) fn statuses(config: &Config, disks: &[BlockDevice]) -> Vec<(String, Value)> {
    let volumes = config.documents_of("UserVolumeConfig").map(|document| {
        let is_folder = document.value.text_at("volumeType") == Some("directory");
        let kind = document.value.text_at("volumeType").unwrap_or("partition");
        let selector = document.value.text_at("provisioning.diskSelector.match").unwrap_or_default();
        let least = document.value.text_at("provisioning.minSize").and_then(bytes).unwrap_or(0);
        let found = if is_folder { Ok(None) } else { find(selector, least, disks).map(Some) };
        let said = match found {
            Ok(None) => json!({ "phase": "ready", "type": kind }),
            Ok(Some(disk)) => json!({
                "phase": "ready",
                "type": kind,
                "location": format!("/dev/{}1", disk.name),
                "parentLocation": format!("/dev/{}", disk.name),
                "size": disk.size,
            }),
            Err(why) => json!({ "phase": "failed", "type": kind, "errorMessage": why }),
        };
        (format!("u-{}", document.name), said)
    });
    volumes.collect()
}

/// The disk that a volume is made on.
fn find<'d>(selector: &str, least: u64, disks: &'d [BlockDevice]) -> Result<&'d BlockDevice, String> {
    let matched: Vec<&BlockDevice> = disks.iter().filter(|disk| !disk.is_cdrom && is_meant(selector, disk)).collect();
    if matched.is_empty() {
        return Err("no disks matched selector for volume".to_owned());
    }
    // What the table of partitions takes at both ends is not there for them; a system disk is full.
    let has_room = |disk: &&&BlockDevice| !disk.is_system && disk.size > least;
    matched.iter().find(has_room).copied().ok_or_else(|| {
        let count = matched.len();
        format!(
            "no disks matched for volume ({count} matched selector): {count} have not enough space, 0 have wrong format, 0 have other issues"
        )
    })
}

/// Whether an expression holds for a disk, as far as expressions are understood here: comparisons, joined by `&&`. What is not
/// understood holds.
fn is_meant(selector: &str, disk: &BlockDevice) -> bool {
    selector.split("&&").map(str::trim).all(|part| match part {
        "system_disk" => disk.is_system,
        "!system_disk" => !disk.is_system,
        _ => {
            let Some((key, value)) = part.split_once("==").map(|(key, value)| (key.trim(), value.trim())) else {
                return true;
            };
            let value = value.trim_matches(['"', '\'']);
            match key {
                "disk.serial" => disk.serial == value,
                "disk.wwid" => disk.wwid == value,
                "disk.dev_path" => value == format!("/dev/{}", disk.name),
                "disk.transport" => disk.transport == value,
                "disk.size" => value.trim_end_matches('u').parse() == Ok(disk.size),
                _ => true,
            }
        }
    })
}

/// A size such as `10GiB`.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, serial: &str, gib: u64, is_system: bool) -> BlockDevice {
        BlockDevice {
            name: name.to_owned(),
            size: gib << 30,
            serial: serial.to_owned(),
            wwid: format!("t10.{serial}"),
            model: "QEMU HARDDISK",
            transport: "virtio",
            bus_path: String::new(),
            is_system,
            is_cdrom: name.starts_with("sr"),
        }
    }

    #[test]
    fn a_volume_finds_its_disk_or_says_why_not() {
        let disks = [disk("sda", "root", 16, true), disk("sdb", "data", 20, false), disk("sr0", "", 1, false)];
        let found =
            |selector: &str, least: &str| find(selector, bytes(least).unwrap(), &disks).map(|it| it.name.as_str());
        for selector in [
            "!system_disk",
            "disk.serial == \"data\"",
            "disk.size == 21474836480u",
            "disk.wwid == 't10.data' && !system_disk",
        ] {
            assert_eq!(found(selector, "1GiB"), Ok("sdb"), "{selector}");
        }
        let nothing = "no disks matched selector for volume";
        assert_eq!(found("disk.serial == \"other\"", "1GiB"), Err(nothing.to_owned()));
        assert_eq!(found("disk.dev_path == \"/dev/sr0\"", "1MiB"), Err(nothing.to_owned()), "nobody writes on a CD");
        let full = "no disks matched for volume (1 matched selector): 1 have not enough space, 0 have wrong format, 0 have other issues";
        assert_eq!(found("!system_disk", "20GiB"), Err(full.to_owned()), "the table of partitions needs room, too");
        assert_eq!(found("disk.transport == 'virtio' && system_disk", "1GiB"), Err(full.to_owned()));
    }
}
