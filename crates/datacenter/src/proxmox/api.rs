//! The interface as tables: which operation a request is, what it needs, and whether its parameters are acceptable.
//!
//! All of it is decided before anything runs, and in the vendor's words. The order of the vendor is: [`find`] the operation, see that
//! path and parameters agree ([`Operation::conflict`]), check [`Operation::permission`], forward, then [`Operation::verify`].
//!
//! **Architecture invariant:** knows no guest, no storage and no task; a table is the same for every datacenter of its version.

mod devices;
mod field;
mod format;
mod operations;
mod options;
mod pattern;
mod property;
mod verify;

use std::collections::BTreeMap;

pub use field::{Choices, Field, Format, Kind};
pub use format::privileges;
pub use property::{canonical, print, properties};
pub use verify::Params;

/// The release whose interface is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 8.4.
    Eight,
    /// 9.2.
    Nine,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the operation of its name in the table")]
pub enum Call {
    Version,
    Ticket,
    Permissions,
    Nodes,
    NodeIndex,
    NodeVersion,
    NodeStatus,
    NodeNetwork,
    ClusterStatus,
    Resources,
    ClusterTasks,
    NextId,
    Index,
    ClusterIndex,
    ClusterOptions,
    AccessIndex,
    Users,
    Roles,
    Acl,
    Domains,
    HaIndex,
    HaResources,
    HaResource,
    CreateHaResource,
    SetHaResource,
    DeleteHaResource,
    UrlMetadata,
    NodeStatistics,
    StorageStatistics,
    Storages,
    Storage,
    NodeStorages,
    StorageStatus,
    Volumes,
    Volume,
    DeleteVolume,
    DownloadUrl,
    Guests,
    Containers,
    GuestIndex,
    Snapshots,
    TakeSnapshot,
    SnapshotIndex,
    SnapshotConfig,
    DescribeSnapshot,
    DeleteSnapshot,
    RollBack,
    GuestStatistics,
    Feature,
    Create,
    Destroy,
    Config,
    SetConfig,
    SetConfigAsTask,
    Pending,
    Status,
    StatusIndex,
    Start,
    Stop,
    Shutdown,
    Reboot,
    Reset,
    Suspend,
    Resume,
    Unlink,
    Clone,
    Template,
    Resize,
    MoveDisk,
    Migrate,
    CloudInit,
    AgentPing,
    AgentInfo,
    AgentInterfaces,
    Tasks,
    Task,
    StopTask,
    TaskStatus,
    TaskLog,
    Pools,
    Pool,
    CreatePool,
    DeletePool,
    SetPool,
}

/// Who may ask. Names in braces stand for parameters of the request, from its path or not, taken before they are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Nobody need be known.
    World,
    /// Whoever is known.
    Everyone,
    /// Whoever is known; the handler decides what they see or do.
    InHandler,
    /// Privileges at a path.
    Check {
        /// As in `/vms/{vmid}`.
        path: &'static str,
        /// All of them, unless `any`.
        privileges: &'static [&'static str],
        /// One of them is enough.
        any: bool,
        /// Without this parameter the check fails.
        only_with: Option<&'static str>,
    },
    /// One of these is enough.
    Any(&'static [Permission]),
    /// Each of these.
    All(&'static [Permission]),
}

/// One operation of the interface.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Which it is.
    pub call: Call,
    /// As in `GET`.
    pub method: &'static str,
    /// As in `/nodes/{node}/qemu/{vmid}/config`.
    pub path: &'static str,
    /// What is checked before anything else.
    pub permission: Permission,
    /// Whether the handler checks more than that.
    pub checks_more: bool,
    /// Whether the privileged daemon runs it.
    pub protected: bool,
    /// Whether the node of its path runs it.
    pub proxied_to_node: bool,
    /// Whether a token may ask.
    pub allow_token: bool,
    only: Option<Version>,
    parameters: &'static [&'static [Field]],
}

impl Operation {
    /// The parameters it takes, those of its path among them.
    pub fn parameters(&self, version: Version) -> impl Iterator<Item = &'static Field> {
        field::of(self.parameters, version)
    }

    /// What the path template makes of a path.
    fn captures(&self, path: &str) -> Option<BTreeMap<&'static str, String>> {
        let mut captured = BTreeMap::new();
        let mut rest = path.trim_start_matches('/');
        for segment in self.path.split('/').filter(|segment| !segment.is_empty()) {
            let name = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            // The name of a volume has slashes of its own.
            let (here, after) =
                if name == Some("volume") { (rest, "") } else { rest.split_once('/').unwrap_or((rest, "")) };
            match name {
                _ if here.is_empty() => return None,
                Some(name) => drop(captured.insert(name, here.to_owned())),
                None if here == segment => {}
                None => return None,
            }
            rest = after.trim_start_matches('/');
        }
        rest.is_empty().then_some(captured)
    }
}

/// All operations of a release.
pub fn operations(version: Version) -> impl Iterator<Item = &'static Operation> {
    operations::ALL
        .iter()
        .flat_map(|theme| theme.iter())
        .filter(move |operation| operation.only.is_none_or(|only| only == version))
}

/// The operation of a request, and the parameters in its path. The path is decoded and begins after `/api2/json`.
pub fn find(
    version: Version,
    method: &str,
    path: &str,
) -> Option<(&'static Operation, BTreeMap<&'static str, String>)> {
    operations(version)
        .filter(|operation| operation.method == method)
        .find_map(|operation| Some((operation, operation.captures(path)?)))
}

#[cfg(test)]
mod tests;
