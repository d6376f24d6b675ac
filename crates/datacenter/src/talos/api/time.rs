//! The service of time.

use castle_talos_api::time::time_service_server::TimeService;
use castle_talos_api::time::{Time, TimeRequest, TimeResponse};
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use crate::world::World;

impl World {
    fn time(&self, vmid: u32, server: &str) -> Result<TimeResponse, Status> {
        if !self.reaches_time(vmid) {
            return Err(Status::unknown(format!("error querying NTP server {server:?}: i/o timeout")));
        }
        let configured = self.talos.nodes.get(&vmid).and_then(|node| node.config()).map(|config| config.time_servers());
        let first = configured.and_then(|servers| servers.into_iter().next()).unwrap_or_default();
        let now = Some(self.node_timestamp(vmid, self.now));
        let server = if server.is_empty() { first } else { server.to_owned() };
        Ok(TimeResponse { messages: vec![Time { metadata: None, server, localtime: now, remotetime: now }] })
    }
}

#[async_trait]
impl TimeService for Api {
    async fn time(&self, request: Request<()>) -> Result<Response<TimeResponse>, Status> {
        self.unary("Time", request, |world, caller, ()| World::time(world, caller.vmid, "")).await
    }

    async fn time_check(&self, request: Request<TimeRequest>) -> Result<Response<TimeResponse>, Status> {
        self.unary("TimeCheck", request, |world, caller, asked| World::time(world, caller.vmid, &asked.server)).await
    }
}
