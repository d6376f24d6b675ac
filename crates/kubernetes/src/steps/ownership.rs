//! Whose everything in a cluster is.

use std::collections::{BTreeMap, BTreeSet};

use castle_engine::Fault;
use futures_util::future::join;

use super::inventory::{self, NAMESPACE};
use super::sources::{Source, sources};
use crate::client::{Api, Mode, Resource, Rival, Scope, Trouble, together};
use crate::model::{Key, Mark, OF_TALOS, Object, Owner, Ownership, owners};

/// Who has listed which objects: castle's inventories, Flux' and Helm's by way of Flux, and Talos' own.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn inventories(api: &Api) -> Result<BTreeMap<Key, BTreeSet<Owner>>, Fault> {
    let mut found: BTreeMap<Key, BTreeSet<Owner>> = BTreeMap::new();
    let mut add = |key: Key, owner: Owner| {
        found.entry(key).or_default().insert(owner);
    };
    let (kind, scope) = (inventory::kind(), Scope::within(NAMESPACE));
    let (maps, sources) = join(api.list(&kind, &scope), sources(api)).await;
    for map in maps.map_err(fault_of("ConfigMap"))?.objects {
        match Mark::of(&map) {
            Some(mark) if mark.inventory() == map.name() => {
                for key in inventory::legible(&map) {
                    add(key, Owner::Castle(Some(mark.clone())));
                }
            }
            None if map.name() == OF_TALOS => {
                let ids = map.at("/data").as_object().into_iter().flatten();
                ids.filter_map(|(id, _)| from_id(id)).for_each(|key| add(key, Owner::Talos));
            }
            _ => {}
        }
    }
    for Source { owner, listed, .. } in sources? {
        listed.into_iter().for_each(|key| add(key, owner.clone()));
    }
    Ok(found)
}

/// An id as Flux writes it: namespace, name, group and kind, with underscores between; a colon in a name is two.
pub(super) fn from_id(id: &str) -> Option<Key> {
    let (namespace, rest) = id.split_once('_')?;
    let (rest, kind) = rest.rsplit_once('_')?;
    let (name, group) = rest.rsplit_once('_')?;
    Some(Key::new(group, kind, namespace, &name.replace("__", ":")))
}

/// Whose each object of these kinds is.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn survey(api: &Api, resources: &[Resource]) -> Result<Vec<Ownership>, Fault> {
    let inventories = inventories(api).await?;
    let listable = resources.iter().filter(|resource| resource.verbs.iter().any(|verb| verb == "list"));
    let lists = listable.map(|resource| async move {
        api.list(&resource.kind, &Scope::default()).await.map_err(fault_of(&resource.kind.kind))
    });
    let mut found = Vec::new();
    for list in together(lists.collect()).await {
        found.extend(list?.objects.iter().map(|object| owners(object, &inventories)));
    }
    Ok(found)
}

/// Who would object if castle applied this, as the API says it.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn rivals(api: &Api, wanted: &Object) -> Result<Vec<Rival>, Fault> {
    match api.apply(wanted, Mode::DryRun).await {
        Ok(_) => Ok(Vec::new()),
        Err(trouble) if !trouble.rivals().is_empty() => Ok(trouble.rivals()),
        Err(trouble) => Err(trouble.fault(&wanted.key())),
    }
}

pub(super) fn fault_of(kind: &str) -> impl Fn(Trouble) -> Fault {
    let key = Key::new("", kind, "", "(all)");
    move |trouble| trouble.fault(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_flux_are_read_with_colons_and_without_namespaces() {
        let cases = [
            ("apps_web_apps_Deployment", Key::new("apps", "Deployment", "apps", "web")),
            ("_apps__Namespace", Key::new("", "Namespace", "", "apps")),
            (
                "_system__coredns_rbac.authorization.k8s.io_ClusterRole",
                Key::new("rbac.authorization.k8s.io", "ClusterRole", "", "system:coredns"),
            ),
        ];
        for (id, key) in cases {
            assert_eq!(from_id(id), Some(key), "{id}");
        }
        assert_eq!(from_id("nothing"), None);
    }
}
