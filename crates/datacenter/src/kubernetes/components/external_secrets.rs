//! The External Secrets Operator: the certificate of its webhook, made and told by one process and waited for by another; what
//! the webhook refuses; and the stores and secrets that its main process looks after ([`stores`], [`secrets`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::errands::Fetched;
use super::{CONFIGURATIONS, Component, ComponentFault, certificate_data, is_running, secret_text};
use crate::kubernetes::crd::{DEFINITIONS, is};
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;
use crate::kubernetes::webhooks::served::{Asked, Verdict};
use crate::kubernetes::workloads::is_ready;

mod secrets;
mod stores;

const CERT_CONTROLLER: &str = "external-secrets-cert-controller";
/// The Deployment, the Service and the Secret of the webhook.
const WEBHOOK: &str = "external-secrets-webhook";
const MAIN: &str = "external-secrets";
const GROUP: &str = "external-secrets.io";
const COMPONENT_LABEL: &str = "external-secrets.io/component";
const CLUSTER_STORES: &str = "clustersecretstores.external-secrets.io";
const STORES: &str = "secretstores.external-secrets.io";
const SECRETS: &str = "externalsecrets.external-secrets.io";

const WRITER: Writer<'_> = Writer { name: "external-secrets", subresource: "" };
const STATUS: Writer<'_> = Writer { name: "external-secrets", subresource: "status" };

/// The seconds between two looks of the webhook's process at its certificate,
const STEP: f64 = 10.0;
/// and how many it takes before it ends, and is started with the certificate in place.
const STEPS: u32 = 12;

/// How far the processes have come.
#[derive(Debug, Default)]
pub(super) struct ExternalSecrets {
    /// The pod of the process that makes certificates, by uid, and when it does the next thing.
    maker: String,
    makes_at: Duration,
    /// The pod of the webhook, by uid, and when it began.
    server: String,
    begun: Duration,
    /// When it finds its certificate; nothing if none is made.
    listens_at: Option<Duration>,
    pub(super) fetched: BTreeMap<Key, Fetched>,
}

/// Whether a change is of interest.
pub(super) fn concerns(key: &Key) -> bool {
    ["pods", "secrets", "namespaces", "services", "endpointslices.discovery.k8s.io"].contains(&&*key.0)
        || CONFIGURATIONS.contains(&&*key.0)
        || key.0.ends_with(".external-secrets.io")
        || &*key.0 == DEFINITIONS && key.2.ends_with(".external-secrets.io")
}

impl Kube {
    pub(super) fn sync_external_secrets(&mut self) {
        if let Some(namespace) = self.namespace_of(CERT_CONTROLLER) {
            let pods = self.pods_of("deployments.apps", &namespace, CERT_CONTROLLER);
            match pods.iter().find(|pod| is_running(pod)) {
                Some(pod) => self.make_and_tell_certificate(&namespace, value::uid(pod)),
                None => self.components.external_secrets.maker.clear(),
            }
        }
        if let Some(namespace) = self.namespace_of(WEBHOOK) {
            self.wait_for_certificate(&namespace);
        }
        self.release_held();
        if let Some(namespace) = self.namespace_of(MAIN) {
            let pods = self.pods_of("deployments.apps", &namespace, MAIN);
            if pods.iter().any(|pod| is_ready(pod)) {
                self.sync_stores();
                self.sync_external();
            }
        }
    }

    /// One thing after another: the certificate, then each configuration.
    fn make_and_tell_certificate(&mut self, namespace: &str, pod: &str) {
        let latencies = self.setup.latencies.components.clone();
        if self.components.external_secrets.maker != pod {
            let wait = self.draw("external secrets certificate", latencies.certificate);
            self.components.external_secrets.maker = pod.to_owned();
            self.components.external_secrets.makes_at = self.now + wait;
            self.wake_at(Component::ExternalSecrets, self.now + wait);
        }
        while self.now >= self.components.external_secrets.makes_at {
            if !self.do_next(namespace) {
                return;
            }
            let wait = self.draw("external secrets inject", latencies.inject);
            self.components.external_secrets.makes_at = self.now + wait;
            if !wait.is_zero() {
                self.wake_at(Component::ExternalSecrets, self.now + wait);
            }
        }
    }

    /// Does the next thing that is to be done, and says whether there was any.
    fn do_next(&mut self, namespace: &str) -> bool {
        let Some(secret) = self.get("secrets", namespace, WEBHOOK) else { return false };
        let Some(authority) = secret_text(&secret, "ca.crt") else {
            let names = [format!("{WEBHOOK}.{namespace}.svc")];
            let Ok(made) = self.issue_certificate(&names) else { return false };
            self.amend(&WRITER, ("secrets", namespace, WEBHOOK), |secret| {
                value::set(secret, "data", certificate_data(&made));
            });
            return true;
        };
        if self.suffers(Component::ExternalSecrets, ComponentFault::NeverInjects) {
            return false;
        }
        let names: Vec<String> = self.webhook_configurations().map(|it| value::name(it).to_owned()).collect();
        names.iter().any(|name| self.inject(&WRITER, (CONFIGURATIONS[0], name), &authority))
    }

