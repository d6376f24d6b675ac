//! The entries of `metadata.managedFields`: who owns what, and what becomes of it when somebody writes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::node::Node;
use super::set::Set;
use super::walk::{compare, fields, merge, with_named, without};
use crate::kubernetes::value;

/// How many managers that update there are before the oldest are put together.
const UPDATERS: usize = 10;
/// Who the oldest are put together under.
const ANCIENT: &str = "ancient-changes";

/// Who writes, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applies: bool,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// What a manager owns, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
    pub(crate) set: Set,
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The other, as messages name it.
    pub(crate) rival: String,
    pub(crate) path: String,
}

/// A manager without its version: who applies has one entry, whatever version they used.
type Who = (String, bool, String, String);

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers {
    all: BTreeMap<Who, Owned>,
}

impl Manager {
    fn who(&self) -> Who {
        let version = if self.applies { String::new() } else { self.api_version.clone() };
        (self.name.clone(), self.applies, version, self.subresource.clone())
    }
}

/// Fields that nobody owns.
const NOBODYS: [&[&str]; 11] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
    &["metadata", "clusterName"],
];

fn strip(set: &mut Set) {
    for path in NOBODYS {
        set.forget(path);
    }
    set.forget_only(&["metadata"]);
    set.is_member = false;
    set.trim();
}

/// An object without its managers: what walks are made over.
pub(crate) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    value::remove(&mut object, "metadata.managedFields");
    object
}

impl Managers {
    /// Reads the entries of an object; nothing if they cannot be read.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let mut all = BTreeMap::new();
        for entry in value::items(object, "metadata.managedFields") {
            let text = |key: &str| value::text(entry, key).to_owned();
            let applies = match text("operation").as_str() {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            let manager = Manager {
                name: text("manager"),
                applies,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let set = Set::read(entry.get("fieldsV1").unwrap_or(&json!({})))?;
            let time = Some(text("time")).filter(|time| !time.is_empty());
            all.insert(manager.who(), Owned { api_version: manager.api_version, time, set });
        }
        Some(Self { all })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Writes the entries into an object.
    pub(crate) fn write(&self, object: &mut Value) {
        if self.all.is_empty() {
            value::remove(object, "metadata.managedFields");
            return;
        }
        let mut entries: Vec<(&Who, &Owned)> = self.all.iter().collect();
        entries.sort_by(|(left, l), (right, r)| {
            let key = |who: &Who, owned: &Owned| {
                (
                    !who.1,
                    owned.time.clone().unwrap_or_default(),
                    who.0.clone(),
                    owned.api_version.clone(),
                    who.3.clone(),
                )
            };
            key(left, l).cmp(&key(right, r))
        });
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(who, owned)| {
                let mut entry = json!({
                    "manager": who.0,
                    "operation": if who.1 { "Apply" } else { "Update" },
                    "apiVersion": owned.api_version,
                });
                if let Some(time) = &owned.time {
                    value::set(&mut entry, "time", time.as_str());
                }
                value::set(&mut entry, "fieldsType", "FieldsV1");
                value::set(&mut entry, "fieldsV1", owned.set.written());
                if !who.3.is_empty() {
                    value::set(&mut entry, "subresource", who.3.as_str());
                }
                entry
            })
            .collect();
        value::set(object, "metadata.managedFields", entries);
    }

    /// Notes that somebody turned one object into another. `ignored` are fields that this way of writing does not reach.
    pub(crate) fn update(
        &mut self,
        node: Node<'_>,
        objects: (&Value, &Value),
        manager: &Manager,
        ignored: &[&[&str]],
        now: &str,
    ) {
        let mut difference = compare(node, objects.0, objects.1);
        for set in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
            ignored.iter().for_each(|path| set.forget(path));
        }
        let mut taken = difference.modified.union(&difference.added);
        for owned in self.all.values_mut() {
            owned.set = owned.set.difference(&taken).difference(&difference.removed);
        }
        self.all.retain(|_, owned| !owned.set.is_empty());
        strip(&mut taken);
        if taken.is_empty() {
            return;
        }
        let entry = self.all.entry(manager.who());
        let owned = entry.or_insert_with(|| Owned {
            api_version: manager.api_version.clone(),
            time: None,
            set: Set::default(),
        });
        owned.set.add(&taken);
        owned.time = Some(now.to_owned());
        owned.api_version.clone_from(&manager.api_version);
        self.cap();
    }

