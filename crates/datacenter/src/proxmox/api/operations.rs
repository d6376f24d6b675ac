//! The operations, by theme.

mod access;
mod guests;
mod ha;
mod snapshots;
mod storage;

use super::Permission::{Everyone, InHandler, World};
use super::Version::{Eight, Nine};
use super::field::{Field, flag, text, whole};
use super::{Call, Operation, Permission, Version};

pub(super) const ALL: &[&[Operation]] = &[
    CLUSTER,
    access::ALL,
    ha::ALL,
    storage::ALL,
    guests::ALL,
    guests::AGENT,
    guests::POWER,
    guests::CHANGES,
    snapshots::ALL,
    TASKS,
    POOLS,
];

const fn operation(call: Call, method: &'static str, path: &'static str, permission: Permission) -> Operation {
    Operation {
        call,
        method,
        path,
        permission,
        checks_more: false,
        protected: false,
        proxied_to_node: false,
        allow_token: true,
        only: None,
        parameters: &[],
    }
}

const fn get(call: Call, path: &'static str, permission: Permission) -> Operation {
    operation(call, "GET", path, permission)
}

const fn post(call: Call, path: &'static str, permission: Permission) -> Operation {
    operation(call, "POST", path, permission).protected()
}

const fn put(call: Call, path: &'static str, permission: Permission) -> Operation {
    operation(call, "PUT", path, permission).protected()
}

const fn delete(call: Call, path: &'static str, permission: Permission) -> Operation {
    operation(call, "DELETE", path, permission).protected()
}

impl Operation {
    const fn protected(self) -> Self {
        Self { protected: true, ..self }
    }

    const fn on_node(self) -> Self {
        Self { proxied_to_node: true, ..self }
    }

    const fn without_token(self) -> Self {
        Self { allow_token: false, ..self }
    }

    const fn checks_more(self) -> Self {
        Self { checks_more: true, ..self }
    }

    const fn only(self, version: Version) -> Self {
        Self { only: Some(version), ..self }
    }

    const fn taking(self, parameters: &'static [&'static [Field]]) -> Self {
        Self { parameters, ..self }
    }
}

