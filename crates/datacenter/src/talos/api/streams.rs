//! Answers that go on: events, and logs.

use std::collections::VecDeque;
use std::time::Duration;

use castle_talos_api::common::{Data, Metadata};
use castle_talos_api::machine::{DmesgRequest, Event, EventsRequest, LogsRequest};
use futures_util::stream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::Api;
use super::call::{Caller, merged};
use super::more::{KUBERNETES, check_place};
use crate::talos::story::Told;

/// The namespace of what runs beside Kubernetes.
const SYSTEM: &str = "system";

type Answer<T> = Result<Response<BoxStream<T>>, Status>;

fn down() -> Status {
    Status::unavailable("the node is down")
}

impl Api {
    /// The story of a node from this number on, as long as its server is there.
    fn follow<T: Send + 'static>(
        &self,
        (vmid, life): (u32, u64),
        from: u64,
        first: Vec<T>,
        tell: impl Fn(&Told) -> T + Send + Sync + Clone + 'static,
    ) -> BoxStream<T> {
        let state = Some((self.clone(), from, VecDeque::from(first), tell));
        Box::pin(stream::unfold(state, move |state| async move {
            let (api, mut last, mut ready, tell) = state?;
            loop {
                if let Some(next) = ready.pop_front() {
                    return Some((Ok(next), Some((api, last, ready, tell))));
                }
                let door = api.door;
                let told = api.datacenter.until(|world| {
                    if !world.is_open(door) {
                        return Some(None);
                    }
                    let node = world.talos.nodes.get(&vmid).filter(|node| node.life == life);
                    let Some(story) = node.and_then(|node| node.boot.as_ref()).map(|boot| &boot.story) else {
                        return Some(None);
                    };
                    (story.last() > last).then(|| Some((story.last(), story.after(last).cloned().collect::<Vec<_>>())))
                });
                // A node that went down says no more, whoever passed on what it said.
                let Some((newest, told)) = told.await else { return Some((Err(down()), None)) };
                last = newest;
                ready.extend(told.iter().map(&tell));
            }
        }))
    }

    pub(super) async fn event_stream(&self, request: Request<EventsRequest>) -> Answer<Event> {
        let (callers, asked) = self.admit("Events", request).await?;
        let streams = callers.iter().map(|caller| self.events_of(caller, &asked)).collect::<Result<Vec<_>, _>>()?;
        Ok(merged(streams))
    }

    fn events_of(&self, caller: &Caller, asked: &EventsRequest) -> Result<BoxStream<Event>, Status> {
        let metadata = caller.metadata();
        let tell = move |told: &Told| Event {
            metadata: metadata.clone(),
            data: Some(told.content.clone()),
            id: format!("event-{}", told.number),
            actor_id: told.actor.clone(),
        };
        let world = self.datacenter.world();
        let node = world.talos.nodes.get(&caller.vmid).ok_or_else(down)?;
        let story = &node.boot.as_ref().ok_or_else(down)?.story;
        let after_id = asked.tail_id.strip_prefix("event-").and_then(|number| number.parse::<u64>().ok());
        let told: Vec<&Told> = if let Some(number) = after_id {
            story.after(number).collect()
        } else if asked.tail_seconds > 0 {
            let back = Duration::from_secs(asked.tail_seconds.unsigned_abs().into());
            story.since(world.now.saturating_sub(back)).collect()
        } else if asked.tail_events < 0 {
            story.all().iter().collect()
        } else {
            let count = usize::try_from(asked.tail_events).unwrap_or(0);
            story.all().iter().skip(story.all().len().saturating_sub(count)).collect()
        };
        let first = told.into_iter().map(&tell).collect();
        Ok(self.follow((node.vmid, node.life), story.last(), first, tell))
    }

    pub(super) async fn kernel_log(&self, request: Request<DmesgRequest>) -> Answer<Data> {
        let (callers, asked) = self.admit("Dmesg", request).await?;
        let streams = callers.iter().map(|caller| self.kernel_log_of(caller, &asked)).collect::<Result<Vec<_>, _>>()?;
        Ok(merged(streams))
    }

    fn kernel_log_of(&self, caller: &Caller, asked: &DmesgRequest) -> Result<BoxStream<Data>, Status> {
        let metadata = caller.metadata();
        let line =
            move |told: &Told| data(&metadata, &format!("user: warning: [{:?}]: [talos] {}\n", told.at, told.line));
        let world = self.datacenter.world();
        let node = world.talos.nodes.get(&caller.vmid).ok_or_else(down)?;
        let boot = node.boot.as_ref().ok_or_else(down)?;
        let mut lines = vec![data(&caller.metadata(), &format!("kern:   info: [{:?}]: Linux version\n", boot.since))];
        lines.extend(boot.story.all().iter().map(&line));
        if asked.tail {
            lines.clear();
        }
        Ok(if asked.follow {
            self.follow((node.vmid, node.life), boot.story.last(), lines, line)
        } else {
            Box::pin(stream::iter(lines.into_iter().map(Ok)))
        })
    }

    pub(super) async fn service_log(&self, request: Request<LogsRequest>) -> Answer<Data> {
        let (callers, asked) = self.admit("Logs", request).await?;
        let streams =
            callers.iter().map(|caller| self.service_log_of(caller, &asked)).collect::<Result<Vec<_>, _>>()?;
        Ok(merged(streams))
    }

    fn service_log_of(&self, caller: &Caller, asked: &LogsRequest) -> Result<BoxStream<Data>, Status> {
        if asked.namespace != SYSTEM && asked.id != "kubelet" {
            check_place(&asked.namespace, asked.driver)?;
            return Err(if asked.namespace == KUBERNETES {
                Status::unimplemented(format!("the embedded node simulates no logs of containers of {KUBERNETES}"))
            } else {
                Status::unknown(format!("container {:?} not found", asked.id))
            });
        }
        let world = self.datacenter.world();
        if world.check_service(caller.vmid, &asked.id).is_err() {
            return Err(Status::unknown(format!("log {:?} was not registered", asked.id)));
        }
        let boot = world.talos.boot(caller.vmid).ok_or_else(down)?;
        let start = format!("service[{}]", asked.id);
        let told = boot.story.all().iter().filter(|told| told.line.starts_with(&start));
        let line = |told: &Told| data(&caller.metadata(), &format!("{:?} {}\n", told.at, told.line));
        let mut lines: Vec<Data> = told.map(line).collect();
        if let Ok(count) = usize::try_from(asked.tail_lines) {
            lines = lines.split_off(lines.len().saturating_sub(count.max(1)));
        }
        Ok(Box::pin(stream::iter(lines.into_iter().map(Ok))))
    }
}

fn data(metadata: &Option<Metadata>, text: &str) -> Data {
    Data { metadata: metadata.clone(), bytes: text.as_bytes().to_vec() }
}
