//! The service of clusters: is everything as it should be?

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::Clock;
use castle_talos_api::cluster::cluster_service_server::ClusterService;
use castle_talos_api::cluster::{ClusterInfo, HealthCheckProgress, HealthCheckRequest};
use castle_talos_api::common::Metadata;
use futures_util::stream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use crate::talos::node::Node;
use crate::world::World;

mod checks;
mod kubernetes;

use checks::{CHECKS, Member, Passed, Wanted};

/// A run of the checks.
struct Run {
    api: Api,
    wanted: Wanted,
    /// The clock of whoever asked, and when he has waited for long enough by it.
    clock: Arc<dyn Clock>,
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
            let (until, door, clock) = (self.until, self.api.door, self.clock.clone());
            let rest = until.saturating_sub(clock.monotonic());
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
                let told = match &found {
                    Ok(Passed::Held) => "OK",
                    Ok(Passed::Skipped) => "SKIP",
                    Err(why) => why.as_str(),
                };
                let line = format!("waiting for {what}: {told}");
                let is_over = clock.monotonic() >= until && found.is_err();
                (line != self.said || is_over).then_some(Some((line, found.is_ok(), is_over)))
            });
            let (line, is_done, is_over) = tokio::select! {
                biased;
                found = found => found?,
                // Then the look that follows is the last.
                () = clock.sleep(rest), if !rest.is_zero() => continue,
            };
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

impl World {
    /// What is looked at: the nodes that are named, those that discovery tells of, or those that Kubernetes knows.
    fn wanted(&self, own: u32, named: &ClusterInfo) -> Wanted {
        let config = self.talos.nodes.get(&own).and_then(Node::config);
        let key = config.map(|config| config.key.clone()).unwrap_or_default();
        let one = |ip: &String, is_control_plane: bool| {
            let ip = ip.clone();
            Member { ips: vec![ip.clone()], ip, is_control_plane }
        };
        let told = named.control_plane_nodes.iter().map(|ip| one(ip, true));
        let mut members: Vec<Member> = told.chain(named.worker_nodes.iter().map(|ip| one(ip, false))).collect();
        let is_discovered = config.is_some_and(|config| config.is_discovered()) && !self.talos.is_discovery_lost;
        if members.is_empty() && is_discovered {
            let nodes = self.nodes_of(&key).into_iter().filter_map(|vmid| self.talos.nodes.get(&vmid));
            members.extend(nodes.filter_map(|node| {
                let ips: Vec<String> = node.addresses().iter().map(|(ip, _)| ip.to_string()).collect();
                Some(Member { ip: ips.first()?.clone(), ips, is_control_plane: node.is_control_plane() })
            }));
        } else if members.is_empty() {
            members.extend(kubernetes::known(self, &key).into_iter().filter_map(|node| {
                let ips: Vec<String> = kubernetes::addresses(node).into_iter().map(str::to_owned).collect();
                Some(Member { ip: ips.first()?.clone(), ips, is_control_plane: kubernetes::is_control_plane(node) })
            }));
        }
        Wanted { own, key, members }
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
            let wanted = world.wanted(caller.vmid, &asked.cluster_info.unwrap_or_default());
            let addresses: Vec<&str> = wanted.members.iter().map(|member| member.ip.as_str()).collect();
            let first = format!("discovered nodes: {}", checks::quoted(&addresses));
            let patience = asked.wait_timeout.map_or(0, |timeout| timeout.seconds.unsigned_abs());
            let clock = self.datacenter.clients_clock();
            let until = clock.monotonic() + Duration::from_secs(patience);
            let (metadata, ready) = (caller.metadata(), VecDeque::from([first]));
            Run { api: self.clone(), wanted, clock, until, check: 0, said: String::new(), ready, metadata }
        };
        Ok(Response::new(Box::pin(stream::unfold(run, Run::next))))
    }
}
