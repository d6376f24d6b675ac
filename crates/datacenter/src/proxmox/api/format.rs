//! The vendor's named formats, each with the sentence it refuses with.

use std::net::Ipv6Addr;

use super::{Version, pattern};

const SHARED: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Group.Allocate",
    "Mapping.Audit",
    "Mapping.Modify",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.Allocate",
    "Realm.AllocateUser",
    "SDN.Allocate",
    "SDN.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "Sys.Syslog",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Backup",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Console",
    "VM.Migrate",
    "VM.PowerMgmt",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
];

/// All privileges a release knows, sorted.
pub fn privileges(version: Version) -> Vec<&'static str> {
    let own: &[&str] = match version {
        Version::Eight => &["VM.Monitor"],
        Version::Nine => &[
            "VM.GuestAgent.Audit",
            "VM.GuestAgent.FileRead",
            "VM.GuestAgent.FileSystemMgmt",
            "VM.GuestAgent.FileWrite",
            "VM.GuestAgent.Unrestricted",
            "VM.Replicate",
        ],
    };
    let mut all = [SHARED, own].concat();
    all.sort_unstable();
    all
}

const STORAGE_ID: &str = r"[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]";
const VOLUME_ID: &str = r"[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]:.+";
const DRIVE: &str = r"ide[0-3]|scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5])|sata[0-5]";
const IPV4: &str = r"((25[0-5]|(2[0-4]|1[0-9]|[1-9])?[0-9])\.){3}(25[0-5]|(2[0-4]|1[0-9]|[1-9])?[0-9])";
const NAME: &str = r"[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?";
const DNS_NAME: &str = r"([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?";

