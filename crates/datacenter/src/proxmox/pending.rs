//! Changes that wait until a guest is switched off.

use serde_json::{Map, Value, json};

use super::{Outcome, Request, drive, options, rights};
use crate::world::World;
use crate::world::guest::{Guest, Pending};

/// Options that hold at once, whatever the guest does.
const AT_ONCE: &[&str] = &[
    "cpulimit",
    "cpuunits",
    "description",
    "hookscript",
    "hotplug",
    "lock",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "onboot",
    "protection",
    "shares",
    "startup",
    "tags",
    "vmstatestorage",
];

/// Whether a change of this option holds while the guest runs. `was` and `will` are its values.
pub(super) fn holds_at_once(guest: &Guest, key: &str, was: Option<&str>, will: Option<&str>) -> bool {
    let features = guest.get("hotplug").unwrap_or("network,disk,usb");
    let can = |feature: &str| features == "1" || features.split([',', ';']).any(|name| name == feature);
    if AT_ONCE.contains(&key) || rights::is_cloud_init(key) || rights::is_numbered(key, "unused") {
        return true;
    }
    if rights::is_numbered(key, "net") {
        return can("network");
    }
    if rights::is_numbered(key, "usb") {
        return can("usb");
    }
    if drive::is_drive(key) {
        let is_cdrom = |value: Option<&str>| value.is_some_and(|value| value.contains("media=cdrom"));
        // A medium can be changed in a drive that is there; the drive itself cannot come or go on these controllers.
        if is_cdrom(was) && is_cdrom(will) {
            return true;
        }
        return can("disk") && (key.starts_with("scsi") || key.starts_with("virtio"));
    }
    // A balloon can be filled, but not brought in or taken away.
    key == "balloon" && was.is_some_and(|was| was != "0") && will.is_some_and(|will| will != "0")
}

/// Whether the guest itself must let a device go before the change can hold.
pub(super) fn is_let_go(key: &str, was: Option<&str>, will: Option<&str>) -> bool {
    let Some(was) = was else { return false };
    if rights::is_numbered(key, "net") {
        // A device is another by its model and address; bridge and rate are changed in passing.
        let device = |value: &str| value.split(',').next().map(str::to_owned);
        return will.is_none_or(|will| device(will) != device(was));
    }
    let volume = |value: &str| value.split(',').next().map(str::to_owned);
    rights::is_numbered(key, "virtio") && will.is_none_or(|will| volume(will) != volume(was))
}

pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let guest = world.guest(&request.host, request.vmid())?;
    let mut keys: Vec<&String> = guest.config.keys().chain(guest.pending.keys()).collect();
    keys.sort();
    keys.dedup();
    let rows = keys.into_iter().map(|key| {
        let mut row = Map::new();
        row.insert("key".into(), json!(key));
        if let Some(value) = guest.config.get(key) {
            row.insert("value".into(), options::told(world.version, key, &hidden(key, value)));
        }
        match guest.pending.get(key) {
            Some(Pending::Set(value)) => {
                row.insert("pending".into(), options::told(world.version, key, &hidden(key, value)));
            }
            Some(Pending::Delete) => {
                row.insert("delete".into(), json!(1));
            }
            None => {}
        }
        Value::from(row)
    });
    let mut rows: Vec<Value> = rows.collect();
    rows.push(json!({ "key": "digest", "value": guest.digest() }));
    Ok(rows.into())
}

/// Nobody is told a password.
pub(super) fn hidden(key: &str, value: &str) -> String {
    if key == "cipassword" { "**********".to_owned() } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, was: Option<&str>, will: Option<&str>) -> bool {
        holds_at_once(&Guest::new(1, "pve", std::collections::BTreeMap::new()), key, was, will)
    }

    #[test]
    fn what_can_be_plugged_holds_at_once() {
        assert!(["name", "tags", "description", "ipconfig0", "nameserver", "net0"].iter().all(|key| check(
            key,
            None,
            Some("x")
        )));
        assert!(check("scsi1", None, Some("local-lvm:vm-1-disk-1")));
        assert!(!["memory", "cores", "cpu", "scsihw", "agent", "boot", "efidisk0"].iter().any(|key| check(
            key,
            Some("x"),
            Some("y")
        )));
    }

    #[test]
    fn a_device_is_let_go_where_it_becomes_another() {
        let one = Some("virtio=BC:24:11:00:00:01,bridge=vmbr0");
        assert!(!is_let_go("net0", one, Some("virtio=BC:24:11:00:00:01,bridge=vmbr1")));
        assert!(is_let_go("net0", one, Some("virtio=BC:24:11:00:00:02,bridge=vmbr0")) && is_let_go("net0", one, None));
        assert!(!is_let_go("net1", None, one) && !is_let_go("scsi1", Some("local:1/x"), None));
    }

    #[test]
    fn a_medium_changes_but_its_drive_stays() {
        let (one, two) = (Some("a:iso/x.iso,media=cdrom"), Some("none,media=cdrom"));
        assert!(check("ide2", one, two));
        assert!(!check("ide2", None, one) && !check("ide2", one, None));
    }

    #[test]
    fn hotplug_says_what_can_be_plugged() {
        let config = [("hotplug".to_owned(), "usb".to_owned())].into();
        let guest = Guest::new(1, "pve", config);
        assert!(!holds_at_once(&guest, "net0", None, Some("virtio")));
    }
}
