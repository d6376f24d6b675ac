//! The resources that a node keeps about itself: one, all of a kind, and how they change.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use castle_seams::deadline;
use castle_secrets::Secret;
use castle_talos_api::cosi::resource::state_client::StateClient;
use castle_talos_api::cosi::resource::{
    self as words, Event, EventType, GetRequest, ListRequest, WatchOptions, WatchRequest, WatchResponse,
};
use tonic::{Status, Streaming};

use super::link::Line;
use super::refusal::{Call, Trouble};
use super::{ErrorClass, LIMIT, Node, Refusal};

/// What kind of resource, and where such are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The part of the node that keeps them.
    pub namespace: &'static str,
    /// What they are called.
    pub name: &'static str,
}

/// The kinds that castle looks at.
pub mod kinds {
    use super::Kind;

    const fn kind(namespace: &'static str, name: &'static str) -> Kind {
        Kind { namespace, name }
    }

    /// The stage of the machine; there is one, `machine`.
    pub const MACHINE_STATUS: Kind = kind("runtime", "MachineStatuses.runtime.talos.dev");
    /// Its services, each under its name.
    pub const SERVICES: Kind = kind("runtime", "Services.v1alpha1.talos.dev");
    /// Its disks.
    pub const DISKS: Kind = kind("runtime", "Disks.block.talos.dev");
    /// What became of its volumes, those of its configuration each under `u-` and its name.
    pub const VOLUME_STATUS: Kind = kind("runtime", "VolumeStatuses.block.talos.dev");
    /// Its addresses; `current` are those it has now.
    pub const NODE_ADDRESSES: Kind = kind("network", "NodeAddresses.net.talos.dev");
    /// Its network devices, each under its name.
    pub const LINK_STATUS: Kind = kind("network", "LinkStatuses.net.talos.dev");
    /// What its machine says it is; there is one, `systeminformation`.
    pub const SYSTEM_INFORMATION: Kind = kind("hardware", "SystemInformations.hardware.talos.dev");
    /// What it calls itself; there is one, `hostname`.
    pub const HOSTNAME_STATUS: Kind = kind("network", "HostnameStatuses.net.talos.dev");
    /// Whether its clock is right; there is one, `node`.
    pub const TIME_STATUS: Kind = kind("runtime", "TimeStatuses.v1alpha1.talos.dev");
    /// What its processors did; there is one, `latest`, written anew twice a minute.
    pub const CPU_STATS: Kind = kind("perf", "CPUStats.perf.talos.dev");
    /// How its installation goes, from Talos 1.14 on; there is one, `unattended-install`.
    pub const UNATTENDED_INSTALL: Kind = kind("runtime", "UnattendedInstallStatuses.runtime.talos.dev");
    /// What it finds wrong with itself.
    pub const DIAGNOSTICS: Kind = kind("runtime", "Diagnostics.runtime.talos.dev");
    /// What its image was extended by.
    pub const EXTENSIONS: Kind = kind("runtime", "ExtensionStatuses.runtime.talos.dev");
    /// What its kernel was started with; there is one, `cmdline`, except in a container.
    pub const KERNEL_COMMAND_LINE: Kind = kind("runtime", "KernelCmdlines.runtime.talos.dev");
    /// The nodes of its cluster that it knows of.
    pub const MEMBERS: Kind = kind("cluster", "Members.cluster.talos.dev");
    /// The configuration that it lives by; there is one, `v1alpha1`. Full of secrets.
    pub const MACHINE_CONFIG: Kind = kind("config", "MachineConfigs.config.talos.dev");
}

/// A resource, as it was when it was told.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its name among its kind.
    pub id: String,
    /// Grows with every change.
    pub version: String,
    /// `running`, or `tearing down`.
    pub phase: String,
    /// What it says, as YAML: secrets are among it where the kind has some.
    pub yaml: Secret,
}

impl From<words::Resource> for Resource {
    fn from(resource: words::Resource) -> Self {
        let words::Metadata { id, version, phase, .. } = resource.metadata.unwrap_or_default();
        Self { id, version, phase, yaml: Secret::from(resource.spec.unwrap_or_default().yaml_spec) }
    }
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Happening {
    /// It is there: from the beginning, newly, or changed.
    Is(Resource),
    /// It is not there, or not any more.
    Gone {
        /// Its name among its kind.
        id: String,
    },
    /// All that was there when the watch began has been told. Only of a watch over a whole kind.
    Told,
}

/// A watch over resources of a node, for as long as it is held.
pub struct Watch<'n> {
    node: &'n Node,
    stream: Streaming<WatchResponse>,
    heard: VecDeque<Event>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("node", &self.node).finish_non_exhaustive()
    }
}

