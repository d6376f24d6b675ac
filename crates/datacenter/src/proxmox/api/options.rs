//! The options of a guest, by theme: what create and config take.

use super::Version::{Eight, Nine};
use super::devices;
use super::field::{Field, alias, flag, number, text, whole};

/// Every option of a guest.
pub(super) const ALL: &[&[Field]] = &[GENERAL, PROCESSOR, MEMORY, BOOT, HARDWARE, DRIVES, DEVICES, CLOUD_INIT];

pub(super) const GENERAL: &[Field] = &[
    text("name").format("dns-name"),
    text("description").longest(8192),
    text("tags").format("pve-tag-list"),
    text("ostype").words(&[
        "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris",
    ]),
    text("lock").words(&[
        "backup",
        "clone",
        "create",
        "migrate",
        "rollback",
        "snapshot",
        "snapshot-delete",
        "suspending",
        "suspended",
    ]),
    text("agent").keys(AGENT),
    text("startup").format("pve-startup-order"),
    text("startdate").pattern(r"(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)"),
    text("hotplug").format("pve-hotplug-features"),
    text("hookscript").format("pve-volume-id"),
    text("vmstatestorage").format("pve-storage-id"),
    text("args"),
    number("migrate_downtime").at_least(0),
    whole("migrate_speed").at_least(0),
    flag("autostart"),
    flag("freeze"),
    flag("localtime"),
    flag("onboot"),
    flag("protection"),
    flag("reboot"),
    flag("tdf"),
    flag("template"),
];

const AGENT: &[&[Field]] = &[&[
    flag("enabled").required().default_key(),
    flag("freeze-fs").only(Nine),
    alias("freeze-fs-on-backup", "freeze-fs").only(Nine),
    alias("guest-fsfreeze", "freeze-fs").only(Nine),
    flag("freeze-fs-on-backup").only(Eight),
    flag("fstrim_cloned_disks"),
    text("type").words(&["virtio", "isa"]),
]];

pub(super) const PROCESSOR: &[Field] = &[
    text("cpu").keys(&[&[
        text("cputype").default_key(),
        text("flags").pattern(r"[+-][a-zA-Z0-9\-_.]+(?:;[+-][a-zA-Z0-9\-_.]+)*"),
        whole("guest-phys-bits").between(32, 64),
        flag("hidden"),
        text("hv-vendor-id").pattern("[a-zA-Z0-9]{1,12}"),
        whole("level").between(0, 4_294_967_295),
        text("phys-bits").format("pve-phys-bits"),
        text("reported-model"),
    ]]),
    whole("cores").at_least(1),
    whole("sockets").at_least(1),
    whole("smp").at_least(1),
    whole("vcpus").at_least(1),
    number("cpulimit").between(0, 128),
    whole("cpuunits").between(1, 262_144),
    text("affinity").format("pve-cpuset"),
    text("arch").words(&["x86_64", "aarch64"]),
    flag("kvm"),
    flag("numa"),
    text("numa").up_to(7).keys(devices::NUMA),
    text("amd-sev").keys(&[&[
        text("type").required().default_key().words(&["std", "es", "snp"]),
        flag("allow-smt"),
        flag("kernel-hashes"),
        flag("no-debug"),
        flag("no-key-sharing"),
    ]]),
    text("intel-tdx").only(Nine).keys(&[&[
        text("type").required().default_key().words(&["tdx"]),
        flag("attestation").required(),
        whole("vsock-cid").at_least(2),
        whole("vsock-port").at_least(0),
    ]]),
];

pub(super) const MEMORY: &[Field] = &[
    text("memory").keys(&[&[whole("current").required().default_key().at_least(16)]]),
    whole("balloon").at_least(0),
    whole("shares").between(0, 50_000),
    text("hugepages").words(&["any", "2", "1024"]),
    flag("keephugepages"),
    flag("allow-ksm").only(Nine),
    text("ivshmem").keys(&[&[whole("size").required().at_least(1), text("name").pattern(r"[a-zA-Z0-9\-]+")]]),
];

