//! The service of disks.

use castle_talos_api::storage::disk::DiskType;
use castle_talos_api::storage::storage_service_server::StorageService;
use castle_talos_api::storage::{
    BlockDeviceWipe, BlockDeviceWipeRequest, BlockDeviceWipeResponse, Disk, Disks, DisksResponse,
};
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use crate::talos::node::Stage;

#[async_trait]
impl StorageService for Api {
    async fn disks(&self, request: Request<()>) -> Result<Response<DisksResponse>, Status> {
        self.unary("Disks", request, |world, caller, ()| {
            let disks = world.block_devices(caller.vmid).into_iter().map(|device| Disk {
                size: device.size,
                model: device.model.to_owned(),
                device_name: format!("/dev/{}", device.name),
                name: device.name,
                serial: device.serial,
                modalias: "scsi:t-0x00".to_owned(),
                uuid: String::new(),
                wwid: device.wwid,
                r#type: if device.is_cdrom { DiskType::Cd } else { DiskType::Hdd }.into(),
                bus_path: device.bus_path,
                system_disk: device.is_system,
                subsystem: "/sys/class/block".to_owned(),
                readonly: device.is_cdrom,
            });
            Ok(DisksResponse { messages: vec![Disks { metadata: None, disks: disks.collect() }] })
        })
        .await
    }

    async fn block_device_wipe(
        &self,
        request: Request<BlockDeviceWipeRequest>,
    ) -> Result<Response<BlockDeviceWipeResponse>, Status> {
        self.unary("BlockDeviceWipe", request, |world, caller, asked| {
            let stage = world.talos.boot(caller.vmid).map(|boot| boot.stage);
            if stage != Some(Stage::Maintenance) && !caller.is_admin() {
                return Err(Status::permission_denied("not authorized"));
            }
            for wanted in &asked.devices {
                let device = world.block_devices(caller.vmid).into_iter().find(|device| device.name == wanted.device);
                let device =
                    device.ok_or_else(|| Status::not_found(format!("blockdevice {:?} not found", wanted.device)))?;
                if device.is_cdrom {
                    return Err(Status::failed_precondition(format!("blockdevice {:?} is read-only", wanted.device)));
                }
                if device.is_system && !wanted.skip_volume_check {
                    return Err(Status::failed_precondition(format!(
                        "blockdevice {:?} is in use by volume \"META\"",
                        wanted.device
                    )));
                }
                world.effect("wipe", format!("{} {}", caller.vmid, wanted.device));
            }
            Ok(BlockDeviceWipeResponse { messages: vec![BlockDeviceWipe::default()] })
        })
        .await
    }
}
