//! Objects that are made and changed: the way from a body to the store.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::Deed;
use super::api::Call;
use super::fields::managers::{Managers, bare};
use super::fields::node::Node;
use super::kinds::{Resource, Shape};
use super::kube::Kube;
use super::status::{Cause, Failure};
use super::{certificates, decode, defaults, events, structural, validate, value};

mod limits;
mod reading;
use limits::{check_size, may_omit_version};

/// The most bytes of a request.
pub(crate) const REQUEST_LIMIT: usize = 3 << 20;
/// What only the server gives to a new object.
const NEVER_GIVEN: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "generation",
    "selfLink",
];

/// Fields that a way of writing does not reach.
pub(crate) fn ignored(resource: &Resource, subresource: &str) -> &'static [&'static [&'static str]] {
    match subresource {
        "" if resource.has("status") => &[&["status"]],
        "status" if resource.custom().is_some() => &[
            &["spec"],
            &["metadata", "labels"],
            &["metadata", "annotations"],
            &["metadata", "finalizers"],
            &["metadata", "ownerReferences"],
        ],
        "status" | "approval" => &[&["spec"]],
        _ => &[],
    }
}

impl Kube {
    /// `POST`: makes an object.
    pub(crate) fn create(&mut self, call: &mut Call<'_>) -> Result<Arc<Value>, Failure> {
        call.is_dry_run = call.ask.query.is_dry_run("CreateOptions")?;
        let body = call.body()?;
        let mut object = call.decode(body)?;
        place(call, &mut object)?;
        if !value::text(&object, "metadata.resourceVersion").is_empty() {
            return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        self.complete(&call.resource, &mut object);
        let object = self.finish_create(call, object, None)?;
        Ok(object)
    }

    /// Writes an object as its kind wants it, and gives it its defaults.
    pub(crate) fn complete(&self, resource: &Resource, object: &mut Value) {
        match &resource.shape {
            Shape::Built(definition) => {
                decode::normalise(definition, object);
                defaults::apply(definition, object);
            }
            Shape::Custom(custom) => structural::complete(custom, object),
        }
    }

    /// The way of a new object from its defaults to the store. Managers are given where somebody applied it.
    pub(crate) fn finish_create(
        &mut self,
        call: &mut Call<'_>,
        mut object: Value,
        managers: Option<Managers>,
    ) -> Result<Arc<Value>, Failure> {
        let resource = call.resource.clone();
        if resource.has("status") || resource.is("jobs.batch") {
            value::remove(&mut object, "status");
            self.complete(&resource, &mut object);
        }
        for key in NEVER_GIVEN {
            value::remove(&mut object, &format!("metadata.{key}"));
        }
        let node = Node::root(&resource);
        let managers = match managers {
            Some(managers) => managers,
            None => {
                let mut managers = Managers::default();
                let empty = empty(&resource);
                managers.update(
                    node,
                    (&empty, &bare(&object)),
                    &call.manager(false),
                    ignored(&resource, ""),
                    &self.stamp(),
                );
                managers
            }
        };
        managers.write(&mut object);
        self.admit(call, &Deed::CREATE, &mut object)?;
        self.name_new(&mut object);
        self.label_new(&resource, &mut object);
        if resource.is("jobs.batch") {
            self.prepare_job(&mut object);
        }
        if resource.is(certificates::REQUESTS) {
            certificates::prepare(&mut object, &call.ask.user);
        }
        self.allocate(&mut object, None, &resource, call.is_dry_run)?;
        let causes = validate::create(&resource, &object);
        if !causes.is_empty() {
            return Err(Failure::invalid(&resource, value::name(&object), &causes));
        }
        managers.write(&mut object);
        self.review(call, &Deed::CREATE, &object)?;
        if resource.is(super::crd::DEFINITIONS) {
            call.warnings.extend(super::crd::unknown_formats(&object));
        }
        let (namespace, name) = (value::namespace(&object).to_owned(), value::name(&object).to_owned());
        if let Some(known) = self.store.get(&resource.collection(), &namespace, &name) {
            let mut failure = Failure::already_exists(&resource, &name);
            if value::is_deleting(known) {
                failure.message = format!("object is being deleted: {}", failure.message);
            }
            return Err(failure);
        }
        check_size(&object)?;
        if call.is_dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.keep(&resource, object))
    }

