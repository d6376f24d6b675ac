//! The calm end of a cluster, before its machines go: nothing new is begun, Flux holds still, Pods let go of their volumes. And the way
//! back, for an end that was called off.
//!
//! Nodes are closed first, so that Pods which end are not begun elsewhere: whatever controls them may make them anew, and they wait. What
//! castle has closed or suspended bears a label, so that the next `up` opens that again, and nothing that a person had closed before. All nodes
//! bear it, so that looking at them tells whether there is anything to open.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{
    Change, Class, Closed, Decision, Fault, Gate, Graph, GraphBuilder, GraphError, Handle, Impact, Layer, Operation,
    Place, Step, StepId, Verdict,
};
use castle_kubernetes::client::{Access, Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object};
use castle_kubernetes::steps::{Expect, Present, Ready, Test, Unmet, unopened};
use castle_proxmox::steps::{Ground, ShutGuest};
use castle_seams::{BoxFuture, Clock, Dial};
use serde_json::{Value, json};

use crate::names::id;
use crate::platform::{self, Doomed};
use crate::storage::defined;

/// The label of what castle has closed or suspended for a castle that goes down.
const GOING_DOWN: &str = "castle.dev/going-down";
/// What it says of what castle has closed, and of what was closed before.
const BY_CASTLE: &str = "by-castle";
const BEFORE: &str = "before";
/// How long the API may take to show that it is there: one that is dead is not waited for.
const REACHING: Duration = Duration::from_secs(15);
/// What one question may take.
const ASKING: Duration = Duration::from_secs(10);

/// How the cluster is reached that is to be calmed.
pub struct Way {
    /// Its API, and as whom.
    pub access: Access,
    /// Connections.
    pub dial: Arc<dyn Dial>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Way {
    fn api(&self) -> Result<Api, Fault> {
        let unfit = |error: castle_kubernetes::client::AccessError| {
            Fault::new(Class::Final, self.access.address.clone(), error.to_string())
        };
        Ok(Api::new(&self.access, self.dial.clone(), self.clock.clone()).map_err(unfit)?.with_deadline(ASKING))
    }
}

impl Gate for Way {
    type Needs = ();
    type Output = Api;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Api>, Fault>> {
        Box::pin(async move {
            let api = self.api()?;
            let Err(trouble) = api.discover().await else { return Ok(Verdict::Open(api)) };
            let (subject, next) = (self.access.address.clone(), "castle status".to_owned());
            Ok(Verdict::Closed(Closed { subject, evidence: format!("does not answer: {trouble}"), next }))
        })
    }

