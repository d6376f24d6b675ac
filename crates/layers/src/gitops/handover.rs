//! The handover: what Flux has applied is the newest commit of the branch.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use castle_engine::{Fault, Gate, Verdict};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object, condition};
use castle_kubernetes::steps::{Expect, Present, Ready, Test, Unmet};
use castle_seams::BoxFuture;

use super::{Head, KUSTOMIZE, SOURCE};
use crate::names::FLUX_SYSTEM;

/// A commit of a branch, as Flux writes it: `main@sha1:...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(pub String);

/// Open when Flux has applied the newest commit. Gives its revision.
pub(super) struct Handover {
    head: Head,
    branch: String,
    within: Duration,
    /// Where the revision is told, too.
    handed: Arc<OnceLock<Revision>>,
    is_taken_for_open: bool,
    /// What the last look expected: its watches tell when to look again.
    asked: Mutex<Option<Arc<Ready>>>,
}

impl Handover {
    pub(super) fn new(head: Head, branch: &str, within: Duration, handed: Arc<OnceLock<Revision>>) -> Self {
        let (branch, is_taken_for_open, asked) = (branch.to_owned(), false, Mutex::default());
        Self { head, branch, within, handed, is_taken_for_open, asked }
    }

    pub(super) fn taken_for_open(self, is_taken_for_open: bool) -> Self {
        Self { is_taken_for_open, ..self }
    }
}

impl Gate for Handover {
    type Needs = (Arc<Api>, Arc<Present>);
    type Output = Revision;

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Revision>, Fault>> {
        Box::pin(async move {
            let newest = (self.head)().await?.map(|commit| format!("{}@sha1:{commit}", self.branch));
            let applied = Arc::new(Mutex::new(String::new()));
            let expects = match self.is_taken_for_open {
                true => Vec::new(),
                false => vec![fetched(newest.clone()), first(newest, self.branch.clone(), applied.clone())],
            };
            let ready = Arc::new(Ready::new(expects, self.within));
            let verdict = ready.check(needs).await?;
            *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(ready);
            Ok(match verdict {
                Verdict::Open(_) => {
                    let revision = Revision(applied.lock().unwrap_or_else(PoisonError::into_inner).clone());
                    Verdict::Open(self.handed.get_or_init(|| revision).clone())
                }
                Verdict::Closed(closed) => Verdict::Closed(closed),
            })
        })
    }

    fn changed<'a>(&'a self, needs: &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Box::pin(async move {
            match asked.changed(needs) {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }))
    }

    fn period(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn deadline(&self) -> Duration {
        self.within
    }
}

/// Open when a Kustomization that the castle does not stand without has applied what was handed over.
pub(super) struct Critical {
    name: String,
    within: Duration,
    is_taken_for_open: bool,
    asked: Mutex<Option<Arc<Ready<Revision>>>>,
}

impl Critical {
    pub(super) fn new(name: &str, within: Duration, is_taken_for_open: bool) -> Self {
        Self { name: name.to_owned(), within, is_taken_for_open, asked: Mutex::default() }
    }

    fn ready(&self, revision: &Revision) -> Arc<Ready<Revision>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let expects = if self.is_taken_for_open { Vec::new() } else { vec![reconciled(&self.name, &revision.0)] };
        let made = || Arc::new(Ready::new(expects, self.within));
        asked.get_or_insert_with(made).clone()
    }
}

impl Gate for Critical {
    type Needs = (Arc<Api>, Arc<Revision>);
    type Output = Present;

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move { self.ready(&needs.1).check(needs).await })
    }

    fn changed<'a>(&'a self, needs: &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        let ready = self.ready(&needs.1);
        Some(Box::pin(async move {
            match ready.changed(needs) {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }))
    }

    fn period(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn deadline(&self) -> Duration {
        self.within
    }
}

/// That Flux has fetched the newest commit.
fn fetched(newest: Option<String>) -> Expect {
    let test = Test::new(move |sources| {
        let Some(source) = sources.first() else {
            let group = Kind::new(SOURCE, "").group;
            return Err(Unmet::absent(Key::new(&group, "GitRepository", FLUX_SYSTEM, FLUX_SYSTEM)));
        };
        settled(source)?;
        let revision = source.text("/status/artifact/revision");
        match &newest {
            Some(newest) if newest != revision => {
                Err(Unmet::of(source, format!("has fetched {}, and the newest is {newest}", or_nothing(revision))))
            }
            _ => Ok(()),
        }
    });
    Expect::Holds(Kind::new(SOURCE, "GitRepository"), Scope::named(FLUX_SYSTEM, FLUX_SYSTEM), test)
}