    fn webhook_configurations(&self) -> impl Iterator<Item = &Arc<Value>> {
        let is_own = |it: &&Arc<Value>| {
            value::at(it, "metadata.labels").and_then(|labels| labels.get(COMPONENT_LABEL)).and_then(Value::as_str)
                == Some("webhook")
        };
        self.store.all(CONFIGURATIONS[0], "").filter(is_own)
    }

    /// The webhook looks for its certificate every ten seconds, and listens when it is there.
    fn wait_for_certificate(&mut self, namespace: &str) {
        let service = format!("{namespace}/{WEBHOOK}");
        let pods = self.pods_of("deployments.apps", namespace, WEBHOOK);
        let Some(pod) = pods.iter().find(|pod| is_running(pod)) else {
            self.components.external_secrets.server.clear();
            self.components.external_secrets.listens_at = None;
            if let Some(webhook) = self.hooks.get(&service) {
                webhook.close();
            }
            return;
        };
        let secret = self.get("secrets", namespace, WEBHOOK);
        let certificate = secret.and_then(|secret| secret_text(&secret, "tls.crt"));
        let is_new = self.components.external_secrets.server != value::uid(pod);
        if is_new {
            let state = &mut self.components.external_secrets;
            state.server = value::uid(pod).to_owned();
            state.begun = self.now;
            // It is mounted with what there is.
            state.listens_at = certificate.is_some().then_some(self.now);
        }
        let Some(certificate) = certificate else { return };
        let begun = self.components.external_secrets.begun;
        let at = match self.components.external_secrets.listens_at {
            Some(at) => at,
            None => {
                let shown = self.now + self.draw("external secrets mount", self.setup.latencies.components.mount);
                let step = self.scaled(STEP);
                let looks = (1..=STEPS).map(|count| begun + step * count);
                let at = looks.into_iter().find(|look| *look >= shown).unwrap_or(shown);
                self.components.external_secrets.listens_at = Some(at);
                self.wake_at(Component::ExternalSecrets, at);
                at
            }
        };
        if self.now < at {
            return;
        }
        let is_dead = self.suffers(Component::ExternalSecrets, ComponentFault::DeadWebhook);
        let webhook = self.serve_behind(&service, judge);
        if is_dead { webhook.close() } else { webhook.listen(&certificate) }
    }

    /// Whether the process of a pod says that it is not ready, whatever the time.
    pub(super) fn external_secrets_hold(&self, pod: &Value) -> bool {
        let namespace = value::namespace(pod);
        let is_of = |name: &str| {
            self.get("deployments.apps", namespace, name).is_some()
                && self
                    .pods_of("deployments.apps", namespace, name)
                    .iter()
                    .any(|own| value::uid(own) == value::uid(pod))
        };
        if is_of(WEBHOOK) {
            let listens = self.components.external_secrets.listens_at.is_some_and(|at| at <= self.now);
            return !listens;
        }
        if !is_of(CERT_CONTROLLER) {
            return false;
        }
        let has_kinds = [CLUSTER_STORES, STORES, SECRETS]
            .iter()
            .all(|name| self.get(DEFINITIONS, "", name).is_some_and(|it| is(&it, "Established")));
        let has_bundle = self.webhook_configurations().any(|it| {
            let hooks = value::items(it, "webhooks");
            !hooks.is_empty() && hooks.iter().all(|hook| !value::text(hook, "clientConfig.caBundle").is_empty())
        });
        let has_endpoint = self.get("services", namespace, WEBHOOK).is_some_and(|it| self.has_endpoints(&it));
        !(has_kinds && has_bundle && has_endpoint)
    }
}

/// What the webhook says.
fn judge(asked: &Asked<'_>) -> Verdict {
    let Some(object) = asked.request.get("object").filter(|object| !object.is_null()) else { return Verdict::Allow };
    let fault = match asked.path {
        "/validate-external-secrets-io-v1-secretstore" => stores::fault(object, false),
        "/validate-external-secrets-io-v1-clustersecretstore" => stores::fault(object, true),
        "/validate-external-secrets-io-v1-externalsecret" => secrets::fault(object),
        _ => return Verdict::Fail(404),
    };
    match fault {
        Some(message) => Verdict::Deny { code: 403, message },
        None => Verdict::Allow,
    }
}
