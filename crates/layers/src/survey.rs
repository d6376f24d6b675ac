//! One look at the site before anything is decided.

use std::collections::BTreeMap;

use castle_engine::Fault;
use castle_proxmox::client::Client;
use castle_proxmox::model::{Host, Storage};
use castle_proxmox::steps::{Ground, Guests};
use futures_util::future::{try_join, try_join_all};

use crate::site::Site;

/// What was seen of the site.
#[derive(Debug)]
pub struct Survey {
    /// The hosts of the cluster, by name.
    pub hosts: BTreeMap<String, Host>,
    /// The storages of each host that may carry nodes.
    pub storages: BTreeMap<String, Vec<Storage>>,
    /// All guests.
    pub guests: std::sync::Arc<Guests>,
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
    let (guests, hosts) = try_join(ground.guests(std::time::Duration::ZERO), client.hosts()).await?;
    let hosts: BTreeMap<String, Host> = hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
    let there = site.hosts.iter().filter(|name| hosts.get(*name).is_some_and(|host| host.is_online));
    let storages = try_join_all(there.map(async |host| Ok((host.clone(), client.storages(host).await?)))).await;
    let storages = storages.map_err(|refusal: castle_proxmox::model::Refusal| Fault::from(refusal))?;
    Ok(Survey { hosts, storages: storages.into_iter().collect(), guests })
}
