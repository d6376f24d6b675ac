//! A node that says what it is told to.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use castle_talos_api::common::{Data, Metadata};
use castle_talos_api::cosi::resource::state_server::State;
use castle_talos_api::cosi::resource::{
    self as cosi, GetRequest, GetResponse, ListRequest, ListResponse, WatchRequest,
};
use castle_talos_api::machine::machine_service_server::MachineService;
use castle_talos_api::machine::{self as words, ApplyConfigurationRequest, ResetRequest, apply_configuration_request};
use castle_talos_api::storage::storage_service_server::StorageService;
use castle_talos_api::storage::{Disk, Disks, DisksResponse};
use castle_talos_api::time::time_service_server::TimeService;
use castle_talos_api::time::{Time, TimeRequest, TimeResponse};
use castle_talos_api::{Timestamp, machine::ServiceEvent};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{Notify, mpsc};
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::{Stream, iter};
use tonic::{Code, Request, Response, Status};

/// What becomes of a call.
#[derive(Clone)]
pub(crate) enum Fate {
    /// Refused by this status.
    Status(Code, String),
    /// Never answered.
    Silence,
    /// The node dies while it is at it.
    Outage(Arc<Notify>),
    /// Answered with this in the metadata.
    Metadata(Metadata),
    /// Answered by nobody.
    Nobody,
}

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) fates: Mutex<BTreeMap<&'static str, Fate>>,
    /// What was asked, in order.
    pub(crate) asked: Mutex<Vec<&'static str>>,
    pub(crate) applied: Mutex<Option<ApplyConfigurationRequest>>,
    pub(crate) warnings: Mutex<Vec<String>>,
    pub(crate) reset: Mutex<Option<ResetRequest>>,
    pub(crate) watched: Mutex<Option<WatchRequest>>,
    /// What a watch tells, in order.
    pub(crate) news: Mutex<Option<mpsc::UnboundedReceiver<Result<cosi::WatchResponse, Status>>>>,
    pub(crate) resources: Mutex<BTreeMap<String, String>>,
    /// What its clock says, and what that of its time server does, in seconds since 1970.
    pub(crate) clock: Mutex<(i64, i64)>,
    /// What is read, in pieces.
    pub(crate) content: Mutex<Vec<Vec<u8>>>,
}

impl Fake {
    pub(crate) fn doom(&self, call: &'static str, fate: Fate) {
        self.fates.lock().unwrap().insert(call, fate);
    }

    pub(crate) fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The answers to a call: one, unless it is doomed.
    async fn answer<T>(&self, call: &'static str, make: impl FnOnce(Option<Metadata>) -> T) -> Result<Vec<T>, Status> {
        self.asked.lock().unwrap().push(call);
        let fate = self.fates.lock().unwrap().get(call).cloned();
        match fate {
            None => Ok(vec![make(None)]),
            Some(Fate::Metadata(metadata)) => Ok(vec![make(Some(metadata))]),
            Some(Fate::Nobody) => Ok(Vec::new()),
            Some(Fate::Status(code, message)) => Err(Status::new(code, message)),
            Some(Fate::Silence) => std::future::pending().await,
            Some(Fate::Outage(outage)) => {
                outage.notify_waiters();
                std::future::pending().await
            }
        }
    }
}

fn stream<T: Send + 'static>(items: Vec<T>) -> Response<BoxStream<T>> {
    let stream: BoxStream<T> = Box::pin(iter(items.into_iter().map(Ok)));
    Response::new(stream)
}

fn pieces(metadata: &Option<Metadata>, content: impl IntoIterator<Item = Vec<u8>>) -> Vec<Data> {
    content.into_iter().map(|bytes| Data { metadata: metadata.clone(), bytes }).collect()
}

