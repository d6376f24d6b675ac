//! What there is, told without a request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::world::World;
use crate::world::tasks::TaskRecord;

/// A guest as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    /// Its number.
    pub vmid: u32,
    /// The host it is on.
    pub host: String,
    /// Its configuration as it holds now.
    pub config: BTreeMap<String, String>,
    /// What will be set (or, without a value, deleted) when it is switched off.
    pub pending: BTreeMap<String, Option<String>>,
    /// Whether it runs.
    pub running: bool,
    /// The lock in its configuration.
    pub lock: Option<String>,
    /// Its pool.
    pub pool: Option<String>,
    /// What changes whenever its file does.
    pub digest: String,
}

/// A volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    /// Its size in bytes, as a guest sees it.
    pub size: u64,
    /// The bytes that it takes.
    pub written: u64,
    /// The volume it is a linked clone of.
    pub parent: Option<String>,
    /// The image it came from.
    pub image: Option<String>,
}

/// All there is at one moment. Its text is the same for the same world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The guests by number.
    pub guests: BTreeMap<u32, GuestView>,
    /// The volumes by host (empty for a shared storage) and name in full.
    pub volumes: BTreeMap<(String, String), VolumeView>,
    /// The tasks in the order in which they began.
    pub tasks: Vec<TaskRecord>,
    /// The guests in each pool.
    pub pools: BTreeMap<String, BTreeSet<u32>>,
    /// The objects of clusters by cluster, collection and place (`namespace/name`), with the revision of their last change.
    pub objects: BTreeMap<(String, String, String), String>,
}

impl Snapshot {
    pub(crate) fn of(world: &World) -> Self {
        use crate::world::guest::Pending;
        let view = |guest: &crate::world::guest::Guest| GuestView {
            vmid: guest.vmid,
            host: guest.host.clone(),
            config: guest.config.clone(),
            pending: (guest.pending.iter())
                .map(|(key, change)| match change {
                    Pending::Set(value) => (key.clone(), Some(value.clone())),
                    Pending::Delete => (key.clone(), None),
                })
                .collect(),
            running: guest.is_running(),
            lock: guest.lock().map(Into::into),
            pool: world.pool_of(guest.vmid).map(Into::into),
            digest: guest.digest(),
        };
        let mut volumes = BTreeMap::new();
        for ((storage, host), shelf) in world.stores.all() {
            for (name, volume) in shelf {
                let view = VolumeView {
                    size: volume.size,
                    written: volume.written,
                    parent: volume.parent.clone(),
                    image: volume.image.clone(),
                };
                volumes.insert((host.clone().unwrap_or_default(), format!("{storage}:{name}")), view);
            }
        }
        Self {
            guests: world.guests.iter().map(|(vmid, guest)| (*vmid, view(guest))).collect(),
            volumes,
            tasks: world.tasks.records().cloned().collect(),
            pools: world.pools.iter().map(|(name, pool)| (name.clone(), pool.guests.clone())).collect(),
            objects: world.kubernetes.objects().collect(),
        }
    }

    /// Whether a volume of this name exists on any host.
    #[must_use]
    pub fn has_volume(&self, volid: &str) -> bool {
        self.volumes.keys().any(|(_, name)| name == volid)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for guest in self.guests.values() {
            let state = if guest.running { "running" } else { "stopped" };
            write!(f, "guest {} on {}, {state}", guest.vmid, guest.host)?;
            if let Some(pool) = &guest.pool {
                write!(f, ", in {pool}")?;
            }
            writeln!(f)?;
            for (key, value) in &guest.config {
                writeln!(f, "  {key}: {}", value.escape_debug())?;
            }
            for (key, value) in &guest.pending {
                writeln!(f, "  pending {key}: {}", value.as_deref().unwrap_or("deleted").escape_debug())?;
            }
        }
        for ((host, name), volume) in &self.volumes {
            let place = if host.is_empty() { "shared" } else { host };
            writeln!(f, "volume {name} on {place}: {} bytes, {} written", volume.size, volume.written)?;
        }
        for task in &self.tasks {
            writeln!(f, "task {} {}: {}", task.kind, task.id, task.exit.as_deref().unwrap_or("running"))?;
        }
        for (name, members) in &self.pools {
            writeln!(f, "pool {name}: {members:?}")?;
        }
        for ((cluster, collection, place), revision) in &self.objects {
            writeln!(f, "object {collection} {place} of {cluster}: {revision}")?;
        }
        Ok(())
    }
}
