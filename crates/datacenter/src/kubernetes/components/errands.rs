//! What controllers fetch from elsewhere in the datacenter: they say what they want, and are told what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Component;
use crate::infisical;
use crate::kubernetes::kube::{Due, Key, Kube};
use crate::kubernetes::value;
use crate::world::World;

/// When whoever failed tries again, doubled with every failure;
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// and no later than this.
const LAST_RETRY: Duration = Duration::from_secs(300);

/// What is known of something that is fetched again and again.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// What it was fetched for: something else is fetched at once.
    mark: String,
    is_out: bool,
    next: Duration,
    failures: u32,
}

impl Fetched {
    /// Whether it is time to fetch; it then is being done.
    pub(super) fn begins(&mut self, now: Duration, mark: &str) -> bool {
        if self.is_out || self.mark == mark && now < self.next {
            return false;
        }
        self.is_out = true;
        true
    }

    /// It is done. Says when it is done again: after this time if it went well.
    pub(super) fn ended(&mut self, now: Duration, mark: String, is_well: bool, again: Duration) -> Duration {
        self.mark = mark;
        self.is_out = false;
        self.failures = if is_well { 0 } else { self.failures + 1 };
        let doubled = FIRST_RETRY * 2_u32.saturating_pow(self.failures.saturating_sub(1).min(8));
        self.next = now + if is_well { again } else { doubled.min(LAST_RETRY) };
        self.next
    }
}

/// What is wanted of a vault. It has no `Debug`: it holds a credential.
pub(crate) struct VaultErrand {
    /// As the store names it: `https://eu.infisical.com`.
    pub(super) host: String,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) project: String,
    pub(super) environment: String,
    pub(super) folders: Vec<String>,
    pub(super) is_recursive: bool,
    pub(super) expands: bool,
}

/// Where and why a vault gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VaultRefusal {
    /// Nobody could log in.
    Login(String),
    /// The secrets could not be listed.
    Listing(String),
}

/// The secrets of a vault by folder and name.
pub(crate) type Listing = BTreeMap<(String, String), String>;

impl Kube {
    /// Sends somebody for what an object needs.
    pub(super) fn send_errand(&mut self, component: Component, key: Key) {
        let wait = self.draw("component errand", self.setup.latencies.components.errand);
        self.plan(wait, Due::Errand(component, key));
    }
}

impl World {
    /// Fetches what a component wants for an object, and tells it.
    pub(crate) fn run_errand(&mut self, cluster: &str, component: Component, of: &Key) {
        match component {
            Component::ExternalSecrets => {
                let Some(errand) = self.kubernetes(cluster, |kube| kube.vault_errand(of)) else { return };
                let told = errand.map(|errand| self.visit_vault(&errand));
                self.kubernetes(cluster, |kube| kube.vault_told(of, told));
            }
            Component::Flux => {
                let Some(errand) = self.kubernetes(cluster, |kube| kube.git_errand(of)) else { return };
                let told = errand.and_then(|errand| errand.run(&mut self.git));
                self.kubernetes(cluster, |kube| kube.git_told(of, told));
            }
            Component::MetalLb | Component::Longhorn => {}
        }
    }

    /// Logs in and lists.
    fn visit_vault(&mut self, errand: &VaultErrand) -> Result<Listing, VaultRefusal> {
        let (_, rest) = errand.host.split_once("://").unwrap_or(("", &errand.host));
        let name = rest.split('/').next().unwrap_or_default();
        let bare = name.split(':').next().unwrap_or_default();
        let known = [name, bare].into_iter().find(|name| self.infisical.contains_key(*name)).map(str::to_owned);
        let Some(host) = known.or_else(|| self.vault_doors.get(name).cloned()) else {
            return Err(VaultRefusal::Login(format!("dial tcp: lookup {bare}: no such host")));
        };
        if !self.is_vault_up(&host) {
            return Err(VaultRefusal::Login(format!("dial tcp {name}: connect: connection refused")));
        }
        let body = json!({ "clientId": errand.client_id, "clientSecret": errand.client_secret });
        let login = self.ask_vault(&host, "POST", "/api/v1/auth/universal-auth/login", None, Some(body));
        let login = login.map_err(VaultRefusal::Login)?;
        let token = format!("Bearer {}", value::text(&login, "accessToken"));
        let mut listing = Listing::new();
        for folder in &errand.folders {
            let target = format!(
                "/api/v3/secrets/raw?workspaceSlug={}&environment={}&secretPath={folder}&recursive={}&expandSecretReferences={}&include_imports=true",
                errand.project, errand.environment, errand.is_recursive, errand.expands
            );
            let told =
                self.ask_vault(&host, "GET", &target, Some(token.clone()), None).map_err(VaultRefusal::Listing)?;
            let imported = value::items(&told, "imports").iter().flat_map(|import| value::items(import, "secrets"));
            for secret in imported.chain(value::items(&told, "secrets")) {
                let name = value::text(secret, "secretKey").to_owned();
                listing.insert((folder.clone(), name), value::text(secret, "secretValue").to_owned());
            }
        }
        Ok(listing)
    }

    fn ask_vault(
        &mut self,
        host: &str,
        method: &str,
        target: &str,
        authorization: Option<String>,
        body: Option<Value>,
    ) -> Result<Value, String> {
        let request = infisical::Request {
            method: method.to_owned(),
            target: target.to_owned(),
            authorization,
            if_none_match: None,
            body: Some(body.unwrap_or_default()),
        };
        let reply = infisical::answer(self, host, &request);
        let body = reply.body.unwrap_or_default();
        if reply.status < 300 {
            return Ok(body);
        }
        let (path, _) = target.split_once('?').unwrap_or((target, ""));
        let message = value::text(&body, "message");
        Err(format!(
            "APIError: unsuccessful response [{method} https://{host}{path}] [status-code={}] [message={message:?}]",
            reply.status
        ))
    }
}
