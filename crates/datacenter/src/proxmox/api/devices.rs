//! The keys of drives, network devices and what else is plugged into a guest.

use super::Version;
use super::field::{Field, alias, flag, number, text, whole};

const FILE: Field = text("file").required().default_key().format("pve-volume-id-or-qm-path");
const SIZE: Field = text("size").format("disk-size");
const IMAGE_FORMATS: &[&str] = &["raw", "qcow", "qed", "qcow2", "vmdk", "cloop"];
const SET_OF_NUMBERS: &str = r"(?:\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*)";

const DRIVE: &[Field] = &[
    FILE,
    alias("volume", "file"),
    SIZE,
    text("format").words(IMAGE_FORMATS),
    text("media").words(&["cdrom", "disk"]),
    text("cache").words(&["none", "writethrough", "writeback", "unsafe", "directsync"]),
    text("aio").words(&["native", "threads", "io_uring"]),
    text("discard").words(&["ignore", "on"]),
    text("rerror").words(&["ignore", "report", "stop"]),
    text("werror").words(&["enospc", "ignore", "report", "stop"]),
    text("serial").format("urlencoded").longest(60),
    flag("backup"),
    flag("detect_zeroes"),
    flag("replicate"),
    flag("shared"),
    flag("snapshot"),
];

const THROTTLE: &[Field] = &[
    whole("bps"),
    whole("bps_max_length").at_least(1),
    whole("bps_rd"),
    alias("bps_rd_length", "bps_rd_max_length"),
    whole("bps_rd_max_length").at_least(1),
    whole("bps_wr"),
    alias("bps_wr_length", "bps_wr_max_length"),
    whole("bps_wr_max_length").at_least(1),
    whole("iops"),
    whole("iops_max"),
    whole("iops_max_length").at_least(1),
    whole("iops_rd"),
    alias("iops_rd_length", "iops_rd_max_length"),
    whole("iops_rd_max"),
    whole("iops_rd_max_length").at_least(1),
    whole("iops_wr"),
    alias("iops_wr_length", "iops_wr_max_length"),
    whole("iops_wr_max"),
    whole("iops_wr_max_length").at_least(1),
    number("mbps"),
    number("mbps_max"),
    number("mbps_rd"),
    number("mbps_rd_max"),
    number("mbps_wr"),
    number("mbps_wr_max"),
];

const GEOMETRY: &[Field] = &[
    whole("cyls").only(Version::Eight),
    whole("heads").only(Version::Eight),
    whole("secs").only(Version::Eight),
    text("trans").words(&["none", "lba", "auto"]).only(Version::Eight),
];

const IMPORT: &[Field] = &[text("import-from").format("pve-volume-id-or-absolute-path")];
const MODEL: &[Field] = &[text("model").format("urlencoded").longest(120)];
const SOLID: &[Field] = &[flag("ssd"), text("wwn").pattern("(?:^(0x)[0-9a-fA-F]{16})")];
const THREADED: &[Field] = &[flag("iothread"), flag("ro")];
const SCSI_ONLY: &[Field] = &[
    text("vendor").pattern(r"[A-Za-z0-9\-_\s]{,8}"),
    text("product").pattern(r"[A-Za-z0-9\-_\s]{,16}"),
    whole("queues").at_least(2),
    flag("scsiblock"),
];

pub(super) const IDE: &[&[Field]] = &[DRIVE, THROTTLE, GEOMETRY, IMPORT, MODEL, SOLID];
pub(super) const CDROM: &[&[Field]] = &[DRIVE, THROTTLE, GEOMETRY, MODEL, SOLID];
pub(super) const SATA: &[&[Field]] = &[DRIVE, THROTTLE, GEOMETRY, IMPORT, SOLID];
pub(super) const SCSI: &[&[Field]] = &[DRIVE, THROTTLE, GEOMETRY, IMPORT, SOLID, THREADED, SCSI_ONLY];
pub(super) const VIRTIO: &[&[Field]] = &[DRIVE, THROTTLE, GEOMETRY, IMPORT, THREADED];

