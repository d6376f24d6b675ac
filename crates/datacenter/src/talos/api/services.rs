//! The services of a node, as lists tell them.

use castle_talos_api::machine::{
    ServiceEvent, ServiceEvents, ServiceHealth, ServiceInfo, ServiceList, ServiceListResponse,
};
use tonic::Status;

use crate::talos::node::Moment;
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

    /// Restarts a service; the Talos API itself comes back as another server.
    pub(super) fn restart_service(&mut self, vmid: u32, id: &str) -> Result<String, Status> {
        self.check_service(vmid, id)?;
        if !["apid", "cri", "etcd", "kubelet", "trustd"].contains(&id) {
            return Err(Status::unknown(format!("service {id:?} doesn't support restart operation via API")));
        }
        let span = self.latencies.talos.apid;
        if id == "apid"
            && let Some(boot) = self.talos.boot_mut(vmid)
        {
            boot.apid = None;
            self.talos_plan(vmid, Moment::Apid, span);
            self.touch();
        }
        Ok(format!("Service {id:?} restarted"))
    }
}
