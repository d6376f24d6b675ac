//! MetalLB in its namespace: the key of the speakers, the certificate of the webhook, then its paths one after another; what
//! is said of the configuration, and addresses for services ([`services`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{CONFIGURATIONS, Component, ComponentFault, certificate_data, is_running, secret_text};
use crate::kubernetes::crd::DEFINITIONS;
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;
use crate::kubernetes::webhooks::served::{Asked, Verdict};
use crate::kubernetes::workloads::is_ready;

mod pools;
mod services;

const NAMESPACE: &str = "metallb-system";
const POOLS: &str = "ipaddresspools.metallb.io";
const ADVERTISEMENTS: &str = "l2advertisements.metallb.io";
const STATES: &str = "configurationstates.metallb.io";
const CERTIFICATE: &str = "metallb-webhook-cert";
const CONFIGURATION: &str = "metallb-webhook-configuration";
const SERVICE: &str = "metallb-system/metallb-webhook-service";
const PEERS: &str = "bgppeers.metallb.io";

const ROTATOR: Writer<'_> = Writer { name: "MetalLB", subresource: "" };
const CONTROLLER: Writer<'_> = Writer { name: "controller", subresource: "" };
const CONTROLLER_STATUS: Writer<'_> = Writer { name: "controller", subresource: "status" };
const SPEAKER_STATUS: Writer<'_> = Writer { name: "speaker", subresource: "status" };

/// The paths of the webhook, in the order in which they are registered.
const PATHS: [&str; 6] = [
    "/validate-metallb-io-v1beta1-ipaddresspool",
    "/validate-metallb-io-v1beta2-bgppeer",
    "/validate-metallb-io-v1beta1-bgpadvertisement",
    "/validate-metallb-io-v1beta1-l2advertisement",
    "/validate-metallb-io-v1beta1-community",
    "/validate-metallb-io-v1beta1-bfdprofile",
];

/// How far the controller has come.
#[derive(Debug, Default)]
pub(super) struct MetalLb {
    /// The pod that is meant, by uid.
    pod: String,
    step: Step,
    /// When the step is done.
    at: Duration,
    paths: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// An authority and a certificate are made.
    #[default]
    Certificate,
    /// The authority is told to the API server.
    Inject,
    /// The file of the certificate shows in the volume.
    Mount,
    /// This many paths are registered.
    Register(usize),
}

/// Whether a change is of interest for MetalLB.
pub(super) fn concerns(key: &Key) -> bool {
    key.1 == NAMESPACE
        || ["services", "nodes"].contains(&&*key.0)
        || &*key.0 == CONFIGURATIONS[0] && key.2 == CONFIGURATION
        || &*key.0 == DEFINITIONS && key.2.ends_with(".metallb.io")
}

impl Kube {
    pub(super) fn sync_metallb(&mut self) {
        let pods = self.pods_of("deployments.apps", NAMESPACE, "controller");
        if pods.iter().any(|pod| is_running(pod)) {
            self.make_memberlist();
        }
        let Some(pod) = pods.iter().find(|pod| is_ready(pod)) else {
            if let Some(webhook) = self.hooks.get(SERVICE) {
                webhook.close();
            }
            self.components.metallb = MetalLb::default();
            return;
        };
        if self.components.metallb.pod != value::uid(pod) {
            let wait = self.draw("metallb certificate", self.setup.latencies.components.certificate);
            let at = self.now + wait;
            self.components.metallb = MetalLb { pod: value::uid(pod).to_owned(), at, ..MetalLb::default() };
            self.wake_at(Component::MetalLb, at);
        }
        self.go_on_with_webhook();
        self.judge_configuration();
        self.give_addresses();
    }

