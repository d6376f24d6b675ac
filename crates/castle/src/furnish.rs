//! What is put into a castle's cluster: the manifests of its components, the vault as the cluster reaches it, the repository.

use std::collections::BTreeMap;
use std::path::Path;

use castle_components::{Fit, choose};
use castle_engine::GraphBuilder;
use castle_kubernetes::model::Object;
use castle_layers::cluster::Formed;
use castle_layers::{Inside, engine, gitops, networking, storage};
use castle_spec::{Castle, ComponentName, Node};

use crate::components::Manifests;
use crate::keeping::Kept;
use crate::stand::Trouble;

/// All that the layers inside of the cluster are made from.
pub(crate) struct Furnishing {
    manifests: BTreeMap<ComponentName, Vec<Object>>,
    vault: Option<engine::Vault>,
    repository: Option<gitops::Repository>,
}

impl Furnishing {
    /// Of a castle; its manifests from this mirror, or from wherever its lock and the environment say.
    pub(crate) async fn of(kept: &Kept, mirror: Option<&Path>) -> Result<Self, Trouble> {
        let source = Manifests::of(kept, mirror)?;
        let chosen = choose(&kept.castle, source.lock.as_ref(), source.supply.mirror().is_some());
        let chosen = chosen.map_err(|error| Trouble::Invalid(error.to_string()))?;
        let fit = Fit::of(&kept.castle, &kept.nodes);
        let mut manifests = BTreeMap::new();
        for chosen in &chosen {
            let objects = source.supply.objects(chosen, &fit).await;
            manifests.insert(chosen.wanted.name, objects.map_err(|error| Trouble::Failed(error.to_string()))?);
        }
        let vault = kept.chamber().map_err(Trouble::Failed)?.map(|chamber| chamber.from_inside());
        Ok(Self { manifests, vault, repository: None })
    }

    /// Adds the layers inside of the cluster.
    pub(crate) fn raise(&self, graph: &mut GraphBuilder, castle: &Castle, nodes: &[Node], formed: &Formed) {
        let inside = Inside { castle, nodes, api: &formed.api, manifests: &self.manifests };
        let store = self.vault.as_ref().and_then(|vault| engine::raise(graph, &inside, vault));
        networking::raise(graph, &inside);
        storage::raise(graph, &inside, &formed.volumes);
        if let Some(repository) = &self.repository {
            gitops::raise(graph, &inside, repository, store.as_ref());
        }
    }
}
