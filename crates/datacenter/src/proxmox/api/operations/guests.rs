//! What is asked of guests.

use super::super::Permission::{Everyone, InHandler};
use super::super::Version::{Eight, Nine};
use super::super::field::{Field, flag, text, whole};
use super::super::{Call, Operation, Permission, options};
use super::{FRAME, NODE, STORAGE_ID, check, check_any, delete, get, post, put, vmid};

/// The parameters in the path of a guest.
pub(super) const GUEST: &[Field] = &[NODE, vmid("vmid").required()];

const DIGEST: Field = text("digest").longest(40);
const SKIP_LOCK: Field = flag("skiplock");
pub(super) const SNAPSHOT: Field = text("snapname").format("pve-configid").longest(40);
const TIMEOUT: Field = whole("timeout").at_least(0);
const BANDWIDTH: Field = whole("bwlimit").at_least(0);
const MIGRATION: &[Field] = &[
    text("migration_network").format("CIDR"),
    text("migration_type").words(&["secure", "insecure"]),
    text("targetstorage").format("storage-pair-list"),
    flag("with-conntrack-state").only(Nine),
];

pub(super) const READS_GUEST: Permission = check("/vms/{vmid}", &["VM.Audit"]);

pub(super) const ALL: &[Operation] = &[
    get(Call::Guests, "/nodes/{node}/qemu", InHandler).protected().on_node().taking(&[&[NODE, flag("full")]]),
    post(Call::Create, "/nodes/{node}/qemu", InHandler).on_node().taking(&[
        GUEST,
        CREATE,
        options::GENERAL,
        options::PROCESSOR,
        options::MEMORY,
        options::BOOT,
        options::HARDWARE,
        options::DRIVES,
        options::DEVICES,
        options::CLOUD_INIT,
    ]),
    delete(Call::Destroy, "/nodes/{node}/qemu/{vmid}", check("/vms/{vmid}", &["VM.Allocate"]))
        .on_node()
        .taking(&[GUEST, &[flag("purge"), flag("destroy-unreferenced-disks"), SKIP_LOCK]]),
    get(Call::Config, "/nodes/{node}/qemu/{vmid}/config", READS_GUEST)
        .on_node()
        .taking(&[GUEST, &[flag("current"), text("snapshot").format("pve-configid").longest(40)]]),
    get(Call::Pending, "/nodes/{node}/qemu/{vmid}/pending", READS_GUEST).on_node().taking(&[GUEST]),
    get(Call::GuestIndex, "/nodes/{node}/qemu/{vmid}", Everyone).on_node().taking(&[GUEST]),
    get(Call::GuestStatistics, "/nodes/{node}/qemu/{vmid}/rrddata", READS_GUEST).protected().taking(&[GUEST, FRAME]),
    get(Call::StatusIndex, "/nodes/{node}/qemu/{vmid}/status", Everyone).on_node().taking(&[GUEST]),
    get(Call::Feature, "/nodes/{node}/qemu/{vmid}/feature", READS_GUEST)
        .protected()
        .on_node()
        .taking(&[GUEST, &[text("feature").required().words(&["snapshot", "clone", "copy"]), SNAPSHOT]]),
    get(Call::Containers, "/nodes/{node}/lxc", InHandler).protected().on_node().taking(&[&[NODE]]),
];

const ASKS_AGENT: Permission = check_any("/vms/{vmid}", &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]);
const ASKS_AGENT_OF_EIGHT: Permission = check("/vms/{vmid}", &["VM.Monitor"]);
const PING: &str = "/nodes/{node}/qemu/{vmid}/agent/ping";
const INTERFACES: &str = "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces";
const INFO: &str = "/nodes/{node}/qemu/{vmid}/agent/info";

pub(super) const AGENT: &[Operation] = &[
    post(Call::AgentPing, PING, ASKS_AGENT).only(Nine).on_node().taking(&[GUEST]),
    post(Call::AgentPing, PING, ASKS_AGENT_OF_EIGHT).only(Eight).on_node().taking(&[GUEST]),
    get(Call::AgentInfo, INFO, ASKS_AGENT).only(Nine).protected().on_node().taking(&[GUEST]),
    get(Call::AgentInfo, INFO, ASKS_AGENT_OF_EIGHT).only(Eight).protected().on_node().taking(&[GUEST]),
    get(Call::AgentInterfaces, INTERFACES, ASKS_AGENT).only(Nine).protected().on_node().taking(&[GUEST]),
    get(Call::AgentInterfaces, INTERFACES, ASKS_AGENT_OF_EIGHT).only(Eight).protected().on_node().taking(&[GUEST]),
];