    /// Lays what somebody applies over an object.
    ///
    /// # Errors
    ///
    /// The fields that others own, unless `force`.
    pub(crate) fn apply(
        &mut self,
        node: Node<'_>,
        objects: (&Value, &Value),
        manager: &Manager,
        ignored: &[&[&str]],
        force: bool,
        now: &str,
    ) -> Result<Value, Vec<Conflict>> {
        let (live, wanted) = objects;
        let last = self.all.get(&manager.who()).map(|owned| owned.set.clone());
        let whole = fields(node, wanted);
        let mut own = whole.clone();
        ignored.iter().for_each(|path| own.forget(path));
        strip(&mut own);
        let before = self.all.get(&manager.who()).cloned();
        // A field that is given as nothing is owned, and says nothing.
        let mut said = wanted.clone();
        value::without_nulls(&mut said);
        let merged = merge(node, live, &said);
        let merged = match &last {
            Some(last) if !last.is_empty() => self.prune(node, &merged, manager, &whole, last),
            _ => merged,
        };
        let mut difference = compare(node, live, &merged);
        for set in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
            ignored.iter().for_each(|path| set.forget(path));
        }
        let changed = difference.modified.union(&difference.added);
        let mut conflicts = Vec::new();
        for (who, owned) in self.all.iter().filter(|(who, _)| **who != manager.who()) {
            for path in owned.set.intersection(&changed).paths() {
                conflicts.push(Conflict { rival: rival(who, owned), path });
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        for (who, owned) in &mut self.all {
            if *who != manager.who() {
                owned.set = owned.set.difference(&changed).difference(&difference.removed);
            }
        }
        let is_same =
            before.as_ref().is_some_and(|before| before.set == own && before.api_version == manager.api_version);
        let is_noop = is_same && live == &merged;
        let time = before.filter(|_| is_noop).and_then(|before| before.time).unwrap_or_else(|| now.to_owned());
        let owned = Owned { api_version: manager.api_version.clone(), time: Some(time), set: own };
        self.all.insert(manager.who(), owned);
        self.all.retain(|_, owned| !owned.set.is_empty());
        Ok(merged)
    }

    /// Takes away what this manager applied before, does not apply any more, and nobody else owns.
    fn prune(&self, node: Node<'_>, merged: &Value, manager: &Manager, own: &Set, last: &Set) -> Value {
        let take = |object: &Value, gone: &Set| without(node, object, gone).unwrap_or_else(|| json!({}));
        let named = |set: &Set| with_named(node, set);
        let pruned = take(merged, &named(last));
        let mut owned = own.clone();
        for (_, other) in self.all.iter().filter(|(who, _)| **who != manager.who()) {
            owned.add(&other.set);
        }
        let all = named(&fields(node, merged));
        let kept = named(&fields(node, &pruned)).union(&named(&owned));
        let pruned = take(merged, &all.difference(&kept));
        // What nobody ever owned stays, even below something that goes.
        let left = named(&fields(node, &pruned));
        take(merged, &all.difference(&left).intersection(&named(last)))
    }

    /// Who first applies to an object that nobody managed finds one who owns all that is there.
    pub(crate) fn begin(&mut self, node: Node<'_>, objects: (&Value, &Value), api_version: &str, now: &str) {
        let difference = compare(node, objects.0, objects.1);
        let mut set = difference.added.union(&difference.modified);
        strip(&mut set);
        let manager = Manager {
            name: "before-first-apply".to_owned(),
            applies: false,
            api_version: api_version.to_owned(),
            subresource: String::new(),
        };
        let owned = Owned { api_version: api_version.to_owned(), time: Some(now.to_owned()), set };
        self.all.insert(manager.who(), owned);
    }

    fn cap(&mut self) {
        let mut updaters: Vec<(String, Who)> = (self.all.iter())
            .filter(|(who, _)| !who.1 && who.0 != ANCIENT)
            .map(|(who, owned)| (owned.time.clone().unwrap_or_default(), who.clone()))
            .collect();
        updaters.sort();
        let excess = updaters.len().saturating_sub(UPDATERS);
        for (_, who) in updaters.into_iter().take(if excess > 0 { excess + 1 } else { 0 }) {
            let Some(owned) = self.all.remove(&who) else { continue };
            let ancient = (ANCIENT.to_owned(), false, who.2, String::new());
            let entry = self.all.entry(ancient);
            let known = entry.or_insert_with(|| Owned { set: Set::default(), ..owned.clone() });
            known.set.add(&owned.set);
            known.time = known.time.clone().max(owned.time);
        }
    }

    /// Whether both say the same, whenever it was said.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let bare = |managers: &Self| {
            managers
                .all
                .iter()
                .map(|(who, owned)| (who.clone(), owned.api_version.clone(), owned.set.clone()))
                .collect::<Vec<_>>()
        };
        bare(self) == bare(other)
    }
}

/// A manager as messages name it.
fn rival(who: &Who, owned: &Owned) -> String {
    let mut text = format!("{:?}", who.0);
    if !who.3.is_empty() {
        text += &format!(" with subresource {:?}", who.3);
    }
    if !who.1 {
        text += &format!(" using {}", owned.api_version);
    }
    text
}

/// What is told of conflicts: the message.
pub(crate) fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.rival, one.path);
    }
    let mut by_rival: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_rival.entry(&conflict.rival).or_default().push(&conflict.path);
    }
    let mut lines = Vec::new();
    for (rival, paths) in by_rival {
        lines.push(format!("conflicts with {rival}:"));
        lines.extend(paths.iter().map(|path| format!("- {path}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
