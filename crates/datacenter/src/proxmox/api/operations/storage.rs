//! What is asked of storages.

use super::super::Permission::InHandler;
use super::super::Version::{Eight, Nine};
use super::super::field::{flag, text, whole};
use super::super::{Call, Operation, Permission};
use super::{FRAME, NODE, STORAGE_ID, check, check_any, delete, get, post, vmid};

const READS_STORAGE: Permission = check_any("/storage/{storage}", &["Datastore.Audit", "Datastore.AllocateSpace"]);

pub(super) const ALL: &[Operation] =
    &[
        get(Call::Storages, "/storage", InHandler).taking(&[&[
            text("type").only(Nine).words(&[
                "btrfs",
                "cephfs",
                "cifs",
                "dir",
                "esxi",
                "iscsi",
                "iscsidirect",
                "lvm",
                "lvmthin",
                "nfs",
                "pbs",
                "rbd",
                "zfs",
                "zfspool",
            ]),
            text("type").only(Eight).words(&[
                "btrfs",
                "cephfs",
                "cifs",
                "dir",
                "esxi",
                "glusterfs",
                "iscsi",
                "iscsidirect",
                "lvm",
                "lvmthin",
                "nfs",
                "pbs",
                "rbd",
                "zfs",
                "zfspool",
            ]),
        ]]),
        get(Call::Storage, "/storage/{storage}", check("/storage/{storage}", &["Datastore.Allocate"]))
            .taking(&[&[STORAGE_ID.required()]]),
        get(Call::NodeStorages, "/nodes/{node}/storage", InHandler).protected().on_node().taking(&[&[
            NODE,
            STORAGE_ID,
            text("content").format("pve-storage-content-list"),
            text("target").format("pve-node"),
            flag("enabled"),
            flag("format"),
        ]]),
        get(Call::StorageStatus, "/nodes/{node}/storage/{storage}/status", READS_STORAGE)
            .protected()
            .on_node()
            .taking(&[&[NODE, STORAGE_ID.required()]]),
        get(Call::StorageStatistics, "/nodes/{node}/storage/{storage}/rrddata", READS_STORAGE)
            .protected()
            .on_node()
            .taking(&[&[NODE, STORAGE_ID.required()], FRAME]),
        get(Call::Volumes, "/nodes/{node}/storage/{storage}/content", READS_STORAGE)
            .protected()
            .on_node()
            .taking(&[&[NODE, STORAGE_ID.required(), text("content").format("pve-storage-content"), vmid("vmid")]]),
        get(Call::Volume, "/nodes/{node}/storage/{storage}/content/{volume}", InHandler)
            .protected()
            .on_node()
            .taking(&[&[NODE, STORAGE_ID, text("volume").required()]]),
        delete(Call::DeleteVolume, "/nodes/{node}/storage/{storage}/content/{volume}", InHandler)
            .on_node()
            .taking(&[&[NODE, STORAGE_ID, text("volume").required(), whole("delay").between(1, 30)]]),
        post(
            Call::DownloadUrl,
            "/nodes/{node}/storage/{storage}/download-url",
            Permission::All(&[
                check("/storage/{storage}", &["Datastore.AllocateTemplate"]),
                Permission::Any(&[
                    check("/", &["Sys.Audit", "Sys.Modify"]),
                    check("/nodes/{node}", &["Sys.AccessNetwork"]),
                ]),
            ]),
        )
        .checks_more()
        .on_node()
        .taking(&[&[
            NODE,
            STORAGE_ID.required(),
            text("url").required().pattern("https?://.*"),
            text("content").required().format("pve-storage-content").words(&["iso", "vztmpl", "import"]),
            text("filename").required().longest(255),
            text("checksum").with("checksum-algorithm"),
            text("checksum-algorithm").words(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]).with("checksum"),
            text("compression"),
            flag("verify-certificates"),
        ]]),
    ];
