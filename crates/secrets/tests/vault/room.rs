//! An Infisical, and a client of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_datacenter::blueprint::{Infisical, Placed, Project};
use castle_datacenter::{Blueprint, Datacenter, Latencies, VaultAsked, VaultReply, Witness};
use castle_http::Trust;
use castle_seams::Clock;
use castle_secrets::Secret;
use castle_secrets::infisical::{Access, Client, Identity, Region};

pub(crate) const HOST: &str = "eu.infisical.com";
pub(crate) const PROJECT: &str = "tazlab";
pub(crate) const CLIENT_ID: &str = "6a0f1c52-aaaa-4bbb-8ccc-0123456789ab";
pub(crate) const CLIENT_SECRET: &str = "planted-client-secret-000000000000000000000000000000000000000000";
pub(crate) const PATH: &str = "/castle/blue/proxmox";

/// Remembers every request, as it was sent.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl Witness for Log {
    fn request(
        &self,
        _: &castle_datacenter::Asked,
        handle: &mut dyn FnMut() -> castle_datacenter::Reply,
    ) -> Option<castle_datacenter::Reply> {
        Some(handle())
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        self.0.lock().unwrap().push(format!("{} {}", asked.method, asked.target));
        Some(handle())
    }
}

impl Log {
    /// What was asked since last time, in full.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// What was asked since last time: methods and paths.
    pub(crate) fn brief(&self) -> Vec<String> {
        let cut = |line: String| line.split('?').next().unwrap_or_default().replace("/api/", "");
        self.take().into_iter().map(cut).collect()
    }
}

pub(crate) struct Room {
    pub(crate) datacenter: Datacenter,
    pub(crate) log: Arc<Log>,
    clock: Arc<dyn Clock>,
}

pub(crate) fn vault() -> Infisical {
    let mut vault = Infisical::new(HOST, PROJECT, &["dev", "prod"], CLIENT_ID, CLIENT_SECRET);
    let Project { secrets, .. } = &mut vault.projects[0];
    secrets.push(Placed::new("prod", PATH, "GITHUB_TOKEN", "planted-github-token"));
    secrets.push(Placed::new("prod", PATH, "REFERRING", "a ${GITHUB_TOKEN} b"));
    secrets.push(Placed::new("prod", "/shared", "DOMAIN_KEY", "planted-domain-key"));
    vault
}

impl Room {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self::of(vault(), clock)
    }

    pub(crate) fn of(vault: Infisical, clock: Arc<dyn Clock>) -> Self {
        let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none()).with_vault(vault);
        let datacenter = Datacenter::new(blueprint, clock.clone());
        let log = Arc::new(Log::default());
        datacenter.watch(log.clone());
        Self { datacenter, log, clock }
    }

    /// The same Infisical, met by another process.
    pub(crate) fn again(&self) -> Self {
        Self { datacenter: self.datacenter.clone(), log: self.log.clone(), clock: self.clock.clone() }
    }

    pub(crate) fn access(&self) -> Access {
        let members = [("clientId", CLIENT_ID), ("clientSecret", CLIENT_SECRET)];
        let members: BTreeMap<String, Secret> =
            members.into_iter().map(|(name, value)| (name.to_owned(), Secret::from(value.to_owned()))).collect();
        Access {
            region: Region::parse(&format!("http://{HOST}")).unwrap(),
            trust: Trust::PublicRoots,
            identity: Identity::of(&members).unwrap(),
            project: PROJECT.to_owned(),
            environment: "prod".to_owned(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(self.access())
    }

    pub(crate) fn client_with(&self, access: Access) -> Client {
        Client::new(access, self.datacenter.dial(), self.clock.clone()).unwrap()
    }
}

pub(crate) fn secrets(pairs: &[(&str, &str)]) -> BTreeMap<String, Secret> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::from((*value).to_owned()))).collect()
}
