//! The disks of a guest, as the kernel inside names them.

use crate::proxmox::drive::{Drive, boot_disk};
use crate::world::World;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    /// `sda`.
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) serial: String,
    pub(crate) wwid: String,
    pub(crate) model: &'static str,
    /// `virtio`, `sata`, `ide`.
    pub(crate) transport: &'static str,
    pub(crate) bus_path: String,
    pub(crate) is_system: bool,
    pub(crate) is_cdrom: bool,
}

impl World {
    /// The disks of a guest, in the order in which the kernel finds them.
    pub(crate) fn block_devices(&self, vmid: u32) -> Vec<BlockDevice> {
        let Some(guest) = self.guests.get(&vmid) else { return Vec::new() };
        let system = boot_disk(&guest.config).map(|drive| drive.file);
        let mut devices = Vec::new();
        let (mut scsi, mut virtio, mut roms) = (0_u8, 0_u8, 0_u8);
        let letter = |count: &mut u8| {
            let letter = (b'a' + (*count).min(25)) as char;
            *count += 1;
            letter
        };
        for family in ["virtio", "scsi", "sata", "ide"] {
            for number in 0..31_u32 {
                let key = format!("{family}{number}");
                let Some(drive) = Drive::of(&guest.config, &key) else { continue };
                let is_cdrom = drive.is_cdrom() || drive.is_cloud_init();
                let serial = drive.options.get("serial").cloned().unwrap_or_default();
                let (name, transport) = match family {
                    _ if is_cdrom => {
                        roms += 1;
                        (format!("sr{}", roms - 1), "ata")
                    }
                    "virtio" => (format!("vd{}", letter(&mut virtio)), "virtio"),
                    "scsi" => (format!("sd{}", letter(&mut scsi)), "virtio"),
                    other => (format!("sd{}", letter(&mut scsi)), if other == "sata" { "sata" } else { "ata" }),
                };
                let label = if serial.is_empty() { format!("drive-{key}") } else { serial.clone() };
                let stored = self.stores.get(&guest.host, &drive.file).map(|volume| volume.size);
                devices.push(BlockDevice {
                    size: stored.unwrap_or_else(|| drive.size()),
                    wwid: if is_cdrom { String::new() } else { format!("t10.QEMU    QEMU HARDDISK   {label}") },
                    model: if is_cdrom { "QEMU DVD-ROM" } else { "QEMU HARDDISK" },
                    bus_path: format!("/pci0000:00/0000:00:05.0/{family}/{number}"),
                    is_system: system.as_ref() == Some(&drive.file),
                    name,
                    serial,
                    transport,
                    is_cdrom,
                });
            }
        }
        devices
    }
}
