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
/// The key in an inventory of what it lists.
const OBJECTS: &str = "objects";
/// The key of its format. Whatever changes in an inventory gets a new one.
const FORMAT_KEY: &str = "format";
/// The format of inventories. One without has it, too: they are read alike.
const FORMAT: &str = "1";

pub(super) fn kind() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// Which object the inventory of a mark is.
pub(super) fn key(mark: &Mark) -> Key {
    Key::new("", "ConfigMap", NAMESPACE, &mark.inventory())
}

fn lines(inventory: &Object) -> impl Iterator<Item = &str> {
    inventory.value()["data"][OBJECTS].as_str().unwrap_or_default().lines()
}

/// What an inventory lists, for whoever acts by it. One that cannot be read as a whole is left as it is: what were written in its place would have
/// forgotten something.
pub(super) fn listed(inventory: &Object) -> Result<BTreeSet<Key>, Fault> {
    let key = inventory.key();
    let format = inventory.text(&format!("/data/{FORMAT_KEY}"));
    if !["", FORMAT].contains(&format) {
        let evidence = format!("is an inventory of a newer castle (format {format}; this one knows {FORMAT})");
        return Err(Fault::guard(key.to_string(), evidence).next("use the castle that wrote it, or a newer one"));
    }
    let read = |line: &str| {
        Key::from_line(line).ok_or_else(|| {
            let evidence = format!("lists something that nobody can read: {line}");
            Fault::guard(key.to_string(), evidence).next(format!("kubectl edit {}", key.for_kubectl()))
        })
    };
    lines(inventory).map(read).collect()
}

/// What an inventory lists as far as it can be read, for whoever only tells of it.
pub(super) fn legible(inventory: &Object) -> BTreeSet<Key> {
    lines(inventory).filter_map(Key::from_line).collect()
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
    read(api, mark).await?.as_ref().map(listed).transpose()
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
        Some((mark, legible(map).len()))
    };
    Ok(maps.iter().filter_map(inventory).collect())
}

/// Writes an inventory.
pub(super) async fn write(api: &Api, mark: &Mark, objects: &BTreeSet<Key>) -> Result<(), Fault> {
    let key = key(mark);
    let Some(object) = written(&key, objects) else { return Ok(()) };
    let applied = api.apply(&mark.on(object), Mode::Real).await;
    applied.map(|_| ()).map_err(|trouble| trouble.fault(&key))
}

/// An inventory as it is written.
fn written(key: &Key, objects: &BTreeSet<Key>) -> Option<Object> {
    let lines: Vec<String> = objects.iter().map(Key::line).collect();
    Object::new(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": NAMESPACE},
        "data": {FORMAT_KEY: FORMAT, OBJECTS: lines.join("\n")},
    }))
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
    type Action = ();
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Self::Observed, Fault>> {
        Box::pin(async move { Ok(recorded(api, &self.mark).await?.unwrap_or_default()) })
    }

    fn decide(&self, _: &Self::Needs, observed: &Self::Observed) -> Decision {
        if self.wanted.is_subset(observed) {
            return Decision::Nothing;
        }
        if observed.is_empty() {
            return self.foresee().map_or(Decision::Nothing, |change| Decision::Act((), change));
        }
        let change = Change::new("record", Impact::InPlace);
        let count = |number: usize| Some(format!("{number} objects"));
        let all = count(self.wanted.union(observed).count());
        Decision::Act((), change.differing("inventory", count(observed.len()), all))
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        observed: &'a Self::Observed,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { write(api, &self.mark, &self.wanted.union(observed).cloned().collect()).await })
    }

    fn expect(&self, _: &Self::Needs, _: &Self::Observed) -> Option<Present> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is kept in clusters.
    const RECORDED: &str = r#"{"apiVersion":"v1","data":{"format":"1","objects":"/Namespace//metallb-system\napps/Deployment/metallb-system/controller"},"kind":"ConfigMap","metadata":{"labels":{"castle.dev/castle":"blue","castle.dev/component":"metallb","castle.dev/layer":"networking"},"name":"castle-networking-metallb","namespace":"kube-system"}}"#;

    fn object(text: &str) -> Object {
        Object::new(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn the_recorded_inventory_is_written_and_read() {
        let mark = Mark::new("blue", "networking", "metallb");
        let objects = BTreeSet::from([
            Key::new("", "Namespace", "", "metallb-system"),
            Key::new("apps", "Deployment", "metallb-system", "controller"),
        ]);
        let mut written: serde_json::Value = mark.on(written(&key(&mark), &objects).unwrap()).value().clone();
        written.sort_all_objects();
        assert_eq!(written.to_string(), RECORDED);
        assert_eq!(listed(&object(RECORDED)).unwrap(), objects);
        let earlier = RECORDED.replace("\"format\":\"1\",", "");
        assert_eq!(listed(&object(&earlier)).unwrap(), objects, "from before there was a format");
    }

    #[test]
    fn what_cannot_be_read_as_a_whole_is_named_and_nothing_is_done_by_it() {
        let newer = listed(&object(&RECORDED.replace("\"format\":\"1\"", "\"format\":\"2\""))).unwrap_err();
        assert!(newer.guarded && newer.evidence.contains("a newer castle (format 2; this one knows 1)"), "{newer:?}");
        let damaged = object(&RECORDED.replace("/Namespace//metallb-system", "nonsense"));
        let told = listed(&damaged).unwrap_err();
        assert!(told.guarded && told.evidence.ends_with("nobody can read: nonsense"), "{told:?}");
        assert_eq!(legible(&damaged).len(), 1);
    }
}
