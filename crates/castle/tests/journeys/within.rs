//! A datacenter in this very process: it is watched, and has bad days, while castle's own processes use it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use castle_datacenter::blueprint::Infisical;
use castle_datacenter::{
    Asked, Blueprint, Called, Datacenter, EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_TOKEN,
    EMBEDDED_TOKEN_ID, EMBEDDED_VAULT, Fate, Reply, ScaledClock, VaultAsked, VaultReply, Witness,
};
use castle_seams::{Disk, LockGuard, SystemClock, SystemDisk};
use serde_json::json;
use tokio::sync::oneshot;

use crate::room::{Room, own_network};
use crate::world::World;

/// Somebody's own Infisical, with a project and an identity.
pub(crate) const VAULT: &str = "vault";
pub(crate) const PROJECT: &str = "lab";
pub(crate) const ENVIRONMENT: &str = "prod";
pub(crate) const CLIENT_ID: &str = "0b5e7d1c-2f4a-4c6e-8a90-b1c2d3e4f506";
pub(crate) const CLIENT_SECRET: &str = "5ec2e70123456789abcdef0123456789abcdef0123456789abcdef0123456789";
/// An Infisical that has never heard of that identity: another region, as it were.
const ELSEWHERE: &str = "elsewhere";

/// What becomes of a request to the vault; it is handled by calling the other argument.
type Day = Box<dyn FnMut(&VaultAsked, &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> + Send>;

/// Sees all requests, keeps what they were for, and has the vault's day as asked for.
#[derive(Default)]
pub(crate) struct Seen {
    targets: Mutex<Vec<String>>,
    tokens: Mutex<Vec<String>>,
    day: Mutex<Option<Day>>,
}

impl Seen {
    fn note(&self, target: String) {
        self.targets.lock().unwrap().push(target);
    }

    /// Every path and every parameter that was asked with, of all who can be asked.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap().clone()
    }

    /// The tokens that the vault has issued.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().unwrap().clone()
    }

    /// The requests to the vault since this was asked last: `GET /api/v4/secrets`.
    pub(crate) fn vault_requests(&self) -> Vec<String> {
        let targets = std::mem::take(&mut *self.targets.lock().unwrap());
        let path = |target: &String| Some(target.strip_prefix("vault ")?.split('?').next()?.to_owned());
        targets.iter().filter_map(path).collect()
    }
}

impl Witness for Seen {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        self.note(format!("{} {} {:?}", asked.method, asked.path, asked.parameters));
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        self.note(format!("{} {}", called.address, called.method));
        Fate::Handled
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        self.note(format!("vault {} {}", asked.method, asked.target));
        let reply = match &mut *self.day.lock().unwrap() {
            Some(day) => day(asked, handle),
            None => Some(handle()),
        };
        let body = reply.as_ref().and_then(|reply| reply.body.as_ref());
        let token = body.and_then(|body| body["accessToken"].as_str()).map(str::to_owned);
        self.tokens.lock().unwrap().extend(token);
        reply
    }
}

/// A machine whose datacenter is in this process. It ends with the test.
pub(crate) struct Within {
    pub(crate) room: Room,
    pub(crate) datacenter: Datacenter,
    pub(crate) seen: Arc<Seen>,
    pub(crate) vault: SocketAddr,
    pub(crate) elsewhere: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _claim: Box<dyn LockGuard>,
}

impl Within {
    /// Serves as `castle datacenter` does, and is found by castle as that is found.
    pub(crate) fn new(speed: u32) -> Self {
        Self::with_hosts(speed, &["pve"])
    }

