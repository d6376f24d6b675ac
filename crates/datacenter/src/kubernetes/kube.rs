//! One cluster's API: its objects, what is served, and what is due in it.
//!
//! It has no clock and no task: whoever calls it says what time it is, and takes away what is planned ([`Kube::take_plans`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::components::Components;
use super::fields::managers::{Manager, Managers, bare};
use super::fields::node::Node;
use super::kinds::{self, Resource, Shape};
use super::store::Store;
use super::trial::Trial;
use super::value;
use super::webhooks::Hooks;
use super::workloads::Workloads;
use super::workloads::volumes::Provisioner;
use crate::blueprint::Span;
use crate::blueprint::WorkloadLatencies;
use crate::chance::{Chance, Seed};
use crate::talos::stages::uuid;

mod moments;
mod writers;
pub(crate) use moments::{fine_stamp, stamp, unstamp};
pub(crate) use writers::{CONTROLLER, CONTROLLER_STATUS, KUBELET, SCHEDULER, SERVER, SERVER_STATUS, TALOS, Writer};

/// Something that happens in a cluster of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A definition is served from now on.
    Establish(String),
    /// What was noted is looked after: owners, namespaces, workloads.
    Reconcile,
    /// An object is to be looked at again.
    Look(Key),
    /// A volume is made for a claim.
    Provision(Key),
    /// A component looks after what is its own.
    Component(super::components::Component),
    /// Something is fetched from elsewhere in the datacenter for an object of a component.
    Errand(super::components::Component, Key),
    /// Something happens to a pod, if it still is this one.
    Pod(super::workloads::pods::Moment),
}

/// What holds for a cluster from its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: Seed,
    pub(crate) version: String,
    /// The first address of services, and how many there are.
    pub(crate) services: (std::net::Ipv4Addr, u32),
    /// The range that nodes have the addresses of their pods from: the first, and the length of its prefix.
    pub(crate) pods: (std::net::Ipv4Addr, u8),
    /// The certificate of the cluster's authority, as pods find it.
    pub(crate) authority: String,
    /// The authority with its key, which signs what is asked of it.
    pub(crate) signer: Option<crate::talos::config::Authority>,
    pub(crate) endpoint: String,
    pub(crate) latencies: WorkloadLatencies,
    pub(crate) factor: f64,
}

/// An object by its collection, namespace and name.
pub(crate) type Key = (Arc<str>, String, String);

/// The API of a cluster.
pub(crate) struct Kube {
    pub(crate) now: Duration,
    /// What the calendar said at the beginning of time.
    pub(crate) calendar: Duration,
    pub(crate) setup: Setup,
    pub(crate) store: Store,
    pub(crate) chance: Chance,
    /// The resources that definitions add, by group, plural and version.
    pub(crate) customs: BTreeMap<(String, String, String), Arc<Resource>>,
    pub(crate) hooks: Hooks,
    /// Who makes volumes, by the name that classes know him by.
    pub(crate) provisioners: BTreeMap<String, Provisioner>,
    pub(crate) workloads: Workloads,
    pub(crate) components: Components,
    /// The objects that name an owner, by its uid.
    pub(crate) dependents: BTreeMap<String, BTreeSet<Key>>,
    /// The objects by their uid.
    pub(crate) uids: BTreeMap<String, Key>,
    /// What is to be looked after.
    pub(crate) dirty: BTreeSet<Key>,
    pub(crate) is_reconcile_planned: bool,
    pub(crate) plans: Vec<(Duration, Due)>,
    /// Definitions that are never established.
    pub(crate) stuck_definitions: BTreeSet<String>,
    /// Tokens, who they are of, and until when.
    pub(crate) tokens: BTreeMap<String, (super::request::User, Option<Duration>)>,
    /// Whether watches tell nothing, as if nobody were at the other end any more.
    pub(crate) is_stalled: bool,
    /// Whether what is written now is nothing to any controller.
    pub(crate) is_quiet: bool,
    /// The request that is being answered, where it can wait for an answer.
    pub(crate) trial: Option<Trial>,
}

impl Kube {
    pub(crate) fn new(setup: Setup, now: Duration, calendar: Duration) -> Self {
        let mut kube = Self {
            now,
            calendar,
            store: Store::default(),
            chance: Chance::new(setup.seed.clone()),
            setup,
            customs: BTreeMap::new(),
            hooks: Hooks::new(),
            provisioners: BTreeMap::new(),
            workloads: Workloads::default(),
            components: Components::default(),
            dependents: BTreeMap::new(),
            uids: BTreeMap::new(),
            dirty: BTreeSet::new(),
            is_reconcile_planned: false,
            plans: Vec::new(),
            stuck_definitions: BTreeSet::new(),
            tokens: BTreeMap::new(),
            is_stalled: false,
            is_quiet: false,
            trial: None,
        };
        kube.bootstrap();
        kube
    }