pub(super) const EFI_DISK: &[&[Field]] = &[
    &[
        FILE,
        alias("volume", "file"),
        SIZE,
        text("format").words(IMAGE_FORMATS),
        text("efitype").words(&["2m", "4m"]),
        text("ms-cert").words(&["2011", "2023", "2023w", "2023k"]),
        flag("pre-enrolled-keys"),
    ],
    IMPORT,
];

pub(super) const TPM_STATE: &[&[Field]] = &[
    &[
        FILE,
        alias("volume", "file"),
        SIZE,
        text("format").words(&["raw", "qcow2", "vmdk"]).only(Version::Nine),
        text("version").words(&["v1.2", "v2.0"]),
    ],
    IMPORT,
];

pub(super) const UNUSED: &[&[Field]] =
    &[&[text("file").required().default_key().format("pve-volume-id"), alias("volume", "file")]];

const fn network_model(name: &'static str) -> Field {
    alias(name, "macaddr").naming("model")
}

pub(super) const NET: &[&[Field]] = &[
    &[
        text("model").required().default_key().words(&[
            "e1000",
            "e1000-82540em",
            "e1000-82544gc",
            "e1000-82545em",
            "e1000e",
            "i82551",
            "i82557b",
            "i82559er",
            "ne2k_isa",
            "ne2k_pci",
            "pcnet",
            "rtl8139",
            "virtio",
            "vmxnet3",
        ]),
        text("macaddr").format("mac-addr"),
        text("bridge").format("pve-bridge-id"),
        flag("firewall"),
        flag("link_down"),
        whole("mtu").between(1, 65520),
        whole("queues").between(0, 64),
        number("rate").at_least(0),
        whole("tag").between(1, 4094),
        text("trunks").pattern(SET_OF_NUMBERS),
    ],
    &[
        network_model("e1000"),
        network_model("e1000-82540em"),
        network_model("e1000-82544gc"),
        network_model("e1000-82545em"),
        network_model("e1000e"),
        network_model("i82551"),
        network_model("i82557b"),
        network_model("i82559er"),
        network_model("ne2k_isa"),
        network_model("ne2k_pci"),
        network_model("pcnet"),
        network_model("rtl8139"),
        network_model("virtio"),
        network_model("vmxnet3"),
    ],
];

pub(super) const IP_CONFIG: &[&[Field]] = &[&[
    text("ip").format("pve-ipv4-config"),
    text("gw").format("ipv4").with("ip"),
    text("ip6").format("pve-ipv6-config"),
    text("gw6").format("ipv6").with("ip6"),
]];

pub(super) const NUMA: &[&[Field]] = &[&[
    text("cpus").required().pattern(SET_OF_NUMBERS),
    text("hostnodes").pattern(SET_OF_NUMBERS),
    number("memory"),
    text("policy").words(&["preferred", "bind", "interleave"]),
]];

const PCI_ID: &str = "0x[0-9a-fA-F]{4}";

pub(super) const HOST_PCI: &[&[Field]] = &[&[
    text("host").default_key(),
    text("mapping").format("pve-configid"),
    text("mdev").pattern(r"[^/\.:]+"),
    text("driver").words(&["vfio", "keep"]),
    text("romfile").pattern("[^,;]+"),
    text("device-id").pattern(PCI_ID),
    text("vendor-id").pattern(PCI_ID),
    text("sub-device-id").pattern(PCI_ID),
    text("sub-vendor-id").pattern(PCI_ID),
    flag("legacy-igd"),
    flag("pcie"),
    flag("rombar"),
    flag("x-vga"),
]];

pub(super) const USB: &[&[Field]] = &[&[
    text("host").default_key().pattern(
        r"(?:(?:(?:(?:(0x)?([0-9A-Fa-f]{4}):(0x)?([0-9A-Fa-f]{4})))|(?:(?:(\d+)\-(\d+(\.\d+)*)))|[Ss][Pp][Ii][Cc][Ee]))",
    ),
    text("mapping").format("pve-configid"),
    flag("usb3"),
]];

pub(super) const VIRTIO_FS: &[&[Field]] = &[&[
    text("dirid").required().default_key().format("pve-configid"),
    text("cache").words(&["auto", "always", "metadata", "never"]),
    flag("direct-io"),
    flag("expose-acl"),
    flag("expose-xattr"),
]];