    /// The same, with hosts of these names.
    pub(crate) fn with_hosts(speed: u32, hosts: &[&str]) -> Self {
        let named: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let (world, network, seen) = (World::new(), own_network(), Arc::new(Seen::default()));
        let clock = Arc::new(ScaledClock::new(Arc::new(SystemClock::new()), f64::from(speed)));
        let own = Infisical::new(VAULT, PROJECT, &[ENVIRONMENT], CLIENT_ID, CLIENT_SECRET);
        let other = Infisical::new(ELSEWHERE, PROJECT, &[ENVIRONMENT], "somebody", CLIENT_SECRET);
        let datacenter = Datacenter::new(Blueprint::embedded(&named).with_vault(own).with_vault(other), clock);
        datacenter.watch(seen.clone());
        let (told, tell) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let served = datacenter.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
                let hypervisor = served.serve(anywhere).await.unwrap();
                let vault = served.serve_vault(EMBEDDED_VAULT, anywhere).await.unwrap();
                let own = served.serve_vault(VAULT, anywhere).await.unwrap();
                let elsewhere = served.serve_vault(ELSEWHERE, anywhere).await.unwrap();
                told.send(
                    [&hypervisor, &vault, &own, &elsewhere]
                        .map(|serving| (serving.address, serving.fingerprint.clone(), serving.authority.clone())),
                )
                .unwrap();
                let _ = ended.await;
            });
        });
        let [hypervisor, vault, own, elsewhere] = tell.recv().unwrap();

        let folder = world.path(".local/state/castle/datacenter");
        SystemDisk.create_dir_all(&folder, 0o700).unwrap();
        let claim = SystemDisk.try_lock(&folder.join(".serving"), 0o600).unwrap();
        let serving = json!({
            "address": hypervisor.0, "fingerprint": hypervisor.1, "process": std::process::id(), "hosts": hosts,
            "speed": speed, "vault": vault.0, "vault_fingerprint": vault.1, "git": vault.0, "git_fingerprint": vault.1,
        });
        SystemDisk.replace(&folder.join("serving.json"), &castle_engine::note::bytes(1, &serving), 0o600).unwrap();
        // Its keys are those of every datacenter in memory.
        let client = json!({"clientId": EMBEDDED_CLIENT_ID, "clientSecret": EMBEDDED_CLIENT_SECRET}).to_string();
        for (name, text) in [
            ("token", format!("{EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}\n")),
            ("vault.json", client),
            ("git-credentials", format!("https://castle:@{}\n", vault.0)),
        ] {
            SystemDisk.replace(&folder.join(name), text.as_bytes(), 0o600).unwrap();
        }
        world.write("vault-ca.pem", own.2);
        world.write("elsewhere-ca.pem", elsewhere.2);
        let room = Room {
            world,
            network,
            datacenter: None,
            address: format!("https://{}", hypervisor.0),
            fingerprint: hypervisor.1,
        };
        let (vault, elsewhere) = (own.0, elsewhere.0);
        Self { room, datacenter, seen, vault, elsewhere, end: Some(end), thread: Some(thread), _claim: claim }
    }

    /// What castle.yaml says of the vault: somebody's own, whose identity is in a SOPS file.
    pub(crate) fn secrets(&self) -> String {
        format!(
            "secrets: {{infisical: {{region: 'https://{}', ca: vault-ca.pem, project: {PROJECT}, environment: {ENVIRONMENT}, \
             path: /blue, identity: 'sops:s.enc.yaml#vault'}}}}\ncomponents: {{externalSecrets: off}}\n",
            self.vault
        )
    }

    /// The same in the wrong region.
    pub(crate) fn secrets_elsewhere(&self) -> String {
        let wrong = self.secrets().replace(&self.vault.to_string(), &self.elsewhere.to_string());
        wrong.replace("vault-ca.pem", "elsewhere-ca.pem")
    }

    /// From now on the vaults answer as `day` says.
    pub(crate) fn vault_day(
        &self,
        day: impl FnMut(&VaultAsked, &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> + Send + 'static,
    ) {
        *self.seen.day.lock().unwrap() = Some(Box::new(day));
    }

    /// From now on the vault answers as it should.
    pub(crate) fn usual_day(&self) {
        *self.seen.day.lock().unwrap() = None;
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        // Whoever has gone already needs no telling.
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