    /// An object in the view that somebody has of it.
    pub(crate) fn seen(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let found = self.get(&resource.collection(), namespace, name)?;
        Some(match events::seen(resource, &found) {
            Cow::Borrowed(_) => found,
            Cow::Owned(seen) => Arc::new(seen),
        })
    }

    /// Keeps an object, in whatever view it was written.
    fn keep(&mut self, resource: &Resource, object: Value) -> Arc<Value> {
        let kept = self.put(&resource.collection(), events::kept(resource, object));
        match events::seen(resource, &kept) {
            Cow::Borrowed(_) => kept,
            Cow::Owned(seen) => Arc::new(seen),
        }
    }

    /// Gives a name to an object that only has the beginning of one.
    fn name_new(&mut self, object: &mut Value) {
        let prefix = value::text(object, "metadata.generateName");
        if value::name(object).is_empty() && !prefix.is_empty() {
            let prefix: String = prefix.chars().take(58).collect();
            let name = format!("{prefix}{}", self.suffix(5));
            value::set(object, "metadata.name", name);
        }
    }

    /// `PUT`: replaces an object.
    pub(crate) fn replace(&mut self, call: &mut Call<'_>) -> Result<Arc<Value>, Failure> {
        call.is_dry_run = call.ask.query.is_dry_run("UpdateOptions")?;
        let resource = call.resource.clone();
        let body = call.body()?;
        let mut object = call.decode(body)?;
        let (given, wanted) = (value::name(&object).to_owned(), call.target.name.clone());
        if !given.is_empty() && given != wanted {
            let text = format!("the name of the object ({given}) does not match the name on the URL ({wanted})");
            return Err(Failure::bad_request(text));
        }
        value::set(&mut object, "metadata.name", wanted.as_str());
        place(call, &mut object)?;
        self.complete(&resource, &mut object);
        let Some(old) = self.seen(&resource, &call.target.namespace, &wanted) else {
            return Err(Failure::not_found(&resource, &wanted));
        };
        let version = value::text(&object, "metadata.resourceVersion");
        if version.is_empty() && !may_omit_version(&resource) {
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            let mut failure = Failure::invalid_kind(&resource.group, &resource.plural, &wanted, &[cause]);
            failure.message = failure
                .message
                .replace(&format!("{}.{} ", resource.plural, resource.group), &format!("{} ", resource.qualified()));
            return Err(failure);
        }
        self.finish_update(call, &old, object, None)
    }

