//! A castle and all that is put into it: manifests, a vault, a repository.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_components::{Fit, patches, standin};
use castle_datacenter::blueprint::Placed;
use castle_datacenter::{
    Blueprint, EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT, EMBEDDED_VAULT,
};
use castle_engine::{Graph, GraphBuilder, Report};
use castle_kubernetes::model::{Object, manifest};
use castle_layers::engine::Vault;
use castle_layers::gitops::Repository;
use castle_layers::gitops::credential::Credential;
use castle_layers::{Inside, engine, gitops, networking, storage};
use castle_secrets::Secret;
use castle_secrets::infisical::Identity;
use castle_seams::Clock;
use castle_spec::ComponentName;

use crate::castle::{Castle, quick};
use crate::room::Room;

/// Where the repository is.
pub(crate) const URL: &str = "https://git.example/team/blue.git";
/// What opens it.
pub(crate) const TOKEN: &str = "t0ken-of-the-repository";
/// The castle's folder in the vault.
pub(crate) const FOLDER: &str = "/castle/blue/proxmox";

/// A file with all components.
pub(crate) fn full(control_planes: u32, workers: u32) -> String {
    quick(control_planes, workers)
        .replace("vip: 10.0.255.1}", "vip: 10.0.255.1, loadBalancers: 10.0.200.1-10.0.200.20}")
        .replace("storage: none\n", "")
        + "secrets: {infisical: {region: eu, project: p, environment: dev, identity: env:I}}\n"
        + "gitops: {repository: 'https://git.example/team/blue.git', path: clusters/blue, credential: vault:GIT_TOKEN}\n"
}

/// The small manifests of castle's own, or upstream's where a mirror is.
pub(crate) fn manifests(room: &Room, mirror: Option<&std::path::Path>) -> BTreeMap<ComponentName, Vec<Object>> {
    let fit = Fit::of(&room.castle, &room.nodes);
    let objects = |name: ComponentName| match mirror {
        None => standin::objects(name),
        Some(folder) => {
            let file = match name {
                ComponentName::ExternalSecrets => "external-secrets-v2.9.0.yaml",
                ComponentName::Metallb => "metallb-native-v0.16.1.yaml",
                ComponentName::Longhorn => "longhorn-v1.12.1.yaml",
                ComponentName::Flux => "flux-v2.9.0-components.yaml",
            };
            manifest(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
        }
    };
    let wanted = room.castle.wanted_components().into_iter();
    wanted.map(|wanted| (wanted.name, patches::adapt(wanted.name, &objects(wanted.name), &fit).unwrap())).collect()
}

/// A castle and what is put into it.
pub(crate) struct Keep {
    pub(crate) castle: Castle,
    pub(crate) manifests: BTreeMap<ComponentName, Vec<Object>>,
    /// The newest commit.
    pub(crate) head: Arc<Mutex<String>>,
}

impl Keep {
    pub(crate) fn new(blueprint: Blueprint, file: &str, clock: Arc<dyn Clock>) -> Self {
        let room = Room::new(blueprint, file, clock);
        let manifests = manifests(&room, None);
        let datacenter = &room.datacenter;
        datacenter.place_secret(
            EMBEDDED_VAULT,
            EMBEDDED_PROJECT,
            Placed::new(EMBEDDED_ENVIRONMENT, FOLDER, "GIT_TOKEN", TOKEN),
        );
        datacenter.add_repository(URL, Some(TOKEN));
        let head = Arc::new(Mutex::new(String::new()));
        let keep = Self { castle: Castle::new(room), manifests, head };
        keep.push(&[("clusters/blue/word.yaml", &config("word", "${castle_name}"))]);
        keep
    }

    /// Another commit.
    pub(crate) fn push(&self, files: &[(&str, &str)]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        *self.head.lock().unwrap() = self.castle.room.datacenter.push(URL, "main", &files, "a commit");
    }

    pub(crate) async fn graph(&self, patience: Duration) -> Graph {
        let mut graph = GraphBuilder::new();
        let formed = self.castle.found(&mut graph, patience).await;
        let room = &self.castle.room;
        let inside = Inside { castle: &room.castle, nodes: &room.nodes, api: &formed.api, manifests: &self.manifests };
        let secret = |text: &str| Secret::from(text.to_owned());
        let identity =
            Identity { client_id: secret(EMBEDDED_CLIENT_ID), client_secret: secret(EMBEDDED_CLIENT_SECRET) };
        let vault = Vault {
            address: format!("https://{EMBEDDED_VAULT}"),
            authority: None,
            project: EMBEDDED_PROJECT.to_owned(),
            environment: EMBEDDED_ENVIRONMENT.to_owned(),
            path: FOLDER.to_owned(),
            identity,
        };
        let store = engine::raise(&mut graph, &inside, &vault);
        networking::raise(&mut graph, &inside);
        storage::raise(&mut graph, &inside, &formed.volumes);
        let head = self.head.clone();
        let credential = match &store {
            Some(_) => Credential::Vaulted("GIT_TOKEN".to_owned()),
            None => Credential::Given(
                [("username", "git"), ("password", TOKEN)].map(|(name, part)| (name.to_owned(), secret(part))).into(),
            ),
        };
        let repository = Repository {
            address: URL.to_owned(),
            credential: Some(credential),
            authority: None,
            age_key: None,
            handed: Arc::default(),
            head: Arc::new(move || {
                let head = head.lock().unwrap().clone();
                Box::pin(async move { Ok(Some(head)) })
            }),
        };
        gitops::raise(&mut graph, &inside, &repository, store.as_ref());
        graph.build().unwrap()
    }

    /// What `castle up` does.
    pub(crate) async fn up(&self) -> Report {
        self.castle.room.run(&self.graph(Duration::from_secs(600)).await, true).await
    }

    /// What `castle plan` does.
    pub(crate) async fn plan(&self) -> Report {
        self.castle.room.run(&self.graph(Duration::ZERO).await, false).await
    }
}

/// A ConfigMap in the default namespace, as a file.
pub(crate) fn config(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{word: '{value}'}}\n")
}
