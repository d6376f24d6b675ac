//! A castle and all that is put into it: manifests, a vault, a repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_components::{Fit, standin};
use castle_datacenter::blueprint::{Placed, Span, TalosLatencies};
use castle_datacenter::{
    Blueprint, Datacenter, EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT,
    EMBEDDED_VAULT, Latencies, Version,
};
use castle_engine::{Fault, Gate, Graph, GraphBuilder, Handle, Layer, Place, Report, StepId, Verdict};
use castle_gitops::git::GitError;
use castle_kubernetes::client::{Access, Api};
use castle_kubernetes::model::{Object, manifest};
use castle_layers::cluster::access;
use castle_layers::engine::Vault;
use castle_layers::gitops::Repository;
use castle_layers::gitops::credential::Credential;
use castle_layers::{Inside, engine, gitops, networking, preflight, storage, unwanted};
use castle_seams::{BoxFuture, Clock, Dial};
use castle_secrets::Secret;
use castle_secrets::infisical::Identity;
use castle_spec::ComponentName;
use castle_spec::model::ComponentOwner;

use crate::castle::{Castle, quick};
use crate::room::{Room, blueprint, done};
use crate::scribe::Scribe;

/// Where the repository is.
pub(crate) const URL: &str = "https://git.example/team/blue.git";
/// Its host.
pub(crate) const GIT_HOST: &str = "git.example";
/// What opens it.
pub(crate) const TOKEN: &str = "t0ken-of-the-repository";
/// The castle's folder in the vault.
pub(crate) const FOLDER: &str = "/castle/blue/proxmox";
/// The castle's cluster, as the datacenter knows it.
pub(crate) const BLUE: &str = "blue";

const VAULT: &str = "secrets: {infisical: {region: eu, project: p, environment: dev, identity: env:I}}\n";
const GITOPS: &str =
    "gitops: {repository: 'https://git.example/team/blue.git', path: clusters/blue, credential: vault:GIT_TOKEN}\n";

/// A file with all components.
pub(crate) fn full(control_planes: u32, workers: u32) -> String {
    quick(control_planes, workers)
        .replace("vip: 10.0.255.1}", "vip: 10.0.255.1, loadBalancers: 10.0.200.1-10.0.200.20}")
        .replace("storage: none\n", "")
        + VAULT
        + GITOPS
}

/// A file with no component but these: of `networking`, `storage`, `engine` and `gitops`, which may have a vault or not.
pub(crate) fn only(layers: &[&str]) -> String {
    let has = |layer: &str| layers.contains(&layer);
    let mut file = full(1, 1);
    if !has("networking") {
        file = file.replace(", loadBalancers: 10.0.200.1-10.0.200.20", "");
    }
    if !has("engine") {
        file = without_vault(&file);
    }
    if !has("gitops") {
        file = file.lines().filter(|line| !line.starts_with("gitops:")).map(|line| format!("{line}\n")).collect();
    }
    if has("storage") { file } else { file + "storage: none\n" }
}

/// The same file with other words about the repository.
pub(crate) fn with_gitops(file: &str, more: &str) -> String {
    file.replace("path: clusters/blue", &format!("path: clusters/blue, {more}"))
}

/// The same file with a credential of castle's own, for castles without a vault.
pub(crate) fn without_vault(file: &str) -> String {
    file.replace(VAULT, "").replace("vault:GIT_TOKEN", "env:GIT_TOKEN")
}

