//! The repository that `castle new` stamps, reconciled by Flux from castle's own manifest of it.

use std::collections::BTreeMap;
use std::path::Path;

use castle_components::Fit;
use castle_gitops::Tree;
use castle_seams::SystemDisk;
use castle_spec::ComponentName;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Machines, Stand, condition};

const URL: &str = "https://git.example.com/team/castle.git";
const KUSTOMIZATIONS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

/// The template as it is stamped for a project.
fn stamped(project: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates/gitops");
    let tree = Tree::of_folder(&SystemDisk, &folder).unwrap();
    let stamp = |text: &str| text.replace("PROJECT", project);
    tree.below("").map(|(path, bytes)| (stamp(path), stamp(std::str::from_utf8(bytes).unwrap()).into_bytes())).collect()
}

/// What castle makes beside Flux itself.
async fn follow(stand: &Stand) {
    let datacenter = stand.nodes.datacenter();
    datacenter.add_repository(URL, None);
    datacenter.push(URL, "main", &stamped("blue"), "first");
    let named = |api_version: &str, kind: &str, name: &str| json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
    let mut variables = named("v1", "ConfigMap", "cluster-vars");
    variables["data"] = json!({ "castle_name": "blue" });
    let mut repository = named("source.toolkit.fluxcd.io/v1", "GitRepository", "flux-system");
    repository["spec"] = json!({ "url": URL, "interval": "1m", "ref": { "branch": "main" } });
    let mut entry = named("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system");
    entry["spec"] = json!({
        "interval": "10m", "retryInterval": "30s", "path": "./clusters/blue", "prune": true,
        "sourceRef": { "kind": "GitRepository", "name": "flux-system" },
    });
    for (path, object) in [
        ("/api/v1/namespaces/flux-system/configmaps/cluster-vars", &variables),
        ("/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/flux-system", &repository),
        ("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/flux-system", &entry),
    ] {
        let (status, why) = stand.apply(path, object).await;
        assert_eq!(status, 201, "{path}: {why}");
    }
}

/// Every Kustomization, with what it says of itself.
fn states(stand: &Stand) -> BTreeMap<String, (String, String)> {
    let names = stand.names(KUSTOMIZATIONS);
    let names = names.iter().filter_map(|place| place.strip_prefix("flux-system/"));
    names
        .map(|name| (name.to_owned(), condition(&stand.object(KUSTOMIZATIONS, "flux-system", name), "Ready")))
        .collect()
}

/// The nodes of the blog's Pods, and those Pods that have none.
fn blog(stand: &Stand) -> (Vec<String>, Vec<Value>) {
    let pods = stand.names("pods");
    let pods =
        pods.iter().filter_map(|place| place.strip_prefix("blog/")).map(|name| stand.object("pods", "blog", name));
    let (placed, waiting): (Vec<Value>, Vec<Value>) = pods.partition(|pod| pod["spec"]["nodeName"].is_string());
    let mut nodes: Vec<String> =
        placed.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
    nodes.sort();
    (nodes, waiting)
}

const FIT: Fit = Fit {
    replicas: 2,
    has_data_disks: false,
    is_without_workers: false,
    is_small: false,
    has_image_automation: false,
    has_source_watcher: false,
};

async fn raised(clock: &castle_testbed::VirtualClock, count: u32) -> Stand {
    let stand = Stand::on(clock, Machines { count, has_data_disks: false, wants_volumes: false }).await;
    stand.install_stand_in(ComponentName::Flux, &FIT).await;
    stand.pause(30.0).await;
    follow(&stand).await;
    stand.pause(400.0).await;
    stand
}

#[test]
fn the_template_reconciles_with_the_blog_on_three_workers() {
    in_virtual_time(async |clock| {
        let stand = raised(clock, 6).await;
        let ready = ("True".to_owned(), "ReconciliationSucceeded".to_owned());
        let expected = ["blog", "config", "controllers", "flux-system"].map(|name| (name.to_owned(), ready.clone()));
        assert_eq!(states(&stand), BTreeMap::from(expected), "{}", stand.object(KUSTOMIZATIONS, "flux-system", "blog"));
        assert_eq!(blog(&stand), (["node-4", "node-5", "node-6"].map(str::to_owned).to_vec(), Vec::new()));
        let deployment = stand.object("deployments.apps", "blog", "blog");
        assert_eq!(deployment["status"]["readyReplicas"], 3);
        let volumes = deployment["spec"]["template"]["spec"]["volumes"].to_string();
        let map = stand
            .names("configmaps")
            .into_iter()
            .find_map(|place| place.strip_prefix("blog/nginx-").map(str::to_owned));
        assert!(volumes.contains(&format!("nginx-{}", map.unwrap())), "the generated name is used: {volumes}");
        for (place, kind) in [("cert-manager/cert-manager", "True"), ("traefik/traefik", "True")] {
            let (namespace, name) = place.split_once('/').unwrap();
            let release = stand.object("helmreleases.helm.toolkit.fluxcd.io", namespace, name);
            assert_eq!(condition(&release, "Ready").0, kind, "{release}");
        }
        let issuer = stand.object("clusterissuers.cert-manager.io", "", "letsencrypt");
        assert_eq!(issuer["spec"]["acme"]["email"], "admin@example.org", "a default is substituted");
        let hugo = deployment["spec"]["template"]["spec"]["containers"][1]["args"][0].as_str().unwrap();
        assert!(hugo.contains("$fetched") && hugo.contains("https://blog.example.org/"), "{hugo}");
    });
}

#[test]
fn with_fewer_workers_the_blog_shares_them_and_without_any_it_waits() {
    in_virtual_time(async |clock| {
        let stand = raised(clock, 5).await;
        let (nodes, waiting) = blog(&stand);
        assert_eq!((nodes.len(), waiting.len()), (3, 0));
        assert!(["node-4", "node-5"].iter().all(|node| nodes.iter().any(|own| own == node)), "{nodes:?}");
    });
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 6, has_data_disks: false, wants_volumes: false }).await;
        stand.install_stand_in(ComponentName::Flux, &FIT).await;
        stand.pause(30.0).await;
        for node in ["node-4", "node-5", "node-6"] {
            let taint = json!({ "spec": { "taints": [{ "key": "full", "effect": "NoSchedule" }] } });
            stand.merge(&format!("/api/v1/nodes/{node}"), &taint).await;
        }
        follow(&stand).await;
        stand.pause(300.0).await;
        let failed = ("False".to_owned(), "HealthCheckFailed".to_owned());
        stand.until("a failure", |stand| states(stand)["controllers"] == failed).await;
        let states = states(&stand);
        assert_eq!(states["blog"], ("False".to_owned(), "DependencyNotReady".to_owned()));
        let (_, waiting) = blog(&stand);
        assert!(waiting.is_empty(), "nobody has got that far");
    });
}
