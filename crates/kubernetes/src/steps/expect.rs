//! What can be expected of a cluster, each a question with a plain answer.

use std::fmt;
use std::sync::Arc;

use castle_engine::{Class, Closed, Fault};
use serde_json::Value;

use super::explain;
use super::ready::Sight;
use crate::client::{Mode, Scope, Trouble};
use crate::model::{Key, Kind, Object, Status, condition, status};

/// Where the certificate of a webhook's authority is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The namespace of a Secret.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key in it.
    pub key: String,
}

/// Something that must be true before what comes next can work.
#[derive(Clone, Debug)]
pub enum Expect {
    /// An object is as its controller wants it, by the rules of `kstatus`.
    Current(Kind, String, String),
    /// A Deployment, StatefulSet or DaemonSet is, and has at least one Pod.
    Serving(Kind, String, String),
    /// Definitions of kinds are established, and every version they serve is served.
    Established {
        /// Their names.
        names: Vec<String>,
        /// A selector of labels that finds all of them at once; empty if there is none.
        labels: String,
    },
    /// A Service of type LoadBalancer has an address.
    Addressed(String, String),
    /// A condition of an object is `True` (with this reason, unless that is empty), and not of an older generation.
    Condition {
        /// The kind.
        kind: Kind,
        /// The namespace; empty if it is in none.
        namespace: String,
        /// The name.
        name: String,
        /// The condition's type.
        condition: String,
        /// Its reason; empty for any.
        reason: String,
    },
    /// Every webhook of a configuration has an authority, that of its Secret if one is named, and every Service it names has an
    /// endpoint that is ready.
    Injected {
        /// `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
        kind: String,
        /// Its name.
        name: String,
        /// Where the authority is told.
        authority: Option<Authority>,
    },
    /// The API accepts this very object: everyone who has a say in it was asked, and said yes.
    Accepted(Box<Object>),
    /// These kinds are served, each unless there is no definition of this name. One that is not served has no objects to be seen: whoever counts them asks this
    /// first.
    Visible(Vec<(String, Kind)>),
    /// The objects of a kind within a scope pass a test together.
    Holds(Kind, Scope, Test),
    /// The objects of several kinds do, all of them in one list.
    Together(Vec<(Kind, Scope)>, Test),
}

/// Why objects do not pass a test.
#[derive(Clone, Debug)]
pub struct Unmet {
    /// The object that it is about, whether it is there or not.
    pub key: Box<Key>,
    /// What is seen instead.
    pub evidence: String,
    /// The object itself, if what was last said of it tells more.
    pub about: Option<Box<Object>>,
    /// Whether waiting cannot help: something else has to change first.
    pub is_final: bool,
}

impl Unmet {
    /// Of an object that is not there.
    #[must_use]
    pub fn absent(key: Key) -> Self {
        Self { key: Box::new(key), evidence: "is not there yet".to_owned(), about: None, is_final: false }
    }

    /// Of an object that is not as expected.
    #[must_use]
    pub fn of(object: &Object, evidence: impl Into<String>) -> Self {
        let (key, about) = (Box::new(object.key()), Some(Box::new(object.clone())));
        Self { key, evidence: evidence.into(), about, is_final: false }
    }

    /// The same, for which nobody waits if this is so.
    #[must_use]
    pub fn finally(self, is_final: bool) -> Self {
        Self { is_final, ..self }
    }
}

/// What some objects have to pass.
#[derive(Clone)]
pub struct Test(Arc<Judge>);

type Judge = dyn Fn(&[Object]) -> Result<(), Unmet> + Send + Sync;

impl Test {
    /// A test that looks at the objects alone.
    #[must_use]
    pub fn new(test: impl Fn(&[Object]) -> Result<(), Unmet> + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Test")
    }
}

impl Expect {
    /// Where it will look, as far as that is known before.
    pub(super) fn places(&self) -> Vec<(Kind, Scope)> {
        match self {
            Self::Current(kind, namespace, name)
            | Self::Serving(kind, namespace, name)
            | Self::Condition { kind, namespace, name, .. } => vec![(kind.clone(), Scope::named(namespace, name))],
            Self::Injected { kind, name, authority } => {
                let kind = Kind::new("admissionregistration.k8s.io/v1", kind);
                let secret = authority.as_ref().map(|told| Scope::named(&told.namespace, &told.name));
                let secret = secret.map(|scope| (Kind::new("v1", "Secret"), scope));
                std::iter::once((kind, Scope::named("", name))).chain(secret).collect()
            }
            Self::Holds(kind, scope, _) => vec![(kind.clone(), scope.clone())],
            Self::Together(places, _) => places.clone(),
            Self::Visible(all) => all.iter().map(|(name, _)| (definitions(), Scope::named("", name))).collect(),
            Self::Established { .. } | Self::Addressed(..) | Self::Accepted(_) => Vec::new(),
        }
    }

