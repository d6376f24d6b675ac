//! What castle once wanted and wants no more, removed last things first, and only what inventory and mark both claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Decision, Fault, Gate, Impact, Operation, Step, Verdict};
use castle_seams::BoxFuture;
use serde_json::Value;

use super::apply::Present;
use super::inventory;
use crate::client::{Api, Scope, Trouble, together};
use crate::model::{Key, Kind, Mark, Object, Owner, Stage, owners};

const DEFINITION: &str = "CustomResourceDefinition";

/// Wants nothing of a component but this. With nothing wanted, the component is gone afterwards.
pub struct Prune {
    wanted: BTreeSet<Key>,
    mark: Mark,
}

/// What is left of what is wanted no more.
pub struct Leftovers {
    inventory: Option<Object>,
    listed: BTreeSet<Key>,
    /// What castle may remove.
    claimed: Vec<Object>,
}

impl Prune {
    /// Wants these objects alone.
    #[must_use]
    pub fn new(objects: &[Object], mark: &Mark) -> Self {
        Self { wanted: objects.iter().map(Object::key).collect(), mark: mark.clone() }
    }

    /// What there is of an object, if castle may remove it.
    async fn claimed(&self, api: &Api, key: &Key) -> Result<Option<Object>, Fault> {
        let fault = |trouble: Trouble| trouble.fault(key);
        let served = api.served().await.map_err(fault)?;
        let Some(kind) = served.preferred(&key.group, &key.kind) else { return Ok(None) };
        let found = api.get(kind, &key.namespace, &key.name).await.map_err(fault)?;
        Ok(found.filter(|object| Mark::of(object).as_ref() == Some(&self.mark)))
    }

    /// The last of what is left: nothing that comes before it in order is removed while it is there.
    fn last<'a>(&self, leftovers: &'a Leftovers) -> Vec<&'a Object> {
        let stage = leftovers.claimed.iter().map(Stage::of).max();
        leftovers.claimed.iter().filter(|object| Some(Stage::of(object)) == stage).collect()
    }
}

/// What a removal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// Removes the objects of the last stage that are left.
    Remove,
    /// Takes what is gone out of the inventory.
    Forget,
}

impl Step for Prune {
    type Needs = (Arc<Api>, Arc<Present>);
    type Observed = Leftovers;
    type Action = Pruning;
    type Output = ();

    fn observe<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Leftovers, Fault>> {
        Box::pin(async move {
            let inventory = inventory::read(api, &self.mark).await?;
            let listed = inventory.as_ref().map(inventory::listed).transpose()?.unwrap_or_default();
            let looks = listed.difference(&self.wanted).map(|key| self.claimed(api, key)).collect();
            let claimed: Result<Vec<Option<Object>>, Fault> = together(looks).await.into_iter().collect();
            let leftovers = Leftovers { inventory, listed, claimed: claimed?.into_iter().flatten().collect() };
            let last = self.last(&leftovers);
            // All that can be done is done: the rest is up to others, and to time.
            if let (Some(first), true) = (last.first(), last.iter().all(|object| object.is_ending())) {
                let wait = Class::RetryableAfter(Some(Duration::from_secs(1)));
                let fault = Fault::new(wait, first.key().to_string(), held_by(first));
                return Err(fault.next(format!("kubectl get {} --output yaml", first.key().for_kubectl())));
            }
            Ok(leftovers)
        })
    }

    fn decide(&self, _: &Self::Needs, observed: &Leftovers) -> Decision<Pruning> {
        let last = self.last(observed);
        let ending = last.iter().filter(|object| !object.is_ending());
        let change = ending.fold(Change::new("prune", Impact::Destroy), |change, object| {
            change.differing(&object.key().to_string(), Some("there".to_owned()), None)
        });
        if !change.differences.is_empty() {
            return Decision::Act(Pruning::Remove, change);
        }
        if observed.listed.is_subset(&self.wanted) && (observed.inventory.is_none() || !self.wanted.is_empty()) {
            return Decision::Nothing;
        }
        let count = |number: usize| Some(format!("{number} objects"));
        let change = Change::new("forget", Impact::InPlace);
        let change = change.differing("inventory", count(observed.listed.len()), count(self.wanted.len()));
        Decision::Act(Pruning::Forget, change)
    }

    fn act<'a>(
        &'a self,
        (api, _): &'a Self::Needs,
        observed: &'a Leftovers,
        action: &'a Pruning,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            if *action == Pruning::Forget {
                return match &observed.inventory {
                    Some(inventory) if self.wanted.is_empty() => {
                        api.delete(inventory).await.map_err(|trouble| trouble.fault(&inventory.key()))
                    }
                    _ => inventory::write(api, &self.mark, &self.wanted).await,
                };
            }
            for object in self.last(observed).into_iter().filter(|object| !object.is_ending()) {
                guard(api, object, &self.mark).await?;
                // Between the look and this moment it may have become somebody else's.
                if let Some(object) = self.claimed(api, &object.key()).await? {
                    api.delete(&object).await.map_err(|trouble| trouble.fault(&object.key()))?;
                }
            }
            Ok(())
        })
    }

    fn output(&self, _: &Self::Needs, _: &Leftovers) {}
}

