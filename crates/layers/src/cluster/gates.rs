//! Gates that ask the Kubernetes API: that it is ready, that all nodes are, and that names are found.

mod shared;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_kubernetes::client::{Access, Api as Kubernetes};
use castle_seams::BoxFuture;
use castle_talos::steps::{Keys, Quorum, Wire};
use serde_json::Value;

pub(super) use shared::SharedApi;
pub(super) use volumes::VolumeReady;

/// What one question may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where the API is asked, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) wire: Arc<Wire>,
    pub(super) address: String,
}

impl Site {
    /// What the API answers: a status and a body.
    async fn ask(&self, keys: &Keys, path: &str) -> Result<(u16, Vec<u8>), Closed> {
        let closed = |evidence: String| Closed {
            subject: self.address.clone(),
            evidence,
            next: "talosctl health; kubectl get --raw /readyz?verbose".to_owned(),
        };
        let access = access(self.address.clone(), keys, self.wire.is_plain);
        let api = Kubernetes::new(&access, self.wire.dial.clone(), self.wire.clock.clone());
        let api = api.map_err(|error| closed(error.to_string()))?.with_deadline(DEADLINE);
        let (status, body) = api.raw(path).await.map_err(|trouble| closed(trouble.to_string()))?;
        Ok((status, body.to_vec()))
    }

    /// What the API says about an object, or why it does not.
    async fn object(&self, keys: &Keys, path: &str) -> Result<Value, Closed> {
        let (status, body) = self.ask(keys, path).await?;
        let read = serde_json::from_slice(&body).ok().filter(|_| status == 200);
        read.ok_or_else(|| Closed {
            subject: self.address.clone(),
            evidence: format!("{path} answers {status}"),
            next: format!("kubectl get --raw {path}"),
        })
    }
}

/// How castle reaches the API of its own cluster.
pub(super) fn access(address: String, keys: &Keys, is_plain: bool) -> Access {
    Access {
        address,
        authority: keys.bundle.kubernetes.certificate.clone(),
        certificate: keys.kubernetes.certificate.clone(),
        key: keys.kubernetes.key.clone(),
        is_plain,
    }
}

fn verdict<T>(checked: Result<T, Closed>) -> Result<Verdict<T>, Fault> {
    Ok(match checked {
        Ok(open) => Verdict::Open(open),
        Err(closed) => Verdict::Closed(closed),
    })
}

/// An API that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serves;

/// Open when the API says that it is ready.
pub(super) struct Api {
    site: Site,
    whose: String,
}

impl Api {
    pub(super) fn new(site: Site, whose: &str) -> Self {
        Self { site, whose: whose.to_owned() }
    }
}

impl Gate for Api {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = Serves;

    fn check<'a>(&'a self, (keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Serves>, Fault>> {
        Box::pin(async move {
            if let Some(closed) = quorum.unseen() {
                return Ok(Verdict::Closed(closed));
            }
            let answer = self.site.ask(keys, "/readyz").await;
            verdict(answer.and_then(|(status, body)| match status {
                200 => Ok(Serves),
                _ => Err(Closed {
                    subject: self.whose.clone(),
                    evidence: format!("/readyz answers {status}: {}", said(&body)),
                    next: "kubectl get --raw /readyz?verbose".to_owned(),
                }),
            }))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(10 * 60)
    }
}

/// The beginning of what was said, fit to be shown.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..200).unwrap_or(body));
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Open when all nodes of the castle are ready.
pub(super) struct NodesReady {
    site: Site,
    names: BTreeSet<String>,
}

impl NodesReady {
    pub(super) fn new(site: Site, names: BTreeSet<String>) -> Self {
        Self { site, names }
    }

    async fn ask(&self, keys: &Keys) -> Result<(), Closed> {
        let list = self.site.object(keys, "/api/v1/nodes").await?;
        let nodes = list["items"].as_array().cloned().unwrap_or_default();
        let named = |name: &str| nodes.iter().find(|node| node["metadata"]["name"] == name);
        for name in &self.names {
            let closed = |evidence: String| Closed {
                subject: name.clone(),
                evidence,
                next: format!("kubectl describe node {name}; talosctl --nodes {name} logs kubelet"),
            };
            let Some(node) = named(name) else {
                return Err(closed("is not registered with Kubernetes yet".to_owned()));
            };
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            if ready.is_none_or(|ready| ready["status"] != "True") {
                let why = ready.and_then(|ready| ready["message"].as_str()).unwrap_or("has no condition yet");
                return Err(closed(format!("is not ready: {}", said(why.as_bytes()))));
            }
        }
        Ok(())
    }
}

impl Gate for NodesReady {
    type Needs = (Arc<Keys>, Arc<Serves>);
    type Output = ();

    fn check<'a>(&'a self, (keys, _): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move { verdict(self.ask(keys).await) })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(10 * 60)
    }
}

/// Open when names inside of the cluster are found.
pub(super) struct CoreDns {
    site: Site,
}

impl CoreDns {
    pub(super) fn new(site: Site) -> Self {
        Self { site }
    }
}

impl Gate for CoreDns {
    type Needs = (Arc<Keys>, Arc<Serves>);
    type Output = ();

    fn check<'a>(&'a self, (keys, _): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            let path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
            let object = self.site.object(keys, path).await;
            verdict(object.and_then(|coredns| {
                let available = coredns["status"]["availableReplicas"].as_u64().unwrap_or(0);
                if available > 0 {
                    return Ok(());
                }
                Err(Closed {
                    subject: "CoreDNS".to_owned(),
                    evidence: "none of its Pods is available".to_owned(),
                    next: "kubectl --namespace kube-system describe deployment coredns".to_owned(),
                })
            }))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(10 * 60)
    }
}
