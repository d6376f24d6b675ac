//! Components that the file wants no more, and that are still there: named, and removed only if that was said.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, GraphBuilder, Place, StepId, Verdict};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Mark};
use castle_kubernetes::steps::{Present, all_recorded, prune_step, remove};
use castle_seams::BoxFuture;
use castle_spec::{Castle, ComponentName};

use crate::components::{layer_of, row};
use crate::inside::Inside;
use crate::names::{FLUX_SYSTEM, id};

/// The components that were found and are wanted no more, and how many objects of each were written down.
pub type Leftovers = Arc<Mutex<BTreeMap<ComponentName, usize>>>;

/// What castle makes of a component, in the order it is removed in.
fn marks(inside: &Inside<'_>, component: ComponentName) -> Vec<Mark> {
    let names = row(component).beside.iter().copied().chain([component.word()]);
    names.map(|name| inside.mark(layer_of(component), name)).collect()
}

/// The components that a file does not want.
pub fn of(castle: &Castle) -> impl Iterator<Item = ComponentName> {
    let wanted: Vec<ComponentName> = castle.wanted_components().into_iter().map(|wanted| wanted.name).collect();
    ComponentName::ALL.into_iter().filter(move |name| !wanted.contains(name))
}

/// How to be rid of a component that is wanted no more.
#[must_use]
pub fn way_out(component: ComponentName) -> String {
    row(component).stays.map_or_else(|| format!("castle up --remove {component}"), str::to_owned)
}

/// Removes those of the unwanted components that were named, and looks for the others.
pub fn raise(graph: &mut GraphBuilder, inside: &Inside<'_>, removal: &[ComponentName], found: &Leftovers) {
    let (removed, left): (Vec<_>, Vec<_>) =
        of(inside.castle).partition(|name| removal.contains(name) && row(*name).stays.is_none());
    if !left.is_empty() {
        let gate = Noticed { castle: inside.castle.castle.as_str().to_owned(), left, found: found.clone() };
        graph.gate(id("platform", "components", "unwanted"), Place::default(), (inside.api.clone(),), gate);
    }
    for component in removed {
        let mut earlier: Option<StepId> = None;
        let marks = marks(inside, component);
        if component == ComponentName::Flux {
            let idle = id(layer_of(component), component.word(), "idle");
            graph.gate(
                idle.clone(),
                Place::default(),
                (inside.api.clone(),),
                Idle(inside.mark(layer_of(component), "sync")),
            );
            earlier = Some(idle);
        }
        let gates: Vec<StepId> = marks.iter().map(|mark| remove(graph, inside.api, mark)).collect();
        for (mark, gate) in marks.iter().zip(&gates) {
            // Nothing is removed before it is known that all of it can be.
            for other in &gates {
                if other != gate {
                    graph.after(prune_step(mark), other.clone());
                }
            }
            if let Some(earlier) = earlier.replace(prune_step(mark)) {
                graph.after(prune_step(mark), earlier);
            }
            // Flux may still read what the component has made for it.
            if inside.manifests.contains_key(&ComponentName::Flux) {
                for kept in ["sync", "inputs"] {
                    graph.after(prune_step(mark), prune_step(&inside.mark(layer_of(ComponentName::Flux), kept)));
                }
            }
        }
    }
}

/// Always open; tells what it has found.
struct Noticed {
    castle: String,
    left: Vec<ComponentName>,
    found: Leftovers,
}

impl Gate for Noticed {
    type Needs = (Arc<Api>,);
    type Output = Present;

    fn check<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move {
            let recorded = all_recorded(api, &self.castle).await?;
            let objects = |name: &ComponentName| -> usize {
                recorded.iter().filter(|(mark, _)| mark.layer == layer_of(*name)).map(|(_, count)| count).sum()
            };
            let found = self.left.iter().map(|name| (*name, objects(name))).filter(|(_, count)| *count > 0);
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found.collect();
            Ok(Verdict::Open(Present))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// The definition of what Flux keeps things by.
const FOLLOWING: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

/// Open if Flux keeps nothing: with what it follows it would remove all that it has applied.
struct Idle(Mark);

impl Gate for Idle {
    type Needs = (Arc<Api>,);
    type Output = Present;

    fn check<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move {
            let kind = Kind::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
            let key = Key::new(&kind.group, &kind.kind, FLUX_SYSTEM, FLUX_SYSTEM);
            let fault = |trouble: castle_kubernetes::client::Trouble| trouble.fault(&key);
            if api.served().await.map_err(fault)?.preferred(&kind.group, &kind.kind).is_none() {
                // What is defined and not served just now may keep something all the same.
                let definition = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
                let defined = api.get(&definition, "", FOLLOWING).await.map_err(fault)?;
                return Ok(defined.map_or(Verdict::Open(Present), |defined| {
                    let next = format!("kubectl describe {}", defined.key().for_kubectl());
                    let evidence = "is there, but what it defines is not served: what Flux keeps cannot be told";
                    Verdict::Closed(Closed { subject: defined.key().to_string(), evidence: evidence.to_owned(), next })
                }));
            }
            let scope = Scope { labels: self.0.selector(), ..Scope::within(FLUX_SYSTEM) };
            for kustomization in api.list(&kind, &scope).await.map_err(fault)?.objects {
                let kept = kustomization.list("/status/inventory/entries").len();
                if kept > 0 {
                    let evidence = format!("has applied {kept} objects, and Flux would remove them with it");
                    let next = "remove them from the Git repository first; or `flux uninstall`, which leaves them, and then castle up \
                                --remove flux";
                    return Err(Fault::guard(kustomization.key().to_string(), evidence).next(next));
                }
            }
            Ok(Verdict::Open(Present))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}