    /// Why it is not so; nothing if it is.
    pub(super) async fn closed(&self, sight: &Sight<'_>) -> Result<Option<Closed>, Fault> {
        match self {
            Self::Current(kind, namespace, name) => current(sight, kind, namespace, name, false).await,
            Self::Serving(kind, namespace, name) => current(sight, kind, namespace, name, true).await,
            Self::Established { names, labels } => established(sight, names, labels).await,
            Self::Visible(all) => visible(sight, all).await,
            Self::Addressed(namespace, name) => addressed(sight, namespace, name).await,
            Self::Condition { kind, namespace, name, condition, reason } => {
                let object = match sight.object(kind, namespace, name).await? {
                    Ok(object) => object,
                    Err(closed) => return Ok(Some(closed)),
                };
                Ok(conditioned(&object, condition, reason))
            }
            Self::Injected { kind, name, authority } => injected(sight, kind, name, authority.as_ref()).await,
            Self::Accepted(object) => accepted(sight, object).await,
            Self::Holds(kind, scope, test) => holds(sight, &sight.list(kind, scope.clone()).await?.objects, test).await,
            Self::Together(places, test) => {
                let mut objects = Vec::new();
                for (kind, scope) in places {
                    objects.extend(sight.list(kind, scope.clone()).await?.objects);
                }
                holds(sight, &objects, test).await
            }
        }
    }
}

/// Not yet, and what someone could look at.
pub(super) fn closed(key: &Key, evidence: impl Into<String>) -> Closed {
    let next = format!("kubectl describe {}", key.for_kubectl());
    Closed { subject: key.to_string(), evidence: evidence.into(), next }
}

async fn current(
    sight: &Sight<'_>,
    kind: &Kind,
    namespace: &str,
    name: &str,
    is_serving: bool,
) -> Result<Option<Closed>, Fault> {
    let object = match sight.object(kind, namespace, name).await? {
        Ok(object) => object,
        Err(closed) => return Ok(Some(closed)),
    };
    let why = match status(&object, sight.now()) {
        Status::Current if is_serving && pods(&object) == 0 => "no Pod is wanted of it yet".to_owned(),
        Status::Current => return Ok(None),
        Status::InProgress(why) => why,
        Status::Failed(why) => format!("failed: {why}"),
        Status::Terminating => "is on its way out".to_owned(),
    };
    let evidence = explain::with_pods(sight.api, &object, why).await;
    Ok(Some(closed(&object.key(), evidence)))
}

/// How many Pods are wanted of a workload.
fn pods(object: &Object) -> i64 {
    let of_nodes = object.number("/status/desiredNumberScheduled");
    of_nodes.or(object.number("/spec/replicas")).unwrap_or(1)
}

fn definitions() -> Kind {
    Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

async fn visible(sight: &Sight<'_>, all: &[(String, Kind)]) -> Result<Option<Closed>, Fault> {
    let fault = |trouble: Trouble| trouble.fault(&Key::new("", "API", "", "discovery"));
    for (name, kind) in all {
        let Ok(definition) = sight.object(&definitions(), "", name).await? else { continue };
        let is_served = sight.api.served().await.map_err(fault)?.resource(kind).is_some()
            || sight.api.discover().await.map_err(fault)?.resource(kind).is_some();
        if !is_served {
            let evidence = format!("is there, and {kind} is not served: what there is of it cannot be seen");
            return Ok(Some(closed(&definition.key(), evidence)));
        }
    }
    Ok(None)
}

async fn established(sight: &Sight<'_>, names: &[String], labels: &str) -> Result<Option<Closed>, Fault> {
    let kind = definitions();
    let mut versions = Vec::new();
    for name in names {
        let found = match labels {
            "" => sight.object(&kind, "", name).await?,
            labels => sight.object_among(&kind, labels, name).await?,
        };
        let object = match found {
            Ok(object) => object,
            Err(closed) => return Ok(Some(closed)),
        };
        match status(&object, sight.now()) {
            Status::Current => {}
            Status::InProgress(why) | Status::Failed(why) => return Ok(Some(closed(&object.key(), why))),
            Status::Terminating => return Ok(Some(closed(&object.key(), "is on its way out"))),
        }
        for version in object.list("/spec/versions").iter().filter(|version| version["served"] == true) {
            let version = version["name"].as_str().unwrap_or_default();
            let api_version = format!("{}/{version}", object.text("/spec/group"));
            versions.push((object.key(), Kind::new(&api_version, object.text("/spec/names/kind"))));
        }
    }
    let is_known =
        |served: &crate::client::Served| versions.iter().find(|(_, kind)| served.resource(kind).is_none()).cloned();
    let fault = |trouble: Trouble| trouble.fault(&Key::new("", "API", "", "discovery"));
    if is_known(&*sight.api.served().await.map_err(fault)?).is_none() {
        return Ok(None);
    }
    let missing = is_known(&*sight.api.discover().await.map_err(fault)?);
    Ok(missing.map(|(key, kind)| closed(&key, format!("is established, but {kind} is not served yet"))))
}

async fn addressed(sight: &Sight<'_>, namespace: &str, name: &str) -> Result<Option<Closed>, Fault> {
    let object = match sight.object(&Kind::new("v1", "Service"), namespace, name).await? {
        Ok(object) => object,
        Err(closed) => return Ok(Some(closed)),
    };
    let has_address = |ingress: &Value| ingress["ip"].is_string() || ingress["hostname"].is_string();
    if object.list("/status/loadBalancer/ingress").iter().any(has_address) {
        return Ok(None);
    }
    let evidence = explain::with_events(sight.api, &object, "no address is assigned".to_owned()).await;
    Ok(Some(closed(&object.key(), evidence)))
}

fn conditioned(object: &Object, name: &str, reason: &str) -> Option<Closed> {
    let not_yet = |evidence: String| Some(closed(&object.key(), evidence));
    let Some(found) = condition(object, name) else { return not_yet(format!("has no condition {name} yet")) };
    let generation = object.number("/metadata/generation");
    let observed = found.generation.or(object.number("/status/observedGeneration"));
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return not_yet(format!("{name} is of generation {observed}, not of {generation}"));
    }
    if found.status != "True" || (!reason.is_empty() && found.reason != reason) {
        return not_yet(format!("{name} is {} ({}): {}", found.status, found.reason, found.message));
    }
    None
}

