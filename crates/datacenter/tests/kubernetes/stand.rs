//! A cluster with workers in which components are installed, from the vendors' own manifests.
#![allow(clippy::print_stderr, reason = "a test that cannot go on should say so")]

use std::path::Path;
use std::time::Duration;

use castle_datacenter::{Blueprint, Latencies};
use castle_seams::{Clock, Disk, SystemDisk};
use castle_testkit::VirtualClock;
use serde_json::{Value, json};

use crate::castle::Wanted;
use crate::client::Client;
use crate::wire::Nodes;

/// A cluster, and whoever may do everything in it.
pub(crate) struct Stand {
    pub(crate) nodes: Nodes,
    admin: String,
}

/// A file of the mirror; nothing where there is no mirror.
pub(crate) fn manifest(file: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/mirror").join(file);
    if let Ok(bytes) = SystemDisk.read(&path, 8 << 20) {
        return Some(String::from_utf8(bytes).unwrap());
    }
    assert!(std::env::var_os("CI").is_none(), "{} must be there in CI", path.display());
    eprintln!("skipped: {} is not there", path.display());
    None
}

/// An object of a file: where it lives, its stage, and its text.
fn placed(text: &str) -> Option<(u8, String, String)> {
    let top = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let (api_version, kind) = (top("apiVersion: ")?, top("kind: ")?);
    let metadata: Vec<&str> =
        text.lines().skip_while(|line| *line != "metadata:").skip(1).take_while(|line| line.starts_with(' ')).collect();
    let of = |key: &str| metadata.iter().find_map(|line| line.strip_prefix(key)).map(|it| it.trim().trim_matches('"'));
    let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
    let space = of("  namespace: ").map(|it| format!("/namespaces/{it}")).unwrap_or_default();
    let lower = kind.to_lowercase();
    let plural = match lower.as_str() {
        word if word.ends_with("class") => format!("{word}es"),
        word if word.ends_with("policy") => format!("{}ies", &word[..word.len() - 1]),
        word => format!("{word}s"),
    };
    let stage = match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        kind if kind.ends_with("WebhookConfiguration") => 3,
        _ => 2,
    };
    Some((stage, format!("{root}{space}/{plural}/{}", of("  name: ")?), text.to_owned()))
}

impl Stand {
    /// One in which nothing takes time: this many nodes, of which the first three are control planes.
    pub(crate) async fn quick(clock: &VirtualClock, count: u32) -> Self {
        Self::raise(clock, Blueprint::embedded(&[]).with_latencies(Latencies::none()), count).await
    }

    pub(crate) async fn raise(clock: &VirtualClock, blueprint: Blueprint, count: u32) -> Self {
        let nodes = Nodes::raise(clock, blueprint, count).await;
        nodes.bring_up(&Wanted::default()).await;
        let admin = nodes.castle.kubernetes_admin();
        Self { nodes, admin }
    }

    pub(crate) fn api(&self) -> Client<'_> {
        Client { datacenter: self.nodes.datacenter(), address: "10.0.0.50", certificate: &self.admin }
    }

    /// Applies all of a text with many objects.
    pub(crate) async fn install(&self, text: &str) {
        let mut all: Vec<(u8, String, String)> = text.split("\n---").filter_map(placed).collect();
        all.sort_by_key(|(stage, _, _)| *stage);
        for (_, path, text) in all {
            let path = format!("{path}?fieldManager=castle&force=true");
            let kind = "application/apply-patch+yaml";
            let mut told = (0, Value::Null);
            for _ in 0..20 {
                told = self.api().ask("PATCH", &path, kind, &text).await.unwrap();
                if told.0 != 404 {
                    break;
                }
                self.pause(0.5).await;
            }
            assert!(told.0 < 300, "{path}: {}", told.1);
        }
    }

    pub(crate) async fn pause(&self, seconds: f64) {
        self.nodes.clock.sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// What an object says, without asking the API.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Value {
        self.nodes.datacenter().object("blue", collection, namespace, name).unwrap_or_default()
    }

    pub(crate) fn names(&self, collection: &str) -> Vec<String> {
        self.nodes.datacenter().object_names("blue", collection)
    }

    /// Applies an object, and tells the status and what is said.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> (u16, String) {
        let (status, told) = self.api().apply(path, object).await.unwrap();
        (status, told["message"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn merge(&self, path: &str, change: &Value) {
        let told = self.api().ask("PATCH", path, "application/merge-patch+json", &change.to_string()).await.unwrap();
        assert_eq!(told.0, 200, "{}", told.1);
    }

    /// A deployment of one container with a service of that type before it.
    pub(crate) async fn app(&self, name: &str, kind: &str, annotations: &Value) {
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "example.com/app:1" }] } });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": labels }, "template": template },
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "annotations": annotations },
            "spec": { "type": kind, "selector": labels, "ports": [{ "port": 80 }] },
        });
        let path = format!("/apis/apps/v1/namespaces/default/deployments/{name}");
        assert_eq!(self.apply(&path, &deployment).await.0, 201);
        assert_eq!(self.apply(&format!("/api/v1/namespaces/default/services/{name}"), &service).await.0, 201);
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        self.nodes.until(what, async || holds(self)).await
    }
}

/// The status of a condition, and its reason.
pub(crate) fn condition(object: &Value, kind: &str) -> (String, String) {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.find(|it| it["type"] == kind).cloned().unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}
