//! VMIDs, hardware addresses and drives.

use std::collections::BTreeMap;

use super::ByCause;
use crate::inventory::{self, Node};
use crate::model::{Castle, Drive, Hardware, Machine, Platform, ScsiController};
use crate::problem::{Code, Problem, Problems};
use crate::span::{Origin, Sourced};
use crate::values::Vmid;

pub(super) fn check(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    if castle.platform.is_broken() {
        return;
    }
    vmids(castle, nodes, problems);
    macs(nodes, problems);
    if let Platform::Proxmox(proxmox) = &castle.platform.value {
        drives(&proxmox.hardware, problems);
        if let (Some(fingerprint), Some(ca)) = (&proxmox.fingerprint, &proxmox.ca) {
            problems.report(
                Problem::new(Code::TrustTwice, "the certificate is to be believed for two reasons")
                    .at(fingerprint.origin, "because it is this very one")
                    .at(ca.origin, "because this authority signed it")
                    .hint("keep `fingerprint` for a single host, `ca` for a cluster whose certificates are renewed"),
            );
        }
        if proxmox.nodes.is_empty() && !proxmox.nodes.is_broken() {
            problems.report(
                Problem::new(Code::HostUnknown, "no host may carry nodes")
                    .at(proxmox.nodes.origin, "empty")
                    .hint("list the Proxmox hosts, for example `nodes: [pve]`"),
            );
        }
    }
}

fn vmids(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let range = castle.platform.vmids();
    if range.is_broken() {
        return;
    }
    let have = u64::from(range.last.0 - range.first.0) + 1;
    let templates = inventory::templates(castle);
    let need = nodes.len() as u64 + u64::from(templates);
    if have < need {
        let last = u64::from(range.first.0) + need - 1;
        return problems.report(
            Problem::new(Code::VmidsTooFew, format!("{have} VMIDs for a castle that needs {need}"))
                .at(range.origin, format!("{} nodes, and {templates} for the Talos image", nodes.len()))
                .hint(format!("write at least `vmids: {}-{last}`, and make sure nobody else uses them", range.first)),
        );
    }
    let mut outside = ByCause::default();
    let mut seen: BTreeMap<Vmid, &Node> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !node.vmid.is_broken()) {
        let (vmid, name) = (&node.vmid, &node.name.value);
        let span = vmid.origin.span();
        if vmid.0 == 0 {
            outside.add(span, "before", || {
                Problem::new(Code::VmidOutsideRange, format!("no VMID follows for `{name}` from its address"))
                    .at(vmid.origin, "before the first control plane, or too far from it")
                    .at(range.origin, "the VMIDs of this castle")
                    .hint("give its pool a `firstVmid`")
            });
            continue;
        }
        if !range.contains(vmid.value) || vmid.0 > range.last.0 - templates {
            let kept = range.contains(vmid.value);
            outside.add(span, if kept { "kept" } else { "outside" }, || {
                let (why, label) = if kept {
                    ("is kept for the Talos image", "the last two for each host are kept for the image")
                } else {
                    ("is outside of the castle's VMIDs", "the VMIDs of this castle")
                };
                Problem::new(Code::VmidOutsideRange, format!("the VMID of `{name}`, {}, {why}", vmid.value))
                    .at(vmid.origin, "it follows from this")
                    .at(range.origin, label)
                    .hint("widen `vmids`, or give the pool a `firstVmid` inside of them")
            });
        }
        // VMIDs follow addresses: that two nodes share an address has been reported.
        if let Some(before) = seen.insert(vmid.value, node).filter(|before| before.address.value != node.address.value)
        {
            let cause = format!("{:?}", before.vmid.origin.span());
            outside.add(span, &cause, || {
                duplicate(Code::VmidDuplicate, "VMID", &before.name, name, &vmid.value, before.vmid.origin, vmid.origin)
            });
        }
    }
    outside.report(problems);
}

fn macs(nodes: &[Node], problems: &mut Problems) {
    let mut seen = BTreeMap::new();
    for node in nodes.iter().filter(|node| !node.mac.is_broken()) {
        if let Some(before) = seen.insert(node.mac.value, node) {
            let before: &Node = before;
            // Nodes with equal names and addresses have equal hardware addresses; that has been reported.
            if before.address.value == node.address.value {
                continue;
            }
            problems.report(duplicate(
                Code::MacDuplicate,
                "hardware address",
                &before.name,
                &node.name.value,
                &node.mac.value,
                before.mac.origin,
                node.mac.origin,
            ));
        }
    }
}

fn duplicate(
    code: Code,
    what: &str,
    first: &Sourced<String>,
    second: &str,
    value: &dyn std::fmt::Display,
    earlier: Origin,
    later: Origin,
) -> Problem {
    Problem::new(code, format!("`{}` and `{second}` have the same {what}, {value}", first.value))
        .at(later, "it follows from this")
        .at(earlier, "and from this")
        .hint(format!("give one of them another {what}"))
}

fn drives(hardware: &Sourced<Hardware>, problems: &mut Problems) {
    let cloud_init = &hardware.cloud_init_drive;
    if let Some(iso) = hardware.iso.as_ref().filter(|iso| iso.drive.value == cloud_init.value) {
        let place = if iso.drive.origin == Origin::Default { iso.origin } else { iso.drive.origin };
        problems.report(
            Problem::new(
                Code::DriveConflict,
                format!("the ISO and the cloud-init drive are both `{}`", cloud_init.word()),
            )
            .at(place, "the ISO")
            .at(cloud_init.origin, "the cloud-init drive")
            .hint("put the ISO in `ide0`; a node without its cloud-init drive has no address"),
        );
    }
    let iso_drive = hardware.iso.as_ref().map(|iso| &iso.drive);
    for drive in std::iter::once(cloud_init).chain(iso_drive) {
        if hardware.machine.value == Machine::Q35 && matches!(drive.value, Drive::Ide1 | Drive::Ide3) {
            problems.report(
                Problem::new(Code::DriveUnavailable, "a q35 machine has one unit on each IDE channel")
                    .at(drive.origin, "does not exist there")
                    .at(hardware.machine.origin, "")
                    .hint("use `ide0`, `ide2` or a `sata` port"),
            );
        }
    }
    let (iothread, controller) = (&hardware.iothread, &hardware.scsi_controller);
    if iothread.value && controller.value != ScsiController::VirtioScsiSingle {
        problems.report(
            Problem::new(Code::IothreadIgnored, format!("I/O threads do nothing with `{}`", controller.word()))
                .at(iothread.origin, "ignored by Proxmox")
                .at(controller.origin, "")
                .hint("set `scsiController: virtio-scsi-single`, or drop `iothread`"),
        );
    }
}