    /// What was planned since this was last asked.
    pub(crate) fn take_plans(&mut self) -> Vec<(Duration, Due)> {
        std::mem::take(&mut self.plans)
    }

    pub(crate) fn plan(&mut self, wait: Duration, due: Due) {
        self.plans.push((self.now + wait, due));
    }

    /// How long something takes this time.
    pub(crate) fn draw(&mut self, purpose: &str, span: Span) -> Duration {
        self.chance.span(purpose, span, self.setup.factor)
    }

    /// A fixed time, compressed as all others are.
    pub(crate) fn scaled(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64((seconds * self.setup.factor).max(0.0))
    }

    /// Lets happen what is due.
    pub(crate) fn happens(&mut self, due: &Due) {
        match due {
            Due::Establish(name) => self.establish(name),
            Due::Reconcile => self.reconcile(),
            Due::Look(key) => self.note(key.clone()),
            Due::Provision(key) => self.provision(key),
            Due::Component(component) => self.component_looks(*component),
            // The world does that, which has more than a cluster.
            Due::Errand(..) => {}
            Due::Pod(moment) => self.pod_moment(moment),
        }
    }

    /// This moment, as objects write it.
    pub(crate) fn stamp(&self) -> String {
        let now = self.trial.as_ref().map_or(self.now, |trial| trial.at);
        stamp(self.calendar + now)
    }

    /// The next bytes of this purpose: those of the last try, where a request is tried again.
    pub(crate) fn bytes(&mut self, purpose: &str) -> [u8; 32] {
        let Self { chance, trial, .. } = self;
        let mut draw = || chance.bytes(purpose);
        match trial {
            Some(trial) => trial.bytes(purpose, draw),
            None => draw(),
        }
    }

    /// The next number of this purpose.
    pub(crate) fn number(&mut self, purpose: &str) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes(purpose);
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    pub(crate) fn new_uid(&mut self) -> String {
        uuid(&self.bytes("kubernetes uid"))
    }

    /// Some letters and digits that names end with.
    pub(crate) fn suffix(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let bytes = self.bytes("kubernetes suffix");
        bytes.iter().take(length).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
    }

