//! Clients of nodes over the datacenter's own connections, and the nodes that they speak with.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use castle_datacenter::{Blueprint, CERTIFICATE_HEADER, Datacenter, Latencies, Stage};
use castle_seams::{Clock, Dial, Target};
use castle_talos_api::cluster::cluster_service_client::ClusterServiceClient;
use castle_talos_api::cosi::resource::GetRequest;
use castle_talos_api::cosi::resource::state_client::StateClient;
use castle_talos_api::machine::machine_service_client::MachineServiceClient;
use castle_talos_api::machine::{
    ApplyConfigurationRequest, BootstrapRequest, EtcdMember, EtcdMemberListRequest, ListRequest,
    apply_configuration_request,
};
use castle_talos_api::storage::storage_service_client::StorageServiceClient;
use castle_talos_api::time::time_service_client::TimeServiceClient;
use castle_testbed::VirtualClock;
use futures_util::StreamExt;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Status;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderValue, Request, Response, Uri};

use crate::castle::{Castle, Wanted};
use crate::site::{IMAGE, Site};

/// A way to one node: every call dials anew.
#[derive(Clone)]
pub(crate) struct Wire {
    dial: Arc<dyn Dial>,
    target: Target,
    certificate: Option<String>,
    /// The node that calls are passed on to.
    aims: Vec<String>,
}

impl Service<Request<tonic::body::Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let failed = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
            let stream = wire.dial.dial(&wire.target).await.map_err(|error| failed(&error))?;
            let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let shaken = builder.handshake(TokioIo::new(stream)).await;
            let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            if let Some(certificate) = &wire.certificate {
                request.headers_mut().insert(CERTIFICATE_HEADER, HeaderValue::from_str(certificate).unwrap());
            }
            for aim in &wire.aims {
                request.headers_mut().append("nodes", HeaderValue::from_str(aim).unwrap());
            }
            sender.send_request(request).await.map_err(|error| failed(&error))
        })
    }
}

/// A client of one node.
#[derive(Clone)]
pub(crate) struct Node {
    wire: Wire,
}

impl Node {
    pub(crate) fn new(datacenter: &Datacenter, address: &str, certificate: Option<&str>) -> Self {
        let (target, certificate) = (Target::new(address, 50_000), certificate.map(Into::into));
        Self { wire: Wire { dial: datacenter.dial(), target, certificate, aims: Vec::new() } }
    }

    /// The same, with calls passed on to these.
    pub(crate) fn aimed(&self, aims: &[&str]) -> Self {
        let aims = aims.iter().map(|&aim| aim.to_owned()).collect();
        Self { wire: Wire { aims, ..self.wire.clone() } }
    }

    /// The way itself, for calls that nobody has a word for.
    pub(crate) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    pub(crate) fn time(&self) -> TimeServiceClient<Wire> {
        TimeServiceClient::with_origin(self.wire.clone(), Self::origin())
    }

    fn origin() -> Uri {
        Uri::from_static("http://node")
    }

    pub(crate) fn machine(&self) -> MachineServiceClient<Wire> {
        MachineServiceClient::with_origin(self.wire.clone(), Self::origin())
    }

    pub(crate) fn state(&self) -> StateClient<Wire> {
        StateClient::with_origin(self.wire.clone(), Self::origin())
    }

    pub(crate) fn storage(&self) -> StorageServiceClient<Wire> {
        StorageServiceClient::with_origin(self.wire.clone(), Self::origin())
    }

    pub(crate) fn cluster(&self) -> ClusterServiceClient<Wire> {
        ClusterServiceClient::with_origin(self.wire.clone(), Self::origin())
    }

    pub(crate) async fn version(&self) -> Result<String, Status> {
        let answer = self.machine().version(()).await?.into_inner();
        Ok(answer.messages[0].version.clone().unwrap_or_default().tag)
    }

