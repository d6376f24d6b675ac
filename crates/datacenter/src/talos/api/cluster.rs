//! The service of clusters: is everything as it should be?

use std::collections::VecDeque;
use std::time::Duration;

use castle_talos_api::cluster::cluster_service_server::ClusterService;
use castle_talos_api::cluster::{HealthCheckProgress, HealthCheckRequest};
use castle_talos_api::common::Metadata;
use futures_util::stream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use crate::talos::node::Stage;
use crate::world::World;

/// A check: what is waited for, and what is still missing.
type Check = (&'static str, fn(&World, &Wanted) -> Option<String>);

/// The nodes that are looked at.
struct Wanted {
    key: String,
    control_planes: Vec<u32>,
    all: Vec<u32>,
}

/// The checks, in the vendor's order.
const CHECKS: &[Check] = &[
    ("etcd to be healthy", |world, wanted| {
        missing(&wanted.control_planes, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.is_healthy("etcd")))
    }),
    ("etcd members to be consistent across nodes", |world, wanted| {
        let etcd = wanted.control_planes.first().and_then(|vmid| world.membership(*vmid)).map(|(etcd, _)| etcd);
        missing(&wanted.control_planes, |vmid| world.membership(vmid).map(|(etcd, _)| etcd) == etcd)
    }),
    ("etcd members to be control plane nodes", |world, wanted| {
        missing(&wanted.control_planes, |vmid| world.membership(vmid).is_some())
    }),
    ("apid to be ready", |world, wanted| {
        missing(&wanted.all, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.apid.is_some()))
    }),
    ("all nodes memory sizes", |_, _| None),
    ("all nodes disk sizes", |_, _| None),
    ("no diagnostics", |world, wanted| {
        missing(&wanted.all, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.is_synced))
    }),
    ("kubelet to be healthy", |world, wanted| {
        missing(&wanted.all, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.is_healthy("kubelet")))
    }),
    ("all nodes to finish boot sequence", |world, wanted| {
        missing(&wanted.all, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.stage == Stage::Running))
    }),
    ("all k8s nodes to report", |world, wanted| missing(&wanted.all, |vmid| kube(world, wanted, vmid).is_some())),
    ("all control plane static pods to be running", |world, wanted| {
        missing(&wanted.control_planes, |vmid| world.talos.boot(vmid).is_some_and(|boot| boot.runs_apiserver))
    }),
    ("all control plane components to be ready", |world, wanted| {
        missing(&wanted.control_planes, |vmid| world.is_api_ready(vmid))
    }),
    ("all k8s nodes to report ready", |world, wanted| {
        missing(&wanted.all, |vmid| kube(world, wanted, vmid) == Some(true))
    }),
    ("kube-proxy to report ready", |world, wanted| {
        missing(&wanted.all, |vmid| kube(world, wanted, vmid) == Some(true))
    }),
    ("coredns to report ready", |world, wanted| {
        let has_dns = world.talos.clusters.get(&wanted.key).is_some_and(|cluster| cluster.has_dns);
        (!has_dns).then(|| {
            "no ready pods found for namespace \"kube-system\" and label selector \"k8s-app=kube-dns\"".to_owned()
        })
    }),
    ("all k8s nodes to report schedulable", |_, _| None),
];

/// Whether a node is one of Kubernetes, and ready.
fn kube(world: &World, wanted: &Wanted, vmid: u32) -> Option<bool> {
    let nodes = &world.talos.clusters.get(&wanted.key)?.nodes;
    nodes.values().find(|node| node.vmid == vmid).map(|node| node.is_ready)
}

fn missing(vmids: &[u32], mut is_fine: impl FnMut(u32) -> bool) -> Option<String> {
    let missing: Vec<String> = vmids.iter().filter(|vmid| !is_fine(**vmid)).map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| format!("missing on {}", missing.join(", ")))
}

/// A run of the checks.
struct Run {
    api: Api,
    wanted: Wanted,
    until: Duration,
    check: usize,
    said: String,
    ready: VecDeque<String>,
    metadata: Option<Metadata>,
}

impl Run {
    async fn next(mut self) -> Option<(Result<HealthCheckProgress, Status>, Self)> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some((Ok(HealthCheckProgress { metadata: self.metadata.clone(), message }), self));
            }
            let (what, check) = *CHECKS.get(self.check)?;
            let (until, door) = (self.until, self.api.door);
            let found = self.api.datacenter.until(|world| {
                if !world.is_open(door) {
                    return Some(None);
                }
                let found = check(world, &self.wanted);
                // That it is looked at is told first.
                let begun = format!("waiting for {what}: ...");
                let is_new = !self.said.starts_with(&format!("waiting for {what}:"));
                if is_new {
                    return Some(Some((begun, false, false)));
                }
                let line = format!("waiting for {what}: {}", found.as_deref().unwrap_or("OK"));
                let is_over = world.now >= until && found.is_some();
                (line != self.said || is_over).then_some(Some((line, found.is_none(), is_over)))
            });
            let (line, is_done, is_over) = found.await?;
            if is_over {
                self.check = CHECKS.len();
                return Some((Err(Status::deadline_exceeded("context deadline exceeded")), self));
            }
            self.check += usize::from(is_done);
            self.said.clone_from(&line);
            self.ready.push_back(line);
        }
    }
}

#[async_trait]
impl ClusterService for Api {
    async fn health_check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckProgress>>, Status> {
        let (caller, asked) = self.admit_one("HealthCheck", request).await?;
        let run = {
            let world = self.datacenter.world();
            world.check_control_plane(caller.vmid, "cluster health check")?;
            let key = world.talos.nodes.get(&caller.vmid).and_then(|node| node.config()).map(|it| it.key.clone());
            let key = key.unwrap_or_default();
            let told = asked.cluster_info.unwrap_or_default();
            let named = |names: &[String]| -> Vec<u32> {
                names.iter().filter_map(|name| world.node_at(name.parse().ok()?)).collect()
            };
            let (control_planes, workers) = (named(&told.control_plane_nodes), named(&told.worker_nodes));
            let is_told = !control_planes.is_empty() || !workers.is_empty();
            let all = if is_told { [control_planes, workers].concat() } else { world.nodes_of(&key) };
            let is_control_plane =
                |vmid: &u32| world.talos.nodes.get(vmid).is_some_and(super::super::node::Node::is_control_plane);
            let control_planes = all.iter().copied().filter(is_control_plane).collect();
            let addresses = all.iter().filter_map(|vmid| Some(world.talos.nodes.get(vmid)?.address()?.to_string()));
            let first = format!("discovered nodes: {:?}", addresses.collect::<Vec<_>>()).replace(", ", " ");
            let patience = asked.wait_timeout.map_or(0, |timeout| timeout.seconds.unsigned_abs());
            let until = world.now + Duration::from_secs(patience);
            let wanted = Wanted { key, control_planes, all };
            let (metadata, ready) = (caller.metadata(), VecDeque::from([first]));
            Run { api: self.clone(), wanted, until, check: 0, said: String::new(), ready, metadata }
        };
        Ok(Response::new(Box::pin(stream::unfold(run, Run::next))))
    }
}
