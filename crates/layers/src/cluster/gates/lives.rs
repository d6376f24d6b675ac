//! Nodes that say that they live, once they were given another configuration as they run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_kubernetes::client::Api as Kubernetes;
use castle_kubernetes::model::{Key, Kind, condition};
use castle_seams::BoxFuture;
use castle_talos::steps::{Quorum, Wire};

/// How long what a node says may still come from before its change.
const SETTLING: Duration = Duration::from_secs(5);
/// Where kubelets say every ten seconds that they live.
const LEASES: &str = "kube-node-lease";

/// Open when a node has said that it lives since it was given its configuration, and is ready. That it was ready before does not count: Kubernetes takes most
/// of a minute until it misses a node.
pub(in super::super) struct Lives {
    wire: Arc<Wire>,
    whose: String,
    /// Whether castle waits for nodes to be ready at all.
    waits: bool,
    begun: OnceLock<Duration>,
    /// What it said last that may come from before.
    said: Mutex<Option<String>>,
}

impl Lives {
    pub(in super::super) fn new(wire: &Arc<Wire>, whose: &str, waits: bool) -> Self {
        let (begun, said) = (OnceLock::new(), Mutex::default());
        Self { wire: wire.clone(), whose: whose.to_owned(), waits, begun, said }
    }

    /// Whether it has said so since.
    fn is_new(&self, now: Option<String>, waited: Duration) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if waited < SETTLING || said.is_none() {
            *said = now;
            return false;
        }
        now.is_some() && *said != now
    }

    async fn evidence(&self, api: &Kubernetes) -> Result<Option<String>, Fault> {
        let begun = *self.begun.get_or_init(|| self.wire.clock.monotonic());
        let of = |kind: &str, namespace: &str| {
            let key =
                Key::new(if namespace.is_empty() { "" } else { "coordination.k8s.io" }, kind, namespace, &self.whose);
            move |trouble: castle_kubernetes::client::Trouble| trouble.fault(&key)
        };
        let lease = api.get(&Kind::new("coordination.k8s.io/v1", "Lease"), LEASES, &self.whose).await;
        let lease = lease.map_err(of("Lease", LEASES))?;
        let said = lease.map(|lease| lease.text("/spec/renewTime").to_owned());
        if !self.is_new(said, self.wire.clock.monotonic().saturating_sub(begun)) {
            return Ok(Some("has not said that it lives since it was given its configuration".to_owned()));
        }
        let node = api.get(&Kind::new("v1", "Node"), "", &self.whose).await.map_err(of("Node", ""))?;
        let Some(node) = node else { return Ok(Some("is not registered with Kubernetes".to_owned())) };
        Ok(match condition(&node, "Ready") {
            Some(ready) if ready.status != "True" && self.waits => Some(format!("is not ready: {}", ready.message)),
            None if self.waits => Some("has no condition Ready".to_owned()),
            _ => None,
        })
    }
}

impl Gate for Lives {
    type Needs = (Arc<Kubernetes>, Arc<Quorum>);
    type Output = ();

    fn check<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            // A plan tells what is to be done, also where it has to wait.
            if self.wire.is_looking() {
                return Ok(Verdict::Open(()));
            }
            let evidence = match self.evidence(api).await {
                // The only control plane may be the one that has changed.
                Err(fault) if !fault.is_final() => Some(format!("the API cannot be asked: {}", fault.evidence)),
                evidence => evidence?,
            };
            let next = format!(
                "kubectl describe node {0}; take the change back in castle.yaml and castle up, for {0} is not well with it",
                self.whose
            );
            Ok(match evidence {
                None => Verdict::Open(()),
                Some(evidence) => Verdict::Closed(Closed { subject: self.whose.clone(), evidence, next }),
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
