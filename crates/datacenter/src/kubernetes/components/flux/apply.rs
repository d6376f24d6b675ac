//! Applying objects as the kustomize controller does: in stages, always by force, and removing what is no longer wanted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kubernetes::components::annotation;
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
    fn place_of(&self, entry: &Entry) -> Result<(String, String), String> {
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

    /// Applies all objects, stage after stage.
    pub(super) fn apply_all(&mut self, objects: &[Value]) -> Applied {
        for own in 0..=3 {
            let staged: Vec<&Value> = objects.iter().filter(|object| stage(object) == own).collect();
            for object in &staged {
                if let Err(why) = self.apply_one(object) {
                    return Applied::Failed(why);
                }
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

    fn apply_one(&mut self, object: &Value) -> Result<(), String> {
        let entry = Entry::of(object);
        if object.get("sops").is_some() {
            let text = "is SOPS encrypted, configuring decryption is required for this secret to be reconciled";
            return Err(format!("{} {text}", entry.words()));
        }
        let mode = annotation(object, &format!("{LABEL}/ssa")).unwrap_or_default().to_lowercase();
        let live = self.live(&entry);
        let is_off = |object: &Value| annotation(object, &format!("{LABEL}/reconcile")) == Some("disabled");
        if mode == "ignore"
            || is_off(object)
            || live.as_deref().is_some_and(is_off)
            || mode == "ifnotpresent" && live.is_some()
        {
            return Ok(());
        }
        let (path, collection) = self.place_of(&entry)?;
        self.take_over(&collection, &entry);
        let told = self.ask_as(CONTROLLER, "PATCH", &path, object);
        told.map(drop).map_err(|why| format!("{} dry-run failed: {why}", entry.words()))
    }

    /// What kubectl and the like managed is managed by Flux from now on.
    fn take_over(&mut self, collection: &str, entry: &Entry) {
        let Some(live) = self.get(collection, &entry.namespace, &entry.name) else { return };
        let list = value::items(&live, "metadata.managedFields");
        let is_meant = |it: &Value| {
            let (name, operation) = (value::text(it, "manager"), value::text(it, "operation"));
            value::text(it, "subresource").is_empty()
                && (name.starts_with("kubectl")
                    || name == "before-first-apply"
                    || name == CONTROLLER && operation == "Update")
        };
        if !list.iter().any(is_meant) {
            return;
        }
        let (mut kept, mut fields) = (Vec::new(), json!({}));
        let mut model = json!({});
        for it in list {
            let is_own = value::text(it, "manager") == CONTROLLER && value::text(it, "operation") == "Apply";
            if is_meant(it) || is_own {
                crate::kubernetes::patch::merge(&mut fields, &it["fieldsV1"]);
                model = it.clone();
            } else {
                kept.push(it.clone());
            }
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
            let is_kept = ["prune", "reconcile"]
                .iter()
                .any(|key| annotation(&live, &format!("{LABEL}/{key}")) == Some("disabled"));
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

/// Marks objects as those of a Kustomization.
pub(super) fn own(objects: &mut [Value], kustomization: &Value) {
    for object in objects {
        let labels = value::place(object, "metadata.labels");
        labels[format!("{LABEL}/name")] = json!(value::name(kustomization));
        labels[format!("{LABEL}/namespace")] = json!(value::namespace(kustomization));
    }
}
