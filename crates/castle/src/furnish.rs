//! What is put into a castle's cluster: the manifests of its components, the vault as the cluster reaches it, the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use castle_components::{Fit, choose, stand_ins};
use castle_engine::GraphBuilder;
use castle_kubernetes::model::Object;
use castle_layers::cluster::Formed;
use castle_layers::gitops::credential::{self, Credential};
use castle_layers::{Inside, engine, gitops, networking, storage, unwanted};
use castle_spec::values::SecretReference;
use castle_spec::{Castle, ComponentName, Node};
use serde_json::{Value, json};

use crate::components::Manifests;
use crate::keeping::Kept;
use crate::masking;
use crate::repository::{Repository, Unread, authority};
use crate::stand::{Trouble, with_next};

/// A component that is there, and that the file wants no more.
pub(crate) struct Unwanted {
    pub(crate) name: ComponentName,
    objects: usize,
}

impl Unwanted {
    /// For people.
    pub(crate) fn told(&self) -> String {
        format!("{} is no longer wanted, and still there ({} objects)", self.name, self.objects)
    }

    /// With the way to be rid of it.
    pub(crate) fn with_next(&self) -> String {
        format!("{}\n  next: {}", self.told(), unwanted::way_out(self.name))
    }

    /// For programs.
    pub(crate) fn object(&self) -> Value {
        json!({"component": self.name.word(), "objects": self.objects, "next": unwanted::way_out(self.name)})
    }
}

/// All that the layers inside of the cluster are made from.
#[derive(Default)]
pub(crate) struct Furnishing {
    manifests: BTreeMap<ComponentName, Vec<Object>>,
    vault: Option<engine::Vault>,
    repository: Option<gitops::Repository>,
    leftovers: unwanted::Leftovers,
}

impl Furnishing {
    /// Of a castle; its manifests from this mirror, or from wherever its lock and the environment say. Whoever only looks keeps none of them.
    pub(crate) async fn of(kept: &Kept, mirror: Option<&Path>, looks: bool) -> Result<Self, Trouble> {
        let mut source = Manifests::of(kept, mirror)?;
        if looks {
            source.supply = source.supply.without_keeping();
        }
        let has_mirror = source.supply.mirror().is_some();
        let chosen = if kept.doors.is_plain() && !has_mirror {
            stand_ins(&kept.castle, source.lock.as_ref())
        } else {
            let chosen = choose(&kept.castle, source.lock.as_ref(), has_mirror);
            chosen.map_err(|error| Trouble::Invalid(error.to_string()))?
        };
        let fit = Fit::of(&kept.castle, &kept.nodes);
        let mut manifests = BTreeMap::new();
        for chosen in &chosen {
            let objects = source.supply.objects(chosen, &fit).await;
            manifests.insert(chosen.wanted.name, objects.map_err(|error| Trouble::of(&error))?);
        }
        let vault = kept.chamber().map_err(Trouble::Failed)?.map(|chamber| chamber.as_seen_inside());
        let repository = repository(kept, &manifests).await?;
        Ok(Self { manifests, vault, repository, leftovers: Arc::default() })
    }

    /// The objects of each component that castle installs.
    pub(crate) fn manifests(&self) -> &BTreeMap<ComponentName, Vec<Object>> {
        &self.manifests
    }

    /// What Flux has applied, once the handover was seen.
    pub(crate) fn revision(&self) -> Option<String> {
        let handed = self.repository.as_ref()?.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.as_ref().map(|revision| masking::text(&revision.0))
    }

    /// The components that are there and that the file wants no more, as of the last look.
    pub(crate) fn unwanted(&self) -> Vec<Unwanted> {
        let found = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().map(|(name, objects)| Unwanted { name: *name, objects: *objects }).collect()
    }

    /// Adds the layers inside of the cluster.
    pub(crate) fn raise(
        &self,
        graph: &mut GraphBuilder,
        (castle, nodes): (&Castle, &[Node]),
        formed: &Formed,
        removal: &[ComponentName],
    ) {
        let inside = Inside::enter(graph, castle, nodes, &formed.api, &self.manifests);
        let store = self.vault.as_ref().and_then(|vault| engine::raise(graph, &inside, vault));
        networking::raise(graph, &inside);
        storage::raise(graph, &inside, &formed.volumes);
        if let Some(repository) = &self.repository {
            gitops::raise(graph, &inside, repository, store.as_ref());
        }
        unwanted::raise(graph, &inside, removal, &self.leftovers);
    }
}

/// The repository that Flux follows, and what it needs to.
async fn repository(
    kept: &Kept,
    manifests: &BTreeMap<ComponentName, Vec<Object>>,
) -> Result<Option<gitops::Repository>, Trouble> {
    let Some(gitops) = kept.castle.gitops.as_ref() else { return Ok(None) };
    let troubled = |unread: Unread| match unread {
        Unread::NotFromHere(why) => Trouble::Failed(why),
        Unread::Invalid(fault) => Trouble::Invalid(with_next(&fault)),
        Unread::Failed(fault) => fault.into(),
    };
    let read = Repository::of(kept).await.map_err(troubled)?;
    let authority = authority(kept, gitops).map_err(troubled)?;
    let Some(read) = read else { return Ok(None) };
    let credential = match &gitops.credential {
        None => None,
        Some(reference) => {
            let named = |why: String| Trouble::Failed(format!("gitops.credential: {why}"));
            let parts = kept.credential(reference, &read.url).await.map_err(named)?;
            Some(match &reference.value {
                // The cluster reads it by itself, and so sees when it is replaced.
                SecretReference::Vault(name)
                    if manifests.contains_key(&ComponentName::ExternalSecrets) && credential::is_token(&parts) =>
                {
                    Credential::Vaulted(kept.vault_key(name).map_err(named)?)
                }
                _ => Credential::Given(parts),
            })
        }
    };
    let age_key = match &gitops.age_key {
        None => None,
        Some(reference) => {
            let key = kept.secret(reference).await;
            Some(key.map_err(|why| Trouble::Failed(format!("gitops.ageKey: {why}")))?)
        }
    };
    let address = read.url.clone();
    let read = Arc::new(read);
    let head: gitops::Head = Arc::new(move || {
        let read = read.clone();
        Box::pin(async move { read.head().await })
    });
    Ok(Some(gitops::Repository { address, credential, authority, age_key, head, handed: Arc::default() }))
}