    /// The key that the speakers share: they wait for it.
    fn make_memberlist(&mut self) {
        if self.get("secrets", NAMESPACE, "memberlist").is_some() {
            return;
        }
        let Some(owner) = self.get("deployments.apps", NAMESPACE, "controller") else { return };
        let key = STANDARD.encode(STANDARD.encode(self.bytes("metallb memberlist")));
        let owner =
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "controller", "uid": value::uid(&owner) });
        let metadata = json!({ "name": "memberlist", "namespace": NAMESPACE, "ownerReferences": [owner] });
        let secret = json!({ "metadata": metadata, "type": "Opaque", "data": { "secretkey": key } });
        self.make(&CONTROLLER, "secrets", secret);
    }

    fn go_on_with_webhook(&mut self) {
        let latencies = self.setup.latencies.components.clone();
        while self.now >= self.components.metallb.at {
            let (next, wait) = match self.components.metallb.step {
                Step::Certificate => {
                    let Some(is_new) = self.make_certificate() else { return };
                    let wait = self.draw("metallb inject", latencies.look);
                    // A pod that starts with the certificate has its file.
                    let mount = if is_new { self.draw("metallb mount", latencies.mount) } else { Duration::ZERO };
                    (Step::Inject, wait + mount)
                }
                Step::Inject => {
                    if !self.inject_everywhere() {
                        return;
                    }
                    (Step::Mount, self.draw("metallb listen", latencies.certificate))
                }
                Step::Mount => (Step::Register(0), Duration::ZERO),
                Step::Register(count) => {
                    self.inject_everywhere();
                    self.listen(count);
                    let Some(path) = PATHS.get(count) else { return };
                    self.components.metallb.paths.insert(path);
                    (Step::Register(count + 1), self.draw("metallb path", latencies.path))
                }
            };
            let at = self.now + wait;
            (self.components.metallb.step, self.components.metallb.at) = (next, at);
            if !wait.is_zero() {
                self.wake_at(Component::MetalLb, at);
            }
        }
    }

    /// Makes the certificate where there is none, and says whether it did; nothing if it has nowhere to be.
    fn make_certificate(&mut self) -> Option<bool> {
        let secret = self.get("secrets", NAMESPACE, CERTIFICATE)?;
        if secret_text(&secret, "tls.crt").is_some_and(|certificate| !certificate.is_empty()) {
            return Some(false);
        }
        let names = [format!("metallb-webhook-service.{NAMESPACE}.svc")];
        let made = self.issue_certificate(&names).ok()?;
        self.amend(&ROTATOR, ("secrets", NAMESPACE, CERTIFICATE), |secret| {
            value::set(secret, "data", certificate_data(&made));
        });
        Some(true)
    }

    /// Tells the API server the authority, and says whether it may.
    fn inject_everywhere(&mut self) -> bool {
        if self.suffers(Component::MetalLb, ComponentFault::NeverInjects) {
            return false;
        }
        let secret = self.get("secrets", NAMESPACE, CERTIFICATE);
        let Some(authority) = secret.and_then(|secret| secret_text(&secret, "ca.crt")) else { return false };
        self.inject(&ROTATOR, (CONFIGURATIONS[0], CONFIGURATION), &authority);
        let bundle = STANDARD.encode(authority);
        self.amend(&ROTATOR, (DEFINITIONS, "", PEERS), |definition| {
            if value::at(definition, "spec.conversion.webhook.clientConfig").is_some() {
                value::set(definition, "spec.conversion.webhook.clientConfig.caBundle", bundle.as_str());
            }
        });
        true
    }

    /// Listens once the first path is there.
    fn listen(&mut self, count: usize) {
        let is_dead = self.suffers(Component::MetalLb, ComponentFault::DeadWebhook);
        let webhook = self.serve_behind(SERVICE, judge);
        let secret = self.get("secrets", NAMESPACE, CERTIFICATE);
        match secret.and_then(|secret| secret_text(&secret, "tls.crt")) {
            Some(_) if is_dead => webhook.close(),
            Some(certificate) if count > 0 || webhook.chain().is_none() => webhook.listen(&certificate),
            _ => {}
        }
    }

    /// Says whether the configuration is valid: the controller, and the speaker of each node.
    fn judge_configuration(&mut self) {
        if self.resource_of(STATES).is_none() {
            return;
        }
        let is_unusable = self.suffers(Component::MetalLb, ComponentFault::InvalidConfiguration);
        let unusable = is_unusable.then(|| "failed to parse configuration".to_owned());
        let fault = unusable.or_else(|| pools::first_fault(self.store.all(POOLS, NAMESPACE).map(|pool| &**pool)));
        let (result, summary) = fault.map_or(("Valid", String::new()), |fault| ("Invalid", fault));
        self.say_state(&CONTROLLER_STATUS, "controller", result, &summary);
        let speakers: Vec<Arc<Value>> = self.pods_of("daemonsets.apps", NAMESPACE, "speaker");
        for speaker in speakers.iter().filter(|pod| is_ready(pod)) {
            let name = format!("speaker-{}", value::text(speaker, "spec.nodeName"));
            self.say_state(&SPEAKER_STATUS, &name, result, &summary);
        }
    }

    fn say_state(&mut self, writer: &Writer<'_>, name: &str, result: &str, summary: &str) {
        let state = json!({ "metadata": { "name": name, "namespace": NAMESPACE } });
        self.ensure(writer, STATES, &state, |state| {
            value::set(state, "status.result", result);
            match summary {
                "" => drop(value::remove(state, "status.errorSummary")),
                summary => value::set(state, "status.errorSummary", summary),
            }
        });
    }
}

/// What the webhook says.
fn judge(asked: &Asked<'_>) -> Verdict {
    let state = &asked.kube.components.metallb;
    if !state.paths.contains(asked.path) {
        return Verdict::Fail(404);
    }
    let Some(new) = asked.request.get("object").filter(|object| !object.is_null()) else { return Verdict::Allow };
    if asked.path != PATHS[0] {
        return Verdict::Allow;
    }
    let others = asked.objects(POOLS, NAMESPACE).filter(|pool| value::name(pool) != value::name(new));
    let all: Vec<&Value> = others.chain([new]).collect();
    match pools::first_fault(all.into_iter()) {
        Some(message) => Verdict::Deny { code: 403, message },
        None => Verdict::Allow,
    }
}
