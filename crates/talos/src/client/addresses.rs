//! The addresses that a node has, and what it calls itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use castle_yaml as yaml;

use super::resources::{Resource, kinds};
use super::{Node, Refusal};

/// The resource of [`kinds::NODE_ADDRESSES`] with the addresses that a node has now.
pub const CURRENT: &str = "current";

/// What links have that are no hardware.
const LOOPBACK: &str = "00:00:00:00:00:00";

impl Node {
    /// Its addresses now, those that it shares among them; none as long as it tells of none.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, Refusal> {
        let resource = self.resource(kinds::NODE_ADDRESSES, CURRENT).await?;
        Ok(resource.map(|resource| read(&resource)).unwrap_or_default())
    }

    /// The hardware addresses of its network devices, those that they were made with among them, in small letters.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn hardware_addresses(&self) -> Result<Vec<String>, Refusal> {
        let links = self.resources(kinds::LINK_STATUS).await?;
        let told = links.iter().flat_map(|link| ["hardwareAddr", "permanentAddr"].map(|key| said(link, key)));
        let told: BTreeSet<String> = told.flatten().map(|mac| mac.to_lowercase()).collect();
        Ok(told.into_iter().filter(|mac| !mac.is_empty() && mac != LOOPBACK).collect())
    }

    /// What its machine calls itself, as its firmware tells; nothing where it tells nothing.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn machine_uuid(&self) -> Result<Option<String>, Refusal> {
        let resource = self.resource(kinds::SYSTEM_INFORMATION, "systeminformation").await?;
        Ok(resource.and_then(|resource| said(&resource, "uuid")).filter(|uuid| !uuid.is_empty()))
    }

    /// What it calls itself, as long as it does.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn hostname(&self) -> Result<Option<String>, Refusal> {
        let resource = self.resource(kinds::HOSTNAME_STATUS, "hostname").await?;
        Ok(resource.and_then(|resource| said(&resource, "hostname")))
    }
}

/// The text that a resource has under this key.
fn said(resource: &Resource, key: &str) -> Option<String> {
    let documents = yaml::parse(resource.yaml.expose()).unwrap_or_default();
    documents.first().and_then(|document| document[key].as_str()).map(str::to_owned)
}

/// What is no address is none that anybody could be looked for at.
fn read(resource: &Resource) -> Vec<IpAddr> {
    let documents = yaml::parse(resource.yaml.expose()).unwrap_or_default();
    let told = documents.first().and_then(|said| said["addresses"].as_array()).into_iter().flatten();
    let address = |text: &str| text.split('/').next().unwrap_or_default().parse().ok();
    told.filter_map(|prefix| prefix.as_str().and_then(address)).collect()
}

#[cfg(test)]
mod tests {
    use castle_secrets::Secret;

    use super::*;

    #[test]
    fn texts_are_read_by_their_keys() {
        let told = |yaml: &str| {
            let (id, version, phase) = ("eth0".into(), "1".into(), "running".into());
            said(&Resource { id, version, phase, yaml: Secret::from(yaml.to_owned()) }, "hardwareAddr")
        };
        assert_eq!(told("index: 2\nhardwareAddr: BC:24:11:00:00:01\n").as_deref(), Some("BC:24:11:00:00:01"));
        assert_eq!([told("index: 2\n"), told("hardwareAddr: []\n"), told("["), told("")], [None, None, None, None]);
    }

    #[test]
    fn addresses_are_read_without_their_networks() {
        let said = |yaml: &str| {
            let (id, version, phase) = (CURRENT.into(), "1".into(), "running".into());
            read(&Resource { id, version, phase, yaml: Secret::from(yaml.to_owned()) })
        };
        let expected: Vec<IpAddr> = vec!["10.0.1.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(said("addresses:\n    - 10.0.1.1/16\n    - fd00::1/64\n    - nowhere\n"), expected);
        for nothing in ["", "addresses: 1\n", "addresses:\n    - 7\n", "["] {
            assert_eq!(said(nothing), Vec::<IpAddr>::new(), "{nothing}");
        }
    }
}