    /// Sends a configuration. Tells what was done with it.
    pub(crate) async fn apply(&self, text: &str, mode: apply_configuration_request::Mode) -> Result<String, Status> {
        let data = text.as_bytes().to_vec();
        let request = ApplyConfigurationRequest { data, mode: mode.into(), ..ApplyConfigurationRequest::default() };
        let answer = self.machine().apply_configuration(request).await?.into_inner();
        Ok(answer.messages[0].mode_details.clone())
    }

    pub(crate) async fn bootstrap(&self) -> Result<(), Status> {
        self.machine().bootstrap(BootstrapRequest::default()).await.map(|_| ())
    }

    /// The members of etcd, as any control plane tells them: within ten seconds, or not at all.
    pub(crate) async fn members(&self) -> Result<Vec<EtcdMember>, Status> {
        self.members_within(false, Duration::from_secs(10)).await
    }

    pub(crate) async fn members_within(&self, query_local: bool, time: Duration) -> Result<Vec<EtcdMember>, Status> {
        let mut request = tonic::Request::new(EtcdMemberListRequest { query_local });
        request.set_timeout(time);
        let answer = self.machine().etcd_member_list(request).await?.into_inner();
        Ok(answer.messages[0].members.clone())
    }

    /// What is in a folder, by its name relative to it.
    pub(crate) async fn files(&self, root: &str) -> Result<Vec<String>, Status> {
        let request = ListRequest { root: root.to_owned(), ..ListRequest::default() };
        let answers: Vec<_> = self.machine().list(request).await?.into_inner().collect().await;
        answers.into_iter().map(|file| file.map(|file| file.relative_name)).collect()
    }

    /// The state of a service, and the last thing that was said of it.
    pub(crate) async fn service(&self, id: &str) -> Option<(String, String)> {
        let answer = self.machine().service_list(()).await.ok()?.into_inner();
        let found = answer.messages[0].services.iter().find(|service| service.id == id)?.clone();
        let last = found.events.unwrap_or_default().events.pop().map(|event| event.msg).unwrap_or_default();
        Some((found.state, last))
    }

    /// What a resource says.
    pub(crate) async fn resource(&self, namespace: &str, kind: &str, id: &str) -> Result<String, Status> {
        let text = |text: &str| text.to_owned();
        let request = GetRequest { namespace: text(namespace), r#type: text(kind), id: text(id), options: None };
        let answer = self.state().get(request).await?.into_inner();
        Ok(answer.resource.unwrap_or_default().spec.unwrap_or_default().yaml_spec)
    }
}

pub(crate) const AUTO: apply_configuration_request::Mode = apply_configuration_request::Mode::Auto;

/// A datacenter with nodes of one castle.
pub(crate) struct Nodes {
    pub(crate) site: Site,
    pub(crate) clock: VirtualClock,
    pub(crate) castle: Castle,
    /// The addresses of the nodes; the first three are to be control planes.
    pub(crate) addresses: Vec<String>,
}

/// The number of the guest at an address.
pub(crate) fn vmid(address: &str) -> u32 {
    420 + address.rsplit('.').next().unwrap().parse::<u32>().unwrap()
}

impl Nodes {
    /// Guests of a template, switched on: at 10.0.0.1 and after.
    pub(crate) async fn raise(clock: &VirtualClock, blueprint: Blueprint, count: u32) -> Self {
        Self::raise_version(clock, blueprint, count, "v1.13.9").await
    }

    /// The same of another version of Talos.
    pub(crate) async fn raise_version(clock: &VirtualClock, blueprint: Blueprint, count: u32, version: &str) -> Self {
        let site = Site::new(blueprint, clock);
        let url = IMAGE.replace("v1.13.9", version);
        let image = [("content", "import"), ("filename", "talos.qcow2"), ("url", url.as_str())];
        assert_eq!(site.run("POST", "/nodes/pve/storage/local/download-url", &image).await, "OK");
        site.make_template("9000").await;
        let addresses: Vec<String> = (1..=count).map(|index| format!("10.0.0.{index}")).collect();
        let nodes = Self { site, clock: *clock, castle: Castle::new(40), addresses };
        join_all(nodes.addresses.iter().map(|address| nodes.clone_and_start(address))).await;
        nodes
    }