    fn deadline(&self) -> Duration {
        REACHING
    }
}

fn nodes() -> [Kind; 1] {
    [Kind::new("v1", "Node")]
}

/// What would bring back what ends: HelmReleases are upgraded by a controller of their own.
fn followers() -> [Kind; 2] {
    [
        Kind::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        Kind::new("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ]
}

/// The steps that calm a cluster, and wait at most so long for its volumes to be detached.
///
/// # Errors
///
/// Never: the steps are always the same.
pub fn quiet(way: Way, within: Duration) -> Result<Graph, GraphError> {
    let mut graph = GraphBuilder::new();
    let place = |seconds| Place { lane: None, predicted: Duration::from_secs(seconds) };
    let api = graph.gate(id("platform", "api", "endpoint"), place(1), (), way);
    let (closed, held, ended) =
        (id("platform", "nodes", "closed"), id("gitops", "flux", "suspended"), id("storage", "pods", "ended"));
    graph.step(closed.clone(), place(1), (api.clone(),), Chore::Close);
    graph.step(held.clone(), place(1), (api.clone(),), Chore::Suspend);
    let pods = graph.step(ended.clone(), place(1), (api.clone(),), Chore::EndPods);
    // Whoever closes nodes first is found by the next `up`, whatever happens after that.
    graph.after(held.clone(), closed.clone());
    graph.after(ended.clone(), closed);
    graph.after(ended, held);
    let gate = Ready::<Present>::new(detached(), within);
    graph.gate(id("storage", "volumes", "detached"), place(30), (api, pods), gate);
    graph.build()
}

/// The steps that have these guests go down by themselves, each within a bound.
///
/// # Errors
///
/// If a guest is named twice.
pub fn shut(ground: &Arc<Ground>, guests: &[&Doomed], within: Duration) -> Result<Graph, GraphError> {
    let mut graph = GraphBuilder::new();
    for guest in guests {
        let step = StepId::new(&platform::layer(), "vm", &format!("{} {}", guest.vmid, guest.name));
        let place = Place { lane: None, predicted: Duration::from_secs(10) };
        graph.step(step, place, (), ShutGuest::new(ground.clone(), guest.vmid, &guest.name, within));
    }
    graph.build()
}

/// Adds the step that opens again what an end that was called off has closed.
pub fn wake(graph: &mut GraphBuilder, api: &Handle<Api>) {
    let step = StepId::new(&Layer::new("platform"), "nodes", "open");
    graph.step(step, Place::default(), (api.clone(),), Chore::Open);
}

/// The objects of these kinds within a scope.
async fn all(api: &Api, kinds: &[Kind], scope: &Scope) -> Result<Vec<Object>, Fault> {
    let mut found = Vec::new();
    for kind in kinds {
        let listed =
            api.list(kind, scope).await.map_err(|trouble| trouble.fault(&Key::new(&kind.group, &kind.kind, "", "")))?;
        found.extend(listed.objects);
    }
    Ok(found)
}

/// Something that is done to all objects of which it is not so yet.
enum Chore {
    /// Closes nodes. Those are labelled, too, that were closed before.
    Close,
    /// Suspends Flux.
    Suspend,
    /// Ends the Pods that use volumes, each with the time it asks for. Budgets are not asked: they are for clusters that stay.
    EndPods,
    /// Opens what castle has closed or suspended. Nodes tell whether there is any: they were closed first, and are opened last.
    Open,
}

/// The field by which an object is closed.
fn field(object: &Object) -> &'static str {
    if object.kind().kind == "Node" { "unschedulable" } else { "suspend" }
}

fn is_closed(object: &Object) -> bool {
    object.at(&format!("/spec/{}", field(object))) == true
}

impl Chore {
    /// Its verb, its impact, and what it turns into what.
    fn words(&self) -> (&'static str, Impact, (&'static str, &'static str)) {
        match self {
            Self::Close => ("close", Impact::InPlace, ("open", "closed")),
            Self::Suspend => ("suspend", Impact::InPlace, ("at work", "suspended")),
            Self::EndPods => ("end", Impact::Destroy, ("there", "ended")),
            Self::Open => ("open", Impact::InPlace, ("closed by castle down", "open")),
        }
    }

    /// The objects of which it is not so yet.
    async fn left(&self, api: &Api) -> Result<Vec<Object>, Fault> {
        let everywhere = Scope::default();
        let mut found = match self {
            Self::Close => all(api, &nodes(), &everywhere).await?,
            Self::Suspend => all(api, &followers(), &everywhere).await?,
            Self::EndPods => all(api, &[Kind::new("v1", "Pod")], &everywhere).await?,
            Self::Open => {
                let labelled = Scope::labelled(GOING_DOWN);
                let nodes = all(api, &nodes(), &labelled).await?;
                if nodes.is_empty() {
                    return Ok(nodes);
                }
                let mut found = all(api, &followers(), &labelled).await?;
                found.extend(nodes);
                return Ok(found);
            }
        };
        found.retain(|object| {
            let is_left = match self {
                Self::Close => !is_closed(object) || object.label(GOING_DOWN).is_none(),
                Self::EndPods => uses_volume(object),
                _ => !is_closed(object),
            };
            is_left && !object.is_ending()
        });
        Ok(found)
    }

    async fn handle(&self, api: &Api, object: &Object) -> Result<(), Fault> {
        let field = field(object);
        let done = match self {
            Self::EndPods => api.delete(object).await,
            // What somebody else had closed stays closed.
            Self::Open => {
                let spec = if object.label(GOING_DOWN) == Some(BEFORE) { json!({}) } else { json!({field: null}) };
                api.alter(object, &json!({GOING_DOWN: null}), &spec).await
            }
            // One that a person has opened since is castle's from now on.
            Self::Close | Self::Suspend => {
                let label = if is_closed(object) { BEFORE } else { BY_CASTLE };
                api.alter(object, &json!({GOING_DOWN: label}), &json!({field: true})).await
            }
        };
        match (self, done) {
            (_, Ok(())) => Ok(()),
            // Whoever has a say in it has just been started, too, or waits for an open node.
            (Self::Open, Err(trouble)) => Err(unopened(api, object, &trouble).await),
            (_, Err(trouble)) => Err(trouble.fault(&object.key())),
        }
    }
}

impl Step for Chore {
    type Needs = (Arc<Api>,);
    type Observed = Vec<Object>;
    type Action = ();
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Object>, Fault>> {
        Box::pin(self.left(api))
    }

    fn decide(&self, _: &Self::Needs, objects: &Vec<Object>) -> Decision {
        let (verb, impact, (is, wanted)) = self.words();
        if objects.is_empty() {
            return Decision::Nothing;
        }
        let named = |change: Change, object: &Object| {
            change.differing(&object.key().to_string(), Some(is.to_owned()), Some(wanted.to_owned()))
        };
        Decision::Act((), objects.iter().fold(Change::new(verb, impact), named))
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        objects: &'a Vec<Object>,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for object in objects {
                self.handle(api, object).await?;
            }
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Vec<Object>) -> Option<Present> {
        Some(Present)
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Object>) -> Present {
        Present
    }
}

/// Whether a Pod uses a volume that outlives it, on a node.
fn uses_volume(pod: &Object) -> bool {
    let is_over = ["Succeeded", "Failed"].contains(&pod.text("/status/phase"));
    let is_claim = |volume: &Value| volume.get("persistentVolumeClaim").is_some() || volume.get("ephemeral").is_some();
    !is_over && !pod.text("/spec/nodeName").is_empty() && pod.list("/spec/volumes").iter().any(is_claim)
}

/// That no Pod uses a volume any more, that none is attached to a node, and that Longhorn says so, too.
fn detached() -> Vec<Expect> {
    let pods = Test::new(|pods| match pods.iter().find(|pod| uses_volume(pod)) {
        Some(pod) if pod.is_ending() => Err(Unmet::of(pod, "is still ending")),
        Some(pod) => Err(Unmet::of(pod, "uses a volume")),
        None => Ok(()),
    });
    let attachments = Test::new(|all| match all.iter().find(|one| one.at("/status/attached") == true) {
        Some(one) => {
            let (volume, node) = (one.text("/spec/source/persistentVolumeName"), one.text("/spec/nodeName"));
            let key = Key::new("", "PersistentVolume", "", volume);
            Err(Unmet { evidence: format!("is still attached to {node}"), ..Unmet::absent(key) })
        }
        None => Ok(()),
    });
    let volumes =
        Test::new(|all| match all.iter().find(|one| !["", "detached"].contains(&one.text("/status/state"))) {
            Some(one) => {
                let (state, node) = (one.text("/status/state"), one.text("/status/currentNodeID"));
                Err(Unmet::of(one, format!("is {state} on {node}")))
            }
            None => Ok(()),
        });
    let everywhere = Scope::default;
    vec![
        Expect::Holds(Kind::new("v1", "Pod"), everywhere(), pods),
        Expect::Holds(Kind::new("storage.k8s.io/v1", "VolumeAttachment"), everywhere(), attachments),
        Expect::Visible(vec![defined("Volume")]),
        Expect::Holds(Kind::new("longhorn.io/v1beta2", "Volume"), everywhere(), volumes),
    ]
}
