//! One look at the site before anything is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_engine::Fault;
use castle_proxmox::client::Client;
use castle_proxmox::model::{Guest, Host, Mark, Storage};
use castle_proxmox::steps::{Ground, Guests};
use futures_util::StreamExt;
use futures_util::future::{ready, try_join, try_join_all};

use crate::site::Site;

/// How many guests are asked about at once.
pub(crate) const AT_ONCE: usize = 16;

/// What was seen of the site.
#[derive(Debug)]
pub struct Survey {
    /// The hosts of the cluster, by name.
    pub hosts: BTreeMap<String, Host>,
    /// The storages of each host that may carry nodes.
    pub storages: BTreeMap<String, Vec<Storage>>,
    /// All guests.
    pub guests: std::sync::Arc<Guests>,
    /// The machines of the castle that run.
    pub running: BTreeSet<u32>,
}

impl Survey {
    /// A storage as a host sees it.
    #[must_use]
    pub fn storage(&self, host: &str, name: &str) -> Option<&Storage> {
        self.storages.get(host)?.iter().find(|storage| storage.name == name)
    }
}

/// Looks at the site: the guests, the hosts, and the storages of the hosts that may carry nodes. Hosts that are not there are not
/// asked.
///
/// # Errors
///
/// If Proxmox does not answer.
pub async fn survey(ground: &Ground, site: &Site) -> Result<Survey, Fault> {
    let client: &Client = &ground.client;
    let (guests, hosts) = try_join(ground.guests(Duration::ZERO), client.hosts()).await?;
    let hosts: BTreeMap<String, Host> = hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
    let there = site.hosts.iter().filter(|name| hosts.get(*name).is_some_and(|host| host.is_online));
    let storages = try_join_all(there.map(async |host| Ok((host.clone(), client.storages(host).await?)))).await;
    let storages = storages.map_err(|refusal: castle_proxmox::model::Refusal| Fault::from(refusal))?;
    let running = running(ground, site, &guests).await;
    Ok(Survey { hosts, storages: storages.into_iter().collect(), guests, running })
}

/// The machines of the castle that run, as their hosts say: the list may show what had their numbers before.
async fn running(ground: &Ground, site: &Site, guests: &Guests) -> BTreeSet<u32> {
    let tags = Mark::tags_of(&ground.castle);
    let images: BTreeSet<u32> = site.image_vmids().collect();
    let ours = guests.range(ground.vmids.clone()).map(|(_, row)| row).filter(|row| !images.contains(&row.vmid));
    let ours = ours.filter(|row| row.is_machine && row.lock.is_none() && row.tags.is_superset(&tags));
    let runs = async |row: &Guest| {
        // Of whom nobody can say it, it is not so.
        let is_running = ground.runs(row, Duration::ZERO).await.ok().flatten();
        (is_running == Some(true)).then_some(row.vmid)
    };
    futures_util::stream::iter(ours).map(runs).buffered(AT_ONCE).filter_map(ready).collect().await
}