/// Whether a value looks as a format wants it; if not, why not.
pub(super) fn check(version: Version, format: &str, value: &str) -> Result<(), String> {
    if let Some(each) = format.strip_suffix("-list") {
        return split(value).try_for_each(|item| check(version, each, item));
    }
    let is = |pattern: &str| pattern::matches(pattern, value);
    let (fits, complaint) = match format {
        "pve-vmid" => (is("[1-9][0-9]{2,8}"), "value does not look like a valid VM ID".to_owned()),
        "pve-node" => (is(NAME), "value does not look like a valid node name".to_owned()),
        "dns-name" => (is(DNS_NAME), "value does not look like a valid DNS name".to_owned()),
        "pve-storage-id" => (is(STORAGE_ID), format!("storage ID '{value}' contains illegal characters")),
        "pve-volume-id" => (is(VOLUME_ID), format!("unable to parse volume ID '{value}'")),
        "pve-volume-id-or-absolute-path" => {
            (is("/.*") || is(VOLUME_ID), format!("unable to parse volume ID '{value}'"))
        }
        "pve-volume-id-or-qm-path" => {
            (is("none|cdrom|/.*") || is(VOLUME_ID), format!("unable to parse volume ID '{value}'"))
        }
        "pve-storage-content" => {
            (is("images|rootdir|vztmpl|iso|backup|snippets|none|import"), format!("invalid content type '{value}'"))
        }
        "pve-configid" => (is(r"[a-zA-Z][a-zA-Z0-9_\-]+"), format!("invalid configuration ID '{value}'")),
        "pve-bridge-id" => (is(r"[-_.\w]+"), format!("invalid bridge ID '{value}'")),
        "pve-poolid" if value.split('/').count() > 3 => {
            (false, format!("pool name '{value}' nested too deeply (max levels = 3)"))
        }
        "pve-poolid" => (
            is(r"[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+){0,2}"),
            format!("pool name '{value}' contains invalid characters"),
        ),
        "pve-ha-resource-or-vm-id" => {
            (is(r"[a-z]+:\S+|\d+"), "value does not look like a valid ha resource id".to_owned())
        }
        "pve-realm" => (is(r"[A-Za-z][A-Za-z0-9.\-_]+"), "value does not look like a valid realm".to_owned()),
        "pve-priv" => (privileges(version).contains(&value), format!("invalid privilege '{value}'")),
        "pve-tag" => (is(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*"), "invalid characters in tag".to_owned()),
        "pve-task-status-type" => {
            (pattern::matches("ok|error|warning|unknown", &value.to_lowercase()), format!("invalid status '{value}'"))
        }
        "pve-cpuset" => (is(r"\d+(-\d+)?(,\d+(-\d+)?)*"), "unable to parse cpuset option".to_owned()),
        "pve-hotplug-features" => (
            matches!(value, "0" | "1")
                || split(value).all(|item| pattern::matches("network|disk|cpu|memory|usb|cloudinit", item)),
            "unable to parse hotplug option".to_owned(),
        ),
        "pve-startup-order" => (
            is(r"((order=)?\d+|up=\d+|down=\d+)(,((order=)?\d+|up=\d+|down=\d+))*"),
            "unable to parse startup options".to_owned(),
        ),
        "pve-phys-bits" => {
            (is("host|[89]|[1-5][0-9]|6[0-4]"), "value must be an integer between 8 and 64 or 'host'".to_owned())
        }
        "pve-qm-bootdisk" => (is(DRIVE) || is("efidisk0|tpmstate0"), format!("invalid boot disk '{value}'")),
        "pve-qm-bootdev" => (
            is(DRIVE) || is("net([0-9]|[12][0-9]|3[01])|usb([0-9]|1[0-3])|hostpci([0-9]|1[0-5])"),
            format!("invalid boot device '{value}'"),
        ),
        "disk-size" => {
            (is(r"\d+(\.\d+)?([KMGT](iB)?)?"), format!("value does not look like a valid disk size: {value}"))
        }
        "storage-pair" => (is(r"1|[^:\s]+(:[^:\s]+)?"), format!("entry '{value}' contains invalid ID")),
        "urlencoded" => (is("[-%a-zA-Z0-9_.!~*'()]*"), format!("invalid urlencoded string: {value}")),
        "mac-addr" => (
            is("[a-fA-F0-9][02468aceACE](:[a-fA-F0-9]{2}){5}"),
            "value does not look like a valid unicast MAC address".to_owned(),
        ),
        "ipv4" => (is(IPV4), "value does not look like a valid IPv4 address".to_owned()),
        "ipv6" => (is_ipv6(value), "value does not look like a valid IPv6 address".to_owned()),
        "address" => {
            (is(IPV4) || is_ipv6(value) || is(DNS_NAME), format!("value does not look like a valid address: {value}"))
        }
        "CIDR" => (is_cidrv4(value) || is_cidrv6(value), "value does not look like a valid CIDR network".to_owned()),
        "pve-ipv4-config" => (
            is("dhcp|manual") || is_cidrv4(value),
            "value does not look like a valid ipv4 network configuration".to_owned(),
        ),
        "pve-ipv6-config" => (
            is("auto|dhcp|manual") || is_cidrv6(value),
            "value does not look like a valid ipv6 network configuration".to_owned(),
        ),
        unknown => (false, format!("undefined format '{unknown}'")),
    };
    if fits { Ok(()) } else { Err(complaint) }
}

/// The members of a list, however they are set apart.
fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(|letter: char| matches!(letter, ',' | ';' | '\0') || letter.is_whitespace())
        .filter(|item| !item.is_empty())
}

fn is_ipv6(value: &str) -> bool {
    value.parse::<Ipv6Addr>().is_ok()
}

fn is_cidrv4(value: &str) -> bool {
    value.split_once('/').is_some_and(|(address, prefix)| pattern::matches(IPV4, address) && is_prefix(prefix, 32))
}

fn is_cidrv6(value: &str) -> bool {
    value.split_once('/').is_some_and(|(address, prefix)| is_ipv6(address) && is_prefix(prefix, 128))
}

/// The vendor takes no network wider than 8 bits.
fn is_prefix(prefix: &str, longest: u8) -> bool {
    pattern::matches(r"\d+", prefix) && prefix.parse::<u8>().is_ok_and(|bits| (8..=longest).contains(&bits))
}
