//! The Kubernetes that runs, held against the one that configurations name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind};
use castle_seams::BoxFuture;
use castle_talos::model::config::Configuration;
use castle_talos::steps::Quorum;
use serde_json::Value;

use super::Kubernetes;
use crate::cluster::tag;

/// What a node runs says its kubelet.
const KUBELET: &str = "/status/nodeInfo/kubeletVersion";

/// Which versions of Kubernetes configurations name, as far as their images tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Named {
    /// The kubelet's, by node.
    kubelets: BTreeMap<String, String>,
    /// The API servers'; nothing if one of them does not tell.
    servers: Option<BTreeSet<String>>,
}

impl Named {
    /// What these configurations of nodes name; those of control planes are told apart.
    pub(in super::super) fn of<'c>(all: impl Iterator<Item = (&'c str, bool, Configuration)>) -> Self {
        let (mut kubelets, mut servers) = (BTreeMap::new(), Some(BTreeSet::new()));
        for (node, is_control_plane, configuration) in all {
            if let Some(version) = version(&configuration, "/machine/kubelet/image", "KubeletConfig") {
                kubelets.insert(node.to_owned(), version);
            }
            if is_control_plane {
                let version = version(&configuration, "/cluster/apiServer/image", "KubeAPIServerConfig");
                servers = servers.zip(version).map(|(mut servers, version)| {
                    servers.insert(version);
                    servers
                });
            }
        }
        Self { kubelets, servers }
    }
}

/// The version that a configuration names for a part of Kubernetes: from Talos 1.14 on in a document of its own. An image with another tag than that of a
/// release, or with none, does not tell which it is.
fn version(configuration: &Configuration, pointer: &str, kind: &str) -> Option<String> {
    let image = configuration.documents().iter().find_map(|document| match document["kind"].as_str() {
        Some(own) => document["image"].as_str().filter(|_| own == kind),
        None => document.pointer(pointer).and_then(Value::as_str),
    })?;
    let version = tag(image);
    let numbers = version.strip_prefix('v')?.split('.').collect::<Vec<_>>();
    let is_release = numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok());
    is_release.then(|| version.to_owned())
}

/// Open when kubelets, and the API server that answers, run the version that the configurations of their nodes name: an image that cannot be pulled, or that
/// somebody has changed past the configuration, shows nowhere else.
pub(in super::super) struct Versions {
    name: Box<dyn Fn() -> Named + Send + Sync>,
    named: OnceLock<Named>,
}

impl Versions {
    /// The gate for what this names.
    pub(in super::super) fn new(name: impl Fn() -> Named + Send + Sync + 'static) -> Self {
        Self { name: Box::new(name), named: OnceLock::new() }
    }
}

fn closed(subject: String, what: &str, (runs, named): (&str, &str), next: String) -> Closed {
    Closed { subject, evidence: format!("{what} {runs}, and its configuration has {named}"), next }
}

impl Gate for Versions {
    type Needs = (Arc<Kubernetes>, Arc<Quorum>);
    type Output = ();

    fn check<'a>(&'a self, (api, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            if let Some(closed) = quorum.unseen() {
                return Ok(Verdict::Closed(closed));
            }
            let named = self.named.get_or_init(&self.name);
            let key = Key::new("", "Node", "", "(all)");
            let listed = api.list(&Kind::new("v1", "Node"), &Scope::default()).await;
            for node in listed.map_err(|trouble| trouble.fault(&key))?.objects {
                let runs = node.text(KUBELET);
                let Some(version) = named.kubelets.get(node.name()) else { continue };
                // One that says nothing yet is told of by whoever waits for it.
                if !runs.is_empty() && runs != version {
                    let next = format!("talosctl --nodes {0} service kubelet; kubectl describe node {0}", node.name());
                    let told = closed(node.key().to_string(), "runs the kubelet", (runs, version), next);
                    return Ok(Verdict::Closed(told));
                }
            }
            let Some(versions) = &named.servers else { return Ok(Verdict::Open(())) };
            let (status, body) =
                api.raw("/version").await.map_err(|trouble| trouble.fault(&Key::new("", "API", "", "version")))?;
            let told: Value = serde_json::from_slice(&body).unwrap_or_default();
            let runs = told["gitVersion"].as_str().filter(|_| status == 200).unwrap_or_default();
            if runs.is_empty() || versions.contains(runs) {
                return Ok(Verdict::Open(()));
            }
            let all: Vec<&str> = versions.iter().map(String::as_str).collect();
            let next = "kubectl --namespace kube-system get pods --selector k8s-app=kube-apiserver --output wide";
            let told = closed("the API server".to_owned(), "runs", (runs, &all.join(" or ")), next.to_owned());
            Ok(Verdict::Closed(told))
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn deadline(&self) -> Duration {
        super::PATIENCE
    }
}