pub(super) const BOOT: &[Field] = &[
    text("bios").words(&["seabios", "ovmf"]),
    text("boot")
        .keys(&[&[text("legacy").default_key().pattern("[acdn]{1,4}"), text("order").format("pve-qm-bootdev-list")]]),
    text("bootdisk").format("pve-qm-bootdisk").pattern(r"(ide|sata|scsi|virtio)\d+"),
    text("smbios1").longest(512).keys(&[&[
        text("uuid").pattern("[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}"),
        flag("base64"),
        text("family").pattern(BASE64),
        text("manufacturer").pattern(BASE64),
        text("product").pattern(BASE64),
        text("serial").pattern(BASE64),
        text("sku").pattern(BASE64),
        text("version").pattern(BASE64),
    ]]),
    text("vmgenid").pattern("(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])"),
];

const BASE64: &str = r"[A-Za-z0-9+\/]+={0,2}";

/// The board, which can also be chosen at start.
pub(super) const MACHINE: Field = text("machine").keys(&[&[
    text("type").default_key().longest(40).pattern(
        r"(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?)",
    ),
    number("aw-bits").between(32, 64).only(Nine),
    flag("enable-s3"),
    flag("enable-s4"),
    text("viommu").words(&["intel", "virtio"]),
]]);

pub(super) const HARDWARE: &[Field] = &[
    MACHINE,
    text("scsihw").words(&["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"]),
    text("vga").keys(&[&[
        text("type").default_key().words(&[
            "cirrus",
            "qxl",
            "qxl2",
            "qxl3",
            "qxl4",
            "none",
            "serial0",
            "serial1",
            "serial2",
            "serial3",
            "std",
            "virtio",
            "virtio-gl",
            "vmware",
        ]),
        text("clipboard").words(&["vnc"]),
        whole("memory").between(4, 512),
    ]]),
    text("keyboard").words(&[
        "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is", "it", "ja",
        "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
    ]),
    text("watchdog").keys(&[&[
        text("model").default_key().words(&["i6300esb", "ib700"]),
        text("action").words(&["reset", "shutdown", "poweroff", "pause", "debug", "none"]),
    ]]),
    text("rng0").keys(&[&[
        text("source").required().default_key().words(&["/dev/urandom", "/dev/random", "/dev/hwrng"]),
        whole("max_bytes"),
        whole("period"),
    ]]),
    text("audio0").keys(&[&[
        text("device").required().words(&["ich9-intel-hda", "intel-hda", "AC97"]),
        text("driver").words(&["spice", "none"]),
    ]]),
    text("spice_enhancements")
        .keys(&[&[flag("foldersharing"), text("videostreaming").words(&["off", "all", "filter"])]]),
    flag("acpi"),
    flag("tablet"),
];

pub(super) const DRIVES: &[Field] = &[
    text("ide").up_to(3).keys(devices::IDE),
    text("sata").up_to(5).keys(devices::SATA),
    text("scsi").up_to(30).keys(devices::SCSI),
    text("virtio").up_to(15).keys(devices::VIRTIO),
    text("efidisk0").keys(devices::EFI_DISK),
    text("tpmstate0").keys(devices::TPM_STATE),
    text("unused").up_to(255).keys(devices::UNUSED),
    text("cdrom").keys(devices::CDROM),
];

pub(super) const DEVICES: &[Field] = &[
    text("net").up_to(31).keys(devices::NET),
    text("hostpci").up_to(15).keys(devices::HOST_PCI),
    text("usb").up_to(13).keys(devices::USB),
    text("virtiofs").up_to(9).keys(devices::VIRTIO_FS),
    text("parallel").up_to(2).pattern(r"/dev/parport\d+|/dev/usb/lp\d+"),
    text("serial").up_to(3).pattern("(/dev/[^,]+|socket)").only(Nine),
    text("serial").up_to(3).pattern("(/dev/.+|socket)").only(Eight),
];

pub(super) const CLOUD_INIT: &[Field] = &[
    text("ipconfig").up_to(31).keys(devices::IP_CONFIG),
    text("nameserver").format("address-list"),
    text("searchdomain"),
    text("sshkeys").format("urlencoded"),
    text("ciuser"),
    text("cipassword"),
    text("citype").words(&["configdrive2", "nocloud", "opennebula"]),
    flag("ciupgrade"),
    text("cicustom").keys(&[&[
        text("meta").format("pve-volume-id"),
        text("network").format("pve-volume-id"),
        text("user").format("pve-volume-id"),
        text("vendor").format("pve-volume-id"),
    ]]),
];