/// That the first Kustomization has applied it.
fn first(newest: Option<String>, branch: String, applied: Arc<Mutex<String>>) -> Expect {
    let test = Test::new(move |all| {
        let kustomization = stands(all, FLUX_SYSTEM)?;
        let revision = kustomization.text("/status/lastAppliedRevision");
        let is_so = match &newest {
            Some(newest) => newest == revision,
            None => revision.starts_with(&format!("{branch}@")),
        };
        if !is_so {
            let wanted = newest.as_deref().unwrap_or(&branch);
            return Err(Unmet::of(kustomization, format!("has applied {}, not {wanted}", or_nothing(revision))));
        }
        revision.clone_into(&mut applied.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    });
    Expect::Holds(Kind::new(KUSTOMIZE, "Kustomization"), Scope::within(FLUX_SYSTEM), test)
}

/// That a Kustomization has applied a revision.
fn reconciled(name: &str, revision: &str) -> Expect {
    let (name, wanted) = (name.to_owned(), revision.to_owned());
    let test = Test::new(move |all| {
        let kustomization = stands(all, &name)?;
        match kustomization.text("/status/lastAppliedRevision") {
            revision if revision == wanted => Ok(()),
            revision => Err(Unmet::of(kustomization, format!("has applied {}, not {wanted}", or_nothing(revision)))),
        }
    });
    Expect::Holds(Kind::new(KUSTOMIZE, "Kustomization"), Scope::within(FLUX_SYSTEM), test)
}

fn or_nothing(revision: &str) -> &str {
    if revision.is_empty() { "nothing yet" } else { revision }
}

/// The Kustomization, if it is ready. Otherwise why not, by the last in the chain of those it waits for.
pub(super) fn stands<'o>(all: &'o [Object], name: &str) -> Result<&'o Object, Unmet> {
    let find = |name: &str| all.iter().find(|object| object.name() == name);
    let absent =
        |name: &str| Unmet::absent(Key::new(&Kind::new(KUSTOMIZE, "").group, "Kustomization", FLUX_SYSTEM, name));
    let wanted = find(name).ok_or_else(|| absent(name))?;
    let Err(mut why) = settled(wanted) else { return Ok(wanted) };
    let (mut chain, mut seen) = (Vec::new(), BTreeSet::from([name]));
    let mut waits = wanted;
    loop {
        let names = waits.list("/spec/dependsOn").iter();
        let needs = names.filter(|need| need["namespace"].as_str().is_none_or(|space| space == FLUX_SYSTEM));
        let unready = needs.filter_map(|need| need["name"].as_str()).find_map(|name| match find(name) {
            None => Some((name, None, absent(name))),
            Some(object) => settled(object).err().map(|why| (name, Some(object), why)),
        });
        let Some((name, object, reason)) = unready else { break };
        chain.push(format!("waits for {name}"));
        why = reason;
        match object {
            Some(object) if seen.insert(name) => waits = object,
            _ => break,
        }
    }
    if chain.is_empty() {
        return Err(why);
    }
    let evidence = format!("{}: {} {}", chain.join(", which "), why.key, why.evidence);
    Err(Unmet { key: Box::new(wanted.key()), evidence, about: why.about })
}

/// Whether Flux is done with an object, for now.
fn settled(object: &Object) -> Result<(), Unmet> {
    if object.at("/spec/suspend") == true {
        let kind = if object.kind().kind == "GitRepository" { "source git" } else { "kustomization" };
        let evidence = format!("is suspended: `flux resume {kind} {}` lets it go on", object.name());
        return Err(Unmet { about: None, ..Unmet::of(object, evidence) });
    }
    if object.number("/status/observedGeneration") != object.number("/metadata/generation") {
        return Err(Unmet::of(object, "was not looked at by Flux since it was changed"));
    }
    match condition(object, "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(Unmet::of(object, format!("is not ready ({}): {}", ready.reason, ready.message))),
        None => Err(Unmet::of(object, "has no condition Ready yet")),
    }
}
