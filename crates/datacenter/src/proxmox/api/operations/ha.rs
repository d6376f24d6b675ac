//! What is asked of high availability.

use super::super::Version::Nine;
use super::super::field::{Field, flag, text, whole};
use super::super::{Call, Operation, Permission};
use super::{check, delete, get, post, put};

const READS: Permission = check("/", &["Sys.Audit"]);
const CHANGES: Permission = check("/", &["Sys.Console"]);

const SID: Field = text("sid").required().format("pve-ha-resource-or-vm-id");
const KIND: Field = text("type").words(&["ct", "vm"]);
const RESOURCE: &[Field] = &[
    SID,
    text("state").words(&["started", "stopped", "enabled", "disabled", "ignored"]),
    text("group").format("pve-configid"),
    text("comment").longest(4096),
    whole("max_relocate").at_least(0),
    whole("max_restart").at_least(0),
    flag("auto-rebalance").only(Nine),
    flag("failback").only(Nine),
];

pub(super) const ALL: &[Operation] = &[
    get(Call::HaIndex, "/cluster/ha", READS),
    get(Call::HaResources, "/cluster/ha/resources", READS).taking(&[&[KIND]]),
    post(Call::CreateHaResource, "/cluster/ha/resources", CHANGES).taking(&[RESOURCE, &[KIND]]),
    get(Call::HaResource, "/cluster/ha/resources/{sid}", READS).taking(&[&[SID]]),
    put(Call::SetHaResource, "/cluster/ha/resources/{sid}", CHANGES)
        .taking(&[RESOURCE, &[text("delete").format("pve-configid-list").longest(4096), text("digest").longest(64)]]),
    delete(Call::DeleteHaResource, "/cluster/ha/resources/{sid}", CHANGES).taking(&[&[SID, flag("purge").only(Nine)]]),
];
