//! A component that castle lets go of, once Flux holds all of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use castle_engine::{Change, Decision, Fault, GraphBuilder, Handle, Impact, Layer, Operation, Place, Step, StepId};
use castle_seams::BoxFuture;
use serde_json::{Value, json};

use super::apply::worst;
use super::inventory;
use super::obstacle::{Obstacle, clear};
use super::sources::{Source, sources};
use crate::client::{Api, Mode, together};
use crate::model::{Key, Managed, Mark, Object, Owner, unshared};

/// So many fields of an object are told.
const TOLD: usize = 3;

struct Give {
    mark: Mark,
}

/// What castle still holds of a component.
struct Holding {
    inventory: Option<Object>,
    /// Objects with fields that castle manages.
    held: Vec<Object>,
}

impl Give {
    /// What is in the way of letting go of an object.
    fn obstacle(&self, object: &Object, sources: &[Source]) -> Option<Obstacle> {
        let key = object.key();
        if let Some(other) = Mark::of(object).filter(|mark| *mark != self.mark) {
            let whose = format!("belongs to {}", Owner::Castle(Some(other)));
            return Some(Obstacle::new(&key, whose, format!("kubectl get {} --output yaml", key.for_kubectl())));
        }
        let Some(source) = sources.iter().find(|source| source.listed.contains(&key)) else {
            return Some(Obstacle::new(
                &key,
                "is in no inventory of Flux",
                "commit it to the Git repository that Flux follows, and wait until it is applied",
            ));
        };
        if let Some((why, next)) = &source.behind {
            return Some(Obstacle::new(&key, why, next));
        }
        let lacking = unshared(object);
        if lacking.is_empty() {
            return None;
        }
        if lacking.iter().any(|field| field.starts_with(".metadata.labels.castle.dev/")) {
            let next = "take the labels castle.dev/ out of the Git repository";
            return Some(Obstacle::new(&key, "has castle's mark in the tree that Flux follows", next));
        }
        let more = match lacking.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!(" and {more} more fields"),
        };
        let fields: Vec<&str> = lacking.iter().take(TOLD).map(String::as_str).collect();
        let what = format!("castle wants {}{more}, and {} does not", fields.join(", "), source.owner);
        Some(Obstacle::new(
            &key,
            what,
            "make the object in the Git repository equal to castle's, and wait until it is applied",
        ))
    }
}

/// What stands there of these objects.
pub(super) async fn live(api: &Api, keys: &BTreeSet<Key>) -> Result<Vec<Object>, Fault> {
    let look = async |key: &Key| {
        let fault = |trouble: crate::client::Trouble| trouble.fault(key);
        let served = api.served().await.map_err(fault)?;
        let Some(kind) = served.preferred(&key.group, &key.kind) else { return Ok(None) };
        api.get(kind, &key.namespace, &key.name).await.map_err(fault)
    };
    let found = worst(together(keys.iter().map(look).collect()).await)?;
    Ok(found.into_iter().flatten().collect())
}

/// What castle says of an object of which it wants nothing, while it is as it was seen.
fn nothing_of(seen: &Object) -> Option<Object> {
    let mut metadata = json!({"name": seen.name()});
    for key in ["namespace", "uid", "resourceVersion"] {
        if let known @ Value::String(_) = seen.at(&format!("/metadata/{key}")) {
            metadata[key] = known.clone();
        }
    }
    Object::new(json!({"apiVersion": seen.text("/apiVersion"), "kind": seen.text("/kind"), "metadata": metadata}))
}

/// Wants castle to have no say in a component any more. Nothing that it consists of changes: castle lets go of its objects only if Flux
/// has applied every field that castle has.
pub fn give(graph: &mut GraphBuilder, api: &Handle<Api>, mark: &Mark) {
    let id = StepId::new(&Layer::new(&mark.layer), &mark.component, "give");
    graph.step(id, Place::default(), (api.clone(),), Give { mark: mark.clone() });
}

/// What handing over does.
pub(super) enum Giving {
    /// castle manages no field of the objects any more.
    Release,
    /// The inventory is removed.
    Forget(Object),
}

impl Step for Give {
    type Needs = (Arc<Api>,);
    type Observed = Holding;
    type Action = Giving;
    type Output = ();

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Holding, Fault>> {
        Box::pin(async move {
            let inventory = inventory::read(api, &self.mark).await?;
            let listed = inventory.as_ref().map(inventory::listed).transpose()?.unwrap_or_default();
            let mut held = live(api, &listed).await?;
            held.retain(|object| Managed::castle(object).is_some());
            if !held.is_empty() {
                let sources = sources(api).await?;
                let obstacles: Vec<Obstacle> =
                    held.iter().filter_map(|object| self.obstacle(object, &sources)).collect();
                clear(&self.mark, &obstacles)?;
            }
            Ok(Holding { inventory, held })
        })
    }

    fn decide(&self, _: &Self::Needs, observed: &Holding) -> Decision<Giving> {
        if observed.held.is_empty() {
            return match &observed.inventory {
                None => Decision::Nothing,
                Some(inventory) => {
                    let change = Change::new("forget", Impact::InPlace);
                    let change = change.differing("inventory", Some(inventory.key().to_string()), None);
                    Decision::Act(Giving::Forget(inventory.clone()), change)
                }
            };
        }
        let release = Change::new("release", Impact::InPlace);
        let both = || Some("castle and Flux".to_owned());
        let change = observed.held.iter().fold(release, |change, object| {
            change.differing(&object.key().to_string(), both(), Some("Flux".to_owned()))
        });
        Decision::Act(Giving::Release, change)
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        observed: &'a Holding,
        action: &'a Giving,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            if let Giving::Forget(inventory) = action {
                return api.delete(inventory).await.map_err(|trouble| trouble.fault(&inventory.key()));
            }
            let release = async |object: &Object| {
                let Some(nothing) = nothing_of(object) else { return Ok(()) };
                let applied = api.apply(&nothing, Mode::Real).await;
                applied.map(drop).map_err(|trouble| trouble.fault(&object.key()))
            };
            worst(together(observed.held.iter().map(release).collect()).await).map(drop)
        })
    }

    fn output(&self, _: &Self::Needs, _: &Holding) {}
}
