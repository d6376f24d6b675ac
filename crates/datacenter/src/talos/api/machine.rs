//! The service of machines: each call and where it is answered.

use castle_talos_api::common::Data;
use castle_talos_api::machine::machine_service_server::MachineService;
use castle_talos_api::machine::*;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use super::call::Caller;
use super::etcd::Needs;
use crate::world::World;

type Answer<T> = Result<Response<T>, Status>;

#[async_trait]
impl MachineService for Api {
    async fn apply_configuration(
        &self,
        request: Request<ApplyConfigurationRequest>,
    ) -> Answer<ApplyConfigurationResponse> {
        self.apply(request).await
    }

    async fn bootstrap(&self, request: Request<BootstrapRequest>) -> Answer<BootstrapResponse> {
        self.bootstrap_etcd(request).await
    }

    async fn containers(&self, request: Request<ContainersRequest>) -> Answer<ContainersResponse> {
        self.unary("Containers", request, |world, caller, asked| world.containers(caller.vmid, asked)).await
    }

    async fn dmesg(&self, request: Request<DmesgRequest>) -> Answer<BoxStream<Data>> {
        self.kernel_log(request).await
    }

    async fn etcd_alarm_disarm(&self, request: Request<()>) -> Answer<EtcdAlarmDisarmResponse> {
        self.unary_with("EtcdAlarmDisarm", Some(Needs::OwnQuorum), request, |world, caller, ()| {
            World::check_member(world, caller.vmid, "etcd alarm disarm")?;
            Ok(EtcdAlarmDisarmResponse { messages: vec![EtcdAlarmDisarm::default()] })
        })
        .await
    }

    async fn etcd_alarm_list(&self, request: Request<()>) -> Answer<EtcdAlarmListResponse> {
        self.unary_with("EtcdAlarmList", Some(Needs::OwnQuorum), request, |world, caller, ()| {
            World::check_member(world, caller.vmid, "etcd alarm list")?;
            Ok(EtcdAlarmListResponse { messages: vec![EtcdAlarm::default()] })
        })
        .await
    }

    async fn etcd_defragment(&self, request: Request<()>) -> Answer<EtcdDefragmentResponse> {
        self.unary_with("EtcdDefragment", Some(Needs::Own), request, |world, caller, ()| {
            World::check_member(world, caller.vmid, "etcd defragment")?;
            Ok(EtcdDefragmentResponse { messages: vec![EtcdDefragment::default()] })
        })
        .await
    }

    async fn etcd_forfeit_leadership(
        &self,
        request: Request<EtcdForfeitLeadershipRequest>,
    ) -> Answer<EtcdForfeitLeadershipResponse> {
        let needs = Some(Needs::Membership);
        self.unary_with("EtcdForfeitLeadership", needs, request, |world, caller, _| {
            world.forfeit_leadership(caller.vmid)
        })
        .await
    }

    async fn etcd_leave_cluster(&self, request: Request<EtcdLeaveClusterRequest>) -> Answer<EtcdLeaveClusterResponse> {
        let needs = Some(Needs::Leave);
        self.unary_with("EtcdLeaveCluster", needs, request, |world, caller, _| world.leave_etcd(caller.vmid)).await
    }

    async fn etcd_member_list(&self, request: Request<EtcdMemberListRequest>) -> Answer<EtcdMemberListResponse> {
        let needs = if request.get_ref().query_local { Needs::OwnLeader } else { Needs::AnyLeader };
        self.unary_with("EtcdMemberList", Some(needs), request, |world, caller, asked| {
            world.member_list(caller.vmid, asked.query_local)
        })
        .await
    }

    async fn etcd_recover(&self, request: Request<tonic::Streaming<Data>>) -> Answer<EtcdRecoverResponse> {
        self.admit("EtcdRecover", request).await?;
        Err(Status::unimplemented("the embedded node simulates no recovery of etcd"))
    }

    async fn etcd_remove_member_by_id(
        &self,
        request: Request<EtcdRemoveMemberByIdRequest>,
    ) -> Answer<EtcdRemoveMemberByIdResponse> {
        self.unary_with("EtcdRemoveMemberByID", Some(Needs::Any), request, |world, caller, asked| {
            world.remove_member_of(caller.vmid, asked.member_id)
        })
        .await
    }