/// What takes its time inside of a cluster, and nothing else: machines and nodes are there at once.
pub(crate) fn inside_only(seed: u64) -> Blueprint {
    let (none, usual) = (Span::new(0.0, 0.0), TalosLatencies::default());
    let talos = TalosLatencies {
        call: none,
        failed_first_boot: 0.0,
        failed_boot: none,
        apply: none,
        stopping: none,
        reboot: none,
        apid: none,
        time_sync: none,
        services: none,
        kubelet: none,
        etcd_image: none,
        etcd_first: none,
        etcd_retry: none,
        etcd_join: none,
        etcd_health: none,
        api_server: none,
        vip: none,
        vip_lost: none,
        register: none,
        cni: none,
        dns: none,
        ..usual
    };
    let latencies = Latencies {
        rest: none,
        linked_clone: none,
        full_copy: none,
        download: none,
        allocate: none,
        config: none,
        resize: none,
        start: none,
        stop: none,
        shutdown: none,
        destroy: none,
        template: none,
        boot: none,
        talos,
        broadcast: Duration::ZERO,
        factor: 1.0,
    };
    blueprint(&["pve"], Version::Nine).with_latencies(latencies).with_seed(seed)
}

/// The folder with upstream's manifests, where there is one.
pub(crate) fn mirror() -> Option<PathBuf> {
    castle_testbed::oracle("mirror")
}

