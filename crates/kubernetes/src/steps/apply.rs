//! Objects that are as wanted, each applied once and only if it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Step};
use castle_seams::BoxFuture;
use serde_json::Value;

use crate::client::{Api, Mode, Scope, Trouble, together};
use crate::model::{Key, Kind, Managed, Mark, Object, agrees, at_path, owners, same_of_castle};

/// A value of a field is told if it is not longer.
const TOLD: usize = 100;

/// Objects that are there as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present;

/// How a wanted object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is as wanted.
    AsWanted,
    /// There is none.
    Absent,
    /// This field, perhaps with others, is not as wanted.
    Differs(String),
}

/// Wants objects, all at once: they are of one stage, so that none waits for another.
pub struct Apply {
    objects: Vec<Object>,
    mark: Mark,
}

impl Apply {
    /// Wants these objects, with castle's mark.
    #[must_use]
    pub fn new(objects: Vec<Object>, mark: &Mark) -> Self {
        Self { objects: objects.into_iter().map(|object| mark.on(object)).collect(), mark: mark.clone() }
    }

    /// What stands there now, by one list of each kind; what has lost its mark, or never had it, is looked at by name.
    async fn live(&self, api: &Api) -> Result<BTreeMap<Key, Object>, Fault> {
        let kinds: BTreeSet<Kind> = self.objects.iter().map(Object::kind).collect();
        let scope = Scope::labelled(&self.mark.selector());
        let scope = &scope;
        let lists = kinds.iter().map(|kind| async move {
            let subject = Key::new(&kind.group, &kind.kind, "", "(all)");
            api.list(kind, scope).await.map_err(|trouble| trouble.fault(&subject))
        });
        let mut live = BTreeMap::new();
        for list in together(lists.collect()).await {
            live.extend(list?.objects.into_iter().map(|object| (object.key(), object)));
        }
        let missing = self.objects.iter().filter(|object| !live.contains_key(&object.key()));
        let lookups = missing.map(|object| async move {
            let found = api.get(&object.kind(), object.namespace(), object.name()).await;
            found.map_err(|trouble| trouble.fault(&object.key()))
        });
        let lookups: Vec<_> = lookups.collect();
        for object in together(lookups).await {
            live.extend(object?.map(|object| (object.key(), object)));
        }
        Ok(live)
    }

    async fn standing(&self, api: &Api, wanted: &Object, live: Option<&Object>) -> Result<Standing, Fault> {
        let Some(live) = live else { return Ok(Standing::Absent) };
        let key = wanted.key();
        self.guard(live)?;
        if live.is_ending() {
            let finalizers: Vec<&str> = live.list("/metadata/finalizers").iter().filter_map(Value::as_str).collect();
            let evidence = format!("is on its way out, held by {}", finalizers.join(", "));
            let fault = Fault::new(Class::RetryableAfter(None), key.to_string(), evidence);
            return Err(fault.next(format!("kubectl get {} --output yaml", key.for_kubectl())));
        }
        let Err(path) = agrees(wanted, live) else { return Ok(Standing::AsWanted) };
        // The server may write the same thing otherwise. Only it can tell.
        match api.apply(wanted, Mode::DryRun).await {
            Ok(tried) if same_of_castle(&tried.object, live) => Ok(Standing::AsWanted),
            Ok(_) => Ok(Standing::Differs(path)),
            Err(trouble) => Err(contested(&trouble, wanted, live)),
        }
    }

    /// Castle takes nothing that is somebody else's, even if nobody would complain.
    fn guard(&self, live: &Object) -> Result<(), Fault> {
        let refused = |whose: String| {
            let key = live.key();
            let next = format!("kubectl get {} --output yaml --show-managed-fields", key.for_kubectl());
            Err(Fault::guard(key.to_string(), format!("belongs to {whose}")).next(next))
        };
        match Mark::of(live) {
            Some(mark) if mark == self.mark => Ok(()),
            Some(mark) => refused(format!("{}/{} of castle {}", mark.layer, mark.component, mark.castle)),
            // One that castle applied and somebody took the labels off.
            None if Managed::castle(live).is_some() => Ok(()),
            None => match owners(live, &BTreeMap::new()).claims.first() {
                Some(claim) => refused(claim.owner.to_string()),
                None => refused("nobody castle knows".to_owned()),
            },
        }
    }
}

impl Step for Apply {
    type Needs = (Arc<Api>,);
    type Observed = Vec<Standing>;
    type Action = ();
    type Output = Present;

