//! The handover: what Flux has applied is the newest commit of the branch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use castle_engine::{Class, Fault, Gate, Verdict};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object, condition};
use castle_kubernetes::steps::{Expect, Present, Ready, Test, Unmet};
use castle_seams::BoxFuture;

use super::{Head, KUSTOMIZE, SOURCE, hopeless};
use crate::names::FLUX_SYSTEM;

/// A commit of a branch, as Flux writes it: `main@sha1:...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(pub String);

/// How often the host of the repository is asked, at most: a watch may say every moment that something changed.
const PERIOD: Duration = Duration::from_secs(15);

/// Open when Flux has applied the newest commit. Gives its revision.
pub(super) struct Handover {
    head: Head,
    branch: String,
    within: Duration,
    /// Where the revision is told, too.
    handed: Handed,
    is_taken_for_open: bool,
    /// The newest commit, and when it was asked for.
    newest: Mutex<Option<(Duration, Newest)>>,
    /// What the last look expected: its watches tell when to look again.
    asked: Mutex<Option<Arc<Ready>>>,
    /// Whether Flux is refused the repository, as of the last look.
    refused: Refused,
}

/// The newest commit, if it can be read from here; or why castle is refused it.
type Newest = Result<Option<String>, Fault>;

/// Where a look tells whether Flux is refused the repository.
type Refused = Arc<Mutex<bool>>;

/// Where a handover tells what Flux has applied, as of its last look.
pub type Handed = Arc<Mutex<Option<Revision>>>;

fn held<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handover {
    pub(super) fn new(head: Head, branch: &str, within: Duration, handed: Handed) -> Self {
        let (branch, is_taken_for_open) = (branch.to_owned(), false);
        let (newest, asked, refused) = (Mutex::default(), Mutex::default(), Refused::default());
        Self { head, branch, within, handed, is_taken_for_open, newest, asked, refused }
    }

    pub(super) fn taken_for_open(self, is_taken_for_open: bool) -> Self {
        Self { is_taken_for_open, ..self }
    }

    /// The newest revision, not older than a period; asked anew if it must be.
    async fn newest(&self, now: Duration, anew: bool) -> Result<Option<String>, Fault> {
        let known = held(&self.newest).clone().filter(|(at, _)| !anew && now.saturating_sub(*at) < PERIOD);
        let commit = match known {
            Some((_, commit)) => commit,
            None => {
                let commit = (self.head)().await;
                // What may pass is asked again at once.
                if commit.as_ref().err().is_none_or(Fault::is_final) {
                    *held(&self.newest) = Some((now, commit.clone()));
                }
                commit
            }
        };
        Ok(commit?.map(|commit| format!("{}@sha1:{commit}", self.branch)))
    }

    /// What is to be said where castle itself is refused the repository, for good: if Flux is, too, nobody waits for it. Flux may yet have to try.
    async fn without_newest(&self, needs: &(Arc<Api>, Arc<Present>), own: Fault) -> Result<Verdict<Revision>, Fault> {
        let verdict = self.look(needs, None).await?;
        let is_refused = *held(&self.refused);
        match (verdict, is_refused) {
            (Verdict::Closed(closed), true) => {
                let evidence =
                    format!("{}; castle itself is refused, too: {}: {}", closed.evidence, own.subject, own.evidence);
                let next = format!("{}; then: {}", own.next, closed.next);
                Err(Fault::new(Class::Final, closed.subject, evidence).next(next))
            }
            (Verdict::Closed(closed), false) => Ok(Verdict::Closed(closed)),
            (Verdict::Open(_), _) => Err(own),
        }
    }

    /// What Flux has applied, if that is the newest.
    async fn look(&self, needs: &(Arc<Api>, Arc<Present>), newest: Option<String>) -> Result<Verdict<Revision>, Fault> {
        let (fetched_revision, applied) = (Arc::default(), Arc::default());
        let expects = match self.is_taken_for_open {
            true => Vec::new(),
            false => vec![fetched(newest, &fetched_revision, &self.refused), first(fetched_revision, &applied)],
        };
        let ready = Arc::new(Ready::new(expects, self.within));
        let verdict = ready.check(needs).await?;
        *held(&self.asked) = Some(ready);
        Ok(match verdict {
            Verdict::Open(_) => Verdict::Open(Revision(held(&applied).clone())),
            Verdict::Closed(closed) => Verdict::Closed(closed),
        })
    }
}

