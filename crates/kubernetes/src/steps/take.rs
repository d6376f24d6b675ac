//! A component that castle takes over from Flux, in two phases: first both have it and Flux is kept from it; once no tree declares it
//! any more, it is castle's alone. Which phase it is, the cluster tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use castle_engine::{
    Change, Class, Decision, Fault, GraphBuilder, Handle, Impact, Layer, Operation, Place, Step, StepId,
};
use castle_seams::BoxFuture;
use serde_json::{Map, Value};

use super::apply::worst;
use super::obstacle::{Obstacle, clear};
use super::sources::{sources, waited_for};
use super::{Present, Record};
use crate::client::{Api, Mode, Rival, together};
use crate::model::{
    Claim, Key, Mark, Object, Operation as Written, Owner, Pause, agrees, at_path, at_path_mut, owners, same_of_castle,
    sole,
};

/// Why castle does not take what a chart has installed, and what a person can do.
const CHART: &str = "commit `suspend: true` to the HelmRelease and wait until it is applied; then remove the HelmRelease from the Git \
                     repository: what is suspended is not uninstalled; then remove the release's Secrets (kubectl delete secret \
                     --selector owner=helm,name=RELEASE) and the labels and annotations of Helm from its objects, and try again";

/// Wants objects that Flux has to be castle's, as they are: nothing is made, removed or restarted, and nobody is overruled.
struct Take {
    objects: Vec<Object>,
    mark: Mark,
}

/// What is left to do with an object.
#[derive(Clone, PartialEq)]
enum Left {
    /// It is as wanted, in this phase.
    Nothing,
    /// Castle has yet to say what it wants.
    Apply(Object),
    /// Flux has yet to lose its labels, or its fields.
    Shed(Object, Map<String, Value>),
}

/// What taking over does, first the one, then the other.
#[derive(Clone, Copy, Debug)]
enum Taking {
    /// castle manages all of the objects.
    Apply,
    /// Flux manages none of them.
    Shed,
}

/// What is left to do, or what is in the way.
type Looked = Result<Left, Vec<Obstacle>>;

/// Wants objects of a component that Flux has to be castle's. What of them is not there is left for castle to install afterwards.
pub fn take(graph: &mut GraphBuilder, api: &Handle<Api>, objects: &[Object], mark: &Mark) {
    let id = |name: &str| StepId::new(&Layer::new(&mark.layer), &mark.component, name);
    let recorded = graph.step(id("record"), Place::default(), (api.clone(),), Record::new(objects, mark));
    let objects = objects.iter().map(|object| mark.on(object.clone())).collect();
    let take = Take { objects, mark: mark.clone() };
    graph.step(id("take"), Place::default(), (api.clone(), recorded), take);
}

impl Take {
    /// Whether somebody has an object who is neither Flux nor castle.
    fn stranger(&self, live: &Object, listed: &BTreeMap<Key, BTreeSet<Owner>>) -> Option<Obstacle> {
        let (key, claims) = (live.key(), owners(live, listed).claims);
        let look = format!("kubectl get {} --output yaml --show-managed-fields", key.for_kubectl());
        let belongs = |owner: &Owner| format!("belongs to {owner}");
        // Whoever only manages some of its fields does not own it.
        let is_declared = |claim: &&Claim| claim.evidence.iter().any(|by| by != "fields");
        for claim in claims.iter().filter(is_declared) {
            match &claim.owner {
                Owner::Helm(..) => return Some(Obstacle::new(&key, belongs(&claim.owner), CHART)),
                Owner::Castle(Some(mark)) if *mark != self.mark => {
                    return Some(Obstacle::new(&key, belongs(&claim.owner), look));
                }
                Owner::Castle(_) | Owner::Flux(..) => {}
                other => return Some(Obstacle::new(&key, belongs(other), look)),
            }
        }
        let is_known = |claim: &Claim| matches!(claim.owner, Owner::Castle(_) | Owner::Flux(..));
        match claims.iter().find(|claim| !is_known(claim)) {
            _ if claims.iter().any(is_known) => None,
            Some(claim) => Some(Obstacle::new(&key, belongs(&claim.owner), look)),
            None => Some(Obstacle::new(&key, "belongs to nobody castle knows", look)),
        }
    }

    /// What is left to do with an object, or who wants something else of it.
    async fn left(&self, api: &Api, mut wanted: Object, live: &Object, pause: Pause) -> Result<Looked, Fault> {
        let shed = || match sole(live, pause) {
            Some(metadata) => Left::Shed(live.clone(), metadata),
            None => Left::Nothing,
        };
        if agrees(&wanted, live).is_ok() {
            return Ok(Ok(shed()));
        }
        let key = wanted.key();
        // Should it be gone by then, none is made in its place.
        wanted.value_mut()["metadata"]["uid"] = live.at("/metadata/uid").clone();
        let mut tried = api.apply(&wanted, Mode::DryRun).await;
        if let Err(trouble) = &tried
            && !trouble.rivals().is_empty()
        {
            let supposed = api.apply(&wanted, Mode::Suppose).await.map_err(|trouble| trouble.fault(&key))?.object;
            let quarrels: Vec<Obstacle> = trouble
                .rivals()
                .iter()
                .filter(|rival| !concede(&mut wanted, &supposed, live, &rival.field))
                .map(|rival| quarrel(&key, rival))
                .collect();
            if !quarrels.is_empty() {
                return Ok(Err(quarrels));
            }
            tried = api.apply(&wanted, Mode::DryRun).await;
        }
        match tried {
            Ok(tried) if same_of_castle(&tried.object, live) => Ok(Ok(shed())),
            Ok(_) => Ok(Ok(Left::Apply(wanted))),
            Err(trouble) => Err(trouble.fault(&key)),
        }
    }
}