const CREATE: &[Field] = &[
    text("pool").format("pve-poolid"),
    STORAGE_ID,
    text("import-working-storage").format("pve-storage-id"),
    text("archive").longest(255),
    flag("force").with("archive"),
    flag("unique").with("archive"),
    flag("live-restore"),
    flag("start"),
    flag("ha-managed").only(Nine),
    BANDWIDTH,
];

const SWITCHES_GUEST: Permission = check("/vms/{vmid}", &["VM.PowerMgmt"]);

pub(super) const POWER: &[Operation] = &[
    get(Call::Status, "/nodes/{node}/qemu/{vmid}/status/current", READS_GUEST).protected().on_node().taking(&[GUEST]),
    post(Call::Start, "/nodes/{node}/qemu/{vmid}/status/start", SWITCHES_GUEST).on_node().taking(&[
        GUEST,
        MIGRATION,
        &[
            TIMEOUT,
            SKIP_LOCK,
            options::MACHINE,
            text("force-cpu"),
            text("migratedfrom").format("pve-node"),
            text("nets-host-mtu").pattern(r"net\d+=\d+(,net\d+=\d+)*"),
            text("stateuri").longest(128),
        ],
    ]),
    post(Call::Stop, "/nodes/{node}/qemu/{vmid}/status/stop", SWITCHES_GUEST).on_node().taking(&[
        GUEST,
        &[TIMEOUT, SKIP_LOCK, flag("keepActive"), flag("overrule-shutdown"), text("migratedfrom").format("pve-node")],
    ]),
    post(Call::Shutdown, "/nodes/{node}/qemu/{vmid}/status/shutdown", SWITCHES_GUEST)
        .on_node()
        .taking(&[GUEST, &[TIMEOUT, SKIP_LOCK, flag("keepActive"), flag("forceStop")]]),
    post(Call::Reset, "/nodes/{node}/qemu/{vmid}/status/reset", SWITCHES_GUEST)
        .on_node()
        .taking(&[GUEST, &[SKIP_LOCK]]),
    post(Call::Suspend, "/nodes/{node}/qemu/{vmid}/status/suspend", SWITCHES_GUEST)
        .checks_more()
        .on_node()
        .taking(&[GUEST, &[SKIP_LOCK, flag("todisk"), text("statestorage").format("pve-storage-id").with("todisk")]]),
    post(Call::Resume, "/nodes/{node}/qemu/{vmid}/status/resume", SWITCHES_GUEST)
        .on_node()
        .taking(&[GUEST, &[SKIP_LOCK, flag("nocheck")]]),
    post(Call::Reboot, "/nodes/{node}/qemu/{vmid}/status/reboot", SWITCHES_GUEST)
        .on_node()
        .taking(&[GUEST, &[TIMEOUT]]),
];

const CHANGES_CONFIG: Permission = check_any(
    "/vms/{vmid}",
    &[
        "VM.Config.Disk",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.HWType",
        "VM.Config.Options",
        "VM.Config.Cloudinit",
    ],
);

const UPDATE: &[Field] = &[
    text("delete").format("pve-configid-list"),
    text("revert").format("pve-configid-list"),
    flag("force").with("delete"),
    DIGEST,
    SKIP_LOCK,
];

const DISKS: &[(&str, Option<u16>)] = &[
    ("ide", Some(3)),
    ("scsi", Some(30)),
    ("virtio", Some(15)),
    ("sata", Some(5)),
    ("efidisk0", None),
    ("tpmstate0", None),
];
const DISKS_AND_UNUSED: &[(&str, Option<u16>)] = &[
    ("ide", Some(3)),
    ("scsi", Some(30)),
    ("virtio", Some(15)),
    ("sata", Some(5)),
    ("efidisk0", None),
    ("tpmstate0", None),
    ("unused", Some(255)),
];
const NEW_FORMAT: Field = text("format").words(&["raw", "qcow2", "vmdk"]);

