//! Objects that end: at once, in their time, or once their finalizers are gone.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::admission::Deed;
use super::api::{Call, self_version};
use super::kinds::Resource;
use super::kube::{Due, Kube, stamp};
use super::status::{Cause, Failure};
use super::{body, protobuf, value};

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How an object is deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) is_dry_run: bool,
    pub(crate) has_orphan_word: bool,
}

impl Options {
    fn read(call: &Call<'_>) -> Result<Self, Failure> {
        let query = &call.ask.query;
        let given = if call.ask.body.iter().all(u8::is_ascii_whitespace) {
            json!({})
        } else if call.ask.content_type.starts_with(protobuf::KIND) {
            protobuf::read(&call.ask.body).map_err(Failure::bad_request)?
        } else {
            body::yaml(&call.ask.body)
                .map_err(|error| Failure::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?
                .value
        };
        let word = query
            .get("propagationPolicy")
            .map(Into::into)
            .or_else(|| given.get("propagationPolicy").and_then(Value::as_str).map(str::to_owned));
        let orphans = given
            .get("orphanDependents")
            .and_then(Value::as_bool)
            .or_else(|| query.get("orphanDependents").map(|word| word == "true"));
        if let (Some(word), Some(_)) = (&word, orphans) {
            let cause = Cause::invalid(
                "propagationPolicy",
                &json!(word),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(Failure::invalid_kind("meta.k8s.io", "DeleteOptions", "", &[cause]));
        }
        let propagation = match (word.as_deref(), orphans) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let words = ["Foreground", "Background", "Orphan", "nil"];
                let cause = Cause::unsupported("propagationPolicy", &json!(other), &words);
                return Err(Failure::invalid_kind("meta.k8s.io", "DeleteOptions", "", &[cause]));
            }
        };
        let is_dry = value::items(&given, "dryRun").iter().any(|word| word == "All");
        Ok(Self {
            grace: query
                .get("gracePeriodSeconds")
                .and_then(|text| text.parse().ok())
                .or_else(|| value::number(&given, "gracePeriodSeconds")),
            propagation,
            uid: value::at(&given, "preconditions.uid").and_then(Value::as_str).map(Into::into),
            version: value::at(&given, "preconditions.resourceVersion").and_then(Value::as_str).map(Into::into),
            is_dry_run: is_dry || query.is_dry_run("DeleteOptions")?,
            has_orphan_word: orphans == Some(false),
        })
    }

    fn check(&self, resource: &Resource, object: &Value) -> Result<(), Failure> {
        let wrong = |what: &str, given: &str, own: &str| {
            let mut why =
                format!("the {what} in the precondition ({given}) does not match the {what} in record ({own}). ");
            why += if what == "UID" {
                "The object might have been deleted and then recreated"
            } else {
                "The object might have been modified"
            };
            let name = value::name(object);
            let text = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind_of(resource));
            let mut details = json!({ "name": name, "group": resource.group, "kind": resource.kind });
            if resource.group.is_empty() {
                value::remove(&mut details, "group");
            }
            Failure::new(409, "Conflict", text).with_details(details)
        };
        let (uid, version) = (value::uid(object), value::text(object, "metadata.resourceVersion"));
        if let Some(given) = self.uid.as_deref().filter(|given| *given != uid) {
            return Err(wrong("UID", given, uid));
        }
        match self.version.as_deref().filter(|given| *given != version) {
            Some(given) => Err(wrong("ResourceVersion", given, version)),
            None => Ok(()),
        }
    }
}

fn kind_of(resource: &Resource) -> String {
    if resource.group.is_empty() { resource.kind.clone() } else { format!("{}.{}", resource.kind, resource.group) }
}

/// Kinds whose deletion is answered with what was deleted.
fn shows_deleted(resource: &Resource) -> bool {
    [
        "csidrivers.storage.k8s.io",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "resourcequotas",
        "persistentvolumes",
        "serviceaccounts",
        "persistentvolumeclaims",
        "namespaces",
        "pods",
        "services",
    ]
    .contains(&resource.qualified().as_str())
}

