//! Where an embedded node answers otherwise than the recorded one, and why that is right.

/// One answer that differs.
pub(crate) struct Difference {
    pub(crate) state: &'static str,
    pub(crate) probe: &'static str,
    /// What our answer holds instead.
    pub(crate) ours: &'static str,
    pub(crate) why: &'static str,
}

const fn differs(state: &'static str, probe: &'static str, ours: &'static str, why: &'static str) -> Difference {
    Difference { state, probe, ours, why }
}

const MAINTENANCE: &str = "maintenance";
const PLANE: &str = "control plane";

const PLATFORM: &str =
    "the recorded node ran in a container, built without its revision; ours is a guest with a released image";
const DISKS: &str = "a container has no disks";
const SERVICES: &str = "a container runs no services for devices and logs";
const HARDWARE: &str = "a guest has other hardware than a container";
const CLOCK: &str = "a container does not set the clock, and the recorded node had no time server; ours are reached";
const KERNEL: &str = "a container has no log of a kernel";
const FACTORY: &str = "an image of the Image Factory names its schematic as an extension";

pub(crate) const DIFFERENCES: &[Difference] = &[
    differs(MAINTENANCE, "Version", "\"name\":\"nocloud\", \"mode\":\"cloud\"", PLATFORM),
    differs(PLANE, "Version", "\"features\":{\"rbac\":true}", PLATFORM),
    differs(PLANE, "Hostname", "real-cp-1", "a container may not name its machine"),
    differs(MAINTENANCE, "Disks", "/dev/sda", DISKS),
    differs(PLANE, "Disks", "/dev/sda", DISKS),
    differs(MAINTENANCE, "Time", "an answer", CLOCK),
    differs(PLANE, "Time", "an answer", CLOCK),
    differs(MAINTENANCE, "TimeCheck 127.0.0.1", "an answer", CLOCK),
    differs(PLANE, "TimeCheck 127.0.0.1", "an answer", CLOCK),
    differs(MAINTENANCE, "Dmesg", "ok <n> bytes", KERNEL),
    differs(PLANE, "Dmesg", "ok <n> bytes", KERNEL),
    differs(
        MAINTENANCE,
        "cosi runtime/Services.v1alpha1.talos.dev/",
        "LIST [apid auditd containerd machined syslogd udevd]",
        SERVICES,
    ),
    differs(
        PLANE,
        "cosi runtime/Services.v1alpha1.talos.dev/",
        "LIST [apid auditd containerd cri etcd machined syslogd trustd udevd]",
        SERVICES,
    ),
    differs(MAINTENANCE, "watch kind bootstrap=true", "CREATED(udevd)\n1 events BOOTSTRAPPED()", SERVICES),
    differs(PLANE, "watch kind bootstrap=true", "1 events CREATED(syslogd)", SERVICES),
    differs(MAINTENANCE, "cosi runtime/Disks.block.talos.dev/", "LIST [sda sr0]", DISKS),
    differs(PLANE, "cosi runtime/Disks.block.talos.dev/", "LIST [sda sr0]", DISKS),
    differs(
        MAINTENANCE,
        "cosi runtime/VolumeStatuses.block.talos.dev/",
        "LIST [META STATE]\n    first: id=META phase=running owner=\"block.VolumeManagerController\" finalizers=[] labels=map[talos.dev/system-volume:]",
        DISKS,
    ),
    differs(MAINTENANCE, "cosi runtime/SystemDisks.block.talos.dev/system-disk", "diskID: sda", DISKS),
    differs(PLANE, "cosi runtime/SystemDisks.block.talos.dev/system-disk", "diskID: sda", DISKS),
    differs(
        MAINTENANCE,
        "cosi network/LinkStatuses.net.talos.dev/",
        "hardwareAddr: \\\"02:00:00:00:00:11\\\"\\npermanentAddr: \\\"02:00:00:00:00:11\\\"",
        HARDWARE,
    ),
    differs(PLANE, "cosi network/LinkStatuses.net.talos.dev/", "yaml=\"alias: net0\\nindex: 2\\ntype: ether", HARDWARE),
    differs(MAINTENANCE, "cosi runtime/TimeStatuses.v1alpha1.talos.dev/node", "synced: true", CLOCK),
    differs(PLANE, "cosi runtime/TimeStatuses.v1alpha1.talos.dev/node", "synced: true", CLOCK),
    differs(MAINTENANCE, "cosi runtime/ExtensionStatuses.runtime.talos.dev/", "name: schematic", FACTORY),
    differs(PLANE, "cosi runtime/ExtensionStatuses.runtime.talos.dev/", "name: schematic", FACTORY),
    differs(
        MAINTENANCE,
        "cosi runtime/PlatformMetadatas.talos.dev/platformmetadata",
        "platform: nocloud\\nhostname: n1",
        PLATFORM,
    ),
    differs(
        PLANE,
        "cosi runtime/PlatformMetadatas.talos.dev/platformmetadata",
        "platform: nocloud\\nhostname: n1",
        PLATFORM,
    ),
    differs(
        MAINTENANCE,
        "cosi hardware/SystemInformations.hardware.talos.dev/systeminformation",
        "manufacturer: QEMU",
        HARDWARE,
    ),
    differs(
        PLANE,
        "cosi hardware/SystemInformations.hardware.talos.dev/systeminformation",
        "manufacturer: QEMU",
        HARDWARE,
    ),
    differs(
        MAINTENANCE,
        "cosi secrets/EtcdSecrets.secrets.talos.dev/",
        "resource type \\\"EtcdSecrets.secrets.talos.dev\\\" is not supported",
        "no etcd runs here whose certificates anybody could use",
    ),
    differs(
        PLANE,
        "cosi secrets/EtcdSecrets.secrets.talos.dev/",
        "resource type \\\"EtcdSecrets.secrets.talos.dev\\\" is not supported",
        "no etcd runs here whose certificates anybody could use",
    ),
];
