//! Where objects are kept: by collection, with a revision for every change and what happened lately.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::value;

/// How long changes are remembered: a watch from before must begin anew.
const MEMORY: Duration = Duration::from_secs(600);
/// How many changes are remembered at most.
const CHANGES: usize = 20_000;

/// The place of an object in its collection: namespace and name.
pub(crate) type Place = (String, String);

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Added,
    Modified,
    Deleted,
}

/// A change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    at: Duration,
    pub(crate) collection: Arc<str>,
    pub(crate) turn: Turn,
    /// The object after it; for a deletion the last that it was.
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
}

/// All objects of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Store {
    revision: u64,
    collections: BTreeMap<Arc<str>, BTreeMap<Place, Arc<Value>>>,
    history: VecDeque<Change>,
    /// The changes up to this one are forgotten.
    compacted: u64,
}

impl Store {
    /// The number of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The last change that is forgotten.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, collection: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.collections.get(collection)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The objects of a collection, in one namespace or (if it is empty) in all, in the order of their places.
    pub(crate) fn all<'a>(&'a self, collection: &str, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Value>> {
        let from = Bound::Included((namespace.to_owned(), String::new()));
        let collection = self.collections.get(collection);
        let objects = collection.map(|all| all.range((from, Bound::Unbounded))).into_iter().flatten();
        objects.take_while(move |((own, _), _)| namespace.is_empty() || own == namespace).map(|(_, object)| object)
    }

    /// The names of the collections that have objects.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &Arc<str>> {
        self.collections.iter().filter(|(_, objects)| !objects.is_empty()).map(|(name, _)| name)
    }

    /// Writes an object and gives it the next revision.
    pub(crate) fn put(&mut self, now: Duration, collection: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        value::set(&mut object, "metadata.resourceVersion", self.revision.to_string());
        let place = (value::namespace(&object).to_owned(), value::name(&object).to_owned());
        let object = Arc::new(object);
        let collection = self.collection(collection);
        let previous = self.collections.entry(collection.clone()).or_default().insert(place, object.clone());
        let turn = if previous.is_some() { Turn::Modified } else { Turn::Added };
        self.note(Change { revision: self.revision, at: now, collection, turn, object: object.clone(), previous });
        object
    }

    /// Deletes an object, which is told with the revision of its end.
    pub(crate) fn delete(
        &mut self,
        now: Duration,
        collection: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let place = (namespace.to_owned(), name.to_owned());
        let previous = self.collections.get_mut(collection)?.remove(&place)?;
        self.revision += 1;
        let mut object = Value::clone(&previous);
        value::set(&mut object, "metadata.resourceVersion", self.revision.to_string());
        let (object, collection) = (Arc::new(object), self.collection(collection));
        let change = Change {
            revision: self.revision,
            at: now,
            collection,
            turn: Turn::Deleted,
            object: object.clone(),
            previous: Some(previous),
        };
        self.note(change);
        Some(object)
    }

    /// The objects of a collection as they were after a revision that is not forgotten.
    pub(crate) fn at(&self, collection: &str, revision: u64) -> BTreeMap<Place, Arc<Value>> {
        let mut objects = self.collections.get(collection).cloned().unwrap_or_default();
        let from = self.history.partition_point(|change| change.revision <= revision);
        for change in self.history.range(from..).rev().filter(|change| *change.collection == *collection) {
            let place = (value::namespace(&change.object).to_owned(), value::name(&change.object).to_owned());
            match &change.previous {
                Some(previous) => drop(objects.insert(place, previous.clone())),
                None => drop(objects.remove(&place)),
            }
        }
        objects
    }

    /// The changes of a collection after a revision.
    pub(crate) fn since<'a>(&'a self, collection: &'a str, revision: u64) -> impl Iterator<Item = &'a Change> {
        let from = self.history.partition_point(|change| change.revision <= revision);
        self.history.range(from..).filter(move |change| *change.collection == *collection)
    }

    /// Forgets all changes that are over.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// Every object with the name of its collection.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Value>)> {
        self.collections.iter().flat_map(|(name, objects)| objects.values().map(move |object| (name, object)))
    }

    fn collection(&mut self, name: &str) -> Arc<str> {
        match self.collections.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => Arc::from(name),
        }
    }

    fn note(&mut self, change: Change) {
        let now = change.at;
        self.history.push_back(change);
        while self.history.len() > CHANGES || self.history.front().is_some_and(|oldest| oldest.at + MEMORY < now) {
            if let Some(forgotten) = self.history.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": namespace } })
    }

    #[test]
    fn every_change_has_the_next_revision_and_is_told() {
        let mut store = Store::default();
        let first = store.put(Duration::ZERO, "pods", object("a", "x"));
        assert_eq!(value::text(&first, "metadata.resourceVersion"), "1");
        store.put(Duration::ZERO, "pods", object("b", "y"));
        store.put(Duration::ZERO, "services", object("a", "z"));
        let gone = store.delete(Duration::ZERO, "pods", "a", "x").unwrap();
        assert_eq!(value::text(&gone, "metadata.resourceVersion"), "4");
        let told: Vec<(u64, Turn)> = store.since("pods", 1).map(|change| (change.revision, change.turn)).collect();
        assert_eq!(told, [(2, Turn::Added), (4, Turn::Deleted)]);
        assert_eq!(store.all("pods", "").count(), 1);
        assert_eq!(store.all("pods", "a").count(), 0);
    }

    #[test]
    fn what_is_long_over_is_forgotten() {
        let mut store = Store::default();
        store.put(Duration::ZERO, "pods", object("a", "x"));
        store.put(MEMORY + Duration::from_secs(1), "pods", object("a", "y"));
        assert_eq!(store.compacted(), 1);
        store.compact();
        assert_eq!((store.compacted(), store.since("pods", 0).count()), (2, 0));
    }

    #[test]
    fn a_collection_can_be_seen_as_it_was() {
        let mut store = Store::default();
        store.put(Duration::ZERO, "pods", object("n", "a"));
        store.put(Duration::ZERO, "pods", object("n", "b"));
        store.delete(Duration::ZERO, "pods", "n", "a");
        let names = |revision| store.at("pods", revision).into_keys().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!((names(1), names(2), names(3)), (vec!["a".into()], vec!["a".into(), "b".into()], vec!["b".into()]));
    }
}
