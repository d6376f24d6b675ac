//! API servers that start again, one after the other: who can be spared, and who serves again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;
use castle_talos::steps::{Keys, Quorum};
use futures_util::future::join_all;

use super::{Api, Kubernetes, Site};

/// How long after a change an API server may go on with what it was started with: the kubelet looks every 20 s whether it is to be started anew.
const LOOKING: Duration = Duration::from_secs(30);

/// Open when the API server of a control plane can be spared for a while: those of all others serve. One that does not serve itself can always be.
pub(in super::super) struct Spare {
    own: Site,
    others: Vec<(String, Site)>,
}

impl Spare {
    pub(in super::super) fn new(own: Site, others: Vec<(String, Site)>) -> Self {
        Self { own, others }
    }
}

async fn is_ready(site: &Site, keys: &Keys) -> bool {
    site.ask(keys, "/readyz").await.is_ok_and(|(status, ..)| status == 200)
}

impl Gate for Spare {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = ();

    fn check<'a>(&'a self, (keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            // A plan tells what is to be done, also where it has to wait.
            if self.own.wire.is_looking() {
                return Ok(Verdict::Open(()));
            }
            if let Some(closed) = quorum.unseen() {
                return Ok(Verdict::Closed(closed));
            }
            let all = [&self.own].into_iter().chain(self.others.iter().map(|(_, site)| site));
            let ready = join_all(all.map(|site| is_ready(site, keys))).await;
            let (own, others) = ready.split_first().unwrap_or((&false, &[]));
            let away = self.others.iter().zip(others).find(|(_, is_ready)| !**is_ready).map(|((name, _), _)| name);
            Ok(match away.filter(|_| *own) {
                None => Verdict::Open(()),
                Some(name) => Verdict::Closed(Closed {
                    subject: name.clone(),
                    evidence: "its API server does not serve, so that of no other is started again".to_owned(),
                    next: format!("kubectl --namespace kube-system logs kube-apiserver-{name}"),
                }),
            })
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        super::PATIENCE
    }
}

/// Open when the API server of a control plane serves with the configuration that its node has just been given: it was seen to be away in between, or
/// was not for as long as that could take.
pub(in super::super) struct Serves {
    api: Api,
    /// Whether it is started again at all for what was changed.
    starts: bool,
    begun: OnceLock<Duration>,
    was_away: AtomicBool,
}

impl Serves {
    pub(in super::super) fn new(site: Site, whose: &str, starts: bool) -> Self {
        Self { api: Api::new(site, whose), starts, begun: OnceLock::new(), was_away: AtomicBool::new(false) }
    }
}

impl Gate for Serves {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = Kubernetes;

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Kubernetes>, Fault>> {
        Box::pin(async move {
            let wire = &self.api.site.wire;
            if wire.is_looking() {
                return super::verdict(self.api.site.api(&needs.0));
            }
            let begun = *self.begun.get_or_init(|| wire.clock.monotonic());
            let verdict = self.api.check(needs).await?;
            let Verdict::Open(api) = verdict else {
                self.was_away.store(true, Ordering::Relaxed);
                return Ok(verdict);
            };
            let waited = wire.clock.monotonic().saturating_sub(begun);
            let is_over = self.was_away.load(Ordering::Relaxed) || waited >= LOOKING;
            if !self.starts || is_over {
                return Ok(Verdict::Open(api));
            }
            let evidence = "its API server serves, and may still be about to start with its new configuration";
            let next = "castle up".to_owned();
            Ok(Verdict::Closed(Closed { subject: self.api.whose.clone(), evidence: evidence.to_owned(), next }))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        super::PATIENCE
    }
}