    async fn clone_and_start(&self, address: &str) {
        let (vmid, site) = (vmid(address).to_string(), &self.site);
        let name = format!("node-{}", address.rsplit('.').next().unwrap());
        let clone = [("newid", vmid.as_str()), ("name", &name)];
        let done = site.run("POST", "/nodes/pve/qemu/9000/clone", &clone).await;
        assert_eq!(done, "OK");
        let config = format!("/nodes/pve/qemu/{vmid}/config");
        let ip = format!("ip={address}/24,gw=10.0.0.254");
        site.put(&config, &[("ipconfig0", &ip)]).await;
        assert_eq!(site.run("POST", &format!("/nodes/pve/qemu/{vmid}/status/start"), &[]).await, "OK");
    }

    /// The same with nothing that takes time.
    pub(crate) async fn quick(clock: &VirtualClock, count: u32) -> Self {
        Self::raise(clock, Blueprint::embedded(&[]).with_latencies(Latencies::none()), count).await
    }

    pub(crate) fn datacenter(&self) -> &Datacenter {
        &self.site.datacenter
    }

    /// A client without a certificate.
    pub(crate) fn stranger(&self, index: usize) -> Node {
        Node::new(self.datacenter(), &self.addresses[index], None)
    }

    /// A client with the certificate of the administrator.
    pub(crate) fn admin(&self, index: usize) -> Node {
        Node::new(self.datacenter(), &self.addresses[index], Some(&self.castle.admin()))
    }

    /// Waits, at most ten minutes, until something holds.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
        let begun = self.clock.monotonic();
        while self.clock.monotonic() - begun < Duration::from_secs(600) {
            if holds().await {
                return self.clock.monotonic() - begun;
            }
            self.clock.sleep(Duration::from_millis(250)).await;
        }
        panic!("{what} does not come: {:#?}", self.datacenter().clusters());
    }

    pub(crate) fn stage(&self, index: usize) -> Option<Stage> {
        let address = &self.addresses[index];
        let nodes = self.datacenter().talos_nodes();
        nodes.iter().find(|node| node.vmid == vmid(address)).and_then(|node| node.stage)
    }

    /// Waits for maintenance, and gives every node its configuration.
    pub(crate) async fn configure(&self, wanted: &Wanted) {
        for index in 0..self.addresses.len() {
            self.until("maintenance", async || self.stage(index) == Some(Stage::Maintenance)).await;
            let config = self.castle.config(index < 3, wanted);
            self.stranger(index).apply(&config, AUTO).await.unwrap();
        }
    }

    /// Brings the cluster up until names resolve.
    pub(crate) async fn bring_up(&self, wanted: &Wanted) {
        self.configure(wanted).await;
        self.bring_up_configured().await;
    }

    /// The same, of nodes that have their configurations.
    pub(crate) async fn bring_up_configured(&self) {
        self.until("bootstrap", async || self.admin(0).bootstrap().await.is_ok()).await;
        self.until("everything", async || self.is_complete()).await;
    }

    pub(crate) fn is_complete(&self) -> bool {
        let Some(cluster) = self.datacenter().cluster("blue") else { return false };
        let voters = cluster.etcds.iter().flatten().filter(|member| !member.is_learner && member.is_up).count();
        let control_planes = self.addresses.len().min(3);
        voters == control_planes
            && cluster.nodes.len() == self.addresses.len()
            && cluster.nodes.values().all(|node| node.is_ready)
            && cluster.has_dns
            && (0..self.addresses.len()).all(|index| self.stage(index) == Some(Stage::Running))
    }
}