async fn injected(
    sight: &Sight<'_>,
    kind: &str,
    name: &str,
    authority: Option<&Authority>,
) -> Result<Option<Closed>, Fault> {
    let configuration = match sight.object(&Kind::new("admissionregistration.k8s.io/v1", kind), "", name).await? {
        Ok(object) => object,
        Err(closed) => return Ok(Some(closed)),
    };
    let key = configuration.key();
    let secret = match authority {
        None => None,
        Some(told) => match sight.object(&Kind::new("v1", "Secret"), &told.namespace, &told.name).await? {
            Ok(secret) => Some(secret.value()["data"][&told.key].as_str().unwrap_or_default().to_owned()),
            Err(closed) => return Ok(Some(closed)),
        },
    };
    for webhook in configuration.list("/webhooks") {
        let hook = webhook["name"].as_str().unwrap_or_default();
        let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        if bundle.is_empty() {
            return Ok(Some(closed(&key, format!("webhook {hook} has no caBundle yet"))));
        }
        if secret.as_deref().is_some_and(|secret| secret != bundle) {
            return Ok(Some(closed(
                &key,
                format!("the caBundle of webhook {hook} is not the authority of its Secret"),
            )));
        }
    }
    let services = configuration.list("/webhooks").iter().map(|webhook| &webhook["clientConfig"]["service"]);
    let services = services.filter_map(|service| Some((service["namespace"].as_str()?, service["name"].as_str()?)));
    for (namespace, name) in services.collect::<std::collections::BTreeSet<_>>() {
        let slices = sight.slices(namespace, name).await?;
        let endpoints = slices.iter().flat_map(|slice| slice.list("/endpoints"));
        let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
        if !endpoints.into_iter().any(is_ready) {
            let service = Key::new("", "Service", namespace, name);
            return Ok(Some(closed(&service, "no endpoint of it is ready")));
        }
    }
    Ok(None)
}

async fn holds(sight: &Sight<'_>, objects: &[Object], Test(test): &Test) -> Result<Option<Closed>, Fault> {
    let Err(Unmet { key, evidence, about, is_final }) = test(objects) else { return Ok(None) };
    let evidence = match about {
        Some(object) => explain::with_events(sight.api, &object, evidence).await,
        None => evidence,
    };
    let closed = closed(&key, evidence);
    match is_final {
        true => Err(Fault::new(Class::Final, closed.subject, closed.evidence).next(closed.next)),
        false => Ok(Some(closed)),
    }
}

async fn accepted(sight: &Sight<'_>, object: &Object) -> Result<Option<Closed>, Fault> {
    let key = object.key();
    match sight.api.apply(object, Mode::DryRun).await {
        Ok(_) => Ok(None),
        Err(trouble) if trouble.is_deaf_webhook() || matches!(trouble, Trouble::NotServed(_)) => {
            let Fault { evidence, next, .. } = trouble.fault(&key);
            Ok(Some(Closed { subject: key.to_string(), evidence, next }))
        }
        Err(trouble) => Err(trouble.fault(&key)),
    }
}
