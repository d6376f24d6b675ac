//! The calm end of a cluster, before its machines go: nothing new is begun, Flux holds still, Pods let go of their volumes. And the way
//! back, for an end that was called off.
//!
//! Nodes are closed first, so that Pods which end are not begun elsewhere: whatever controls them may make them anew, and they wait. What
//! castle has closed or suspended bears a label, so that the next `up` opens that again, and nothing that a person had closed before. All nodes
//! bear it, so that looking at them tells whether there is anything to open.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{
    Change, Closed, Decision, Fault, Gate, Graph, GraphBuilder, GraphError, Handle, Impact, Layer, Operation, Place,
    Step, StepId, Verdict,
};
use castle_kubernetes::client::{Access, Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object};
use castle_kubernetes::steps::{Expect, Present, Ready, Test, Unmet};
use castle_proxmox::steps::{Ground, ShutGuest};
use castle_seams::{BoxFuture, Clock, Dial};
use serde_json::{Value, json};

use crate::inside::id;
use crate::platform::{self, Doomed};

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
            Fault::new(castle_engine::Class::Final, self.access.address.clone(), error.to_string())
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
    let close = Raise {
        kinds: nodes().to_vec(),
        field: "unschedulable",
        verb: "close",
        from_to: ("open", "closed"),
        labels_all: true,
    };
    let closed = graph.step(id("platform", "nodes", "closed"), place(1), (api.clone(),), close);
    let suspend = Raise {
        kinds: followers().to_vec(),
        field: "suspend",
        verb: "suspend",
        from_to: ("at work", "suspended"),
        labels_all: false,
    };
    let held = graph.step(id("gitops", "flux", "suspended"), place(1), (api.clone(),), suspend);
    // Whoever closes nodes first is found by the next `up`, whatever happens after that.
    graph.after(id("gitops", "flux", "suspended"), id("platform", "nodes", "closed"));
    let ended = graph.step(id("storage", "pods", "ended"), place(1), (api.clone(), closed, held), EndPods);
    let gate = Ready::<Present>::new(detached(), within);
    graph.gate(id("storage", "volumes", "detached"), place(30), (api, ended), gate);
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
    graph.step(step, Place::default(), (api.clone(),), Wake);
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

async fn set(api: &Api, object: &Object, spec: Value, label: Value) -> Result<(), Fault> {
    let altered = api.alter(object, &json!({GOING_DOWN: label}), &spec).await;
    altered.map_err(|trouble| trouble.fault(&object.key()))
}

/// A change that names the objects it is about.
fn about(verb: &str, impact: Impact, objects: &[Object], (is, wanted): (&str, &str)) -> Decision {
    if objects.is_empty() {
        return Decision::Nothing;
    }
    let change = Change::new(verb, impact);
    let named = |change: Change, object: &Object| {
        change.differing(&object.key().to_string(), Some(is.to_owned()), Some(wanted.to_owned()))
    };
    Decision::Change(objects.iter().fold(change, named))
}

/// Raises a flag of all objects of some kinds.
struct Raise {
    kinds: Vec<Kind>,
    field: &'static str,
    verb: &'static str,
    from_to: (&'static str, &'static str),
    /// Whether those are labelled, too, on which it was raised before.
    labels_all: bool,
}

impl Raise {
    fn is_raised(&self, object: &Object) -> bool {
        object.at(&format!("/spec/{}", self.field)) == true
    }
}

impl Step for Raise {
    type Needs = (Arc<Api>,);
    type Observed = Vec<Object>;
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Object>, Fault>> {
        Box::pin(async move {
            let mut found = all(api, &self.kinds, &Scope::default()).await?;
            let is_left = |object: &Object| self.labels_all && object.label(GOING_DOWN).is_none();
            found.retain(|object| (!self.is_raised(object) || is_left(object)) && !object.is_ending());
            Ok(found)
        })
    }

    fn decide(&self, _: &Self::Needs, objects: &Vec<Object>) -> Decision {
        about(self.verb, Impact::InPlace, objects, self.from_to)
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        objects: &'a Vec<Object>,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for object in objects {
                // One that a person has opened since is castle's from now on.
                let label = if self.is_raised(object) { BEFORE } else { BY_CASTLE };
                set(api, object, json!({self.field: true}), label.into()).await?;
            }
            Ok(())
        })
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

/// Ends the Pods that use volumes, each with the time it asks for. Budgets are not asked: they are for clusters that stay.
struct EndPods;

impl Step for EndPods {
    type Needs = (Arc<Api>, Arc<Present>, Arc<Present>);
    type Observed = Vec<Object>;
    type Output = Present;

    fn observe<'a>(&'a self, (api, ..): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Object>, Fault>> {
        Box::pin(async move {
            let mut pods = all(api, &[Kind::new("v1", "Pod")], &Scope::default()).await?;
            pods.retain(|pod| uses_volume(pod) && !pod.is_ending());
            Ok(pods)
        })
    }

    fn decide(&self, _: &Self::Needs, pods: &Vec<Object>) -> Decision {
        about("end", Impact::Destroy, pods, ("there", "ended"))
    }

    fn act<'a>(
        &'a self,
        (api, ..): &'a Self::Needs,
        pods: &'a Vec<Object>,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for pod in pods {
                api.delete(pod).await.map_err(|trouble| trouble.fault(&pod.key()))?;
            }
            Ok(())
        })
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Object>) -> Present {
        Present
    }
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
        Expect::Holds(Kind::new("longhorn.io/v1beta2", "Volume"), everywhere(), volumes),
    ]
}

/// Lowers the flags that castle has raised. Nodes tell whether there are any: they were closed first, and are opened last.
struct Wake;

impl Step for Wake {
    type Needs = (Arc<Api>,);
    type Observed = Vec<Object>;
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Object>, Fault>> {
        Box::pin(async move {
            let labelled = Scope::labelled(GOING_DOWN);
            let nodes = all(api, &nodes(), &labelled).await?;
            if nodes.is_empty() {
                return Ok(nodes);
            }
            let mut found = all(api, &followers(), &labelled).await?;
            found.extend(nodes);
            Ok(found)
        })
    }

    fn decide(&self, _: &Self::Needs, objects: &Vec<Object>) -> Decision {
        about("open", Impact::InPlace, objects, ("closed by castle down", "open"))
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        objects: &'a Vec<Object>,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for object in objects {
                let field = if object.kind().kind == "Node" { "unschedulable" } else { "suspend" };
                let is_castles = object.label(GOING_DOWN) != Some(BEFORE);
                let spec = if is_castles { json!({field: null}) } else { json!({}) };
                set(api, object, spec, Value::Null).await?;
            }
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Vec<Object>, _: &Change) -> Option<Present> {
        Some(Present)
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Object>) -> Present {
        Present
    }
}