    /// The way of a changed object to the store. Managers are given where somebody applied it.
    pub(crate) fn finish_update(
        &mut self,
        call: &mut Call<'_>,
        old: &Arc<Value>,
        mut new: Value,
        managers: Option<Managers>,
    ) -> Result<Arc<Value>, Failure> {
        let resource = call.resource.clone();
        let subresource = call.target.subresource.clone();
        let name = call.target.name.clone();
        let version = value::text(&new, "metadata.resourceVersion");
        if !version.is_empty() && version != value::text(old, "metadata.resourceVersion") {
            return Err(Failure::modified(&resource, &name));
        }
        let uid = value::uid(&new);
        if !uid.is_empty() && uid != value::uid(old) {
            if call.ask.method == "PATCH" {
                let cause = Cause::invalid("metadata.uid", &json!(uid), "field is immutable");
                return Err(Failure::invalid(&resource, &name, &[cause.clone(), cause]));
            }
            let namespace = if resource.is_namespaced { format!("{}/", call.target.namespace) } else { String::new() };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
                 UID in precondition: {uid}, UID in object meta: {}",
                resource.plural,
                value::uid(old)
            );
            return Err(Failure::conflict(&resource, &name, &why));
        }
        for key in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "selfLink",
        ] {
            match old["metadata"].get(key) {
                Some(known) => value::set(&mut new, &format!("metadata.{key}"), known.clone()),
                None => drop(value::remove(&mut new, &format!("metadata.{key}"))),
            }
        }
        self.keep_other_half(&resource, &subresource, old, &mut new);
        let node = Node::root(&resource);
        let given = new.pointer("/metadata/managedFields").cloned();
        let is_reset = given == Some(json!([{}]));
        let managers = match managers {
            Some(managers) => managers,
            None => {
                let own = given
                    .filter(|given| given.as_array().is_some_and(|list| !list.is_empty()))
                    .and_then(|_| Managers::read(&new));
                let mut managers = own.unwrap_or_else(|| Managers::read(old).unwrap_or_default());
                if is_reset {
                    managers = Managers::default();
                } else if !managers.is_empty() {
                    managers.update(
                        node,
                        (&bare(old), &bare(&new)),
                        &call.manager(false),
                        ignored(&resource, &subresource),
                        &self.stamp(),
                    );
                }
                managers
            }
        };
        managers.write(&mut new);
        self.admit(call, &Deed::update(old), &mut new)?;
        self.allocate(&mut new, Some(old), &resource, call.is_dry_run)?;
        if subresource.is_empty() || subresource == "scale" {
            self.raise_generation(&resource, old, &mut new);
        }
        if resource.is("daemonsets.apps") && value::at(old, "spec.template") != value::at(&new, "spec.template") {
            let place = value::place(&mut new, "metadata.annotations");
            let before = place
                .get(defaults::TEMPLATE_GENERATION)
                .and_then(Value::as_str)
                .and_then(|text| text.parse::<u64>().ok());
            place[defaults::TEMPLATE_GENERATION] = json!((before.unwrap_or(0) + 1).to_string());
        }
        let causes = validate::update(&resource, &subresource, old, &new);
        if !causes.is_empty() {
            return Err(Failure::invalid(&resource, &name, &causes));
        }
        managers.write(&mut new);
        self.review(call, &Deed::update(old), &new)?;
        let known = Managers::read(old).unwrap_or_default();
        if bare(&new) == bare(old) && known.is_alike(&managers) && !is_reset {
            return Ok(old.clone());
        }
        check_size(&new)?;
        if call.is_dry_run {
            return Ok(Arc::new(new));
        }
        Ok(self.put_or_end(&resource, new))
    }

    /// What the main resource says is not changed through its status, and the other way round.
    fn keep_other_half(&self, resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
        let take = |new: &mut Value, path: &str| match value::at(old, path) {
            Some(known) => value::set(new, path, known.clone()),
            None => drop(value::remove(new, path)),
        };
        if resource.is(certificates::REQUESTS) {
            return certificates::keep_other_half(subresource, old, new, &self.stamp());
        }
        match subresource {
            "" if resource.has("status") => take(new, "status"),
            "status" if resource.custom().is_some() => {
                let managed = value::remove(new, "metadata.managedFields");
                let keys: Vec<String> = new.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
                let known: Vec<String> = old.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
                for key in keys.iter().chain(&known).filter(|key| *key != "status") {
                    take(new, key);
                }
                match managed {
                    Some(managed) => value::set(new, "metadata.managedFields", managed),
                    None => drop(value::remove(new, "metadata.managedFields")),
                }
            }
            "status" => {
                for path in ["spec", "metadata.labels", "metadata.finalizers", "metadata.ownerReferences"] {
                    take(new, path);
                }
            }
            _ => {}
        }
    }

    /// Writes an object, or ends it if it only waited for its finalizers.
    pub(crate) fn put_or_end(&mut self, resource: &Resource, object: Value) -> Arc<Value> {
        let collection = resource.collection();
        let waits = !value::finalizers(&object).is_empty()
            || collection == "namespaces" && !value::items(&object, "spec.finalizers").is_empty();
        let has_grace = value::number(&object, "metadata.deletionGracePeriodSeconds").is_some_and(|grace| grace > 0);
        if value::is_deleting(&object) && !waits && !has_grace {
            self.erase(&collection, value::namespace(&object), value::name(&object));
            return Arc::new(object);
        }
        self.keep(resource, object)
    }
}

/// An object of a kind that nothing was said of: what its first writer does not own.
pub(crate) fn empty(resource: &Resource) -> Value {
    let mut object = json!({});
    if let Shape::Built(definition) = &resource.shape {
        decode::normalise(definition, &mut object);
    }
    object
}

/// Puts an object into the namespace of the request.
pub(crate) fn place(call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    let (given, wanted) = (value::namespace(object).to_owned(), call.target.namespace.as_str());
    if !call.resource.is_namespaced {
        value::remove(object, "metadata.namespace");
        return Ok(());
    }
    if !given.is_empty() && given != wanted {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(text));
    }
    if wanted.is_empty() {
        return Err(Failure::bad_request("an empty namespace may not be set during creation"));
    }
    value::set(object, "metadata.namespace", wanted);
    Ok(())
}
