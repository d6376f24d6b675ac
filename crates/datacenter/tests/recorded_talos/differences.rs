//! Where an embedded node answers otherwise than the recorded one, and why that is right.

/// One answer that differs.
pub(crate) struct Difference {
    pub(crate) state: &'static str,
    pub(crate) probe: &'static str,
    /// What stands there in the recording, and what in our answer; all else is the same.
    pub(crate) parts: Parts,
    pub(crate) why: &'static str,
}

/// The parts of an answer that differ.
type Parts = &'static [(&'static str, &'static str)];

const fn differs(state: &'static str, probe: &'static str, parts: Parts, why: &'static str) -> Difference {
    Difference { state, probe, parts, why }
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

/// The first service that a container does not run, before the one whose beginning is told next.
const AUDITD: Parts = &[(
    "{\"id\":\"containerd\"",
    "{\"id\":\"auditd\", \"state\":\"Running\", \"events\":{\"events\":[{\"msg\":\"Starting service\", \"state\":\"Starting\", \"ts\":\"<X>\"}, {\"msg\":\"Running pre state\", \"state\":\"Preparing\", \"ts\":\"<X>\"}, {\"msg\":\"Creating service runner\", \"state\":\"Preparing\", \"ts\":\"<X>\"}, {\"msg\":\"Service started as goroutine\", \"state\":\"Running\", \"ts\":\"<X>\"}, {\"msg\":\"Health check successful\", \"state\":\"Running\", \"ts\":\"<X>\"}]}, \"health\":{\"healthy\":true, \"lastChange\":\"<X>\"}}, {\"id\":\"containerd\"",
)];

/// What the first bytes of a node's HTTP/2 differ in.
pub(crate) struct OfFirstBytes {
    /// The setting that ours alone sends: `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub(crate) ours: u16,
    /// How many bytes the recorded one sent besides: a head and the number of a `WINDOW_UPDATE` of the connection.
    pub(crate) theirs: usize,
    pub(crate) why: &'static str,
}

pub(crate) const FIRST_BYTES: OfFirstBytes = OfFirstBytes {
    ours: 6,
    theirs: 9 + 4,
    why: "the vendor's library widens the window of a connection before it is spoken to, and ours once it is; ours tells how long headers may be, \
          the vendor's does not. Neither changes what a client may send or gets",
};

pub(crate) const DIFFERENCES: &[Difference] = &[
    differs(
        MAINTENANCE,
        "Version",
        &[("undefined", "embedded"), ("\"container\", \"mode\":\"container", "\"nocloud\", \"mode\":\"cloud")],
        PLATFORM,
    ),
    differs(
        PLANE,
        "Version",
        &[("undefined", "embedded"), ("\"container\", \"mode\":\"container", "\"nocloud\", \"mode\":\"cloud")],
        PLATFORM,
    ),
    differs(MAINTENANCE, "ServiceList", AUDITD, SERVICES),
    differs(PLANE, "ServiceList", AUDITD, SERVICES),
    differs(PLANE, "Hostname", &[("n1", "real-cp-1")], "a container may not name its machine"),
    differs(
        MAINTENANCE,
        "Disks",
        &[("[{", "[{\"disks\":[{\"deviceName\":\"/dev/sda\"}, {\"deviceName\":\"/dev/sr0\"}]")],
        DISKS,
    ),
    differs(
        PLANE,
        "Disks",
        &[("[{", "[{\"disks\":[{\"deviceName\":\"/dev/sda\"}, {\"deviceName\":\"/dev/sr0\"}]")],
        DISKS,
    ),
    differs(
        MAINTENANCE,
        "Time",
        &[(
            "ERR Unknown: \"error querying NTP server \\\"time.cloudflare.com\\\": lookup time.cloudflare.com on [::1]:53: read udp [::1]:53676->[::1]:53: read: connection refused\"",
            "an answer",
        )],
        CLOCK,
    ),
    differs(
        PLANE,
        "Time",
        &[(
            "ERR Unknown: \"error querying NTP server \\\"10.77.0.1\\\": read udp 10.77.0.11:51274->10.77.0.1:123: read: connection refused\"",
            "an answer",
        )],
        CLOCK,
    ),
    differs(
        MAINTENANCE,
        "TimeCheck 127.0.0.1",
        &[(
            "ERR Unknown: \"error querying NTP server \\\"127.0.0.1\\\": read udp 127.0.0.1:37500->127.0.0.1:123: read: connection refused\"",
            "an answer",
        )],
        CLOCK,
    ),
    differs(
        PLANE,
        "TimeCheck 127.0.0.1",
        &[(
            "ERR Unknown: \"error querying NTP server \\\"127.0.0.1\\\": read udp 127.0.0.1:35230->127.0.0.1:123: read: connection refused\"",
            "an answer",
        )],
        CLOCK,
    ),
    differs(
        MAINTENANCE,
        "Dmesg",
        &[(
            "ERR Unknown: \"error opening /dev/kmsg reader: open /dev/kmsg: no such file or directory\"",
            "ok <n> bytes",
        )],
        KERNEL,
    ),
    differs(
        PLANE,
        "Dmesg",
        &[(
            "ERR Unknown: \"error opening /dev/kmsg reader: open /dev/kmsg: no such file or directory\"",
            "ok <n> bytes",
        )],
        KERNEL,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/Services.v1alpha1.talos.dev/",
        &[("containerd machined", "auditd containerd machined syslogd udevd")],
        SERVICES,
    ),
    differs(
        PLANE,
        "cosi runtime/Services.v1alpha1.talos.dev/",
        &[("containerd cri etcd machined trustd", "auditd containerd cri etcd machined syslogd trustd udevd")],
        SERVICES,
    ),
    differs(
        MAINTENANCE,
        "watch kind bootstrap=true",
        &[(
            "containerd)\n1 events CREATED(machined",
            "auditd)\n1 events CREATED(containerd)\n1 events CREATED(machined)\n1 events CREATED(syslogd)\n1 events CREATED(udevd",
        )],
        SERVICES,
    ),
    differs(
        PLANE,
        "watch kind bootstrap=true",
        &[(
            "containerd)\n1 events CREATED(cri)\n1 events CREATED(etcd)\n1 events CREATED(machined)\n1 events CREATED(trustd)\n1 events BOOTSTRAPPED(",
            "auditd)\n1 events CREATED(containerd)\n1 events CREATED(cri)\n1 events CREATED(etcd)\n1 events CREATED(machined)\n1 events CREATED(syslogd",
        )],
        SERVICES,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/Disks.block.talos.dev/",
        &[(
            "]",
            "sda sr0]\n    first: id=sda phase=running owner=\"block.DisksController\" finalizers=[] labels=map[] annotations=map[] proto=200 yaml=\"dev_path: /dev/sda\\nsize: 1306525696\\npretty_size: 1.3 GB\\nio_size: 512\\nsector_size: 512\\nreadonly: false\\ncdrom: false\\nmodel: QEMU HARDDISK\\nwwid: t10.QEMU    QEMU HARDDISK   drive-scsi0\\nbus_path: /pci0000:00/0000:00:05.0/scsi/0\\nsub_system: /sys/class/block\\ntransport: virtio\\nrotational: true\\nsymlinks:\\n    - /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-sda\\n\"",
        )],
        DISKS,
    ),
    differs(
        PLANE,
        "cosi runtime/Disks.block.talos.dev/",
        &[(
            "]",
            "sda sr0]\n    first: id=sda phase=running owner=\"block.DisksController\" finalizers=[] labels=map[] annotations=map[] proto=200 yaml=\"dev_path: /dev/sda\\nsize: 1306525696\\npretty_size: 1.3 GB\\nio_size: 512\\nsector_size: 512\\nreadonly: false\\ncdrom: false\\nmodel: QEMU HARDDISK\\nwwid: t10.QEMU    QEMU HARDDISK   drive-scsi0\\nbus_path: /pci0000:00/0000:00:05.0/scsi/0\\nsub_system: /sys/class/block\\ntransport: virtio\\nrotational: true\\nsymlinks:\\n    - /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-sda\\n\"",
        )],
        DISKS,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/VolumeStatuses.block.talos.dev/",
        &[(
            "0 yaml=\"phase: waiting\\ntype: partition",
            "48 yaml=\"phase: ready\\ntype: partition\\nlocation: /dev/sda3\\nmountLocation: /dev/sda3\\npartitionIndex: 3\\nparentLocation: /dev/sda\\nsize: 1048576\\nprettySize: 1.0 MB",
        )],
        DISKS,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/SystemDisks.block.talos.dev/system-disk",
        &[(
            "ERR NotFound: \"resource SystemDisks.block.talos.dev(runtime/system-disk@undefined) doesn't exist",
            "GET id=system-disk phase=running owner=\"block.SystemDiskController\" finalizers=[] labels=map[] annotations=map[] proto=15 yaml=\"diskID: sda\\ndevPath: /dev/sda\\n",
        )],
        DISKS,
    ),
    differs(
        PLANE,
        "cosi runtime/SystemDisks.block.talos.dev/system-disk",
        &[(
            "ERR NotFound: \"resource SystemDisks.block.talos.dev(runtime/system-disk@undefined) doesn't exist",
            "GET id=system-disk phase=running owner=\"block.SystemDiskController\" finalizers=[] labels=map[] annotations=map[] proto=15 yaml=\"diskID: sda\\ndevPath: /dev/sda\\n",
        )],
        DISKS,
    ),
    differs(
        MAINTENANCE,
        "cosi network/LinkStatuses.net.talos.dev/",
        &[(
            "68 yaml=\"index: 2\\ntype: ether\\nlinkIndex: 3\\nflags: UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP\\nhardwareAddr: \\\"02:00:00:00:00:11\\\"\\npermanentAddr: \\\"\\\"\\nbroadcastAddr: ff:ff:ff:ff:ff:ff\\nmtu: 1500\\nqueueDisc: noqueue\\noperationalState: up\\nkind: veth\\nslaveKind: \\\"\\\"\\ndriver: veth\\ndriverVersion: \\\"1.0\\\"\\nlinkState: true\\nspeedMbit: 10000\\nport: TwistedPair\\nduplex: Full",
            "113 yaml=\"index: 2\\ntype: ether\\nlinkIndex: 0\\nflags: UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP\\nhardwareAddr: \\\"02:00:00:00:00:11\\\"\\npermanentAddr: \\\"02:00:00:00:00:11\\\"\\nbroadcastAddr: ff:ff:ff:ff:ff:ff\\nmtu: 1500\\nqueueDisc: pfifo_fast\\noperationalState: up\\nkind: \\\"\\\"\\nslaveKind: \\\"\\\"\\nbusPath: 0000:00:12.0\\npciID: 1AF4:1000\\ndriver: virtio_net\\ndriverVersion: 1.0.0\\nlinkState: true\\nspeedMbit: 4294967295\\nport: Other\\nduplex: Unknown",
        )],
        HARDWARE,
    ),
    differs(
        PLANE,
        "cosi network/LinkStatuses.net.talos.dev/",
        &[(
            "68 yaml=\"index: 2\\ntype: ether\\nlinkIndex: 3\\nflags: UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP\\nhardwareAddr: \\\"02:00:00:00:00:11\\\"\\npermanentAddr: \\\"\\\"\\nbroadcastAddr: ff:ff:ff:ff:ff:ff\\nmtu: 1500\\nqueueDisc: noqueue\\noperationalState: up\\nkind: veth\\nslaveKind: \\\"\\\"\\ndriver: veth\\ndriverVersion: \\\"1.0\\\"\\nlinkState: true\\nspeedMbit: 10000\\nport: TwistedPair\\nduplex: Full",
            "120 yaml=\"alias: net0\\nindex: 2\\ntype: ether\\nlinkIndex: 0\\nflags: UP,BROADCAST,RUNNING,MULTICAST,LOWER_UP\\nhardwareAddr: \\\"02:00:00:00:00:11\\\"\\npermanentAddr: \\\"02:00:00:00:00:11\\\"\\nbroadcastAddr: ff:ff:ff:ff:ff:ff\\nmtu: 1500\\nqueueDisc: pfifo_fast\\noperationalState: up\\nkind: \\\"\\\"\\nslaveKind: \\\"\\\"\\nbusPath: 0000:00:12.0\\npciID: 1AF4:1000\\ndriver: virtio_net\\ndriverVersion: 1.0.0\\nlinkState: true\\nspeedMbit: 4294967295\\nport: Other\\nduplex: Unknown",
        )],
        HARDWARE,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/TimeStatuses.v1alpha1.talos.dev/node",
        &[("0\\nsyncDisabled: true", "1\\nsyncDisabled: false")],
        CLOCK,
    ),
    differs(
        PLANE,
        "cosi runtime/TimeStatuses.v1alpha1.talos.dev/node",
        &[("0\\nsyncDisabled: true", "1\\nsyncDisabled: false")],
        CLOCK,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/ExtensionStatuses.runtime.talos.dev/",
        &[(
            "]",
            "0]\n    first: id=0 phase=running owner=\"runtime.ExtensionStatusController\" finalizers=[] labels=map[] annotations=map[] proto=225 yaml=\"image: 0.sqsh\\nmetadata:\\n    name: schematic\\n    version: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n    author: Image Factory\\n    description: Virtual extension which specifies the schematic of the image built with Image Factory.\\n    compatibility:\\n        talos:\\n            version: '>= 1.0.0'\\n    extraInfo: |\\n        customization: {}\\n\"",
        )],
        FACTORY,
    ),
    differs(
        PLANE,
        "cosi runtime/ExtensionStatuses.runtime.talos.dev/",
        &[(
            "]",
            "0]\n    first: id=0 phase=running owner=\"runtime.ExtensionStatusController\" finalizers=[] labels=map[] annotations=map[] proto=225 yaml=\"image: 0.sqsh\\nmetadata:\\n    name: schematic\\n    version: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n    author: Image Factory\\n    description: Virtual extension which specifies the schematic of the image built with Image Factory.\\n    compatibility:\\n        talos:\\n            version: '>= 1.0.0'\\n    extraInfo: |\\n        customization: {}\\n\"",
        )],
        FACTORY,
    ),
    differs(
        MAINTENANCE,
        "cosi runtime/PlatformMetadatas.talos.dev/platformmetadata",
        &[(
            "29 yaml=\"platform: container\\nhostname: n1\\ninstanceType: 2CPU-2048RAM",
            "13 yaml=\"platform: nocloud\\nhostname: n1",
        )],
        PLATFORM,
    ),
    differs(
        PLANE,
        "cosi runtime/PlatformMetadatas.talos.dev/platformmetadata",
        &[(
            "29 yaml=\"platform: container\\nhostname: n1\\ninstanceType: 2CPU-2048RAM",
            "13 yaml=\"platform: nocloud\\nhostname: n1",
        )],
        PLATFORM,
    ),
    differs(
        MAINTENANCE,
        "cosi hardware/SystemInformations.hardware.talos.dev/systeminformation",
        &[(
            "ERR NotFound: \"resource SystemInformations.hardware.talos.dev(hardware/systeminformation@undefined) doesn't exist",
            "GET id=systeminformation phase=running owner=\"hardware.SystemInfoController\" finalizers=[] labels=map[] annotations=map[] proto=93 yaml=\"manufacturer: QEMU\\nproductName: Standard PC (i440FX + PIIX, 1996)\\nuuid: 1d90310f-642f-4c44-8047-96a6028eaa01\\nwakeUpType: Power Switch\\n",
        )],
        HARDWARE,
    ),
    differs(
        PLANE,
        "cosi hardware/SystemInformations.hardware.talos.dev/systeminformation",
        &[(
            "ERR NotFound: \"resource SystemInformations.hardware.talos.dev(hardware/systeminformation@undefined) doesn't exist",
            "GET id=systeminformation phase=running owner=\"hardware.SystemInfoController\" finalizers=[] labels=map[] annotations=map[] proto=93 yaml=\"manufacturer: QEMU\\nproductName: Standard PC (i440FX + PIIX, 1996)\\nuuid: 1d90310f-642f-4c44-8047-96a6028eaa01\\nwakeUpType: Power Switch\\n",
        )],
        HARDWARE,
    ),
    differs(
        PLANE,
        "cosi secrets/EtcdSecrets.secrets.talos.dev/",
        &[(
            "LIST [etcd]\n    first: id=etcd phase=running owner=\"secrets.EtcdController\" finalizers=[] labels=map[] annotations=map[] proto=<n> yaml=<text>",
            "ERR Unimplemented: \"the embedded node simulates no EtcdSecrets.secrets.talos.dev\"",
        )],
        "no etcd runs here whose certificates anybody could use",
    ),
];
