//! A cluster with workers in which components are installed, from the vendors' own manifests or from castle's.

use std::time::Duration;

use castle_components::adapt;
use castle_components::{Fit, standin};
use castle_datacenter::{Blueprint, Latencies, Stage};
use castle_seams::Clock;
use castle_spec::ComponentName;
use castle_testbed::VirtualClock;
use serde_json::{Value, json};

use crate::castle::Wanted;
use crate::client::Client;
use crate::wire::{Nodes, vmid};

/// A cluster, and whoever may do everything in it.
pub(crate) struct Stand {
    pub(crate) nodes: Nodes,
    admin: String,
}

/// A file of the mirror; nothing where there is no mirror.
pub(crate) fn manifest(file: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("mirror/{file}"))
}

/// The stage of an object of this kind, and where it lives.
fn place(api_version: &str, kind: &str, namespace: &str, name: &str) -> (u8, String) {
    let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
    let space = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
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
    (stage, format!("{root}{space}/{plural}/{name}"))
}

/// An object of a file: its stage, where it lives, and its text.
fn placed(text: &str) -> Option<(u8, String, String)> {
    let top = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let metadata: Vec<&str> =
        text.lines().skip_while(|line| *line != "metadata:").skip(1).take_while(|line| line.starts_with(' ')).collect();
    let of = |key: &str| metadata.iter().find_map(|line| line.strip_prefix(key)).map(|it| it.trim().trim_matches('"'));
    let namespace = of("  namespace: ").unwrap_or_default();
    let (stage, path) = place(top("apiVersion: ")?, top("kind: ")?, namespace, of("  name: ")?);
    Some((stage, path, text.to_owned()))
}

/// The machines that a castle is to stand on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machines {
    /// How many; the first three are control planes.
    pub(crate) count: u32,
    /// Whether those that work have a disk of their own for Longhorn,
    pub(crate) has_data_disks: bool,
    /// and whether their configurations ask for a volume on it.
    pub(crate) wants_volumes: bool,
}

impl Stand {
    /// One in which nothing takes time: this many nodes, of which the first three are control planes.
    pub(crate) async fn quick(clock: &VirtualClock, count: u32) -> Self {
        Self::raise(clock, Blueprint::embedded(&[]).with_latencies(Latencies::none()), count).await
    }

    /// One of these machines in which nothing takes time, configured as castle does it.
    pub(crate) async fn on(clock: &VirtualClock, machines: Machines) -> Self {
        let nodes =
            Nodes::raise(clock, Blueprint::embedded(&[]).with_latencies(Latencies::none()), machines.count).await;
        let is_without_workers = machines.count <= 3;
        for (index, address) in nodes.addresses.iter().enumerate() {
            let (vmid, is_working) = (vmid(address), index >= 3 || is_without_workers);
            if is_working && machines.has_data_disks {
                let disk = [("scsi1", "local-lvm:20,serial=data")];
                nodes.site.put(&format!("/nodes/pve/qemu/{vmid}/config"), &disk).await;
            }
            nodes.until("maintenance", async || nodes.stage(index) == Some(Stage::Maintenance)).await;
            let mut config = nodes.castle.config(index < 3, &Wanted::default());
            if is_without_workers {
                let name = "  clusterName: blue\n";
                config = config.replace(name, &format!("{name}  allowSchedulingOnControlPlanes: true\n"));
            }
            if is_working && machines.wants_volumes {
                config += "---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: longhorn\nprovisioning:\n  \
                           diskSelector:\n    match: '!system_disk'\n  grow: true\n  minSize: 1GiB\n";
            }
            nodes.datacenter().configure_node(vmid, &config).unwrap();
        }
        nodes.bring_up_configured().await;
        let admin = nodes.castle.kubernetes_admin();
        Self { nodes, admin }
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
        self.install_all(text.split("\n---").filter_map(placed).collect()).await;
    }

    /// Applies castle's own manifest of a component, made to fit.
    pub(crate) async fn install_stand_in(&self, component: ComponentName, fit: &Fit) {
        let objects = adapt(component, &standin::objects(component), fit).unwrap();
        let placed = objects.iter().map(|object| {
            let (stage, path) =
                place(object.text("/apiVersion"), object.text("/kind"), object.namespace(), object.name());
            (stage, path, object.value().to_string())
        });
        self.install_all(placed.collect()).await;
    }

    async fn install_all(&self, mut all: Vec<(u8, String, String)>) {
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
