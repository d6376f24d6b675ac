//! Gates that ask the Kubernetes API: that it is ready, that all nodes are, and that names are found.

mod lives;
mod rest;
mod serving;
mod shared;
mod versions;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_kubernetes::client::{self, Access, Api as Kubernetes, Scope};
use castle_kubernetes::model::{Key, Kind, condition};
use castle_kubernetes::steps::{Expect, Ready, Test, Unmet};
use castle_seams::BoxFuture;
use castle_talos::client::GLANCE;
use castle_talos::steps::{Keys, Quorum, Wire};

pub(super) use lives::Lives;
pub(super) use rest::{Blind, Rest};
pub(super) use serving::{Serves, Spare};
pub(super) use shared::SharedApi;
pub(super) use versions::{Named, Versions};
pub(super) use volumes::VolumeReady;

/// What one question may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a cluster may take to come to itself.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Where the API is asked, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) wire: Arc<Wire>,
    pub(super) address: String,
}

impl Site {
    fn closed(&self, evidence: String) -> Closed {
        let next = "talosctl health; kubectl get --raw /readyz?verbose".to_owned();
        Closed { subject: self.address.clone(), evidence, next }
    }

    /// The API, asked nothing yet.
    fn api(&self, keys: &Keys) -> Result<Kubernetes, Closed> {
        let access = access(self.address.clone(), keys, self.wire.is_plain);
        let api = Kubernetes::new(&access, self.wire.dial.clone(), self.wire.clock.clone());
        api.map_err(|error| self.closed(error.to_string()))
    }

    /// What the API answers, a status and a body; and the way to it.
    pub(super) async fn ask(&self, keys: &Keys, path: &str) -> Result<(u16, Vec<u8>, Kubernetes), Closed> {
        let deadline = if self.wire.is_looking() { GLANCE } else { DEADLINE };
        let api = self.api(keys)?.with_deadline(deadline);
        let (status, body) = api.raw(path).await.map_err(|trouble| self.closed(trouble.to_string()))?;
        Ok((status, body.to_vec(), api.with_deadline(client::DEADLINE)))
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

/// Open when the API says that it is ready; gives the way to it.
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
    type Output = Kubernetes;

    fn check<'a>(&'a self, (keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Kubernetes>, Fault>> {
        Box::pin(async move {
            if let Some(closed) = quorum.unseen() {
                return Ok(Verdict::Closed(closed));
            }
            let answer = self.site.ask(keys, "/readyz").await;
            verdict(answer.and_then(|(status, body, api)| match status {
                200 => Ok(api),
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
        PATIENCE
    }
}

/// The beginning of what was said, fit to be shown.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..200).unwrap_or(body));
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Why a node of this name is not looked at any further.
fn unregistered(name: &str) -> Unmet {
    let key = Key::new("", "Node", "", name);
    Unmet { evidence: "is not registered with Kubernetes yet".to_owned(), ..Unmet::absent(key) }
}

/// Open when Kubernetes knows all nodes of the castle, ready or not.
pub(super) fn nodes_registered(names: Vec<String>) -> Ready<Quorum> {
    let test = Test::new(move |nodes| {
        let is_there = |name: &&String| nodes.iter().any(|node| node.name() == name.as_str());
        names.iter().find(|name| !is_there(name)).map_or(Ok(()), |name| Err(unregistered(name)))
    });
    Ready::new(vec![Expect::Holds(Kind::new("v1", "Node"), Scope::default(), test)], PATIENCE)
}

/// Open when all nodes of the castle are ready.
pub(super) fn nodes_ready(names: Vec<String>, network: Option<&'static str>) -> Ready<Quorum> {
    Ready::new(vec![all_ready(names, network)], PATIENCE)
}

/// That these nodes are ready. Where they cannot be, for want of a network, that is told with each that is not.
fn all_ready(names: Vec<String>, network: Option<&'static str>) -> Expect {
    let test = Test::new(move |nodes| {
        for name in &names {
            let Some(node) = nodes.iter().find(|node| node.name() == name) else {
                return Err(unregistered(name));
            };
            match condition(node, "Ready") {
                Some(ready) if ready.status == "True" => {}
                Some(ready) => {
                    let why = network.map_or_else(String::new, |why| format!(" ({why})"));
                    return Err(Unmet::of(node, format!("is not ready: {}{why}", said(ready.message.as_bytes()))));
                }
                None => return Err(Unmet::of(node, "has no condition Ready yet")),
            }
        }
        Ok(())
    });
    Expect::Holds(Kind::new("v1", "Node"), Scope::default(), test)
}

/// Open when names inside of the cluster are found.
pub(super) fn core_dns() -> Ready<Quorum> {
    let test = Test::new(|found| match found.first() {
        None => Err(Unmet::absent(Key::new("apps", "Deployment", "kube-system", "coredns"))),
        Some(coredns) if coredns.number("/status/availableReplicas").unwrap_or(0) > 0 => Ok(()),
        Some(coredns) => Err(Unmet::of(coredns, "none of its Pods is available")),
    });
    let (kind, scope) = (Kind::new("apps/v1", "Deployment"), Scope::named("kube-system", "coredns"));
    Ready::new(vec![Expect::Holds(kind, scope, test)], PATIENCE)
}