pub(super) const CHANGES: &[Operation] = &[
    put(Call::SetConfig, "/nodes/{node}/qemu/{vmid}/config", CHANGES_CONFIG).on_node().taking(&[
        GUEST,
        UPDATE,
        options::GENERAL,
        options::PROCESSOR,
        options::MEMORY,
        options::BOOT,
        options::HARDWARE,
        options::DRIVES,
        options::DEVICES,
        options::CLOUD_INIT,
    ]),
    post(Call::SetConfigAsTask, "/nodes/{node}/qemu/{vmid}/config", CHANGES_CONFIG).on_node().taking(&[
        GUEST,
        UPDATE,
        &[whole("background_delay").between(1, 30), text("import-working-storage").format("pve-storage-id")],
        options::GENERAL,
        options::PROCESSOR,
        options::MEMORY,
        options::BOOT,
        options::HARDWARE,
        options::DRIVES,
        options::DEVICES,
        options::CLOUD_INIT,
    ]),
    post(
        Call::Clone,
        "/nodes/{node}/qemu/{vmid}/clone",
        Permission::All(&[
            check("/vms/{vmid}", &["VM.Clone"]),
            Permission::Any(&[
                check("/vms/{newid}", &["VM.Allocate"]),
                Permission::Check {
                    path: "/pool/{pool}",
                    privileges: &["VM.Allocate"],
                    any: false,
                    only_with: Some("pool"),
                },
            ]),
        ]),
    )
    .checks_more()
    .on_node()
    .taking(&[
        GUEST,
        &[
            vmid("newid").required(),
            text("name").format("dns-name"),
            text("description"),
            text("pool").format("pve-poolid"),
            SNAPSHOT,
            STORAGE_ID,
            NEW_FORMAT,
            text("target").format("pve-node"),
            flag("full"),
            BANDWIDTH,
        ],
    ]),
    post(Call::Template, "/nodes/{node}/qemu/{vmid}/template", check("/vms/{vmid}", &["VM.Allocate"]))
        .checks_more()
        .on_node()
        .taking(&[GUEST, &[text("disk").devices(DISKS)]]),
    put(Call::Resize, "/nodes/{node}/qemu/{vmid}/resize", check("/vms/{vmid}", &["VM.Config.Disk"])).on_node().taking(
        &[
            GUEST,
            &[
                text("disk").required().devices(DISKS),
                text("size").required().pattern(r"\+?\d+(\.\d+)?[KMGT]?"),
                DIGEST,
                SKIP_LOCK,
            ],
        ],
    ),
    post(Call::MoveDisk, "/nodes/{node}/qemu/{vmid}/move_disk", check("/vms/{vmid}", &["VM.Config.Disk"]))
        .checks_more()
        .on_node()
        .taking(&[
            GUEST,
            &[
                text("disk").required().devices(DISKS_AND_UNUSED),
                STORAGE_ID,
                NEW_FORMAT,
                flag("delete"),
                vmid("target-vmid"),
                text("target-disk").devices(DISKS_AND_UNUSED),
                text("target-digest").longest(40),
                DIGEST,
                BANDWIDTH,
            ],
        ]),
    post(Call::Migrate, "/nodes/{node}/qemu/{vmid}/migrate", check("/vms/{vmid}", &["VM.Migrate"])).on_node().taking(
        &[
            GUEST,
            MIGRATION,
            &[
                text("target").required().format("pve-node"),
                flag("online"),
                flag("force"),
                flag("with-local-disks"),
                BANDWIDTH,
            ],
        ],
    ),
    put(Call::Unlink, "/nodes/{node}/qemu/{vmid}/unlink", check("/vms/{vmid}", &["VM.Config.Disk"]))
        .on_node()
        .taking(&[GUEST, &[text("idlist").required().format("pve-configid-list"), flag("force")]]),
    put(Call::CloudInit, "/nodes/{node}/qemu/{vmid}/cloudinit", check("/vms/{vmid}", &["VM.Config.Cloudinit"]))
        .on_node()
        .taking(&[GUEST]),
];
