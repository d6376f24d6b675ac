//! The API of one cluster, asked directly.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use super::api::Reply;
use super::kube::{Kube, Setup};
use super::request::{Ask, Query, User};
use super::trial::Trial;
use super::workloads::nodes::Told;
use crate::blueprint::WorkloadLatencies;

mod apply;
mod groups;
mod hooks;
mod life;
mod mirror;
mod nodes;
mod refusals;
mod volumes;
mod watching;
mod work;

/// A cluster in which nothing takes time.
pub(super) struct Bench {
    pub(super) kube: Kube,
    due: Vec<(Duration, super::kube::Due)>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with_factor(0.0)
    }

    pub(super) fn with_factor(factor: f64) -> Self {
        let setup = Setup {
            seed: 7.into(),
            version: "v1.36.3".to_owned(),
            services: (Ipv4Addr::new(10, 96, 0, 0), 1 << 16),
            pods: (Ipv4Addr::new(10, 244, 0, 0), 16),
            authority: "authority".to_owned(),
            signer: None,
            endpoint: "https://10.0.0.50:6443".to_owned(),
            latencies: WorkloadLatencies::default(),
            factor,
        };
        let mut bench =
            Self { kube: Kube::new(setup, Duration::ZERO, Duration::from_secs(1_790_000_000)), due: Vec::new() };
        bench.settle();
        bench
    }

    /// Lets everything happen that happens at this moment.
    pub(super) fn settle(&mut self) {
        self.pass(0.0);
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, seconds: f64) {
        let until = self.kube.now + Duration::from_secs_f64(seconds);
        for _ in 0..100_000 {
            self.due.extend(self.kube.take_plans());
            self.due.sort_by_key(|(at, _)| *at);
            if self.due.first().is_none_or(|(at, _)| *at > until) {
                self.kube.now = until;
                return;
            }
            let (at, due) = self.due.remove(0);
            self.kube.now = self.kube.now.max(at);
            self.kube.happens(&due);
        }
        panic!("the cluster does not come to rest");
    }

    pub(super) fn ask(&mut self, method: &str, path: &str, kind: &str, body: &str) -> Reply {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let ask = Ask {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Query::parse(query),
            content_type: kind.to_owned(),
            user_agent: "test/1".to_owned(),
            body: body.as_bytes().to_vec(),
            user: User::master("admin"),
            ..Ask::default()
        };
        let mut trial = Trial::default();
        loop {
            if let Some(reply) = self.kube.attempt(&ask, &mut trial) {
                return reply;
            }
            // Whoever would have to be reached is not.
            let told = trial.asks.iter().map(super::webhooks::reach::Question::at_once).collect();
            trial.learn(told);
        }
    }

    /// Asks, lets everything happen, and gives the status, the object and the warnings.
    pub(super) fn told(&mut self, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value, Vec<String>) {
        let reply = self.ask(method, path, kind, body);
        self.settle();
        match reply {
            Reply::Object { code, object, warnings } => (code, object, warnings),
            Reply::Raw(code, _, bytes) => (code, json!(String::from_utf8_lossy(&bytes)), Vec::new()),
            Reply::Watch(_) => panic!("a watch is no object"),
        }
    }

    pub(super) fn get(&mut self, path: &str) -> (u16, Value) {
        let (code, object, _) = self.told("GET", path, "", "");
        (code, object)
    }

    pub(super) fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (code, object, _) = self.told("POST", path, "application/json", &body.to_string());
        (code, object)
    }

    pub(super) fn apply(&mut self, manager: &str, path: &str, body: &Value) -> (u16, Value) {
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}fieldManager={manager}");
        let (code, object, _) = self.told("PATCH", &path, "application/apply-patch+yaml", &body.to_string());
        (code, object)
    }

    pub(super) fn merge(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (code, object, _) = self.told("PATCH", path, "application/merge-patch+json", &body.to_string());
        (code, object)
    }

    pub(super) fn delete(&mut self, path: &str) -> (u16, Value) {
        let (code, object, _) = self.told("DELETE", path, "", "");
        (code, object)
    }

    /// Adds a node that is ready.
    pub(super) fn node(&mut self, name: &str) {
        self.tell(&told(name));
    }

    /// Lets a machine tell something of itself.
    pub(super) fn tell(&mut self, told: &Told) {
        self.kube.tell_node(told);
        self.settle();
    }
}

/// What a machine that is well tells of itself.
pub(super) fn told(name: &str) -> Told {
    Told {
        name: name.to_owned(),
        is_ready: true,
        is_up: true,
        is_silent: false,
        runs_control_plane: false,
        is_unschedulable: false,
        addresses: vec![format!("10.0.0.{}", name.len())],
        images: ["apiserver", "controller-manager", "scheduler"]
            .map(|part| format!("registry.k8s.io/kube-{part}:v1.36.3")),
        labels: std::collections::BTreeMap::new(),
        taints: std::collections::BTreeMap::new(),
        version: "v1.36.3".to_owned(),
        cores: 4,
        memory_mib: 8_192,
        boot_id: String::new(),
    }
}

/// A deployment of one container.
pub(super) fn deployment(name: &str, replicas: u32) -> Value {
    let spec = json!({ "containers": [{ "name": "main", "image": "example.com/app:1" }] });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": { "metadata": { "labels": { "app": name } }, "spec": spec } },
    })
}