/// The small manifests of castle's own, or upstream's where a mirror is.
#[allow(clippy::disallowed_methods, reason = "the mirror is on disk")]
fn manifests(room: &Room, mirror: Option<&Path>) -> BTreeMap<ComponentName, Vec<Object>> {
    let fit = Fit::of(&room.castle, &room.nodes);
    let objects = |name: ComponentName| match mirror {
        None => standin::objects(name),
        Some(folder) => {
            let file = match name {
                ComponentName::ExternalSecrets => "external-secrets-v2.9.0.yaml",
                ComponentName::Metallb => "metallb-native-v0.16.1.yaml",
                ComponentName::Longhorn => "longhorn-v1.12.1.yaml",
                ComponentName::Flux if fit.has_image_automation || fit.has_source_watcher => "flux-v2.8.8-install.yaml",
                ComponentName::Flux => "flux-v2.9.0-components.yaml",
            };
            manifest(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
        }
    };
    let wanted = room.castle.wanted_components().into_iter().filter(|wanted| wanted.owner == ComponentOwner::Castle);
    wanted
        .map(|wanted| (wanted.name, castle_components::adapt(wanted.name, &objects(wanted.name), &fit).unwrap()))
        .collect()
}

/// What a castle is given beside its file.
#[derive(Clone, Default)]
pub(crate) struct Wishes {
    /// The gates that are taken for open.
    pub(crate) open: Vec<StepId>,
    /// Whether Longhorn begins whatever the nodes' volumes are.
    pub(crate) ignores_volumes: bool,
    /// The key that opens what is sealed in the repository.
    pub(crate) age_key: Option<String>,
    /// What opens the repository, where castle gives it, instead of what does.
    pub(crate) token: Option<String>,
    /// Or all its parts.
    pub(crate) parts: Option<BTreeMap<String, String>>,
    /// The authority of the repository's server.
    pub(crate) authority: Option<String>,
    /// What the cluster logs in to the vault with, instead of what lets it in.
    pub(crate) client_secret: Option<String>,
    /// Where the repository is, instead of where it is.
    pub(crate) address: Option<String>,
    /// How castle is refused the newest commit itself, if it is.
    pub(crate) refusal: Option<GitError>,
    /// Whether castle cannot read the newest commit itself.
    pub(crate) is_head_unknown: bool,
    /// The components that may be removed.
    pub(crate) removal: Vec<ComponentName>,
}

/// A castle and what is put into it.
pub(crate) struct Keep {
    pub(crate) castle: Castle,
    pub(crate) manifests: BTreeMap<ComponentName, Vec<Object>>,
    /// The newest commit.
    pub(crate) head: Arc<Mutex<String>>,
    /// How often castle has asked for it.
    pub(crate) asked: Arc<AtomicU32>,
    pub(crate) scribe: Arc<Scribe>,
    pub(crate) wishes: Wishes,
    /// What is there and wanted no more.
    pub(crate) leftovers: unwanted::Leftovers,
}

impl Drop for Keep {
    fn drop(&mut self) {
        // The scribe knows the datacenter, and the datacenter the scribe.
        self.castle.room.datacenter.unwatch();
    }
}

/// Gives the API to those who need it, without a question.
struct Reach {
    access: Access,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
}

impl Gate for Reach {
    type Needs = ();
    type Output = Api;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Api>, Fault>> {
        let api = Api::new(&self.access, self.dial.clone(), self.clock.clone());
        Box::pin(async move { Ok(Verdict::Open(api.unwrap())) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1)
    }
}

fn secret(text: &str) -> Secret {
    Secret::from(text.to_owned())
}

impl Keep {
    pub(crate) fn new(blueprint: Blueprint, file: &str, clock: Arc<dyn Clock>) -> Self {
        Self::supplied(blueprint, file, clock, None)
    }

    /// With upstream's manifests, where a mirror is given.
    pub(crate) fn supplied(blueprint: Blueprint, file: &str, clock: Arc<dyn Clock>, mirror: Option<&Path>) -> Self {
        let room = Room::unjudged(blueprint, file, clock);
        let manifests = manifests(&room, mirror);
        let datacenter = &room.datacenter;
        datacenter.place_secret(
            EMBEDDED_VAULT,
            EMBEDDED_PROJECT,
            Placed::new(EMBEDDED_ENVIRONMENT, FOLDER, "GIT_TOKEN", TOKEN),
        );
        let is_public = room.castle.gitops.as_ref().is_some_and(|gitops| gitops.credential.is_none());
        datacenter.add_repository(URL, (!is_public).then_some(TOKEN));
        let scribe = Arc::new(Scribe::new(datacenter.clone()));
        datacenter.watch(scribe.clone());
        let (head, asked, wishes) = (Arc::default(), Arc::default(), Wishes::default());
        let leftovers = unwanted::Leftovers::default();
        let keep = Self { castle: Castle::new(room), manifests, head, asked, scribe, wishes, leftovers };
        keep.push(&[("clusters/blue/word.yaml", &config("word", "${castle_name}"))]);
        keep
    }

    pub(crate) fn wishing(mut self, wishes: Wishes) -> Self {
        self.wishes = wishes;
        self
    }

    pub(crate) fn datacenter(&self) -> &Datacenter {
        &self.castle.room.datacenter
    }

    /// Goes on with another file.
    pub(crate) fn rewrite(&mut self, file: &str) {
        self.castle.room.rewrite(file);
        self.manifests = manifests(&self.castle.room, None);
    }

    /// Another commit.
    pub(crate) fn push(&self, files: &[(&str, &str)]) {
        self.push_to("main", files);
    }

    pub(crate) fn push_to(&self, branch: &str, files: &[(&str, &str)]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        *self.head.lock().unwrap() = self.castle.room.datacenter.push(URL, branch, &files, "a commit");
    }

    /// What the layers inside of the cluster are to do.
    fn furnish(&self, graph: &mut GraphBuilder, api: &Handle<Api>, volumes: &[StepId]) {
        let (room, wishes) = (&self.castle.room, &self.wishes);
        let (castle, nodes, manifests) = (&room.castle, room.nodes.as_slice(), &self.manifests);
        let inside = Inside::enter(graph, castle, nodes, api, manifests).taking_for_open(&wishes.open);
        let client_secret = secret(wishes.client_secret.as_deref().unwrap_or(EMBEDDED_CLIENT_SECRET));
        let vault = Vault {
            address: format!("https://{EMBEDDED_VAULT}"),
            authority: None,
            project: EMBEDDED_PROJECT.to_owned(),
            environment: EMBEDDED_ENVIRONMENT.to_owned(),
            path: FOLDER.to_owned(),
            identity: Identity { client_id: secret(EMBEDDED_CLIENT_ID), client_secret },
        };
        let store = castle.secrets.as_ref().and_then(|_| engine::raise(graph, &inside, &vault));
        networking::raise(graph, &inside);
        storage::raise(graph, &inside, if wishes.ignores_volumes { &[] } else { volumes });
        let wanted = castle.gitops.as_ref().and_then(|gitops| gitops.credential.as_ref());
        let credential = wanted.map(|_| match &store {
            Some(_) => Credential::Vaulted("GIT_TOKEN".to_owned()),
            None => {
                let token = wishes.token.as_deref().unwrap_or(TOKEN);
                let usual = || {
                    [("username", "git"), ("password", token)].map(|(name, part)| (name.to_owned(), part.to_owned()))
                };
                let parts = wishes.parts.clone().unwrap_or_else(|| usual().into());
                Credential::Given(parts.iter().map(|(name, part)| (name.clone(), secret(part))).collect())
            }
        });
        let (head, asked, is_unknown) = (self.head.clone(), self.asked.clone(), wishes.is_head_unknown);
        let refusal = wishes.refusal.clone();
        let repository = Repository {
            address: wishes.address.clone().unwrap_or_else(|| URL.to_owned()),
            credential,
            authority: wishes.authority.clone(),
            age_key: wishes.age_key.as_deref().map(secret),
            handed: Arc::default(),
            head: Arc::new(move || {
                asked.fetch_add(1, Ordering::Relaxed);
                let head = head.lock().unwrap().clone();
                let refused = refusal.as_ref().map(|error| preflight::fault(URL, "main", error));
                Box::pin(async move { refused.map_or(Ok((!is_unknown).then_some(head)), Err) })
            }),
        };
        gitops::raise(graph, &inside, &repository, store.as_ref());
        unwanted::raise(graph, &inside, &wishes.removal, &self.leftovers);
    }

    /// All layers, from the machines on.
    async fn whole(&self, patience: Duration) -> Graph {
        let mut graph = GraphBuilder::new();
        let formed = self.castle.found(&mut graph, patience).await;
        self.furnish(&mut graph, &formed.api, &formed.volumes);
        graph.build().unwrap()
    }

    /// How castle reaches the cluster, once there is one.
    pub(crate) async fn access(&self) -> Access {
        let (room, keys) = (&self.castle.room, self.castle.keys().await);
        access(&room.castle, &room.nodes, &keys, true)
    }

    /// The layers inside of a cluster that is there.
    pub(crate) fn inner(&self, access: Access) -> Graph {
        let mut graph = GraphBuilder::new();
        let room = &self.castle.room;
        let reach = Reach { access, dial: room.datacenter.dial(), clock: room.clock.clone() };
        let id = StepId::new(&Layer::new("platform"), "api", "given");
        let api = graph.gate(id, Place::default(), (), reach);
        self.furnish(&mut graph, &api, &[]);
        graph.build().unwrap()
    }

    /// Makes the cluster, and puts nothing into it.
    pub(crate) async fn found(&self) {
        done(&self.castle.up().await);
    }

    /// What `castle up` does in a cluster that is there.
    pub(crate) async fn furnished(&self) -> Report {
        self.castle.room.run(&self.inner(self.access().await), true).await
    }

    /// A commit with which Flux brings a component.
    pub(crate) fn push_component(&self, name: ComponentName) {
        let (path, text) = brought(name);
        self.push(&[("clusters/blue/word.yaml", &config("word", "${castle_name}")), (&path, &text)]);
    }

    /// What `castle plan` says of a cluster that is there.
    pub(crate) async fn foreseen(&self) -> Report {
        self.castle.room.run(&self.inner(self.access().await), false).await
    }

    /// What `castle up` does.
    pub(crate) async fn up(&self) -> Report {
        self.castle.room.run(&self.whole(Duration::from_secs(600)).await, true).await
    }

    /// What `castle plan` does.
    pub(crate) async fn plan(&self) -> Report {
        self.castle.room.run(&self.whole(Duration::ZERO).await, false).await
    }
}

/// A component as Flux brings it: a file of the repository.
pub(crate) fn brought(name: ComponentName) -> (String, String) {
    let objects: Vec<String> = standin::objects(name).iter().map(|object| object.value().to_string()).collect();
    (format!("clusters/blue/{}.yaml", name.word()), objects.join("\n---\n"))
}

/// A ConfigMap in the default namespace, as a file.
pub(crate) fn config(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{word: '{value}'}}\n"
    )
}
