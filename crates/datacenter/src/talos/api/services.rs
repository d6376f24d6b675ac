//! The services of a node, as lists tell them.

use castle_talos_api::machine::{
    ServiceEvent, ServiceEvents, ServiceHealth, ServiceInfo, ServiceList, ServiceListResponse,
};
use tonic::Status;

use crate::talos::services::Happened;
use crate::world::World;

impl World {
    pub(super) fn service_list(&self, vmid: u32) -> ServiceListResponse {
        let services = self.talos.boot(vmid).map(|boot| &boot.services);
        let services = services.into_iter().flatten().map(|(id, service)| {
            let event = |event: &Happened| ServiceEvent {
                msg: event.message.clone(),
                state: event.state.to_owned(),
                ts: Some(self.node_timestamp(vmid, event.at)),
            };
            ServiceInfo {
                id: (*id).to_owned(),
                state: service.state.to_owned(),
                events: Some(ServiceEvents { events: service.events.iter().map(event).collect() }),
                health: Some(ServiceHealth {
                    unknown: service.is_healthy.is_none(),
                    healthy: service.is_healthy == Some(true),
                    last_message: service.complaint.clone(),
                    last_change: Some(self.node_timestamp(vmid, service.since)),
                }),
            }
        });
        ServiceListResponse { messages: vec![ServiceList { metadata: None, services: services.collect() }] }
    }

    pub(super) fn check_service(&self, vmid: u32, id: &str) -> Result<(), Status> {
        let is_known = self.talos.boot(vmid).is_some_and(|boot| boot.services.contains_key(id));
        if is_known { Ok(()) } else { Err(Status::unknown(format!("service {id:?} not defined"))) }
    }

    /// Whether a service has been started, even if it still waits for something.
    fn has_begun(&self, vmid: u32, id: &str) -> bool {
        let service = self.talos.boot(vmid).and_then(|boot| boot.services.get(id));
        service.is_some_and(|service| !["Finished", "Initialized"].contains(&service.state))
    }

    /// Starts a service that does not run. Of those that every node has, the kubelet alone may be started and restarted by others.
    pub(super) fn start_service(&mut self, vmid: u32, id: &str) -> Result<String, Status> {
        self.check_service(vmid, id)?;
        if !self.has_begun(vmid, id) {
            if id != "kubelet" {
                return Err(Status::unknown(format!("service {id:?} doesn't support start operation via API")));
            }
            self.talos_settle_of(vmid);
        }
        Ok(format!("Service {id:?} started"))
    }

    /// Stops a service: one that runs is none of those that others may stop.
    pub(super) fn stop_service(&self, vmid: u32, id: &str) -> Result<String, Status> {
        self.check_service(vmid, id)?;
        if self.has_begun(vmid, id) {
            return Err(Status::unknown(format!("service {id:?} doesn't support stop operation via API")));
        }
        Ok(format!("Service {id:?} stopped"))
    }

    pub(super) fn restart_service(&mut self, vmid: u32, id: &str) -> Result<String, Status> {
        self.check_service(vmid, id)?;
        if !self.has_begun(vmid, id) {
            return self.start_service(vmid, id).map(|_| format!("Service {id:?} restarted"));
        }
        if id != "kubelet" {
            return Err(Status::unknown(format!("service {id:?} doesn't support restart operation via API")));
        }
        let now = self.now;
        if let Some(boot) = self.talos.boot_mut(vmid) {
            boot.runs_kubelet = false;
            boot.serve(now, "kubelet", "Finished", None);
        }
        self.talos_settle_of(vmid);
        Ok(format!("Service {id:?} restarted"))
    }
}
