//! A node that leaves, for good or for a while: nothing new comes to it, what runs on it moves, and when its machine is gone it is
//! forgotten, or taken back when it has restarted.
//!
//! A label says that castle sent it away. So whoever comes later, with or without a memory, knows what to end and what to take back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Gate, Impact, Operation, Step, Verdict};
use castle_seams::BoxFuture;
use serde_json::{Value, json};

use super::expect::Expect;
use super::ready::Sight;
use super::reopen::{UNSCHEDULABLE, unopened};
use crate::client::{Api, Mode, Scope, Trouble};
use crate::model::{Key, Kind, Object, condition};

/// The label of a node that leaves: which castle sent it away.
const LEAVING: &str = "castle.dev/leaving";
/// The label of a node that leaves and that somebody else had closed before: it stays closed if it is taken back.
const CLOSED_BEFORE: &str = "castle.dev/closed-before";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// What the machine of a node calls its last start.
const BOOT: &str = "/status/nodeInfo/bootID";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long Pods may take to end: longer than the grace that most of them have.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// How long Kubernetes may call a node ready whose machine is gone: it takes most of a minute until it misses one.
const MISSED: Duration = Duration::from_secs(3 * 60);

fn key(node: &str) -> Key {
    Key::new("", "Node", "", node)
}

/// The first of these that is not so.
async fn unmet(api: &Api, provided: &[Expect]) -> Result<Option<Closed>, Fault> {
    let sight = Sight::new(api);
    for expect in provided {
        if let Some(closed) = expect.closed(&sight).await? {
            return Ok(Some(closed));
        }
    }
    Ok(None)
}

async fn node(api: &Api, name: &str) -> Result<Option<Object>, Fault> {
    api.get(&Kind::new("v1", "Node"), "", name).await.map_err(|trouble| trouble.fault(&key(name)))
}

/// Sends a node away: it takes no new Pods, and those it has are asked to go, as far as their budgets allow.
pub struct Drain {
    castle: String,
    node: String,
    objection: Option<Fault>,
    provided: Vec<Expect>,
    /// Whether it comes back, and if so, whether there are others that take what it has.
    returns: Option<Others>,
}

/// Whether a castle has other nodes than the one that restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It has: Pods go there meanwhile.
    There,
    /// It has none: what it runs can only wait for it.
    None,
}

/// That a node was sent away.
#[derive(Debug, Default)]
pub struct Drained {
    /// What its machine called its last start, as far as Kubernetes knew: another one after the next.
    boot: String,
}

/// A node that leaves.
pub struct Burden {
    node: Object,
    /// Whether it still takes Pods.
    is_open: bool,
    /// What is to be asked to go.
    pods: Vec<Object>,
}

/// How a node is sent away.
pub enum Draining {
    /// It takes no more Pods.
    Cordon(Object),
    /// These Pods are asked to go.
    Evict(Vec<Object>),
}

impl Drain {
    /// The step for a node of this castle; with an objection it only tells that.
    #[must_use]
    pub fn new(castle: &str, node: &str, objection: Option<Fault>) -> Self {
        Self { castle: castle.to_owned(), node: node.to_owned(), objection, provided: Vec::new(), returns: None }
    }

    /// Begins only if all this is so, and refuses otherwise. One that was sent away already is not asked again.
    #[must_use]
    pub fn provided(self, provided: Vec<Expect>) -> Self {
        Self { provided, ..self }
    }

    /// Sends it away only until it has restarted.
    #[must_use]
    pub fn for_a_while(self, others: Others) -> Self {
        Self { returns: Some(others), ..self }
    }

    /// Lets no more Pods onto a node. One that somebody has opened since is castle's from now on.
    async fn close(&self, api: &Api, node: &Object) -> Result<(), Fault> {
        let closed = match node.label(LEAVING) {
            _ if !is_closed(node) => Value::Null,
            None => json!("yes"),
            Some(_) => json!(node.label(CLOSED_BEFORE)),
        };
        let labels = json!({LEAVING: self.castle, CLOSED_BEFORE: closed});
        let closed = api.alter(node, &labels, &json!({"unschedulable": true})).await;
        closed.map_err(|trouble| trouble.fault(&node.key()))
    }

    fn cordon(&self) -> Change {
        let change = Change::new("cordon", Impact::InPlace);
        change.differing("scheduling", Some("on".to_owned()), Some("off".to_owned()))
    }
}

