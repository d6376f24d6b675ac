//! The service of resources: reading, and watching how they change.

use std::collections::{BTreeMap, VecDeque};

use castle_talos_api::cosi::resource::state_server::State;
use castle_talos_api::cosi::resource::{
    CreateRequest, CreateResponse, DestroyRequest, DestroyResponse, Event, EventType, GetRequest, GetResponse,
    ListRequest, ListResponse, Resource, UpdateRequest, UpdateResponse, WatchRequest, WatchResponse,
};
use futures_util::stream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::Api;
use super::call::Caller;
use crate::talos::cosi::{DEFINITIONS, NAMESPACE_KIND, NAMESPACES};
use crate::world::World;

impl World {
    /// Refuses kinds and namespaces that are not there, and secrets to those who are no administrators.
    fn check_resource(&self, caller: &Caller, namespace: &str, kind: &str) -> Result<(), Status> {
        let known = self.resource_kind(caller.vmid, kind);
        let absent = self.absent_kind(caller.vmid, kind);
        let is_secret = known.is_some_and(|known| known.is_secret) || absent.as_ref().is_some_and(|it| it.is_secret);
        if is_secret && !caller.is_admin() {
            return Err(Status::permission_denied("not authorized"));
        }
        if known.is_none() && absent.is_none() && ![DEFINITIONS, NAMESPACE_KIND].contains(&kind) {
            return Err(Status::permission_denied(format!("resource type {kind:?} is not supported")));
        }
        if !NAMESPACES.iter().any(|(known, _)| *known == namespace) {
            return Err(Status::permission_denied(format!("namespace {namespace:?} is not supported")));
        }
        if absent.is_some() {
            return Err(Status::unimplemented(format!("the embedded node simulates no {kind}")));
        }
        Ok(())
    }

    fn resources_in(&mut self, vmid: u32, namespace: &str, kind: &str) -> Vec<Resource> {
        let mut all = self.resources(vmid, kind);
        all.retain(|resource| resource.metadata.as_ref().is_some_and(|metadata| metadata.namespace == namespace));
        all
    }
}

fn id(resource: &Resource) -> &str {
    resource.metadata.as_ref().map_or("", |metadata| &metadata.id)
}

fn event(kind: EventType, resource: Option<Resource>, old: Option<Resource>) -> Event {
    Event { resource, event_type: kind.into(), old, error: None, bookmark: None }
}

/// What a watch has told, and what it has still to tell.
struct Watching {
    api: Api,
    caller: Caller,
    asked: WatchRequest,
    /// Which life of the node is watched.
    life: Option<u64>,
    known: BTreeMap<String, Resource>,
    ready: VecDeque<WatchResponse>,
}

/// Which life a node is in.
fn life(world: &World, vmid: u32) -> Option<u64> {
    world.talos.nodes.get(&vmid).map(|node| node.life)
}

impl Watching {
    /// Notes what there is now; what differs from before are the events.
    fn compare(&mut self, now: Vec<Resource>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut gone = std::mem::take(&mut self.known);
        for resource in now {
            let id = id(&resource).to_owned();
            match gone.remove(&id) {
                None => events.push(event(EventType::Created, Some(resource.clone()), None)),
                Some(old) if old != resource => {
                    events.push(event(EventType::Updated, Some(resource.clone()), Some(old)));
                }
                Some(_) => {}
            }
            self.known.insert(id, resource);
        }
        events.extend(gone.into_values().map(|old| event(EventType::Destroyed, Some(old), None)));
        events
    }

    fn tell(&mut self, events: Vec<Event>) {
        if self.asked.options.as_ref().is_some_and(|options| options.aggregated) {
            self.ready.extend(Some(WatchResponse { event: events }).filter(|answer| !answer.event.is_empty()));
        } else {
            self.ready.extend(events.into_iter().map(|event| WatchResponse { event: vec![event] }));
        }
    }

