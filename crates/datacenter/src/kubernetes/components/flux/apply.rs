//! Applying objects as the kustomize controller does: in stages, always by force, and removing what is no longer wanted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kubernetes::kube::Kube;
use crate::kubernetes::value;

use super::health::{self, Health};

pub(super) const CONTROLLER: &str = "kustomize-controller";
const LABEL: &str = "kustomize.toolkit.fluxcd.io";

/// An object of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) version: String,
}

impl Entry {
    pub(super) fn of(object: &Value) -> Self {
        let api_version = value::text(object, "apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let [namespace, name, kind] =
            ["metadata.namespace", "metadata.name", "kind"].map(|path| value::text(object, path).to_owned());
        Self { namespace, name, group: group.to_owned(), kind, version: version.to_owned() }
    }

    pub(super) fn shown(&self) -> Value {
        let name = self.name.replace(':', "__");
        json!({ "id": format!("{}_{name}_{}_{}", self.namespace, self.group, self.kind), "v": self.version })
    }

    pub(super) fn read(entry: &Value) -> Option<Self> {
        let id = value::text(entry, "id");
        let (rest, kind) = id.rsplit_once('_')?;
        let (rest, group) = rest.rsplit_once('_')?;
        let (namespace, name) = rest.split_once('_')?;
        let (name, version) = (name.replace("__", ":"), value::text(entry, "v").to_owned());
        Some(Self { namespace: namespace.to_owned(), name, group: group.to_owned(), kind: kind.to_owned(), version })
    }

    /// As messages name it: `Deployment/default/web`.
    pub(super) fn words(&self) -> String {
        let parts = [&self.kind, &self.namespace, &self.name];
        parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

/// What became of applying.
pub(super) enum Applied {
    All,
    /// Something of an early stage is not ready yet.
    Waits,
    Failed(String),
}

fn stage(object: &Value) -> u8 {
    match value::text(object, "kind") {
        "CustomResourceDefinition" | "Namespace" | "ClusterRole" => 0,
        kind if kind.ends_with("Class") => 1,
        kind if kind.ends_with("WebhookConfiguration") => 3,
        _ => 2,
    }
}

impl Kube {
    /// The path of an object, and the collection that it is in.
    pub(super) fn place_of(&self, entry: &Entry) -> Result<(String, String), String> {
        let Entry { namespace, name, group, kind, version } = entry;
        let found = self.resources().find(|it| it.group == *group && it.version == *version && it.kind == *kind);
        let resource = found.ok_or_else(|| {
            let at = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            format!("{} dry-run failed: no matches for kind {kind:?} in version {at:?}", entry.words())
        })?;
        if resource.is_namespaced && namespace.is_empty() {
            return Err(format!("{} namespace not specified", entry.words()));
        }
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let place = if resource.is_namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        Ok((format!("{base}{place}/{}/{name}", resource.plural), resource.qualified()))
    }

    /// The object of an entry, as it is now.
    pub(super) fn live(&self, entry: &Entry) -> Option<std::sync::Arc<Value>> {
        let (_, collection) = self.place_of(entry).ok()?;
        self.get(&collection, &entry.namespace, &entry.name).or_else(|| self.get(&collection, "", &entry.name))
    }

    /// Applies all objects, stage after stage. Whoever may be forced is removed and made anew where a field cannot be changed.
    pub(super) fn apply_all(&mut self, objects: &[Value], is_forced: bool) -> Applied {
        for own in 0..=3 {
            let staged: Vec<&Value> = objects.iter().filter(|object| stage(object) == own).collect();
            // Nothing of a stage is applied before all of it could be.
            let tried = staged.iter().try_for_each(|object| self.try_one(object, is_forced));
            if let Err(why) =
                tried.and_then(|()| staged.iter().try_for_each(|object| self.apply_one(object, is_forced)))
            {
                return Applied::Failed(why);
            }
            let is_ready = |object: &&Value| {
                self.live(&Entry::of(object)).is_some_and(|live| health::of(&live) == Health::Current)
            };
            if own < 2 && !staged.iter().all(is_ready) {
                return Applied::Waits;
            }
        }
        Applied::All
    }

    /// Whether an object is left as it is, by its own word or by that of the one that is there.
    fn is_left_alone(&self, object: &Value, live: Option<&Value>) -> bool {
        let by_both = |key: &str, word: &str| says(object, key, word) || live.is_some_and(|live| says(live, key, word));
        by_both("reconcile", "disabled") || by_both("ssa", "Ignore") || live.is_some() && by_both("ssa", "IfNotPresent")
    }

    /// Finds out whether an object could be applied.
    fn try_one(&mut self, object: &Value, is_forced: bool) -> Result<(), String> {
        let entry = Entry::of(object);
        if object.get("sops").is_some() {
            let text = "is SOPS encrypted, configuring decryption is required for this secret to be reconciled";
            return Err(format!("{} {text}", entry.words()));
        }
        let live = self.live(&entry);
        if self.is_left_alone(object, live.as_deref()) {
            return Ok(());
        }
        let (path, _) = self.place_of(&entry)?;
        match self.ask_as(CONTROLLER, "PATCH", &format!("{path}?dryRun=All"), object) {
            Err(why) if !(is_replaced(object, live.as_deref(), is_forced) && is_immutable(&why)) => {
                Err(format!("{} dry-run failed: {why}", entry.words()))
            }
            _ => Ok(()),
        }
    }

    fn apply_one(&mut self, object: &Value, is_forced: bool) -> Result<(), String> {
        let entry = Entry::of(object);
        let live = self.live(&entry);
        if self.is_left_alone(object, live.as_deref()) {
            return Ok(());
        }
        let (path, collection) = self.place_of(&entry)?;
        let keeps_others =
            says(object, "ssa", "Merge") || live.as_deref().is_some_and(|live| says(live, "ssa", "Merge"));
        if !keeps_others {
            self.take_over(&collection, &entry);
        }
        let told = match self.ask_as(CONTROLLER, "PATCH", &path, object) {
            Err(why) if is_replaced(object, live.as_deref(), is_forced) && is_immutable(&why) => self
                .ask_as(CONTROLLER, "DELETE", &path, &Value::Null)
                .and_then(|_| self.ask_as(CONTROLLER, "PATCH", &path, object)),
            told => told,
        };
        told.map(drop).map_err(|why| format!("{} apply failed: {why}", entry.words()))
    }

    /// What kubectl and the like managed is managed by Flux from now on: it is told apart by the beginnings of their names.
    fn take_over(&mut self, collection: &str, entry: &Entry) {
        let Some(live) = self.get(collection, &entry.namespace, &entry.name) else { return };
        let list = value::items(&live, "metadata.managedFields");
        let is_meant = |it: &Value| {
            let (name, is_update) = (value::text(it, "manager"), value::text(it, "operation") == "Update");
            let is_others = |prefix: &str| is_update && name.starts_with(prefix);
            value::text(it, "subresource").is_empty()
                && (name.starts_with("kubectl") || is_others("before-first-apply") || is_others(CONTROLLER))
        };
        if !list.iter().any(is_meant) {
            return;
        }
        let is_own = |it: &Value| value::text(it, "manager") == CONTROLLER && value::text(it, "operation") == "Apply";
        let (taken, mut kept): (Vec<Value>, Vec<Value>) =
            list.iter().cloned().partition(|it| is_meant(it) || is_own(it));
        // The entry it has already goes on; else the first of the others becomes its own.
        let Some(mut model) = taken.iter().find(|it| is_own(it)).or(taken.first()).cloned() else { return };
        let mut fields = json!({});
        for it in &taken {
            crate::kubernetes::patch::merge(&mut fields, &it["fieldsV1"]);
        }
        value::set(&mut model, "manager", CONTROLLER);
        value::set(&mut model, "operation", "Apply");
        value::set(&mut model, "fieldsV1", fields);
        kept.push(model);
        let mut new = Value::clone(&live);
        value::set(&mut new, "metadata.managedFields", kept);
        self.put(collection, new);
    }

    /// Removes what was applied before and is no longer wanted, if it is still this Kustomization's.
    pub(super) fn prune(
        &mut self,
        kustomization: &Value,
        before: &[Entry],
        now: &BTreeSet<Entry>,
    ) -> Result<(), String> {
        let is_wanted =
            |entry: &Entry| now.iter().any(|own| Entry { version: entry.version.clone(), ..own.clone() } == *entry);
        let mut gone: Vec<&Entry> = before.iter().filter(|entry| !is_wanted(entry)).collect();
        gone.sort_by_key(|entry| std::cmp::Reverse(stage(&json!({ "kind": entry.kind }))));
        for entry in gone {
            let Some(live) = self.live(entry) else { continue };
            let label = |key: &str| {
                let labels = value::at(&live, "metadata.labels");
                labels
                    .and_then(|all| all.get(format!("{LABEL}/{key}")))
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let is_own =
                label("name") == value::name(kustomization) && label("namespace") == value::namespace(kustomization);
            let is_kept = ["prune", "reconcile"].iter().any(|key| says(&live, key, "disabled"));
            if !is_own || is_kept || value::is_deleting(&live) {
                continue;
            }
            let (path, _) = self.place_of(entry)?;
            self.ask_as(CONTROLLER, "DELETE", &path, &Value::Null)
                .map_err(|why| format!("{} delete failed: {why}", entry.words()))?;
        }
        Ok(())
    }
}

/// Whether a label or an annotation of an object says this to Flux, in whatever letters.
fn says(object: &Value, key: &str, word: &str) -> bool {
    let key = format!("{LABEL}/{key}");
    ["metadata.labels", "metadata.annotations"].iter().any(|place| {
        let text = value::at(object, place).and_then(|all| all.get(&key)).and_then(Value::as_str);
        text.is_some_and(|text| text.eq_ignore_ascii_case(word))
    })
}

/// Whether an object may be removed and made anew.
fn is_replaced(object: &Value, live: Option<&Value>, is_forced: bool) -> bool {
    is_forced || says(object, "force", "enabled") || live.is_some_and(|live| says(live, "force", "enabled"))
}

/// Whether a refusal is one of a field that cannot be changed.
fn is_immutable(why: &str) -> bool {
    why.contains("is immutable") || why.contains("immutable field")
}

/// Marks objects as those of a Kustomization.
pub(super) fn own(objects: &mut [Value], kustomization: &Value) {
    for object in objects {
        let labels = value::place(object, "metadata.labels");
        labels[format!("{LABEL}/name")] = json!(value::name(kustomization));
        labels[format!("{LABEL}/namespace")] = json!(value::namespace(kustomization));
    }
}
