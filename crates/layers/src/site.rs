//! Where a castle stands: the same for every platform.

use std::ops::RangeInclusive;

use castle_proxmox::model::Role;
use castle_proxmox::steps::{Hardware, Image, Wanted};
use castle_spec::model::{Machine, Platform};
use castle_spec::{Castle, Node, Schematic};

/// How much of the schematic's id is in the name of an image: enough to tell it from any other.
const SCHEMATIC_DIGITS: usize = 12;

/// Where a castle stands, read from its file.
#[derive(Clone, Debug)]
pub struct Site {
    /// The hosts that may carry nodes, in the order of the file.
    pub hosts: Vec<String>,
    /// The numbers that belong to the castle.
    pub vmids: RangeInclusive<u32>,
    /// The storage of the images.
    pub images: String,
    /// The resource pool.
    pub pool: Option<String>,
    /// What all guests share.
    pub hardware: Hardware,
    /// The control plane that etcd begins on, in every life.
    pub etcd_begins_on: String,
    /// The numbers of the images, for each host.
    slots: Vec<[u32; 2]>,
    image_name: String,
    image_url: String,
    image_sha256: Option<String>,
}

impl Site {
    /// The site of a castle.
    #[must_use]
    pub fn of(castle: &Castle) -> Self {
        let range = castle.platform.vmids();
        let hosts: Vec<String> = castle.platform.hosts().iter().map(|host| host.to_string()).collect();
        let agent = castle.talos.extensions.iter().any(|extension| extension.as_str().ends_with("qemu-guest-agent"));
        let hardware = match &castle.platform.value {
            Platform::Proxmox(proxmox) => {
                let hardware = &proxmox.hardware;
                Hardware {
                    machine: match hardware.machine.value {
                        Machine::Q35 => "q35".to_owned(),
                        Machine::I440fx => "pc".to_owned(),
                    },
                    cpu: hardware.cpu.to_string(),
                    scsi_controller: hardware.scsi_controller.word().to_owned(),
                    iothread: hardware.iothread.value,
                    cloud_init_drive: hardware.cloud_init_drive.word().to_owned(),
                    iso: hardware.iso.as_ref().map(|iso| (iso.drive.word().to_owned(), iso.file.to_string())),
                    storage: proxmox.storage.disks.to_string(),
                    bridge: proxmox.bridge.to_string(),
                    vlan: proxmox.vlan.as_ref().map(|vlan| vlan.get()),
                    agent,
                }
            }
            Platform::Embedded(_) => Hardware {
                machine: "q35".to_owned(),
                cpu: "x86-64-v2-AES".to_owned(),
                scsi_controller: "virtio-scsi-pci".to_owned(),
                iothread: false,
                cloud_init_drive: "ide2".to_owned(),
                iso: None,
                storage: "local-lvm".to_owned(),
                bridge: "vmbr0".to_owned(),
                vlan: None,
                agent,
            },
        };
        let (images, pool) = match &castle.platform.value {
            Platform::Proxmox(proxmox) => {
                (proxmox.storage.images.to_string(), proxmox.pool.as_ref().map(|pool| pool.to_string()))
            }
            Platform::Embedded(_) => ("local".to_owned(), None),
        };
        let schematic = Schematic::of(&castle.talos).id();
        let schematic = schematic.get(..SCHEMATIC_DIGITS).unwrap_or(&schematic).to_owned();
        Self {
            etcd_begins_on: castle.first_control_plane(),
            slots: (0..hosts.len()).map(|host| castle.image_vmids(host)).collect(),
            hosts,
            vmids: range.first.0..=range.last.0,
            images,
            pool,
            hardware,
            image_name: format!("talos-{}-{schematic}", castle.talos.version.value),
            image_url: castle.image_url(),
            image_sha256: castle.talos.image.sha256.as_ref().map(|sum| sum.to_string()),
        }
    }

    /// A node as it is wanted on a host.
    #[must_use]
    pub fn wanted(&self, castle: &Castle, node: &Node, host: &str) -> Wanted {
        let network = &castle.network;
        Wanted {
            vmid: node.vmid.0,
            name: node.name.value.clone(),
            role: match node.role {
                castle_spec::Role::ControlPlane => Role::ControlPlane,
                castle_spec::Role::Worker => Role::Worker,
            },
            etcd_begins_on: (node.role == castle_spec::Role::ControlPlane).then(|| self.etcd_begins_on.clone()),
            host: host.to_owned(),
            pool: self.pool.clone(),
            cores: node.cores.value,
            memory: node.memory.mib(),
            system: node.disk.mib(),
            data: node.data_disk.as_ref().map(|disk| disk.mib()),
            mac: node.mac.to_string(),
            address: (node.address.value, network.cidr.prefix_len()),
            gateway: network.gateway.value,
            nameservers: network.nameservers.iter().map(|server| server.value).collect(),
            hardware: self.hardware.clone(),
        }
    }

    /// The image on the host of this index.
    #[must_use]
    pub fn image(&self, host: usize, can_link: bool, is_needed: bool) -> Option<Image> {
        Some(Image {
            name: self.image_name.clone(),
            url: self.image_url.clone(),
            sha256: self.image_sha256.clone(),
            host: self.hosts.get(host)?.clone(),
            slots: *self.slots.get(host)?,
            storage: self.images.clone(),
            pool: self.pool.clone(),
            hardware: self.hardware.clone(),
            can_link,
            is_needed,
        })
    }

    /// All numbers that images may have.
    pub fn image_vmids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().flatten().copied()
    }
}