/// Asks Pods to go, all of them, and tells the first that may not.
async fn evict(api: &Api, pods: &[Object]) -> Result<(), Fault> {
    let mut refused = None;
    for pod in pods {
        match api.evict(pod, Mode::Real).await {
            Err(trouble) if !trouble.is_absent() => refused = refused.or(Some(kept(pod, &trouble))),
            _ => {}
        }
    }
    refused.map_or(Ok(()), Err)
}

impl Step for Drain {
    type Needs = (Arc<Api>,);
    type Observed = Option<Burden>;
    type Action = Draining;
    type Output = Drained;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Option<Burden>, Fault>> {
        Box::pin(async move {
            if let Some(objection) = &self.objection {
                return Err(objection.clone());
            }
            let Some(node) = node(api, &self.node).await? else { return Ok(None) };
            if self.returns.is_none() && node.label(CONTROL_PLANE).is_some() {
                let fault = Fault::guard(&self.node, "is a control plane, and castle takes none away yet");
                return Err(fault.next("put it back into castle.yaml"));
            }
            let is_open = !is_closed(&node) || node.label(LEAVING) != Some(self.castle.as_str());
            if is_open && let Some(Closed { subject, evidence, next }) = unmet(api, &self.provided).await? {
                return Err(Fault::guard(subject, evidence).next(next));
            }
            // What is on a machine that is off comes up again with it, if it is only to restart.
            let stays = self.returns.is_some() && !is_ready(&node);
            let pods = if stays { Vec::new() } else { remaining(api, &node).await? };
            let pods = pods.into_iter().filter(|pod| !pod.is_ending() && !comes_back(pod)).collect();
            Ok(Some(Burden { node, is_open, pods }))
        })
    }

    fn decide(&self, _: &Self::Needs, burden: &Option<Burden>) -> Decision<Draining> {
        match burden {
            _ if self.returns == Some(Others::None) => Decision::Nothing,
            Some(burden) if burden.is_open => Decision::Act(Draining::Cordon(burden.node.clone()), self.cordon()),
            Some(burden) if !burden.pods.is_empty() => {
                let count = Some(burden.pods.len().to_string());
                let change = Change::new("evict", Impact::InPlace).differing("Pods", count, None);
                Decision::Act(Draining::Evict(burden.pods.clone()), change)
            }
            _ => Decision::Nothing,
        }
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        _: &'a Option<Burden>,
        action: &'a Draining,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match action {
                Draining::Cordon(node) => self.close(api, node).await,
                Draining::Evict(pods) => evict(api, pods).await,
            }
        })
    }

    fn expect(&self, needs: &Self::Needs, burden: &Option<Burden>) -> Option<Drained> {
        Some(self.output(needs, burden))
    }

    fn foresee(&self) -> Option<Change> {
        Some(self.cordon())
    }

    fn output(&self, _: &Self::Needs, burden: &Option<Burden>) -> Drained {
        Drained { boot: burden.as_ref().map_or_else(String::new, |burden| burden.node.text(BOOT).to_owned()) }
    }
}

fn is_closed(node: &Object) -> bool {
    node.at("/spec/unschedulable") == &Value::Bool(true)
}

/// Why a Pod stays where it is.
fn kept(pod: &Object, trouble: &Trouble) -> Fault {
    let namespace = pod.namespace();
    trouble
        .fault(&pod.key())
        .next(format!("kubectl get poddisruptionbudgets --namespace {namespace}; then castle up again"))
}

fn is_ready(node: &Object) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

/// The Pods on a node that do not belong to it.
async fn remaining(api: &Api, node: &Object) -> Result<Vec<Object>, Fault> {
    let scope = Scope { fields: format!("spec.nodeName={}", node.name()), ..Scope::default() };
    let listed = api.list(&Kind::new("v1", "Pod"), &scope).await;
    let pods = listed.map_err(|trouble| trouble.fault(&Key::new("", "Pod", "", "(all)")))?.objects;
    Ok(pods.into_iter().filter(|pod| !belongs(pod)).collect())
}