impl Gate for Handover {
    type Needs = (Arc<Api>, Arc<Present>);
    type Output = Revision;

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Revision>, Fault>> {
        Box::pin(async move {
            let now = needs.0.clock().monotonic();
            let newest = match self.newest(now, false).await {
                Err(fault) if fault.is_final() => return self.without_newest(needs, fault).await,
                newest => newest?,
            };
            let mut verdict = self.look(needs, newest.clone()).await?;
            // One that was asked for just now is still the newest.
            let is_old = held(&self.newest).as_ref().is_none_or(|(at, _)| *at < now);
            if let (Verdict::Open(_), true) = (&verdict, is_old) {
                let newer = self.newest(now, true).await?;
                if newer != newest {
                    verdict = self.look(needs, newer).await?;
                }
            }
            if let Verdict::Open(revision) = &verdict {
                *held(&self.handed) = Some(revision.clone());
            }
            Ok(verdict)
        })
    }

    fn changed<'a>(&'a self, needs: &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        let asked = held(&self.asked).clone()?;
        Some(Box::pin(async move {
            match asked.changed(needs) {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }))
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn deadline(&self) -> Duration {
        self.within
    }
}

/// Open when a Kustomization that the castle does not stand without is ready, and at what the first one has applied.
pub(super) fn critical(name: &str, within: Duration, is_taken_for_open: bool) -> Ready<Revision> {
    Ready::new(if is_taken_for_open { Vec::new() } else { vec![reconciled(name)] }, within)
}

/// That Flux has fetched the newest commit; tells what it has fetched.
fn fetched(newest: Option<String>, revision: &Arc<Mutex<String>>, refused: &Refused) -> Expect {
    let (told, refused) = (revision.clone(), refused.clone());
    let test = Test::new(move |sources| {
        *held(&refused) = sources.first().is_some_and(hopeless::is_refused);
        let Some(source) = sources.first() else {
            let group = Kind::new(SOURCE, "").group;
            return Err(Unmet::absent(Key::new(&group, "GitRepository", FLUX_SYSTEM, FLUX_SYSTEM)));
        };
        settled(source)?;
        let revision = source.text("/status/artifact/revision");
        if let Some(newest) = newest.as_ref().filter(|newest| *newest != revision) {
            let evidence = format!("has fetched {}, and the newest is {newest}", or_nothing(revision));
            return Err(Unmet::of(source, evidence));
        }
        revision.clone_into(&mut held(&told));
        Ok(())
    });
    Expect::Holds(Kind::new(SOURCE, "GitRepository"), Scope::named(FLUX_SYSTEM, FLUX_SYSTEM), test)
}

/// That the first Kustomization has applied what was fetched; tells what that is.
fn first(fetched: Arc<Mutex<String>>, applied: &Arc<Mutex<String>>) -> Expect {
    let told = applied.clone();
    let test = Test::new(move |all| {
        let kustomization = stands(all, FLUX_SYSTEM, &held(&fetched))?;
        let (revision, wanted) = (kustomization.text("/status/lastAppliedRevision"), held(&fetched).clone());
        if revision != wanted {
            return Err(Unmet::of(kustomization, format!("has applied {}, not {wanted}", or_nothing(revision))));
        }
        revision.clone_into(&mut held(&told));
        Ok(())
    });
    Expect::Holds(Kind::new(KUSTOMIZE, "Kustomization"), Scope::within(FLUX_SYSTEM), test)
}

/// That a Kustomization is ready, and has applied what the first has, if it is of the same source.
fn reconciled(name: &str) -> Expect {
    let name = name.to_owned();
    let test = Test::new(move |all| {
        let first = all.iter().find(|object| object.name() == FLUX_SYSTEM);
        let tried = first.map(|first| first.text("/status/lastAttemptedRevision")).unwrap_or_default();
        let wanted = stands(all, FLUX_SYSTEM, tried)?.text("/status/lastAppliedRevision");
        let kustomization = stands(all, &name, wanted)?;
        let source = |key: &str| kustomization.text(&format!("/spec/sourceRef/{key}"));
        let is_of_castles = source("kind") == "GitRepository"
            && source("name") == FLUX_SYSTEM
            && ["", FLUX_SYSTEM].contains(&source("namespace"));
        match kustomization.text("/status/lastAppliedRevision") {
            revision if !is_of_castles || revision == wanted => Ok(()),
            revision => Err(Unmet::of(kustomization, format!("has applied {}, not {wanted}", or_nothing(revision)))),
        }
    });
    Expect::Holds(Kind::new(KUSTOMIZE, "Kustomization"), Scope::within(FLUX_SYSTEM), test)
}

fn or_nothing(revision: &str) -> &str {
    if revision.is_empty() { "nothing yet" } else { revision }
}

/// The Kustomization, if it is ready. Otherwise why not, by the last in the chain of those it waits for; finally, if that cannot pass with this
/// revision.
pub(super) fn stands<'o>(all: &'o [Object], name: &str, revision: &str) -> Result<&'o Object, Unmet> {
    let find = |name: &str| all.iter().find(|object| object.name() == name);
    let absent =
        |name: &str| Unmet::absent(Key::new(&Kind::new(KUSTOMIZE, "").group, "Kustomization", FLUX_SYSTEM, name));
    let wanted = find(name).ok_or_else(|| absent(name))?;
    let Err(mut why) = settled(wanted) else { return Ok(wanted) };
    let (mut chain, mut seen) = (Vec::new(), vec![wanted]);
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
        let Some(object) = object else { break };
        if let Some(at) = seen.iter().position(|other| other.name() == name) {
            let is_final = hopeless::circle(all, &seen[at..], revision);
            let evidence = format!("{}: they wait for each other", chain.join(", which "));
            return Err(Unmet::of(wanted, evidence).finally(is_final));
        }
        seen.push(object);
        waits = object;
    }
    let is_final = why.about.as_ref().is_some_and(|about| hopeless::alone(all, about, revision));
    let why = why.finally(is_final);
    if chain.is_empty() {
        return Err(why);
    }
    let evidence = format!("{}: {} {}", chain.join(", which "), why.key, why.evidence);
    Err(Unmet { key: Box::new(wanted.key()), evidence, ..why })
}

/// Whether Flux is done with an object, for now.
fn settled(object: &Object) -> Result<(), Unmet> {
    if object.at("/spec/suspend") == true {
        let kind = if object.kind().kind == "GitRepository" { "source git" } else { "kustomization" };
        let evidence = format!("is suspended: `flux resume {kind} {}` lets it go on", object.name());
        return Err(Unmet { about: None, ..Unmet::of(object, evidence) });
    }
    let generation = object.number("/metadata/generation");
    let ready = condition(object, "Ready");
    // What has never succeeded is observed by its condition alone.
    let has_failed = ready.as_ref().is_some_and(|ready| ready.status == "False" && ready.generation == generation);
    if !has_failed && object.number("/status/observedGeneration") != generation {
        return Err(Unmet::of(object, "was not looked at by Flux since it was changed"));
    }
    match ready {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => {
            let unmet = Unmet::of(object, format!("is not ready ({}): {}", ready.reason, ready.message));
            Err(unmet.finally(hopeless::is_stalled(object)))
        }
        None => Err(Unmet::of(object, "has no condition Ready yet")),
    }
}
