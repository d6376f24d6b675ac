//! Gates: all that is expected, asked again whenever something of it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;
use futures_util::future::select_all;

use super::apply::Present;
use super::expect::{Expect, closed};
use crate::client::{Api, Event, Listed, Scope, together};
use crate::model::{Key, Kind, Object};

/// How often to ask at the latest, whatever a watch says: one may stall without a word.
const PERIOD: Duration = Duration::from_secs(15);
/// How often to ask where nothing can be watched: whether a webhook answers shows in no object.
const PROBE: Duration = Duration::from_secs(1);

/// Where something was seen, and as of when.
type Seen = BTreeMap<(Kind, Scope), String>;

/// Open when everything expected is so. It is not asked before something else has come to be.
pub struct Ready<After = Present> {
    expects: Vec<Expect>,
    deadline: Duration,
    after: PhantomData<fn() -> After>,
    /// What the last look saw: from there the watches go on.
    seen: Mutex<Seen>,
    /// How many of them the last look came to; all of them before the first.
    reached: AtomicUsize,
}

impl<After> Ready<After> {
    /// Expects all this within a time.
    #[must_use]
    pub fn new(expects: Vec<Expect>, deadline: Duration) -> Self {
        let reached = AtomicUsize::new(expects.len());
        Self { expects, deadline, after: PhantomData, seen: Mutex::default(), reached }
    }
}

/// One look at the cluster.
pub(super) struct Sight<'a> {
    pub(super) api: &'a Api,
    seen: Mutex<BTreeMap<(Kind, Scope), Listed>>,
    /// What was asked for before anybody wanted to see it.
    ahead: Mutex<BTreeMap<(Kind, Scope), Listed>>,
}

impl<'a> Sight<'a> {
    pub(super) fn new(api: &'a Api) -> Self {
        Self { api, seen: Mutex::default(), ahead: Mutex::default() }
    }

    /// Seconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.api.clock().wall().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// Asks for all that these will look at, at the same time: each would wait for the one before. What fails is asked again by whoever
    /// looks.
    async fn look_ahead(&self, expects: &[Expect]) {
        let places: BTreeSet<(Kind, Scope)> = expects.iter().flat_map(Expect::places).collect();
        if places.len() < 2 {
            return;
        }
        let lists = places.into_iter().map(|place| async {
            let listed = self.api.list(&place.0, &place.1).await;
            listed.ok().map(|listed| (place, listed))
        });
        let found = together(lists.collect()).await;
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).extend(found.into_iter().flatten());
    }

    /// What is within a scope; asked once a look.
    pub(super) async fn list(&self, kind: &Kind, scope: Scope) -> Result<Listed, Fault> {
        let place = (kind.clone(), scope);
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let subject = Key::new(&kind.group, &kind.kind, &place.1.namespace, "(all)");
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        let listed = match ahead {
            Some(listed) => listed,
            None => self.api.list(kind, &place.1).await.map_err(|trouble| trouble.fault(&subject))?,
        };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(place, listed.clone());
        Ok(listed)
    }

    /// An object, or that there is none.
    pub(super) async fn object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Result<Object, Closed>, Fault> {
        let listed = self.list(kind, Scope::named(namespace, name)).await?;
        let key = Key::new(&kind.group, &kind.kind, namespace, name);
        Ok(listed.objects.into_iter().next().ok_or_else(|| closed(&key, "is not there yet")))
    }

    /// An object that is in no namespace, looked for among those with these labels, or that there is none.
    pub(super) async fn object_among(
        &self,
        kind: &Kind,
        labels: &str,
        name: &str,
    ) -> Result<Result<Object, Closed>, Fault> {
        let listed = self.list(kind, Scope::labelled(labels)).await?;
        let key = Key::new(&kind.group, &kind.kind, "", name);
        let found = listed.objects.into_iter().find(|object| object.name() == name);
        Ok(found.ok_or_else(|| closed(&key, "is not there yet")))
    }

    /// The endpoints of a Service.
    pub(super) async fn slices(&self, namespace: &str, service: &str) -> Result<Vec<Object>, Fault> {
        let labels = format!("kubernetes.io/service-name={service}");
        let scope = Scope { labels, ..Scope::within(namespace) };
        Ok(self.list(&Kind::new("discovery.k8s.io/v1", "EndpointSlice"), scope).await?.objects)
    }

    /// Where the watches go on.
    fn seen(self) -> Seen {
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        seen.into_iter().map(|(place, listed)| (place, listed.version)).collect()
    }
}

impl<After: Send + Sync + 'static> Gate for Ready<After> {
    type Needs = (Arc<Api>, Arc<After>);
    type Output = Present;

    fn check<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move {
            let sight = Sight::new(api);
            let mut verdict = Verdict::Open(Present);
            // Whoever waits for one of them does not ask for those behind it before that is so.
            let reached = self.reached.load(Ordering::Relaxed);
            let (near, far) = self.expects.split_at(reached.min(self.expects.len()));
            'parts: for (part, before) in [(near, 0), (far, near.len())] {
                sight.look_ahead(part).await;
                for (place, expect) in part.iter().enumerate() {
                    if let Some(closed) = expect.closed(&sight).await? {
                        self.reached.store(before + place + 1, Ordering::Relaxed);
                        verdict = Verdict::Closed(closed);
                        break 'parts;
                    }
                }
            }
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = sight.seen();
            Ok(verdict)
        })
    }

    fn changed<'a>(&'a self, (api, _): &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if seen.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            let watches =
                seen.into_iter().map(|((kind, scope), version)| Box::pin(happened(api, kind, scope, version)));
            select_all(watches).await;
        }))
    }

    fn period(&self) -> Duration {
        let is_probe = |expect: &Expect| matches!(expect, Expect::Accepted(_));
        if self.expects.iter().any(is_probe) { PROBE } else { PERIOD }
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// Completes when something happened since then, or may have: a watch that ends, or cannot go on from there, says just that. One
/// that cannot be had says nothing, and the gate's period has to do.
async fn happened(api: &Api, kind: Kind, scope: Scope, version: String) {
    let mut watch = match api.watch(&kind, &scope, &version).await {
        Ok(watch) => watch,
        Err(trouble) if trouble.is_expired() => return,
        Err(_) => return std::future::pending().await,
    };
    loop {
        match watch.next().await {
            Ok(Some(Event::Bookmark(_))) => {}
            Ok(Some(Event::Is(_) | Event::Gone(_)) | None) => return,
            Err(trouble) if trouble.is_expired() => return,
            Err(_) => return std::future::pending().await,
        }
    }
}