/// Whether a Pod is its node's own, or has done what it was for.
fn belongs(pod: &Object) -> bool {
    pod.annotation(MIRROR).is_some()
        || pod.list("/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "DaemonSet")
        || ["Succeeded", "Failed"].contains(&pod.text("/status/phase"))
}

/// Whether a Pod does not mind that its node takes none: sent away, its like would be back at once.
fn comes_back(pod: &Object) -> bool {
    pod.list("/spec/tolerations").iter().any(|toleration| {
        let key = toleration["key"].as_str().unwrap_or_default();
        let effect = toleration["effect"].as_str().unwrap_or_default();
        (key.is_empty() || key == UNSCHEDULABLE) && (effect.is_empty() || effect == "NoSchedule")
    })
}

/// Open when nothing on a node is missed if its machine goes: Pods have moved, and no budget speaks against the end of the others.
pub struct Empty {
    node: String,
    provided: Vec<Expect>,
    /// Whether the machine does not come back, and what is on it although it is off goes for good.
    for_good: bool,
}

impl Empty {
    /// The gate before the machine of this node goes.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned(), provided: Vec::new(), for_good: false }
    }

    /// The gate before a machine goes that does not come back.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { for_good: true, ..self }
    }

    /// Opens only if all this is so at the same time.
    #[must_use]
    pub fn provided(self, provided: Vec<Expect>) -> Self {
        Self { provided, ..self }
    }
}

impl Gate for Empty {
    type Needs = (Arc<Api>, Arc<Drained>);
    type Output = ();

    fn check<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            if let Some(closed) = unmet(api, &self.provided).await? {
                return Ok(Verdict::Closed(closed));
            }
            let Some(node) = node(api, &self.node).await? else { return Ok(Verdict::Open(())) };
            let closed = |pod: &Object, evidence: String, next: String| {
                Ok(Verdict::Closed(Closed { subject: pod.key().to_string(), evidence, next }))
            };
            let answers = is_ready(&node);
            if !answers && !self.for_good {
                return Ok(Verdict::Open(()));
            }
            for pod in remaining(api, &node).await? {
                // On a machine that is off nobody can end it: it goes along. Kubernetes asks no budget when it gives up on a machine, but its end cannot be
                // taken back, so that even if the machine came back it would go: no budget counts it any more, and none forbids to evict it.
                if pod.is_ending() && !answers {
                    continue;
                }
                if !comes_back(&pod) && answers {
                    let next = format!("kubectl describe {}", pod.key().for_kubectl());
                    return closed(&pod, format!("is still on {}", self.node), next);
                }
                match api.evict(&pod, Mode::DryRun).await {
                    Err(trouble) if trouble.class() == Class::Final && !trouble.is_absent() => {
                        return Err(kept(&pod, &trouble));
                    }
                    Err(trouble) if !trouble.is_absent() => {
                        let Fault { evidence, next, .. } = kept(&pod, &trouble);
                        return closed(&pod, evidence, next);
                    }
                    _ => {}
                }
            }
            Ok(Verdict::Open(()))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        PATIENCE
    }
}

/// Open when a node that was sent away for a while has restarted, and is ready. What Kubernetes still thinks of the time before does not
/// count: it takes most of a minute until it misses a node.
pub struct Back {
    node: String,
}

impl Back {
    /// The gate for this node.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned() }
    }
}

impl Gate for Back {
    type Needs = (Arc<Api>, Arc<Drained>);
    type Output = ();

    fn check<'a>(&'a self, (api, drained): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            let found = match node(api, &self.node).await {
                // The only control plane may be the one that restarts.
                Err(fault) if !fault.is_final() => Err(format!("the API cannot be asked: {}", fault.evidence)),
                found => Ok(found?),
            };
            let evidence = match found {
                Err(why) => why,
                Ok(None) => "is not registered with Kubernetes".to_owned(),
                Ok(Some(node)) if node.text(BOOT) == drained.boot => "has not restarted yet".to_owned(),
                Ok(Some(node)) => match condition(&node, "Ready") {
                    Some(ready) if ready.status == "True" => return Ok(Verdict::Open(())),
                    Some(ready) => format!("has restarted, and is not ready: {}", ready.message),
                    None => "has restarted, and has no condition Ready yet".to_owned(),
                },
            };
            let next = format!(
                "kubectl describe node {0}; what comes after it waits, and goes on with castle up once it is back",
                self.node
            );
            Ok(Verdict::Closed(Closed { subject: self.node.clone(), evidence, next }))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        PATIENCE
    }
}

/// Open when Kubernetes misses a node whose machine is gone. One that is ready is alive, whatever the hypervisor shows: it is not forgotten.
pub struct Missed {
    node: String,
}

impl Missed {
    /// The gate for this node.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self { node: node.to_owned() }
    }
}

