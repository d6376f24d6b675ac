//! Calls that castle does not make but people do, and those that are not there.

use castle_talos_api::common::ContainerDriver;
use castle_talos_api::machine::{
    Container, ContainerInfo, ContainersRequest, ContainersResponse, LoadAvg, LoadAvgResponse, MountStat, Mounts,
    MountsResponse,
};
use tonic::Status;

use super::Api;
use crate::talos::services::pid;
use crate::talos::volumes;
use crate::world::World;

/// The calls of the service of machines that a node has and this one does not.
const ABSENT: [&str; 16] = [
    "CPUFreqStats",
    "CPUInfo",
    "Copy",
    "DiskStats",
    "DiskUsage",
    "EtcdDowngradeCancel",
    "EtcdDowngradeEnable",
    "EtcdDowngradeValidate",
    "ImageList",
    "ImagePull",
    "NetworkDeviceStats",
    "Netstat",
    "PacketCapture",
    "Processes",
    "Restart",
    "Stats",
];

/// The calls that it has.
const PRESENT: [&str; 38] = [
    "ApplyConfiguration",
    "Bootstrap",
    "Containers",
    "Dmesg",
    "EtcdAlarmDisarm",
    "EtcdAlarmList",
    "EtcdDefragment",
    "EtcdForfeitLeadership",
    "EtcdLeaveCluster",
    "EtcdMemberList",
    "EtcdRecover",
    "EtcdRemoveMemberByID",
    "EtcdSnapshot",
    "EtcdStatus",
    "Events",
    "GenerateClientConfiguration",
    "Hostname",
    "Kubeconfig",
    "List",
    "LoadAvg",
    "Logs",
    "LogsContainers",
    "Memory",
    "MetaDelete",
    "MetaWrite",
    "Mounts",
    "Read",
    "Reboot",
    "Reset",
    "Rollback",
    "ServiceList",
    "ServiceRestart",
    "ServiceStart",
    "ServiceStop",
    "Shutdown",
    "SystemStat",
    "Upgrade",
    "Version",
];

impl Api {
    /// What is said of a call of the service of machines that is not there.
    pub(super) fn absent(path: &str) -> Option<Status> {
        let method = path.strip_prefix("/machine.MachineService/")?;
        if PRESENT.contains(&method) {
            return None;
        }
        Some(Status::unimplemented(if ABSENT.contains(&method) {
            format!("the embedded node simulates no {method}")
        } else {
            format!("unknown method {method} for service machine.MachineService")
        }))
    }
}

/// The namespace of the containers of Pods.
pub(super) const KUBERNETES: &str = "k8s.io";

/// Refuses what no containers are looked for in.
pub(super) fn check_place(namespace: &str, driver: i32) -> Result<(), Status> {
    match ContainerDriver::try_from(driver) {
        _ if namespace.is_empty() => Err(Status::invalid_argument("namespace can't be empty")),
        Ok(ContainerDriver::Cri) if namespace != KUBERNETES => {
            Err(Status::unknown("CRI inspector is supported only for K8s namespace"))
        }
        Ok(_) => Ok(()),
        Err(_) => Err(Status::invalid_argument(format!("unsupported driver \"{driver}\""))),
    }
}

impl World {
    /// How much memory a node has, in bytes.
    pub(super) fn node_memory(&self, vmid: u32) -> u64 {
        let mebibytes = self.guests.get(&vmid).and_then(|guest| guest.get("memory")?.parse::<u64>().ok());
        mebibytes.unwrap_or(512) << 20
    }

    /// The containers of the system; those of Kubernetes are told by its own API alone.
    pub(super) fn containers(&self, vmid: u32, asked: &ContainersRequest) -> Result<ContainersResponse, Status> {
        check_place(&asked.namespace, asked.driver)?;
        if asked.namespace == KUBERNETES {
            return Err(Status::unimplemented(format!("the embedded node simulates no containers of {KUBERNETES}")));
        }
        let services = self.talos.boot(vmid).map(|boot| &boot.services);
        let running = services.into_iter().flatten().filter(|(id, service)| {
            asked.namespace == "system" && ["apid", "trustd"].contains(*id) && service.state == "Running"
        });
        let say = |id: &str| ContainerInfo {
            namespace: "system".to_owned(),
            id: id.to_owned(),
            internal_id: id.to_owned(),
            pid: pid(id),
            status: "RUNNING".to_owned(),
            pod_id: id.to_owned(),
            name: id.to_owned(),
            ..ContainerInfo::default()
        };
        let containers = running.map(|(id, _)| say(id)).collect();
        Ok(ContainersResponse { messages: vec![Container { metadata: None, containers }] })
    }

    pub(super) fn load() -> LoadAvgResponse {
        let load = LoadAvg { metadata: None, load1: 0.5, load5: 0.4, load15: 0.3 };
        LoadAvgResponse { messages: vec![load] }
    }

    pub(super) fn mounts(&self, vmid: u32) -> MountsResponse {
        let disks = self.block_devices(vmid);
        let volumes = self.talos.boot(vmid).map(|boot| volumes::all(boot, &disks)).unwrap_or_default();
        let placed = volumes.iter().filter_map(|(id, said)| {
            let mounted_on = match id.as_str() {
                "STATE" => "/system/state".to_owned(),
                "EPHEMERAL" => "/var".to_owned(),
                id => format!("/var/mnt/{}", id.strip_prefix("u-")?),
            };
            let filesystem = said["mountLocation"].as_str().or(said["location"].as_str())?.to_owned();
            let size = said["size"].as_u64()?;
            Some(MountStat { filesystem, size, available: size / 2, mounted_on })
        });
        MountsResponse { messages: vec![Mounts { metadata: None, stats: placed.collect() }] }
    }
}