    /// The resources that are watched, as they are.
    fn look(&self, world: &mut World) -> Vec<Resource> {
        let mut all = world.resources_in(self.caller.vmid, &self.asked.namespace, &self.asked.r#type);
        all.retain(|resource| self.asked.id.as_deref().is_none_or(|wanted| id(resource) == wanted));
        all
    }

    async fn next(mut self) -> Option<(Result<WatchResponse, Status>, Self)> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some((Ok(next), self));
            }
            let door = self.api.door;
            let changed = self.api.datacenter.until(|world| {
                if !world.is_open(door) || life(world, self.caller.vmid) != self.life {
                    return Some(None);
                }
                let now = self.look(world);
                let is_same = now.len() == self.known.len() && now.iter().all(|it| self.known.get(id(it)) == Some(it));
                (!is_same).then_some(Some(now))
            });
            let now = changed.await?;
            let events = self.compare(now);
            self.tell(events);
        }
    }
}

#[async_trait]
impl State for Api {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.unary("Get", request, |world, caller, asked| {
            world.check_resource(caller, &asked.namespace, &asked.r#type)?;
            let all = world.resources_in(caller.vmid, &asked.namespace, &asked.r#type);
            let found = all.into_iter().find(|resource| id(resource) == asked.id);
            let wanted = format!("resource {}({}/{}@undefined) doesn't exist", asked.r#type, asked.namespace, asked.id);
            let resource = found.ok_or_else(|| Status::not_found(wanted))?;
            Ok(GetResponse { resource: Some(resource) })
        })
        .await
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<BoxStream<ListResponse>>, Status> {
        let (caller, asked) = self.admit_one("List", request).await?;
        let mut world = self.datacenter.world();
        world.check_resource(&caller, &asked.namespace, &asked.r#type)?;
        let all = world.resources_in(caller.vmid, &asked.namespace, &asked.r#type);
        Ok(Response::new(Box::pin(stream::iter(all.into_iter().map(|it| Ok(ListResponse { resource: Some(it) }))))))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<BoxStream<WatchResponse>>, Status> {
        let (caller, asked) = self.admit_one("Watch", request).await?;
        let (known, ready) = (BTreeMap::new(), VecDeque::new());
        let mut watching = Watching { api: self.clone(), caller, asked, life: None, known, ready };
        {
            let mut world = self.datacenter.world();
            watching.life = life(&world, watching.caller.vmid);
            world.check_resource(&watching.caller, &watching.asked.namespace, &watching.asked.r#type)?;
            if watching.asked.api_version >= 1 {
                // The watch has begun.
                watching.ready.push_back(WatchResponse::default());
            }
            let is_one = watching.asked.id.is_some();
            let wants_contents = watching.asked.options.as_ref().is_some_and(|options| options.bootstrap_contents);
            if is_one && wants_contents {
                return Err(Status::unimplemented("bootstrap contents is not implemented for resource watch"));
            }
            let now = watching.look(&mut world);
            let mut events = watching.compare(now);
            if is_one && events.is_empty() {
                // One that is not there is told as gone.
                let metadata = castle_talos_api::cosi::resource::Metadata {
                    namespace: watching.asked.namespace.clone(),
                    r#type: watching.asked.r#type.clone(),
                    id: watching.asked.id.clone().unwrap_or_default(),
                    version: "1".to_owned(),
                    phase: "running".to_owned(),
                    ..Default::default()
                };
                let gone = Resource { metadata: Some(metadata), spec: Some(Default::default()) };
                events.push(event(EventType::Destroyed, Some(gone), None));
            }
            if !is_one && wants_contents {
                events.push(event(EventType::Bootstrapped, None, None));
            } else if !is_one {
                events.clear();
            }
            watching.tell(events);
        }
        Ok(Response::new(Box::pin(stream::unfold(watching, Watching::next))))
    }

    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        self.admit("Create", request).await?;
        Err(Status::permission_denied("write access is not allowed"))
    }

    async fn update(&self, request: Request<UpdateRequest>) -> Result<Response<UpdateResponse>, Status> {
        self.admit("Update", request).await?;
        Err(Status::permission_denied("write access is not allowed"))
    }

    async fn destroy(&self, request: Request<DestroyRequest>) -> Result<Response<DestroyResponse>, Status> {
        self.admit("Destroy", request).await?;
        Err(Status::permission_denied("write access is not allowed"))
    }
}