/// A gzipped tar with one file, as a node packs its kubeconfig.
fn archive(name: &str, content: &str) -> Vec<u8> {
    let mut tar = vec![0; 512];
    tar[..name.len()].copy_from_slice(name.as_bytes());
    tar[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    tar[156] = b'0';
    tar.extend_from_slice(content.as_bytes());
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&tar).unwrap();
    packer.finish().unwrap()
}

#[tonic::async_trait]
impl MachineService for Fake {
    async fn version(&self, _: Request<()>) -> Result<Response<words::VersionResponse>, Status> {
        let version = words::VersionInfo { tag: "v1.13.9".into(), ..Default::default() };
        let make = |metadata| words::Version { metadata, version: Some(version), ..Default::default() };
        Ok(Response::new(words::VersionResponse { messages: self.answer("Version", make).await? }))
    }

    async fn service_list(&self, _: Request<()>) -> Result<Response<words::ServiceListResponse>, Status> {
        let health = words::ServiceHealth { healthy: true, ..Default::default() };
        let event = ServiceEvent { ts: Some(timestamp(self.clock.lock().unwrap().0)), ..Default::default() };
        let etcd = words::ServiceInfo {
            id: "etcd".into(),
            state: "Running".into(),
            health: Some(health),
            events: Some(words::ServiceEvents { events: vec![event] }),
        };
        let make = |metadata| words::ServiceList { metadata, services: vec![etcd] };
        Ok(Response::new(words::ServiceListResponse { messages: self.answer("ServiceList", make).await? }))
    }

    async fn etcd_member_list(
        &self,
        _: Request<words::EtcdMemberListRequest>,
    ) -> Result<Response<words::EtcdMemberListResponse>, Status> {
        let member =
            words::EtcdMember { id: u64::MAX, hostname: "cp-1".into(), is_learner: true, ..Default::default() };
        let make = |metadata| words::EtcdMembers { metadata, members: vec![member], ..Default::default() };
        Ok(Response::new(words::EtcdMemberListResponse { messages: self.answer("EtcdMemberList", make).await? }))
    }

    async fn etcd_status(&self, _: Request<()>) -> Result<Response<words::EtcdStatusResponse>, Status> {
        let status = words::EtcdMemberStatus { member_id: 7, leader: 7, ..Default::default() };
        let make = |metadata| words::EtcdStatus { metadata, member_status: Some(status) };
        Ok(Response::new(words::EtcdStatusResponse { messages: self.answer("EtcdStatus", make).await? }))
    }

    async fn kubeconfig(&self, _: Request<()>) -> Result<Response<BoxStream<Data>>, Status> {
        let packed = archive("kubeconfig", "apiVersion: v1\n");
        let (first, second) = packed.split_at(20);
        let made = self.answer("Kubeconfig", |metadata| pieces(&metadata, [first.to_vec(), second.to_vec()])).await?;
        Ok(stream(made.into_iter().flatten().collect()))
    }

    async fn read(&self, request: Request<words::ReadRequest>) -> Result<Response<BoxStream<Data>>, Status> {
        let content = match request.into_inner().path.as_str() {
            "/proc/sys/kernel/random/boot_id" => vec![b"0f1e-2d3c\n".to_vec()],
            _ => self.content.lock().unwrap().clone(),
        };
        let made = self.answer("Read", |metadata| pieces(&metadata, content)).await?;
        Ok(stream(made.into_iter().flatten().collect()))
    }

    async fn apply_configuration(
        &self,
        request: Request<ApplyConfigurationRequest>,
    ) -> Result<Response<words::ApplyConfigurationResponse>, Status> {
        *self.applied.lock().unwrap() = Some(request.into_inner());
        let mode = apply_configuration_request::Mode::NoReboot.into();
        let warnings = self.warnings.lock().unwrap().clone();
        let make = |metadata| words::ApplyConfiguration { metadata, mode, warnings, ..Default::default() };
        let messages = self.answer("ApplyConfiguration", make).await?;
        Ok(Response::new(words::ApplyConfigurationResponse { messages }))
    }