const fn check(path: &'static str, privileges: &'static [&'static str]) -> Permission {
    Permission::Check { path, privileges, any: false, only_with: None }
}

const fn check_any(path: &'static str, privileges: &'static [&'static str]) -> Permission {
    Permission::Check { path, privileges, any: true, only_with: None }
}

const NODE: Field = text("node").required().format("pve-node");
const STORAGE_ID: Field = text("storage").format("pve-storage-id");
const UPID: Field = text("upid").required();
const POOL_ID: Field = text("poolid").format("pve-poolid");
const fn vmid(name: &'static str) -> Field {
    whole(name).between(100, 999_999_999).format("pve-vmid")
}

const CLUSTER: &[Operation] = &[
    get(Call::Version, "/version", Everyone),
    post(Call::Ticket, "/access/ticket", World).checks_more().without_token().taking(&[&[
        text("username").required().longest(64),
        text("password").required(),
        text("realm").format("pve-realm").longest(32),
        text("otp"),
        text("tfa-challenge"),
        text("path").longest(64).with("privs"),
        text("privs").format("pve-priv-list").longest(64).with("path"),
        flag("new-format"),
    ]]),
    get(Call::Permissions, "/access/permissions", InHandler).taking(&[&[
        text("path"),
        text("userid").pattern(r"(?:^(?:[^\s:/]+)\@(?:[A-Za-z][A-Za-z0-9\.\-_]+)(?:!(?:[A-Za-z][A-Za-z0-9\.\-_]+))?$)"),
    ]]),
    get(Call::Nodes, "/nodes", Everyone),
    get(Call::NodeIndex, "/nodes/{node}", Everyone).taking(&[&[NODE]]),
    get(Call::NodeVersion, "/nodes/{node}/version", Everyone).on_node().taking(&[&[NODE]]),
    get(Call::NodeStatus, "/nodes/{node}/status", check("/nodes/{node}", &["Sys.Audit"])).on_node().taking(&[&[NODE]]),
    get(Call::NodeNetwork, "/nodes/{node}/network", Everyone).on_node().taking(&[&[
        NODE,
        text("type").only(Nine).words(&[
            "bridge",
            "bond",
            "eth",
            "alias",
            "vlan",
            "fabric",
            "OVSBridge",
            "OVSBond",
            "OVSPort",
            "OVSIntPort",
            "vnet",
            "any_bridge",
            "any_local_bridge",
            "include_sdn",
        ]),
        text("type").only(Eight).words(&[
            "bridge",
            "bond",
            "eth",
            "alias",
            "vlan",
            "OVSBridge",
            "OVSBond",
            "OVSPort",
            "OVSIntPort",
            "vnet",
            "any_bridge",
            "any_local_bridge",
        ]),
    ]]),
    get(Call::ClusterStatus, "/cluster/status", check("/", &["Sys.Audit"])).protected(),
    get(Call::Resources, "/cluster/resources", Everyone)
        .taking(&[&[text("type").words(&["vm", "storage", "node", "sdn"])]]),
    get(Call::ClusterTasks, "/cluster/tasks", Everyone),
    get(Call::NextId, "/cluster/nextid", Everyone).taking(&[&[vmid("vmid")]]),
    get(Call::Index, "/", Everyone),
    get(Call::ClusterIndex, "/cluster", Everyone),
    get(Call::ClusterOptions, "/cluster/options", Everyone),
    get(
        Call::UrlMetadata,
        "/nodes/{node}/query-url-metadata",
        Permission::Any(&[check("/", &["Sys.Audit", "Sys.Modify"]), check("/nodes/{node}", &["Sys.AccessNetwork"])]),
    )
    .on_node()
    .taking(&[&[NODE, text("url").required().pattern("https?://.*"), flag("verify-certificates")]]),
    get(Call::NodeStatistics, "/nodes/{node}/rrddata", check("/nodes/{node}", &["Sys.Audit"]))
        .protected()
        .taking(&[&[NODE], FRAME]),
];

const TASKS: &[Operation] = &[
    get(Call::Tasks, "/nodes/{node}/tasks", InHandler).on_node().taking(&[&[
        NODE,
        vmid("vmid"),
        text("source").words(&["archive", "active", "all"]),
        text("typefilter"),
        text("userfilter"),
        text("statusfilter").format("pve-task-status-type-list"),
        flag("errors"),
        whole("start").at_least(0),
        whole("limit").at_least(0),
        whole("since"),
        whole("until"),
    ]]),
    get(Call::Task, "/nodes/{node}/tasks/{upid}", Everyone).taking(&[&[NODE, UPID]]),
    delete(Call::StopTask, "/nodes/{node}/tasks/{upid}", InHandler).on_node().taking(&[&[NODE, UPID]]),
    get(Call::TaskStatus, "/nodes/{node}/tasks/{upid}/status", InHandler)
        .protected()
        .on_node()
        .taking(&[&[NODE, UPID]]),
    get(Call::TaskLog, "/nodes/{node}/tasks/{upid}/log", InHandler).protected().on_node().taking(&[&[
        NODE,
        UPID,
        whole("start").at_least(0),
        whole("limit").at_least(0),
        flag("download"),
    ]]),
];

/// The part of statistics that is asked for.
const FRAME: &[Field] = &[
    text("timeframe").required().only(Eight).words(&["hour", "day", "week", "month", "year"]),
    text("timeframe").required().only(Nine).words(&["hour", "day", "week", "month", "year", "decade"]),
    text("cf").words(&["AVERAGE", "MAX"]),
];

const MEMBER_TYPES: &[&str] = &["qemu", "lxc", "storage"];

const POOLS: &[Operation] = &[
    get(Call::Pools, "/pools", InHandler).taking(&[&[POOL_ID, text("type").words(MEMBER_TYPES).with("poolid")]]),
    get(Call::Pool, "/pools/{poolid}", check("/pool/{poolid}", &["Pool.Audit"]))
        .taking(&[&[POOL_ID.required(), text("type").words(MEMBER_TYPES)]]),
    post(Call::CreatePool, "/pools", check("/pool/{poolid}", &["Pool.Allocate"]))
        .taking(&[&[POOL_ID.required(), text("comment")]]),
    delete(Call::DeletePool, "/pools", check("/pool/{poolid}", &["Pool.Allocate"]))
        .checks_more()
        .taking(&[&[POOL_ID.required()]]),
    put(Call::SetPool, "/pools", check("/pool/{poolid}", &["Pool.Allocate"])).checks_more().taking(&[&[
        POOL_ID.required(),
        text("vms").format("pve-vmid-list"),
        text("storage").format("pve-storage-id-list"),
        text("comment"),
        flag("delete"),
        flag("allow-move"),
    ]]),
];
