//! What there is below a path. The vendor's lists are fixed: nobody looks whether there is such a host or guest.

use serde_json::{Value, json};

use super::Done;
use super::api::Version;

const NODE: &[&str] = &[
    "aplinfo",
    "apt",
    "capabilities",
    "ceph",
    "certificates",
    "config",
    "disks",
    "dns",
    "firewall",
    "hardware",
    "hosts",
    "journal",
    "lxc",
    "migrateall",
    "netstat",
    "network",
    "qemu",
    "query-oci-repo-tags",
    "query-url-metadata",
    "replication",
    "report",
    "rrd",
    "rrddata",
    "scan",
    "sdn",
    "services",
    "spiceshell",
    "startall",
    "status",
    "stopall",
    "storage",
    "subscription",
    "suspendall",
    "syslog",
    "tasks",
    "termproxy",
    "time",
    "version",
    "vncshell",
    "vzdump",
    "wakeonlan",
];

const GUEST: &[&str] = &[
    "config",
    "cloudinit",
    "pending",
    "status",
    "unlink",
    "vncproxy",
    "termproxy",
    "migrate",
    "resize",
    "move",
    "rrd",
    "rrddata",
    "monitor",
    "agent",
    "snapshot",
    "spiceproxy",
    "sendkey",
    "firewall",
    "mtunnel",
    "remote_migrate",
];

fn listed<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Done {
    names.map(|name| json!({ key: name })).collect::<Vec<Value>>().into()
}

pub(super) fn node(version: Version) -> Done {
    let names = NODE.iter().copied();
    match version {
        // There, virtual networks were an extra and came last, and images of containers were none of its business.
        Version::Eight => {
            let older = names.filter(|name| !["sdn", "query-oci-repo-tags"].contains(name));
            listed("name", older.chain(["sdn"]))
        }
        Version::Nine => listed("name", names),
    }
}

pub(super) fn guest() -> Done {
    listed("subdir", GUEST.iter().copied())
}
