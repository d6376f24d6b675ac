//! What is asked of the snapshots of guests.

use super::super::Permission::Everyone;
use super::super::field::{flag, text};
use super::super::{Call, Operation, Permission};
use super::guests::{GUEST, READS_GUEST, SNAPSHOT};
use super::{check, check_any, delete, get, post, put};

const TAKES: Permission = check("/vms/{vmid}", &["VM.Snapshot"]);
const ONE: &str = "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}";
const CONFIG: &str = "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config";

pub(super) const ALL: &[Operation] = &[
    get(Call::Snapshots, "/nodes/{node}/qemu/{vmid}/snapshot", READS_GUEST).protected().on_node().taking(&[GUEST]),
    post(Call::TakeSnapshot, "/nodes/{node}/qemu/{vmid}/snapshot", TAKES)
        .on_node()
        .taking(&[GUEST, &[SNAPSHOT.required(), flag("vmstate"), text("description")]]),
    get(Call::SnapshotIndex, ONE, Everyone).taking(&[GUEST, &[SNAPSHOT.required()]]),
    delete(Call::DeleteSnapshot, ONE, TAKES).on_node().taking(&[GUEST, &[SNAPSHOT.required(), flag("force")]]),
    get(Call::SnapshotConfig, CONFIG, check_any("/vms/{vmid}", &["VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit"]))
        .on_node()
        .taking(&[GUEST, &[SNAPSHOT.required()]]),
    put(Call::DescribeSnapshot, CONFIG, TAKES).on_node().taking(&[GUEST, &[SNAPSHOT.required(), text("description")]]),
    post(
        Call::RollBack,
        "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback",
        check_any("/vms/{vmid}", &["VM.Snapshot", "VM.Snapshot.Rollback"]),
    )
    .on_node()
    .taking(&[GUEST, &[SNAPSHOT.required(), flag("start")]]),
];