/// Who or what keeps something that is on its way out.
fn held_by(object: &Object) -> String {
    let held = |list: &str| object.list(list).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let conditions = object.list("/status/conditions").iter().filter(|condition| {
        let name = condition["type"].as_str().unwrap_or_default();
        condition["status"] == "True" && name.starts_with("Namespace")
    });
    let told = conditions.filter_map(|condition| {
        Some(format!("{}: {}", condition["type"].as_str()?, condition["message"].as_str().unwrap_or_default()))
    });
    let told: Vec<String> = told.collect();
    let finalizers = [held("/metadata/finalizers"), held("/spec/finalizers")];
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).filter(|list| !list.is_empty()).collect();
    match (told.is_empty(), finalizers.is_empty()) {
        (false, _) => format!("is on its way out: {}", told.join("; ")),
        (true, false) => format!("is on its way out, held by {}", finalizers.join(", ")),
        (true, true) => "is on its way out".to_owned(),
    }
}

/// Open if nothing of somebody else's would go along with a component. Asked before its first object is removed, for half of it is of no use
/// to anybody.
pub(super) struct Removable(Prune);

impl Removable {
    pub(super) fn new(mark: &Mark) -> Self {
        Self(Prune::new(&[], mark))
    }
}

impl Gate for Removable {
    type Needs = (Arc<Api>,);
    type Output = Present;

    fn check<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move {
            let inventory = inventory::read(api, &self.0.mark).await?;
            let listed = inventory.as_ref().map(inventory::listed).transpose()?.unwrap_or_default();
            let takes_along = listed.iter().filter(|key| ["Namespace", DEFINITION].contains(&key.kind.as_str()));
            for key in takes_along {
                if let Some(object) = self.0.claimed(api, key).await? {
                    guard(api, &object, &self.0.mark).await?;
                }
            }
            Ok(Verdict::Open(Present))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// A namespace takes all that is in it along, a definition all objects of its kind. What is somebody else's keeps it.
async fn guard(api: &Api, taker: &Object, mark: &Mark) -> Result<(), Fault> {
    let fault = |trouble: Trouble| trouble.fault(&taker.key());
    let served = api.discover().await.map_err(fault)?;
    let (kinds, scope): (Vec<Kind>, Scope) = match taker.kind().kind.as_str() {
        "Namespace" => {
            let listed = served
                .resources()
                .filter(|resource| resource.is_namespaced && resource.verbs.iter().any(|verb| verb == "list"))
                // What was said of something is nobody's loss.
                .filter(|resource| resource.kind.kind != "Event");
            (listed.map(|resource| resource.kind.clone()).collect(), Scope::within(taker.name()))
        }
        DEFINITION => {
            let kind = served.preferred(taker.text("/spec/group"), taker.text("/spec/names/kind"));
            (kind.into_iter().cloned().collect(), Scope::default())
        }
        _ => return Ok(()),
    };
    let lists = kinds.iter().map(|kind| api.list(kind, &scope)).collect();
    for list in together(lists).await {
        let is_own = |object: &Object| Mark::of(object).is_some_and(|own| own.castle == mark.castle);
        for object in list.map_err(fault)?.objects.into_iter().filter(|object| !is_own(object)) {
            let others = owners(&object, &BTreeMap::new()).claims.into_iter().find(|claim| match &claim.owner {
                Owner::Castle(own) => own.as_ref().is_some_and(|own| own.castle != mark.castle),
                _ => true,
            });
            let is_definition = taker.kind().kind == DEFINITION;
            let whose = match others {
                Some(other) => other.owner.to_string(),
                // Programs that do not apply leave no claim. What was written all the same was wanted by someone.
                None if is_definition && !is_report(&object) => "somebody whose name castle does not know".to_owned(),
                None => continue,
            };
            let (what, next) = match is_definition {
                false => ("in it belongs", format!("kubectl get all --namespace {}", taker.name())),
                true => ("would go with it, and belongs", format!("kubectl get {} --all-namespaces", taker.name())),
            };
            let evidence = format!("{} {what} to {whose}", object.key());
            return Err(Fault::guard(taker.key().to_string(), evidence).next(next));
        }
    }
    Ok(())
}

/// Whether an object is what controllers tell or make of others, and nobody's wish: by whose it is, or by its kind.
fn is_report(object: &Object) -> bool {
    let kind = object.kind().kind;
    !object.list("/metadata/ownerReferences").is_empty() || kind.ends_with("Status") || kind.ends_with("State")
}