/// Has castle want what is there of a field, in full, if that is what would come of what it wants anyway. Where fields are managed as
/// one, what the server has filled in is part of them, and would pass for something that others want otherwise.
fn concede(wanted: &mut Object, supposed: &Object, live: &Object, field: &str) -> bool {
    let (Some(supposed), Some(live)) = (at_path(supposed.value(), field), at_path(live.value(), field)) else {
        return false;
    };
    match at_path_mut(wanted.value_mut(), field) {
        Some(own) if supposed == live => {
            *own = live.clone();
            true
        }
        _ => false,
    }
}

/// Two who want something else of a field.
fn quarrel(key: &Key, Rival { manager, field }: &Rival) -> Obstacle {
    let owner = Owner::of_manager(manager, Written::Apply).unwrap_or_else(|| Owner::Other(manager.clone()));
    let next = match owner {
        Owner::Flux(..) | Owner::Helm(..) => {
            "make them equal, in the Git repository or by `patches` of the component in castle.yaml, and try again"
                .to_owned()
        }
        _ => format!("kubectl get {} --output yaml --show-managed-fields; make them equal", key.for_kubectl()),
    };
    let named = owner.to_string();
    let who = if named.contains(manager.as_str()) { named } else { format!("{named} ({manager})") };
    Obstacle::new(key, format!("{field} is wanted otherwise by {who} than by castle"), next)
}

impl Step for Take {
    type Needs = (Arc<Api>, Arc<Present>);
    type Observed = Vec<Left>;
    type Action = Taking;
    type Output = ();

    fn observe<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Vec<Left>, Fault>> {
        Box::pin(async move {
            let look = async |object: &Object| {
                let found = api.get(&object.kind(), object.namespace(), object.name()).await;
                found.map_err(|trouble| trouble.fault(&object.key()))
            };
            let found = worst(together(self.objects.iter().map(look).collect()).await)?;
            let pairs: Vec<(&Object, Object)> =
                self.objects.iter().zip(found).filter_map(|(wanted, live)| Some((wanted, live?))).collect();
            let subject = format!("{}/{}", self.mark.layer, self.mark.component);
            if pairs.is_empty() {
                let fault = Fault::guard(subject, "there is nothing of it in the cluster that could be taken over");
                return Err(fault.next("castle up"));
            }
            if let Some((_, ending)) = pairs.iter().find(|(_, live)| live.is_ending()) {
                let key = ending.key();
                let fault = Fault::new(Class::RetryableAfter(None), key.to_string(), "is on its way out");
                return Err(fault.next(format!("kubectl get {} --output yaml", key.for_kubectl())));
            }
            let sources = sources(api).await?;
            let mut listed: BTreeMap<Key, BTreeSet<Owner>> = BTreeMap::new();
            for source in &sources {
                for key in &source.listed {
                    listed.entry(key.clone()).or_default().insert(source.owner.clone());
                }
            }
            let strangers: Vec<Obstacle> = pairs.iter().filter_map(|(_, live)| self.stranger(live, &listed)).collect();
            clear(&self.mark, &strangers)?;
            let keys = self.objects.iter().map(Object::key).collect();
            let pause = if waited_for(&sources, &keys).is_empty() { Pause::Off } else { Pause::On };
            let looks = pairs.iter().map(|(wanted, live)| self.left(api, pause.of((*wanted).clone()), live, pause));
            let (mut left, mut rivals) = (Vec::new(), Vec::new());
            for look in worst(together(looks.collect()).await)? {
                match look {
                    Ok(one) => left.push(one),
                    Err(more) => rivals.extend(more),
                }
            }
            clear(&self.mark, &rivals)?;
            Ok(left)
        })
    }

    fn decide(&self, _: &Self::Needs, observed: &Vec<Left>) -> Decision<Taking> {
        let text = |text: &str| Some(text.to_owned());
        let mut apply = Change::new("apply", Impact::InPlace);
        let mut shed = Change::new("shed", Impact::InPlace);
        for left in observed {
            match left {
                Left::Nothing => {}
                Left::Apply(object) => {
                    apply = apply.differing(&object.key().to_string(), text("Flux"), text("castle and Flux"));
                }
                Left::Shed(object, _) => {
                    shed = shed.differing(&object.key().to_string(), text("castle and Flux"), text("castle"));
                }
            }
        }
        // First all of them are castle's: then none of them may be left to nobody.
        [(Taking::Apply, apply), (Taking::Shed, shed)]
            .into_iter()
            .find(|(_, change)| !change.differences.is_empty())
            .map_or(Decision::Nothing, |(action, change)| Decision::Act(action, change))
    }

    fn act<'a>(
        &'a self,
        (api, _): &'a Self::Needs,
        observed: &'a Vec<Left>,
        action: &'a Taking,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let act = async |left: &Left| match (action, left) {
                (Taking::Apply, Left::Apply(object)) => {
                    let applied = api.apply(object, Mode::Real).await;
                    applied.map(drop).map_err(|trouble| trouble.fault(&object.key()))
                }
                (Taking::Shed, Left::Shed(seen, metadata)) => {
                    api.relabel(seen, metadata.clone()).await.map_err(|trouble| trouble.fault(&seen.key()))
                }
                (_, Left::Nothing) | (Taking::Apply, Left::Shed(..)) | (Taking::Shed, Left::Apply(_)) => Ok(()),
            };
            worst(together(observed.iter().map(act).collect()).await).map(drop)
        })
    }

    fn output(&self, _: &Self::Needs, _: &Vec<Left>) {}
}
