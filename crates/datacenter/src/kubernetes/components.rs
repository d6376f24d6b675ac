//! The controllers of the components that castles install. Each wakes when the objects of its manifest are there and its pods
//! run, whoever brought them: it is known by the names that the vendor gives.
//!
//! They look at everything that is theirs whenever something of it changes ([`Kube::component_changed`]), and do what is due.
//! What takes time has a moment at which it is done; a look before it does nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::kube::{Due, Key, Kube, Writer};
use super::selectors::Labels;
use super::value;
use super::webhooks::certificate::ServingCertificate;
use super::webhooks::served::{Asked, Verdict, Webhook};
use super::workloads::PodFault;

pub(crate) mod errands;
mod external_secrets;
mod flux;
pub(crate) mod longhorn;
mod metallb;

/// A component that castles install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// MetalLB: addresses for services.
    MetalLb,
    /// The External Secrets Operator: Secrets of what a vault holds.
    ExternalSecrets,
    /// Flux: what a repository says.
    Flux,
    /// Longhorn: volumes on the disks of nodes.
    Longhorn,
}

/// What goes wrong with a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentFault {
    /// Its webhook refuses connections.
    DeadWebhook,
    /// It writes its authority into no webhook configuration.
    NeverInjects,
    /// No store lets it in.
    InvalidStore,
    /// Nothing that is waited for ever becomes healthy.
    FailedHealthChecks,
    /// No disk can be used.
    NoUsableDisk,
    /// No volume is let go of.
    StuckVolume,
    /// The host of the repository does not answer.
    GitUnreachable,
    /// The repository refuses the credential.
    GitCredential,
    /// Nothing was ever pushed to the repository.
    GitEmpty,
    /// The repository has no such branch.
    GitBranch,
    /// The commit has no such folder.
    GitPath,
    /// What it is configured with cannot be used, though its webhook has let it pass.
    InvalidConfiguration,
}

/// What is known of the components of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Components {
    /// Those that will look.
    woken: BTreeSet<Component>,
    faults: BTreeSet<(Component, ComponentFault)>,
    /// Pods whose processes say that they are not ready.
    held: BTreeSet<Key>,
    metallb: metallb::MetalLb,
    external_secrets: external_secrets::ExternalSecrets,
    flux: flux::Flux,
    longhorn: longhorn::Longhorn,
}

const SLICES: &str = "endpointslices.discovery.k8s.io";
const CONFIGURATIONS: [&str; 2] = [
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
];

impl Kube {
    /// Wakes the components that a change is of interest for.
    pub(crate) fn component_changed(&mut self, key: &Key) {
        if ["events", "leases.coordination.k8s.io"].contains(&&*key.0) {
            return;
        }
        if metallb::concerns(key) {
            self.wake(Component::MetalLb);
        }
        if external_secrets::concerns(key) {
            self.wake(Component::ExternalSecrets);
        }
        if flux::concerns(&self.components.flux, key) {
            self.wake(Component::Flux);
        }
        if longhorn::concerns(key) || self.uses_driver(key) {
            self.wake(Component::Longhorn);
        }
    }

    /// Lets a component look as soon as it has seen what happened.
    fn wake(&mut self, component: Component) {
        if self.components.woken.insert(component) {
            let wait = self.draw("component look", self.setup.latencies.components.look);
            self.plan(wait, Due::Component(component));
        }
    }

    /// Lets a component look at that moment.
    fn wake_at(&mut self, component: Component, at: Duration) {
        self.plan(at.saturating_sub(self.now), Due::Component(component));
    }

    /// A component looks.
    pub(crate) fn component_looks(&mut self, component: Component) {
        self.components.woken.remove(&component);
        match component {
            Component::MetalLb => self.sync_metallb(),
            Component::ExternalSecrets => self.sync_external_secrets(),
            Component::Flux => self.sync_flux(),
            Component::Longhorn => self.sync_longhorn(),
        }
    }

    /// Lets something go wrong with a component, or go well again.
    pub(crate) fn set_component_fault(&mut self, component: Component, fault: ComponentFault, holds: bool) {
        if holds {
            self.components.faults.insert((component, fault));
        } else {
            self.components.faults.remove(&(component, fault));
        }
        self.wake(component);
    }

    fn suffers(&self, component: Component, fault: ComponentFault) -> bool {
        self.components.faults.contains(&(component, fault))
    }

    /// Whether the process of a pod says that it is not ready, whatever the time: it then becomes so when it is let.
    pub(crate) fn holds_back(&mut self, pod: &Value) -> bool {
        let is_held = self.external_secrets_hold(pod) || self.longhorn_holds(pod);
        if is_held {
            let key = (Arc::from("pods"), value::namespace(pod).to_owned(), value::name(pod).to_owned());
            self.components.held.insert(key);
        }
        is_held
    }