/// What became of an object that was to be deleted.
pub(crate) enum Ended {
    /// It is gone.
    Gone(Arc<Value>),
    /// It waits for something.
    Waits(Arc<Value>),
}

impl Kube {
    /// `DELETE` of one object.
    pub(crate) fn delete(&mut self, call: &mut Call<'_>) -> Result<(u16, Value), Failure> {
        let options = Options::read(call)?;
        call.is_dry_run = options.is_dry_run;
        let resource = call.resource.clone();
        let name = call.target.name.clone();
        let Some(object) = self.get(&resource.collection(), &call.target.namespace, &name) else {
            return Err(Failure::not_found(&resource, &name));
        };
        options.check(&resource, &object)?;
        self.guard(call, &object)?;
        self.review(call, &Deed::delete(&object), &Value::Null)?;
        if call.is_dry_run {
            return Ok((200, self.deleted(&resource, &object)));
        }
        match self.end(&resource, &object, &options) {
            Ended::Gone(object) => Ok((200, self.deleted(&resource, &object))),
            Ended::Waits(object) => {
                let code = if options.has_orphan_word { 202 } else { 200 };
                Ok((code, self_version(&resource, &object)))
            }
        }
    }

    fn deleted(&self, resource: &Resource, object: &Value) -> Value {
        if shows_deleted(resource) {
            return self_version(resource, object);
        }
        let mut details = json!({ "name": value::name(object), "group": resource.group, "kind": resource.plural, "uid": value::uid(object) });
        if resource.group.is_empty() {
            value::remove(&mut details, "group");
        }
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
    }

