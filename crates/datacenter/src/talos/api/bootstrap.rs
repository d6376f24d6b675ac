//! The first member of an etcd.

use std::time::Duration;

use castle_talos_api::machine::{Bootstrap, BootstrapRequest, BootstrapResponse};
use tonic::{Request, Response, Status};

use super::Api;
use crate::world::World;

/// How long a call waits for the clock to be right.
const TIME: Duration = Duration::from_secs(5);

impl Api {
    pub(super) async fn bootstrap_etcd(
        &self,
        request: Request<BootstrapRequest>,
    ) -> Result<Response<BootstrapResponse>, Status> {
        let vmid = self.vmid;
        let has_cri = {
            let world = self.datacenter.world();
            world.talos.boot(vmid).is_some_and(|boot| boot.config.is_some() && boot.is_healthy("cri"))
        };
        if has_cri {
            let synced =
                self.datacenter.until(|world| world.talos.boot(vmid).is_none_or(|boot| boot.is_synced).then_some(()));
            // Whether it came in time is looked at below.
            let _ = castle_seams::deadline(self.datacenter.shared.clock.as_ref(), TIME, synced).await;
        }
        self.unary("Bootstrap", request, |world, caller, asked| world.bootstrap(caller.vmid, asked)).await
    }
}

impl World {
    fn bootstrap(&mut self, vmid: u32, asked: &BootstrapRequest) -> Result<BootstrapResponse, Status> {
        self.check_cri(vmid)?;
        self.check_control_plane(vmid, "bootstrap")?;
        let now = self.now;
        let node = self.talos.nodes.get_mut(&vmid).ok_or_else(|| Status::unavailable("no such node"))?;
        let minor = node.image.minor();
        let is_synced = node.boot.as_ref().is_some_and(|boot| boot.is_synced);
        let has_authority = (node.config())
            .and_then(|config| config.machine())
            .is_some_and(|machine| machine.at("cluster.etcd.ca").is_some());
        if minor >= 14 && !has_authority {
            return Err(Status::invalid_argument("etcd is not configured, bootstrap is not possible"));
        }
        if !is_synced {
            return Err(Status::failed_precondition("time is not in sync yet"));
        }
        if node.disk.etcd.is_some() {
            return Err(Status::already_exists("etcd data directory is not empty"));
        }
        if asked.recover_etcd {
            return Err(Status::unimplemented("the embedded node simulates no recovery of etcd"));
        }
        if let Some(boot) = &mut node.boot {
            // The etcd that waited to be taken in is ended, and another is begun.
            boot.joining = None;
            boot.has_left = false;
            boot.is_bootstrapping = true;
            boot.note(now, "etcd", "Finished", "Bootstrap requested");
            boot.load(now, "etcd");
            boot.serve(now, "etcd", "Preparing", None);
        }
        self.talos_settle_of(vmid);
        Ok(BootstrapResponse { messages: vec![Bootstrap::default()] })
    }

    fn check_cri(&self, vmid: u32) -> Result<(), Status> {
        let has_cri = self.talos.boot(vmid).is_some_and(|boot| boot.is_healthy("cri") && !boot.stage.is_ending());
        if has_cri { Ok(()) } else { Err(Status::failed_precondition("bootstrap is not available yet")) }
    }

    /// Refuses what only control planes do.
    pub(super) fn check_control_plane(&self, vmid: u32, what: &str) -> Result<(), Status> {
        let node = self.talos.nodes.get(&vmid);
        match node {
            None => Err(Status::unimplemented(format!("machine type is not set, cannot use {what} API"))),
            Some(node) if node.is_control_plane() => Ok(()),
            Some(_) => Err(Status::unimplemented(format!("{what} is only available on control plane nodes"))),
        }
    }
}
