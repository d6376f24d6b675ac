//! Gates that ask the Kubernetes API: that it is ready, that all nodes are, and that names are found.

mod shared;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_http::header::{HeaderName, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Failure, Identity, Method, Trust};
use castle_seams::BoxFuture;
use castle_talos::steps::{Keys, Quorum, Wire};
use serde_json::Value;

pub(super) use shared::SharedApi;
pub(super) use volumes::VolumeReady;

/// The longest answer to what is asked here: the list of a thousand nodes.
const LIMIT: usize = 32 << 20;
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
        let address =
            if self.wire.is_plain { self.address.replace("https://", "http://") } else { self.address.clone() };
        let endpoint = Endpoint::parse(&address).map_err(|error| closed(error.to_string()))?;
        let trust = Trust::Only(keys.bundle.kubernetes.certificate.clone());
        let client = Client::new(endpoint, &trust, self.wire.dial.clone(), self.wire.clock.clone());
        let client = client.map_err(|error| closed(error.to_string()))?.with_deadline(DEADLINE).with_limit(LIMIT);
        let admin = &keys.kubernetes;
        let identity =
            Identity::from_pem(&admin.certificate, admin.key.expose()).map_err(|error| closed(error.to_string()))?;
        let client = client.with_identity(&identity).map_err(|error| closed(error.to_string()))?;
        let mut ask = Ask::new(Method::GET, path);
        if let (true, Some(certificate)) = (self.wire.is_plain, header_of(&admin.certificate)) {
            ask.headers.insert(HeaderName::from_static(CERTIFICATE), certificate);
        }
        match client.ask(&ask).await {
            Ok(answer) => Ok((answer.status.as_u16(), answer.body.to_vec())),
            Err(Failure::NotSent(why) | Failure::Untrusted(why) | Failure::Lost(why)) => Err(closed(why)),
            Err(failure @ Failure::TooLarge) => Err(closed(failure.to_string())),
        }
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

/// Under this name an API in memory is told the certificate, as base64, where there is no TLS to say it.
const CERTIFICATE: &str = "castle-client-certificate";

/// The inside of a PEM.
fn header_of(pem: &str) -> Option<HeaderValue> {
    let inside: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    HeaderValue::from_str(&inside).ok()
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