    /// `DELETE` of many.
    pub(crate) fn delete_all(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let options = Options::read(call)?;
        call.is_dry_run = options.is_dry_run;
        let resource = call.resource.clone();
        let choice = self.choice(call)?;
        let found: Vec<Arc<Value>> = self
            .store
            .all(&choice.collection, &choice.namespace)
            .filter(|object| choice.chooses(object))
            .cloned()
            .collect();
        // Nothing ends before everybody has had a say about everything: who has to wait for an answer begins anew.
        for object in &found {
            self.guard(call, object)?;
            self.review(call, &Deed::delete(object), &Value::Null)?;
        }
        let mut items = Vec::new();
        for object in &found {
            if !options.is_dry_run {
                self.end(&resource, object, &options);
            }
            let mut item = self_version(&resource, object);
            if resource.custom().is_none() {
                value::remove(&mut item, "kind");
                value::remove(&mut item, "apiVersion");
            }
            items.push(item);
        }
        let metadata = json!({ "resourceVersion": self.store.revision().to_string() });
        Ok(
            json!({ "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items }),
        )
    }

    /// Refuses to delete what every cluster needs.
    fn guard(&self, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
        let name = value::name(object);
        if call.resource.is("namespaces") && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(Failure::forbidden(&call.resource, name, "this namespace may not be deleted"));
        }
        Ok(())
    }

    /// Ends an object, or begins to.
    pub(crate) fn end(&mut self, resource: &Resource, object: &Arc<Value>, options: &Options) -> Ended {
        let collection = resource.collection();
        let (namespace, name) = (value::namespace(object).to_owned(), value::name(object).to_owned());
        let mut finalizers: Vec<String> = value::finalizers(object).into_iter().map(Into::into).collect();
        let mut mark = |word: &str, is_wanted: bool| {
            finalizers.retain(|own| own != word || is_wanted);
            if is_wanted && !finalizers.iter().any(|own| own == word) {
                finalizers.push(word.to_owned());
            }
        };
        if let Some(propagation) = options.propagation {
            mark("orphan", propagation == Propagation::Orphan);
            mark("foregroundDeletion", propagation == Propagation::Foreground);
        }
        if collection == super::crd::DEFINITIONS {
            mark(super::crd::CLEANUP, true);
        }
        let grace = if collection == "pods" { pod_grace(object, options.grace) } else { 0 };
        let waits =
            !finalizers.is_empty() || collection == "namespaces" && !value::items(object, "spec.finalizers").is_empty();
        if !waits && grace == 0 {
            return match self.erase(&collection, &namespace, &name) {
                // A pod is told that it had no time left.
                Some(object) if collection == "pods" => {
                    let mut told = Value::clone(&object);
                    value::default(&mut told, "metadata.deletionTimestamp", self.stamp());
                    value::set(&mut told, "metadata.deletionGracePeriodSeconds", 0);
                    Ended::Gone(Arc::new(told))
                }
                Some(object) => Ended::Gone(object),
                None => Ended::Waits(object.clone()),
            };
        }
        let mut new = Value::clone(object);
        let known = value::number(object, "metadata.deletionGracePeriodSeconds");
        if value::is_deleting(object)
            && known.unwrap_or(0) <= grace
            && value::finalizers(object).len() == finalizers.len()
        {
            return Ended::Waits(object.clone());
        }
        if !value::is_deleting(object) || known.is_some_and(|known| known > grace) {
            let at = self.calendar + self.now + Duration::from_secs(grace.unsigned_abs());
            value::set(&mut new, "metadata.deletionTimestamp", stamp(at));
            if collection != "namespaces" {
                value::set(&mut new, "metadata.deletionGracePeriodSeconds", grace);
            }
            if let Some(generation) = value::number(object, "metadata.generation") {
                value::set(&mut new, "metadata.generation", generation + 1);
            }
        }
        match finalizers.is_empty() {
            true => drop(value::remove(&mut new, "metadata.finalizers")),
            false => value::set(&mut new, "metadata.finalizers", finalizers),
        }
        if collection == "namespaces" {
            value::set(&mut new, "status.phase", "Terminating");
        }
        if collection == super::crd::DEFINITIONS {
            let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
            let told = ("InstanceDeletionPending", message);
            super::crd::condition(&mut new, &self.stamp(), "Terminating", "True", told);
        }
        let object = self.put(&collection, new);
        if collection == "pods" && grace > 0 {
            self.pod_ends(&object, grace);
        }
        if collection == "customresourcedefinitions.apiextensions.k8s.io" {
            self.note((Arc::from(collection.as_str()), String::new(), name));
        }
        Ended::Waits(object)
    }

    /// `PUT .../finalize` of a namespace: its own finalizers.
    pub(crate) fn finalize(&mut self, call: &mut Call<'_>) -> Result<Arc<Value>, Failure> {
        let body = call.body()?;
        let given = call.decode(body)?;
        let resource = call.resource.clone();
        let Some(old) = self.get("namespaces", "", &call.target.name) else {
            return Err(Failure::not_found(&resource, &call.target.name));
        };
        let mut new = Value::clone(&old);
        match value::at(&given, "spec.finalizers").cloned() {
            Some(Value::Array(list)) if !list.is_empty() => value::set(&mut new, "spec.finalizers", list),
            _ => drop(value::remove(&mut new, "spec.finalizers")),
        }
        Ok(self.put_or_end(&resource, new))
    }

    /// A pod is told to end, and what runs in it does so within its time.
    fn pod_ends(&mut self, pod: &Value, grace: i64) {
        // Nobody ends what runs on a node that is not there.
        if self.get("nodes", "", value::text(pod, "spec.nodeName")).is_none() {
            return;
        }
        let span = self.setup.latencies.stop;
        let wait = self.draw("kubernetes pod stop", span).min(self.scaled(grace as f64));
        let moment = super::workloads::pods::Moment::gone(pod);
        self.plan(wait, Due::Pod(moment));
    }
}

/// How long a pod has to end: nothing if it does not run.
fn pod_grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let is_placed = !value::text(pod, "spec.nodeName").is_empty();
    let is_done = ["Succeeded", "Failed"].contains(&value::text(pod, "status.phase"));
    if !is_placed || is_done {
        return 0;
    }
    let own = value::number(pod, "spec.terminationGracePeriodSeconds").unwrap_or(30);
    wanted.unwrap_or(own).max(0)
}