    /// The resource of a version.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let built = kinds::built_in().iter();
        let mut built = built.filter(|it| it.group == group && it.version == version && it.plural == plural);
        built.next().or_else(|| self.customs.get(&(group.to_owned(), plural.to_owned(), version.to_owned()))).cloned()
    }

    /// Every resource that is served.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        kinds::built_in().iter().chain(self.customs.values())
    }

    /// The resource that a collection is served as, in any version.
    pub(crate) fn resource_of(&self, collection: &str) -> Option<Arc<Resource>> {
        kinds::named(collection)
            .or_else(|| self.customs.values().find(|resource| resource.qualified() == collection))
            .cloned()
    }

    pub(crate) fn get(&self, collection: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(collection, namespace, name).cloned()
    }

    /// Writes an object, and notes what follows from it.
    pub(crate) fn put(&mut self, collection: &str, object: Value) -> Arc<Value> {
        let place = (value::namespace(&object), value::name(&object));
        if let Some(old) = self.store.get(collection, place.0, place.1).cloned() {
            self.unlink(collection, &old);
        }
        let object = self.store.put(self.now, collection, object);
        let key: Key = (Arc::from(collection), value::namespace(&object).to_owned(), value::name(&object).to_owned());
        self.uids.insert(value::uid(&object).to_owned(), key.clone());
        for owner in value::items(&object, "metadata.ownerReferences") {
            self.dependents.entry(value::text(owner, "uid").to_owned()).or_default().insert(key.clone());
        }
        if !self.is_quiet {
            self.changed(&key, &object);
        }
        object
    }

    /// Deletes an object, and notes what follows from it.
    pub(crate) fn erase(&mut self, collection: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let object = self.store.delete(self.now, collection, namespace, name)?;
        self.unlink(collection, &object);
        let key: Key = (Arc::from(collection), namespace.to_owned(), name.to_owned());
        for dependent in self.dependents.get(value::uid(&object)).cloned().unwrap_or_default() {
            self.note(dependent);
        }
        self.changed(&key, &object);
        self.erased(collection, &object);
        Some(object)
    }

    fn unlink(&mut self, collection: &str, object: &Value) {
        let key: Key = (Arc::from(collection), value::namespace(object).to_owned(), value::name(object).to_owned());
        self.uids.remove(value::uid(object));
        for owner in value::items(object, "metadata.ownerReferences") {
            let uid = value::text(owner, "uid");
            if let Some(all) = self.dependents.get_mut(uid) {
                all.remove(&key);
                if all.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }

    /// Notes an object that somebody is to look after.
    pub(crate) fn note(&mut self, key: Key) {
        self.dirty.insert(key);
        if !self.is_reconcile_planned {
            self.is_reconcile_planned = true;
            let wait = self.draw("kubernetes reconcile", self.setup.latencies.reconcile);
            self.plan(wait, Due::Reconcile);
        }
    }

    /// Changes an object as a part of the cluster itself does. Nothing is written if nothing changes.
    pub(crate) fn amend(&mut self, writer: &Writer<'_>, key: (&str, &str, &str), change: impl FnOnce(&mut Value)) {
        let (collection, namespace, name) = key;
        let Some(resource) = self.resource_of(collection) else { return };
        let Some(old) = self.get(collection, namespace, name) else { return };
        let mut new = Value::clone(&old);
        change(&mut new);
        if let Shape::Built(definition) = &resource.shape {
            super::decode::normalise(definition, &mut new);
        }
        if *old == new {
            return;
        }
        if writer.subresource.is_empty() {
            self.raise_generation(&resource, &old, &mut new);
        }
        self.attribute(&resource, &old, &mut new, writer);
        self.put_or_end(&resource, new);
    }

    /// Makes an object as a part of the cluster itself does; it has its name.
    pub(crate) fn make(&mut self, writer: &Writer<'_>, collection: &str, mut object: Value) -> Option<Arc<Value>> {
        let resource = self.resource_of(collection)?;
        if self.store.get(collection, value::namespace(&object), value::name(&object)).is_some() {
            return None;
        }
        if let Shape::Built(definition) = &resource.shape {
            super::decode::normalise(definition, &mut object);
            super::defaults::apply(definition, &mut object);
        }
        self.label_new(&resource, &mut object);
        let empty = super::write::empty(&resource);
        self.attribute(&resource, &empty, &mut object, writer);
        Some(self.put(collection, object))
    }

    /// Gives a new object what only the server gives.
    pub(crate) fn label_new(&mut self, resource: &Resource, object: &mut Value) {
        value::set(object, "apiVersion", resource.api_version());
        value::set(object, "kind", resource.kind.as_str());
        let uid = self.new_uid();
        value::set(object, "metadata.uid", uid);
        value::set(object, "metadata.creationTimestamp", self.stamp());
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation", "selfLink"] {
            value::remove(object, &format!("metadata.{key}"));
        }
        if has_generation(resource) {
            value::set(object, "metadata.generation", 1);
        }
    }

    /// Counts a change of what is wanted.
    pub(crate) fn raise_generation(&self, resource: &Resource, old: &Value, new: &mut Value) {
        if !has_generation(resource) {
            return;
        }
        let wanted = |object: &Value| {
            let mut object = object.clone();
            value::remove(&mut object, "metadata");
            if resource.has("status") {
                value::remove(&mut object, "status");
            }
            object
        };
        let generation = value::number(old, "metadata.generation").unwrap_or(0);
        let is_changed = wanted(old) != wanted(new);
        value::set(new, "metadata.generation", generation + i64::from(is_changed));
    }

    fn attribute(&mut self, resource: &Resource, old: &Value, new: &mut Value, writer: &Writer<'_>) {
        let mut managers = Managers::read(old).unwrap_or_default();
        let manager = Manager {
            name: writer.name.to_owned(),
            applies: false,
            api_version: resource.api_version(),
            subresource: writer.subresource.to_owned(),
        };
        let ignored = super::write::ignored(resource, writer.subresource);
        let now = self.stamp();
        managers.update(Node::root(resource), (&bare(old), &bare(new)), &manager, ignored, &now);
        managers.write(new);
    }
}

/// Whether changes of what is wanted are counted.
fn has_generation(resource: &Resource) -> bool {
    resource.custom().is_some()
        || [
            "priorityclasses.scheduling.k8s.io",
            "ingressclasses.networking.k8s.io",
            "networkpolicies.networking.k8s.io",
            "ingresses.networking.k8s.io",
            "endpointslices.discovery.k8s.io",
            "poddisruptionbudgets.policy",
            "daemonsets.apps",
            "statefulsets.apps",
            "deployments.apps",
            "replicasets.apps",
            "jobs.batch",
            "cronjobs.batch",
            "pods",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "customresourcedefinitions.apiextensions.k8s.io",
        ]
        .contains(&resource.qualified().as_str())
}