impl Gate for Missed {
    type Needs = (Arc<Api>,);
    type Output = ();

    fn check<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            if !node(api, &self.node).await?.is_some_and(|node| is_ready(&node)) {
                return Ok(Verdict::Open(()));
            }
            let evidence = "is ready, and its machine is gone by all that the hypervisor shows".to_owned();
            let next = format!(
                "if it runs elsewhere, put it back into castle.yaml; otherwise: kubectl delete node {}, then castle up again",
                self.node
            );
            Ok(Verdict::Closed(Closed { subject: self.node.clone(), evidence, next }))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        MISSED
    }
}

/// Wants no node that left to be known any more, and none that is wanted again to be kept apart.
pub struct Left {
    castle: String,
    /// The nodes of the file.
    wanted: BTreeSet<String>,
    /// The nodes whose machines go in this run.
    leaving: Vec<String>,
    /// Whether a node that was sent away earlier may still have a machine.
    only_these: bool,
}

impl Left {
    /// The step for a castle with these nodes, of which others leave just now.
    #[must_use]
    pub fn new(castle: &str, wanted: impl IntoIterator<Item = String>, leaving: Vec<String>) -> Self {
        Self { castle: castle.to_owned(), wanted: wanted.into_iter().collect(), leaving, only_these: false }
    }

    /// Forgets those that leave just now, and none that was sent away earlier: its machine may still be there.
    #[must_use]
    pub fn only_these(self) -> Self {
        Self { only_these: true, ..self }
    }
}

/// What becomes of a node that was sent away.
pub enum Settling {
    /// Kubernetes forgets it.
    Forget(Object),
    /// It stays closed, as it was before castle closed it.
    Keep(Object),
    /// It takes Pods again.
    Uncordon(Object),
}

impl Step for Left {
    type Needs = (Arc<Api>,);
    type Observed = Vec<Object>;
    type Action = Settling;
    type Output = ();

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Object>, Fault>> {
        Box::pin(async move {
            let scope = Scope::labelled(&format!("{LEAVING}={}", self.castle));
            let listed = api.list(&Kind::new("v1", "Node"), &scope).await;
            let mut nodes = listed.map_err(|trouble| trouble.fault(&key("(all)")))?.objects;
            for name in &self.leaving {
                if !nodes.iter().any(|node| node.name() == name) {
                    nodes.extend(node(api, name).await?);
                }
            }
            let is_settled = |node: &Object| {
                self.wanted.contains(node.name()) || self.leaving.iter().any(|name| name == node.name())
            };
            nodes.retain(|node| !self.only_these || is_settled(node));
            Ok(nodes)
        })
    }

    fn decide(&self, _: &Self::Needs, nodes: &Vec<Object>) -> Decision<Settling> {
        let Some(node) = nodes.first() else { return Decision::Nothing };
        let name = node.name();
        if !self.wanted.contains(name) {
            let change = Change::new("forget", Impact::Destroy).differing(name, Some("a node".to_owned()), None);
            return Decision::Act(Settling::Forget(node.clone()), change);
        }
        let (action, verb, back) = match node.label(CLOSED_BEFORE) {
            Some(_) => (Settling::Keep(node.clone()), "keep", "as it was before"),
            None => (Settling::Uncordon(node.clone()), "uncordon", "on"),
        };
        let change = Change::new(verb, Impact::InPlace);
        let field = format!("scheduling on {name}");
        Decision::Act(action, change.differing(&field, Some("off".to_owned()), Some(back.to_owned())))
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        _: &'a Vec<Object>,
        action: &'a Settling,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let (node, stays) = match action {
                Settling::Forget(node) => {
                    return api.delete(node).await.map_err(|trouble| trouble.fault(&node.key()));
                }
                Settling::Keep(node) => (node, json!(true)),
                Settling::Uncordon(node) => (node, Value::Null),
            };
            let labels = json!({LEAVING: null, CLOSED_BEFORE: null});
            match api.alter(node, &labels, &json!({"unschedulable": stays})).await {
                Ok(()) => Ok(()),
                Err(trouble) => Err(unopened(api, node, &trouble).await),
            }
        })
    }

    fn foresee(&self) -> Option<Change> {
        let change = Change::new("forget", Impact::Destroy);
        let all = self.leaving.iter();
        let change = all.fold(change, |change, name| change.differing(name, Some("a node".to_owned()), None));
        (!self.leaving.is_empty()).then_some(change)
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Object>) {}
}