    async fn bootstrap(
        &self,
        _: Request<words::BootstrapRequest>,
    ) -> Result<Response<words::BootstrapResponse>, Status> {
        let messages = self.answer("Bootstrap", |metadata| words::Bootstrap { metadata }).await?;
        Ok(Response::new(words::BootstrapResponse { messages }))
    }

    async fn reboot(&self, _: Request<words::RebootRequest>) -> Result<Response<words::RebootResponse>, Status> {
        let make = |metadata| words::Reboot { metadata, actor_id: String::new() };
        Ok(Response::new(words::RebootResponse { messages: self.answer("Reboot", make).await? }))
    }

    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<words::ResetResponse>, Status> {
        *self.reset.lock().unwrap() = Some(request.into_inner());
        let make = |metadata| words::Reset { metadata, actor_id: String::new() };
        Ok(Response::new(words::ResetResponse { messages: self.answer("Reset", make).await? }))
    }
}

#[tonic::async_trait]
impl StorageService for Fake {
    async fn disks(&self, _: Request<()>) -> Result<Response<DisksResponse>, Status> {
        let disk = Disk { device_name: "/dev/vda".into(), size: 1 << 40, ..Default::default() };
        let messages = self.answer("Disks", |metadata| Disks { metadata, disks: vec![disk] }).await?;
        Ok(Response::new(DisksResponse { messages }))
    }
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

#[tonic::async_trait]
impl TimeService for Fake {
    async fn time(&self, _: Request<()>) -> Result<Response<TimeResponse>, Status> {
        let (local, remote) = *self.clock.lock().unwrap();
        let (localtime, remotetime) = (Some(timestamp(local)), Some(timestamp(remote)));
        let make = |metadata| Time { metadata, server: "time.lan".into(), localtime, remotetime };
        Ok(Response::new(TimeResponse { messages: self.answer("Time", make).await? }))
    }

    async fn time_check(&self, _: Request<TimeRequest>) -> Result<Response<TimeResponse>, Status> {
        Err(Status::unimplemented("nobody asks for that"))
    }
}

pub(crate) fn resource(id: &str, yaml: &str) -> cosi::Resource {
    let metadata = cosi::Metadata { id: id.into(), version: "3".into(), phase: "running".into(), ..Default::default() };
    let spec = cosi::Spec { yaml_spec: yaml.into(), ..Default::default() };
    cosi::Resource { metadata: Some(metadata), spec: Some(spec) }
}

#[tonic::async_trait]
impl State for Fake {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.answer("Get", |_| ()).await?;
        let GetRequest { namespace, r#type: kind, id, .. } = request.into_inner();
        let resources = self.resources.lock().unwrap();
        let yaml = resources.get(&format!("{namespace}/{kind}/{id}")).ok_or_else(|| Status::not_found("no"))?;
        Ok(Response::new(GetResponse { resource: Some(resource(&id, yaml)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<BoxStream<ListResponse>>, Status> {
        self.answer("List", |_| ()).await?;
        let ListRequest { namespace, r#type: kind, .. } = request.into_inner();
        let kind = format!("{namespace}/{kind}/");
        let resources = self.resources.lock().unwrap();
        let found = resources.iter().filter_map(|(name, yaml)| Some((name.strip_prefix(&kind)?, yaml)));
        let found = found.map(|(id, yaml)| ListResponse { resource: Some(resource(id, yaml)) });
        Ok(stream(found.collect()))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<BoxStream<cosi::WatchResponse>>, Status> {
        self.answer("Watch", |_| ()).await?;
        *self.watched.lock().unwrap() = Some(request.into_inner());
        let news = self.news.lock().unwrap().take().unwrap();
        let stream: BoxStream<cosi::WatchResponse> = Box::pin(News(news));
        Ok(Response::new(stream))
    }
}

/// A channel as a stream.
struct News<T>(mpsc::UnboundedReceiver<T>);

impl<T> Stream for News<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
