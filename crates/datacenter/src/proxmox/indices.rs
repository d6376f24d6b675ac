//! What there is below a path. The vendor's lists are fixed: nobody looks whether there is such a host or guest.

use serde_json::{Value, json};

use super::api::Version;
use super::{Done, Outcome, Request};
use crate::world::World;

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

const CLUSTER: &[&str] = &[
    "acme",
    "backup",
    "backup-info",
    "bulk-action",
    "ceph",
    "config",
    "firewall",
    "ha",
    "jobs",
    "log",
    "mapping",
    "metrics",
    "nextid",
    "notifications",
    "options",
    "qemu",
    "replication",
    "resources",
    "status",
    "tasks",
    "sdn",
];

const ACCESS: &[&str] = &["users", "groups", "roles", "acl", "domains", "openid", "tfa", "ticket", "password"];

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

pub(super) fn root() -> Done {
    listed("subdir", ["version", "cluster", "nodes", "storage", "access", "pools"].into_iter())
}

pub(super) fn cluster(version: Version) -> Done {
    let newer = ["bulk-action", "qemu"];
    listed("name", CLUSTER.iter().copied().filter(|name| version == Version::Nine || !newer.contains(name)))
}

pub(super) fn access() -> Done {
    listed("subdir", ACCESS.iter().copied())
}

pub(super) fn ha(version: Version) -> Done {
    let names: &[&str] = match version {
        Version::Eight => &["status", "resources", "groups"],
        Version::Nine => &["status", "resources", "groups", "rules"],
    };
    listed("id", names.iter().copied())
}

/// What can be done to a guest's power. Here the vendor does look.
pub(super) fn status(world: &World, request: &Request) -> Outcome {
    world.guest(&request.host, request.vmid())?;
    let names = ["current", "start", "stop", "reset", "shutdown", "suspend", "reboot"];
    Ok(listed("subdir", names.into_iter()))
}

pub(super) fn guest() -> Done {
    listed("subdir", GUEST.iter().copied())
}
