//! The volumes of the system and those that a configuration asks for, and what became of each.

use serde_json::{Value, json};

use super::config::Config;
use super::cosi::pretty;
use super::disks::BlockDevice;
use super::node::{Boot, Node};

/// The folders of the system that are volumes of their own: where each is, in which, and who may look into it.
const FOLDERS: [(&str, &str, &str, u32); 13] = [
    ("/var/lib", "lib", "EPHEMERAL", 0o700),
    ("/var/lib/cni", "cni", "/var/lib", 0o700),
    ("/var/lib/containerd", "containerd", "/var/lib", 0o000),
    ("/var/lib/kubelet", "kubelet", "/var/lib", 0o700),
    ("/var/lib/kubelet/seccomp", "seccomp", "/var/lib/kubelet", 0o700),
    ("/var/lib/kubelet/seccomp/profiles", "profiles", "/var/lib/kubelet/seccomp", 0o700),
    ("/var/log", "log", "EPHEMERAL", 0o755),
    ("/var/log/audit", "audit", "/var/log", 0o700),
    ("/var/log/audit/kube", "kube", "/var/log/audit", 0o700),
    ("/var/log/containers", "containers", "/var/log", 0o755),
    ("/var/log/pods", "pods", "/var/log", 0o755),
    ("/var/mnt", "mnt", "EPHEMERAL", 0o755),
    ("/var/run", "run", "EPHEMERAL", 0o755),
];

/// What the partitions of the system take of its disk, apart from the one with the data.
const OTHERS: u64 = (2_100 << 20) + (100 << 20) + (1 << 20) + (10 << 20);

/// What the node says of each volume, its own and those that its configuration asks for.
pub(crate) fn all(boot: &Boot, disks: &[BlockDevice]) -> Vec<(String, Value)> {
    let system = disks.iter().find(|disk| disk.is_system);
    let partition = |label: &str, index: u64, size: u64, filesystem: &str| {
        let Some(disk) = system else { return (label.to_owned(), json!({ "phase": "missing", "type": "partition" })) };
        let mut said = json!({
            "phase": "ready",
            "type": "partition",
            "location": format!("/dev/{}{index}", disk.name),
            "mountLocation": format!("/dev/{}{index}", disk.name),
            "partitionIndex": index,
            "parentLocation": format!("/dev/{}", disk.name),
            "size": size,
            "prettySize": pretty(size),
        });
        if !filesystem.is_empty() {
            said["filesystem"] = json!(filesystem);
        }
        (label.to_owned(), said)
    };
    let mut all = vec![partition("META", 3, 1 << 20, "")];
    let Some(config) = &boot.config else {
        // Nobody has told yet where the rest is to be.
        all.push(("STATE".to_owned(), json!({ "phase": "missing", "type": "partition" })));
        return all;
    };
    all.push(partition("STATE", 4, 100 << 20, "xfs"));
    let data = if boot.has_ephemeral {
        partition("EPHEMERAL", 5, system.map_or(0, |disk| disk.size.saturating_sub(OTHERS)), "xfs")
    } else {
        ("EPHEMERAL".to_owned(), json!({ "phase": "waiting", "type": "partition" }))
    };
    all.push(data);
    let folder = |target: &str, parent: &str, mode: u32, owner: u32| {
        let mut mount = json!({
            "targetPath": target,
            "selinuxLabel": "system_u:object_r:ephemeral_t:s0",
            "projectQuotaSupport": false,
            "parentId": parent,
        });
        for (key, number) in [("fileMode", mode), ("uid", owner), ("gid", owner)] {
            if number != 0 {
                mount[key] = json!(number);
            }
        }
        json!({ "phase": "ready", "type": "directory", "mountSpec": mount })
    };
    all.extend(FOLDERS.iter().map(|(id, target, parent, mode)| ((*id).to_owned(), folder(target, parent, *mode, 0))));
    all.push(("/var/run/lock".to_owned(), folder("lock", "/var/run", 0o755, 0)));
    all.push(("ETCD".to_owned(), folder("etcd", "/var/lib", 0o700, 60)));
    all.extend(statuses(config, disks));
    all
}

/// What is mounted, and for whom: the one thing that tells whether data can be seen.
pub(crate) fn mounts(node: &Node, boot: &Boot) -> Vec<(String, Value)> {
    let mount = |id: &str, volume: &str, requester: &str, target: &str| {
        (id.to_owned(), json!({ "volumeID": volume, "requester": requester, "target": target }))
    };
    if !boot.has_ephemeral {
        return Vec::new();
    }
    let mut all = vec![mount("EPHEMERAL", "EPHEMERAL", "sequencer", "/var")];
    if node.is_control_plane() && !boot.has_left {
        all.push(mount("service/etcd-ETCD", "ETCD", "service/etcd", "/var/lib/etcd"));
    }
    all
}

/// What the node says of each volume that its configuration asks for. One that finds no disk fails, and is tried again for ever; nothing else stops for it.
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
                "prettySize": pretty(disk.size),
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
    fn the_data_have_what_the_system_leaves() {
        let disks = [disk("sda", "root", 16, true)];
        let mut boot = Boot::new(std::time::Duration::ZERO, String::new());
        let ids = |boot: &Boot| all(boot, &disks).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(&boot), ["META", "STATE"], "nothing is known of the rest without a configuration");
        boot.has_ephemeral = true;
        assert_eq!(pretty((16_u64 << 30) - OTHERS), "15 GB");
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