pub(super) fn state(channel: Line) -> StateClient<Line> {
    StateClient::new(channel).max_decoding_message_size(LIMIT)
}

impl Node {
    /// One resource; nothing if it is not there.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn resource(&self, kind: Kind, id: &str) -> Result<Option<Resource>, Refusal> {
        let Kind { namespace, name } = kind;
        let ask = async |channel| {
            let (namespace, r#type, id) = (namespace.to_owned(), name.to_owned(), id.to_owned());
            let request = GetRequest { namespace, r#type, id, options: None };
            Ok(state(channel).get(request).await?.into_inner().resource)
        };
        match self.glance("Get", ask).await {
            Ok(resource) => Ok(resource.map(Resource::from)),
            Err(refusal) if refusal.class == ErrorClass::Missing => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// All resources of a kind, in the order of the node.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn resources(&self, kind: Kind) -> Result<Vec<Resource>, Refusal> {
        let Kind { namespace, name } = kind;
        let ask = async |channel| {
            let request = ListRequest { namespace: namespace.to_owned(), r#type: name.to_owned(), options: None };
            let mut stream = state(channel).list(request).await?.into_inner();
            let mut resources = Vec::new();
            while let Some(answer) = stream.message().await? {
                resources.extend(answer.resource.map(Resource::from));
            }
            Ok(resources)
        };
        self.glance("List", ask).await
    }

    /// Watches one resource, or all of a kind. What is there is told first.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say that the watch has begun.
    pub async fn watch(&self, kind: Kind, id: Option<&str>) -> Result<Watch<'_>, Refusal> {
        let Kind { namespace, name } = kind;
        let ask = async |channel| {
            // Of one resource a node always tells first what it is, and refuses to be asked for it.
            let options = WatchOptions { bootstrap_contents: id.is_none(), ..WatchOptions::default() };
            let request = WatchRequest {
                namespace: namespace.to_owned(),
                r#type: name.to_owned(),
                id: id.map(str::to_owned),
                options: Some(options),
                api_version: 1,
            };
            let mut stream = state(channel).watch(request).await?.into_inner();
            // The first word is empty: the watch has begun.
            let first = stream.message().await?.ok_or_else(ended)?;
            Ok((stream, first.event.into()))
        };
        let (stream, heard) = self.glance("Watch", ask).await?;
        Ok(Watch { node: self, stream, heard })
    }
}

impl Node {
    /// Completes once a resource is no more what it is now; waits so long at most, and says whether it came to that.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say, or the watch ends.
    pub async fn until_changed(&self, kind: Kind, id: &str, patience: Duration) -> Result<bool, Refusal> {
        let begun = self.clock.monotonic();
        let mut watch = self.watch(kind, Some(id)).await?;
        // What is told first is what is.
        for _ in 0..2 {
            let left = patience.saturating_sub(self.clock.monotonic().saturating_sub(begun));
            if watch.next(left).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn ended() -> Status {
    Status::unavailable("the watch has ended")
}

impl Watch<'_> {
    /// The next that happens, for which it waits so long at most. Nothing if nothing has: the watch goes on.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the watch is over; another one may be begun.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Happening>, Refusal> {
        let Self { node, stream, heard } = self;
        let refused = |trouble| node.refusal(Call { name: "Watch", changes: false }, trouble);
        let next = async {
            loop {
                match heard.pop_front() {
                    Some(event) => {
                        if let Some(happening) = happening(event)? {
                            return Ok(happening);
                        }
                    }
                    None => heard.extend(stream.message().await?.ok_or_else(ended)?.event),
                }
            }
        };
        match deadline(&*node.clock, patience, next).await {
            Ok(Ok(happening)) => Ok(Some(happening)),
            Ok(Err(status)) => Err(refused(Trouble::read(&status, ""))),
            Err(_) => Ok(None),
        }
    }
}

fn happening(event: Event) -> Result<Option<Happening>, Status> {
    let kind = event.event_type();
    let resource = event.resource.map(Resource::from);
    Ok(match (kind, resource) {
        (EventType::Created | EventType::Updated, Some(resource)) => Some(Happening::Is(resource)),
        (EventType::Destroyed, Some(resource)) => Some(Happening::Gone { id: resource.id }),
        (EventType::Bootstrapped, _) => Some(Happening::Told),
        (EventType::Errored, _) => return Err(Status::unavailable(event.error.unwrap_or_default())),
        (EventType::Noop, _) => None,
        (EventType::Created | EventType::Updated | EventType::Destroyed, None) => {
            return Err(Status::data_loss("something happened to nothing"));
        }
    })
}
