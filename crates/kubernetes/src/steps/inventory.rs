//! Inventories: which objects castle has ever wanted of a component, written down before the first of them is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use castle_engine::{Change, Decision, Fault, Impact, Operation, Step};
use castle_seams::BoxFuture;
use serde_json::json;

use super::apply::Present;
use crate::client::{Api, Mode, Scope};
use crate::model::{Key, Kind, Mark, Object};

/// Where inventories are kept: a namespace that is always there, and that nobody removes.
pub(super) const NAMESPACE: &str = "kube-system";
/// The key in an inventory.
pub(super) const OBJECTS: &str = "objects";

pub(super) fn kind() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// Which object the inventory of a mark is.
pub(super) fn key(mark: &Mark) -> Key {
    Key::new("", "ConfigMap", NAMESPACE, &mark.inventory())
}

/// What an inventory lists. Lines that nobody can read are left out: nothing is ever done by them.
pub(super) fn listed(inventory: &Object) -> BTreeSet<Key> {
    inventory.text(&format!("/data/{OBJECTS}")).lines().filter_map(Key::from_line).collect()
}

/// The inventory as it stands, if it is castle's own.
pub(super) async fn read(api: &Api, mark: &Mark) -> Result<Option<Object>, Fault> {
    let key = key(mark);
    let found = api.get(&kind(), NAMESPACE, &key.name).await.map_err(|trouble| trouble.fault(&key))?;
    match found {
        Some(found) if Mark::of(&found).as_ref() != Some(mark) => {
            let fault = Fault::guard(key.to_string(), "has the name of an inventory of castle's, but not its mark");
            Err(fault.next(format!("kubectl get {} --output yaml", key.for_kubectl())))
        }
        found => Ok(found),
    }
}

/// The objects of a component that castle has ever wanted, if it has an inventory of them.
///
/// # Errors
///
/// [`Fault`] if the API does not say, or if the inventory is not castle's.
pub async fn recorded(api: &Api, mark: &Mark) -> Result<Option<BTreeSet<Key>>, Fault> {
    Ok(read(api, mark).await?.as_ref().map(listed))
}

/// All inventories of a castle: of which component, and how many objects each lists.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn all_recorded(api: &Api, castle: &str) -> Result<BTreeMap<Mark, usize>, Fault> {
    let scope = Scope { labels: Mark::any_of(&BTreeSet::from([castle])), ..Scope::within(NAMESPACE) };
    let subject = Key::new("", "ConfigMap", NAMESPACE, "(all)");
    let maps = api.list(&kind(), &scope).await.map_err(|trouble| trouble.fault(&subject))?.objects;
    let inventory = |map: &Object| {
        let mark = Mark::of(map).filter(|mark| mark.inventory() == map.name())?;
        Some((mark, listed(map).len()))
    };
    Ok(maps.iter().filter_map(inventory).collect())
}

/// Writes an inventory.
pub(super) async fn write(api: &Api, mark: &Mark, objects: &BTreeSet<Key>) -> Result<(), Fault> {
    let key = key(mark);
    let lines: Vec<String> = objects.iter().map(Key::line).collect();
    let object = Object::new(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": NAMESPACE},
        "data": {OBJECTS: lines.join("\n")},
    }));
    let Some(object) = object else { return Ok(()) };
    let applied = api.apply(&mark.on(object), Mode::Real).await;
    applied.map(|_| ()).map_err(|trouble| trouble.fault(&key))
}

/// Wants every object of a component in its inventory, before any of them exists. What is in it already stays in it.
pub struct Record {
    wanted: BTreeSet<Key>,
    mark: Mark,
}

impl Record {
    /// Of these objects.
    #[must_use]
    pub fn new(objects: &[Object], mark: &Mark) -> Self {
        Self { wanted: objects.iter().map(Object::key).collect(), mark: mark.clone() }
    }
}

impl Step for Record {
    type Needs = (Arc<Api>,);
    type Observed = BTreeSet<Key>;
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Self::Observed, Fault>> {
        Box::pin(async move { Ok(read(api, &self.mark).await?.as_ref().map(listed).unwrap_or_default()) })
    }

    fn decide(&self, _: &Self::Needs, observed: &Self::Observed) -> Decision {
        if self.wanted.is_subset(observed) {
            return Decision::Nothing;
        }
        if observed.is_empty() {
            return self.foresee().map_or(Decision::Nothing, Decision::Change);
        }
        let change = Change::new("record", Impact::InPlace);
        let count = |number: usize| Some(format!("{number} objects"));
        Decision::Change(change.differing(
            "inventory",
            count(observed.len()),
            count(self.wanted.union(observed).count()),
        ))
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        observed: &'a Self::Observed,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { write(api, &self.mark, &self.wanted.union(observed).cloned().collect()).await })
    }

    fn expect(&self, _: &Self::Needs, _: &Self::Observed, _: &Change) -> Option<Present> {
        Some(Present)
    }

    fn foresee(&self) -> Option<Change> {
        let change = Change::new("record", Impact::Create);
        let count = format!("{} objects", self.wanted.len());
        (!self.wanted.is_empty()).then(|| change.differing("inventory", None, Some(count)))
    }

    fn output(&self, _: &Self::Needs, _: &Self::Observed) -> Present {
        Present
    }
}
