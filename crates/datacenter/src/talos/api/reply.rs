//! Answers of several nodes in one.

use castle_talos_api::common::Metadata;
use castle_talos_api::google::rpc;
use castle_talos_api::{machine, storage, time};
use tonic::Status;

/// An answer that can be joined with those of other nodes.
pub(super) trait Reply: Sized {
    /// Says whose answer it is.
    fn label(&mut self, hostname: &str);

    /// Takes in the answer of another.
    fn join(&mut self, other: Self);

    /// The answer of one who refused, or did not answer.
    fn failed(hostname: &str, status: &Status) -> Self;
}

macro_rules! replies {
    ($($module:ident :: $response:ident of $message:ident,)*) => {$(
        impl Reply for $module::$response {
            fn label(&mut self, hostname: &str) {
                for message in &mut self.messages {
                    message.metadata.get_or_insert_default().hostname = hostname.to_owned();
                }
            }

            fn join(&mut self, other: Self) {
                self.messages.extend(other.messages);
            }

            fn failed(hostname: &str, status: &Status) -> Self {
                let mut message = $module::$message::default();
                message.metadata = Some(failure(hostname, status));
                Self { messages: vec![message] }
            }
        }
    )*};
}

replies! {
    machine::ApplyConfigurationResponse of ApplyConfiguration,
    machine::BootstrapResponse of Bootstrap,
    machine::ContainersResponse of Container,
    machine::EtcdAlarmDisarmResponse of EtcdAlarmDisarm,
    machine::EtcdAlarmListResponse of EtcdAlarm,
    machine::EtcdDefragmentResponse of EtcdDefragment,
    machine::EtcdForfeitLeadershipResponse of EtcdForfeitLeadership,
    machine::EtcdLeaveClusterResponse of EtcdLeaveCluster,
    machine::EtcdMemberListResponse of EtcdMembers,
    machine::EtcdRemoveMemberByIdResponse of EtcdRemoveMemberById,
    machine::EtcdStatusResponse of EtcdStatus,
    machine::GenerateClientConfigurationResponse of GenerateClientConfiguration,
    machine::HostnameResponse of Hostname,
    machine::LoadAvgResponse of LoadAvg,
    machine::LogsContainersResponse of LogsContainer,
    machine::MemoryResponse of Memory,
    machine::MetaDeleteResponse of MetaDelete,
    machine::MetaWriteResponse of MetaWrite,
    machine::MountsResponse of Mounts,
    machine::RebootResponse of Reboot,
    machine::ResetResponse of Reset,
    machine::ServiceListResponse of ServiceList,
    machine::ServiceRestartResponse of ServiceRestart,
    machine::ServiceStartResponse of ServiceStart,
    machine::ServiceStopResponse of ServiceStop,
    machine::ShutdownResponse of Shutdown,
    machine::SystemStatResponse of SystemStat,
    machine::VersionResponse of Version,
    storage::BlockDeviceWipeResponse of BlockDeviceWipe,
    storage::DisksResponse of Disks,
    time::TimeResponse of Time,
}

/// Resources are asked of one node at a time.
impl Reply for castle_talos_api::cosi::resource::GetResponse {
    fn label(&mut self, _: &str) {}

    fn join(&mut self, other: Self) {
        *self = other;
    }

    fn failed(_: &str, _: &Status) -> Self {
        Self::default()
    }
}

fn failure(hostname: &str, status: &Status) -> Metadata {
    let code = i32::from(status.code());
    Metadata {
        hostname: hostname.to_owned(),
        error: format!("rpc error: code = {:?} desc = {}", status.code(), status.message()),
        status: Some(rpc::Status { code, message: status.message().to_owned(), details: Vec::new() }),
    }
}