    fn observe<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Self::Observed, Fault>> {
        Box::pin(async move {
            let live = self.live(api).await?;
            let standings = self.objects.iter().map(|wanted| self.standing(api, wanted, live.get(&wanted.key())));
            worst(together(standings.collect()).await)
        })
    }

    fn decide(&self, _: &Self::Needs, observed: &Self::Observed) -> Decision {
        let differing = self.objects.iter().zip(observed).filter(|(_, standing)| **standing != Standing::AsWanted);
        if observed.iter().all(|standing| *standing == Standing::Absent) {
            return self.foresee().map_or(Decision::Nothing, |change| Decision::Act((), change));
        }
        let mut change = Change::new("apply", Impact::InPlace);
        for (object, standing) in differing {
            let key = object.key().to_string();
            change = match standing {
                Standing::Differs(path) => {
                    change.differing(&key, Some(format!("another {path}")), Some("as wanted".to_owned()))
                }
                _ => change.differing(&key, None, Some("new".to_owned())),
            };
        }
        if change.differences.is_empty() { Decision::Nothing } else { Decision::Act((), change) }
    }

    fn act<'a>(
        &'a self,
        (api,): &'a Self::Needs,
        observed: &'a Self::Observed,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let differing = self.objects.iter().zip(observed).filter(|(_, standing)| **standing != Standing::AsWanted);
            let applies = differing.map(|(object, _)| async move {
                let applied = api.apply(object, Mode::Real).await;
                applied.map(|_| ()).map_err(|trouble| trouble.fault(&object.key()))
            });
            worst(together(applies.collect()).await).map(|_| ())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Self::Observed) -> Option<Present> {
        Some(Present)
    }

    fn foresee(&self) -> Option<Change> {
        let change = Change::new("apply", Impact::Create);
        match self.objects.as_slice() {
            [] => None,
            [one] => Some(change.differing(&one.key().to_string(), None, Some("new".to_owned()))),
            many => Some(change.differing("objects", None, Some(format!("{} new", many.len())))),
        }
    }

    fn output(&self, _: &Self::Needs, _: &Self::Observed) -> Present {
        Present
    }
}

/// Why an object cannot be applied. Of a field that somebody wants otherwise: what each wants.
fn contested(trouble: &Trouble, wanted: &Object, live: &Object) -> Fault {
    let (key, rivals) = (wanted.key(), trouble.rivals());
    let mut fault = trouble.fault(&key);
    let Some(rival) = rivals.first() else { return fault };
    let is_secret = key.kind == "Secret" && key.group.is_empty();
    let at = |object: &Object| {
        let value = at_path(object.value(), &rival.field).filter(|_| !is_secret)?.to_string();
        (value.len() <= TOLD).then_some(value)
    };
    if let (Some(theirs), Some(own)) = (at(live), at(wanted)) {
        fault.evidence.push_str(&format!(": {theirs}, and castle wants {own}"));
    }
    fault
}

/// All results, or the fault that says most: one that no waiting helps, before any other.
pub(super) fn worst<T>(results: Vec<Result<T, Fault>>) -> Result<Vec<T>, Fault> {
    let (mut fine, mut faults) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => fine.push(value),
            Err(fault) => faults.push(fault),
        }
    }
    let first = faults.iter().position(|fault| fault.guarded).or(faults.iter().position(Fault::is_final)).unwrap_or(0);
    if faults.is_empty() { Ok(fine) } else { Err(faults.swap_remove(first)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_faults_the_one_is_told_that_no_waiting_helps() {
        let late = |subject: &str| Err(Fault::new(Class::RetryableAfter(None), subject, "is late"));
        let wrong = |subject: &str| Err(Fault::new(Class::Final, subject, "is wrong"));
        let guarded = |subject: &str| Err(Fault::guard(subject, "is somebody's"));
        let told = |results: Vec<Result<u8, Fault>>| worst(results).map_err(|fault| fault.subject);
        assert_eq!(told(vec![Ok(1), Ok(2)]), Ok(vec![1, 2]), "in their order");
        assert_eq!(told(vec![Ok(1), late("a"), late("b")]), Err("a".to_owned()), "the first of equals");
        assert_eq!(told(vec![late("a"), Ok(1), wrong("b"), wrong("c")]), Err("b".to_owned()));
        assert_eq!(told(vec![late("a"), wrong("b"), guarded("c"), guarded("d")]), Err("c".to_owned()));
        assert_eq!(told(Vec::new()), Ok(Vec::new()));
    }
}