    /// What goes wrong with a pod of a component because of the machine that it is on.
    pub(crate) fn machine_fault(&self, pod: &Value) -> Option<PodFault> {
        self.longhorn_fault(pod)
    }

    /// Lets pods become ready that are held back no longer.
    fn release_held(&mut self) {
        for key in std::mem::take(&mut self.components.held) {
            if let Some(pod) = self.get(&key.0, &key.1, &key.2) {
                self.pod_ready(&pod);
            }
        }
    }

    /// The namespace that a Deployment of this name is in.
    fn namespace_of(&self, deployment: &str) -> Option<String> {
        let mut all = self.store.all("deployments.apps", "").filter(|it| value::name(it) == deployment);
        all.next().map(|it| value::namespace(it).to_owned())
    }

    /// The pods of a Deployment or DaemonSet.
    fn pods_of(&self, collection: &str, namespace: &str, name: &str) -> Vec<Arc<Value>> {
        let Some(workload) = self.get(collection, namespace, name) else { return Vec::new() };
        let selector = Labels::of(&workload["spec"]["selector"]);
        self.store.all("pods", namespace).filter(|pod| selector.chooses(pod)).cloned().collect()
    }

    /// Writes an authority into every webhook of a configuration. Says whether there was something to write.
    fn inject(&mut self, writer: &Writer<'_>, configuration: (&str, &str), authority: &str) -> bool {
        let (collection, name) = configuration;
        let bundle = STANDARD.encode(authority);
        let before = self.store.revision();
        self.amend(writer, (collection, "", name), |object| {
            let hooks = object.pointer_mut("/webhooks").and_then(Value::as_array_mut);
            for hook in hooks.into_iter().flatten() {
                value::set(hook, "clientConfig.caBundle", bundle.as_str());
            }
        });
        self.store.revision() != before
    }

    /// Makes an object, or changes it where it is there.
    fn ensure(&mut self, writer: &Writer<'_>, collection: &str, object: &Value, change: impl FnOnce(&mut Value)) {
        let (namespace, name) = (value::namespace(object).to_owned(), value::name(object).to_owned());
        if self.get(collection, &namespace, &name).is_none() {
            self.make(writer, collection, object.clone());
        }
        self.amend(writer, (collection, &namespace, &name), change);
    }

    /// Whether a service leads to a pod that is ready.
    fn has_endpoints(&self, service: &Value) -> bool {
        let slices = self.store.all(SLICES, value::namespace(service)).filter(|slice| {
            let labels = value::at(slice, "metadata.labels");
            labels.and_then(|labels| labels.get("kubernetes.io/service-name")).and_then(Value::as_str)
                == Some(value::name(service))
        });
        let mut endpoints = slices.flat_map(|slice| value::items(slice, "endpoints"));
        endpoints.any(|endpoint| value::is_true(endpoint, "conditions.ready"))
    }

    /// Serves behind a service, unless somebody else does already.
    fn serve_behind(&mut self, target: &str, judge: fn(&Asked<'_>) -> Verdict) -> Webhook {
        self.hooks.entry(target.to_owned()).or_insert_with(|| Webhook::new(judge)).clone()
    }
}

/// Whether the containers of a pod run.
fn is_running(pod: &Value) -> bool {
    let statuses = value::items(pod, "status.containerStatuses");
    !value::is_deleting(pod)
        && !statuses.is_empty()
        && statuses.iter().all(|status| value::at(status, "state.running").is_some())
}

/// What a Secret holds under a key, decoded.
fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = value::at(secret, "data")?.get(key)?.as_str()?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

/// The data of a Secret with a certificate.
fn certificate_data(certificate: &ServingCertificate) -> Value {
    json!({
        "ca.crt": STANDARD.encode(&certificate.authority), "ca.key": STANDARD.encode(&certificate.authority_key),
        "tls.crt": STANDARD.encode(&certificate.certificate), "tls.key": STANDARD.encode(&certificate.key),
    })
}

/// An annotation of an object.
fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    value::at(object, "metadata.annotations").and_then(|all| all.get(key)).and_then(Value::as_str)
}

/// A time as Go writes it: `1h`, `30m0s`, `90s`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = Some(text).filter(|text| !text.is_empty())?;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let (unit, tail) = ["ms", "h", "m", "s"].iter().find_map(|unit| Some((*unit, tail.strip_prefix(unit)?)))?;
        let seconds = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            _ => 0.001,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = tail;
    }
    Some(total)
}