    async fn etcd_snapshot(&self, request: Request<EtcdSnapshotRequest>) -> Answer<BoxStream<Data>> {
        self.snapshot(request).await
    }

    async fn etcd_status(&self, request: Request<()>) -> Answer<EtcdStatusResponse> {
        let needs = Some(Needs::Own);
        self.unary_with("EtcdStatus", needs, request, |world, caller, ()| world.etcd_status(caller.vmid)).await
    }

    async fn events(&self, request: Request<EventsRequest>) -> Answer<BoxStream<Event>> {
        self.event_stream(request).await
    }

    async fn generate_client_configuration(
        &self,
        request: Request<GenerateClientConfigurationRequest>,
    ) -> Answer<GenerateClientConfigurationResponse> {
        self.client_configuration(request).await
    }

    async fn hostname(&self, request: Request<()>) -> Answer<HostnameResponse> {
        self.unary("Hostname", request, |world, caller, ()| {
            let hostname =
                world.talos.nodes.get(&caller.vmid).map(super::super::node::Node::hostname).unwrap_or_default();
            Ok(HostnameResponse { messages: vec![Hostname { metadata: None, hostname }] })
        })
        .await
    }

    async fn kubeconfig(&self, request: Request<()>) -> Answer<BoxStream<Data>> {
        self.kubeconfig_archive(request).await
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<BoxStream<FileInfo>> {
        self.list_files(request).await
    }

    async fn load_avg(&self, request: Request<()>) -> Answer<LoadAvgResponse> {
        self.unary("LoadAvg", request, |_, _, ()| Ok(World::load())).await
    }

    async fn logs(&self, request: Request<LogsRequest>) -> Answer<BoxStream<Data>> {
        self.service_log(request).await
    }

    async fn logs_containers(&self, request: Request<()>) -> Answer<LogsContainersResponse> {
        self.unary("LogsContainers", request, |world, caller, ()| {
            let boot = world.talos.boot(caller.vmid);
            let ids = boot.map(|boot| boot.services.keys().map(|&id| id.to_owned()).collect()).unwrap_or_default();
            Ok(LogsContainersResponse { messages: vec![LogsContainer { metadata: None, ids }] })
        })
        .await
    }

    async fn memory(&self, request: Request<()>) -> Answer<MemoryResponse> {
        self.unary("Memory", request, |world, caller, ()| {
            let memtotal = world.node_memory(caller.vmid) >> 10;
            let meminfo =
                MemInfo { memtotal, memfree: memtotal / 2, memavailable: memtotal / 2, buffers: 0, cached: 0 };
            Ok(MemoryResponse { messages: vec![Memory { metadata: None, meminfo: Some(meminfo) }] })
        })
        .await
    }

    async fn meta_delete(&self, request: Request<MetaDeleteRequest>) -> Answer<MetaDeleteResponse> {
        self.unary("MetaDelete", request, |world, caller, asked| {
            let removed = world.talos.nodes.get_mut(&caller.vmid).and_then(|node| node.disk.meta.remove(&asked.key));
            removed.ok_or_else(|| Status::not_found("meta key was not found"))?;
            Ok(MetaDeleteResponse { messages: vec![MetaDelete::default()] })
        })
        .await
    }

    async fn meta_write(&self, request: Request<MetaWriteRequest>) -> Answer<MetaWriteResponse> {
        self.unary("MetaWrite", request, |world, caller, asked| {
            if let Some(node) = world.talos.nodes.get_mut(&caller.vmid) {
                node.disk.meta.insert(asked.key, asked.value.clone());
            }
            Ok(MetaWriteResponse { messages: vec![MetaWrite::default()] })
        })
        .await
    }

    async fn mounts(&self, request: Request<()>) -> Answer<MountsResponse> {
        self.unary("Mounts", request, |world, caller, ()| Ok(world.mounts(caller.vmid))).await
    }

    async fn read(&self, request: Request<ReadRequest>) -> Answer<BoxStream<Data>> {
        self.read_file(request).await
    }

    async fn reboot(&self, request: Request<RebootRequest>) -> Answer<RebootResponse> {
        self.unary("Reboot", request, |world, caller, _| {
            let actor_id = world.node_reboots(caller.vmid)?;
            Ok(RebootResponse { messages: vec![Reboot { metadata: None, actor_id }] })
        })
        .await
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Answer<ResetResponse> {
        self.unary("Reset", request, |world, caller, asked| {
            let actor_id = world.node_resets(caller.vmid, asked)?;
            Ok(ResetResponse { messages: vec![Reset { metadata: None, actor_id }] })
        })
        .await
    }

    async fn rollback(&self, request: Request<RollbackRequest>) -> Answer<RollbackResponse> {
        self.admit("Rollback", request).await?;
        Err(Status::unimplemented("the embedded node simulates no rollback"))
    }

    async fn service_list(&self, request: Request<()>) -> Answer<ServiceListResponse> {
        self.unary("ServiceList", request, |world, caller, ()| Ok(world.service_list(caller.vmid))).await
    }

    async fn service_restart(&self, request: Request<ServiceRestartRequest>) -> Answer<ServiceRestartResponse> {
        self.unary("ServiceRestart", request, |world, caller, asked| {
            let resp = world.restart_service(caller.vmid, &asked.id)?;
            Ok(ServiceRestartResponse { messages: vec![ServiceRestart { metadata: None, resp }] })
        })
        .await
    }

    async fn service_start(&self, request: Request<ServiceStartRequest>) -> Answer<ServiceStartResponse> {
        self.unary("ServiceStart", request, |world, caller: &Caller, asked| {
            let resp = world.start_service(caller.vmid, &asked.id)?;
            Ok(ServiceStartResponse { messages: vec![ServiceStart { metadata: None, resp }] })
        })
        .await
    }

    async fn service_stop(&self, request: Request<ServiceStopRequest>) -> Answer<ServiceStopResponse> {
        self.unary("ServiceStop", request, |world, caller, asked| {
            let resp = world.stop_service(caller.vmid, &asked.id)?;
            Ok(ServiceStopResponse { messages: vec![ServiceStop { metadata: None, resp }] })
        })
        .await
    }

    async fn shutdown(&self, request: Request<ShutdownRequest>) -> Answer<ShutdownResponse> {
        self.unary("Shutdown", request, |world, caller, _| {
            let actor_id = world.node_shuts_down(caller.vmid)?;
            Ok(ShutdownResponse { messages: vec![Shutdown { metadata: None, actor_id }] })
        })
        .await
    }

    async fn system_stat(&self, request: Request<()>) -> Answer<SystemStatResponse> {
        self.unary("SystemStat", request, |world, caller, ()| {
            let since = world.talos.boot(caller.vmid).map(|boot| boot.since).unwrap_or_default();
            let stat = SystemStat { boot_time: (world.calendar + since).as_secs(), ..SystemStat::default() };
            Ok(SystemStatResponse { messages: vec![stat] })
        })
        .await
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Answer<UpgradeResponse> {
        self.admit("Upgrade", request).await?;
        Err(Status::unimplemented("the embedded node simulates no upgrade"))
    }

    async fn version(&self, request: Request<()>) -> Answer<VersionResponse> {
        self.unary("Version", request, |world, caller, ()| {
            let node = world.talos.nodes.get(&caller.vmid).ok_or_else(|| Status::unavailable("no such node"))?;
            let text = |text: &str| text.to_owned();
            let version = VersionInfo {
                tag: node.image.version.clone(),
                sha: text("embedded"),
                built: String::new(),
                go_version: text("go1.26.8"),
                os: text("linux"),
                arch: node.image.arch.clone(),
            };
            let mode = if node.image.platform == "metal" { "metal" } else { "cloud" };
            let platform = PlatformInfo { name: node.image.platform.clone(), mode: text(mode) };
            let features = (!caller.is_maintenance).then_some(FeaturesInfo { rbac: true });
            let version = Version { metadata: None, version: Some(version), platform: Some(platform), features };
            Ok(VersionResponse { messages: vec![version] })
        })
        .await
    }
}
