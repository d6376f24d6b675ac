//! What goes wrong while components are installed and updated, and how it shows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use castle_components::Fit;
use castle_datacenter::{Component, ComponentFault, EMBEDDED_GIT};
use castle_spec::ComponentName;
use castle_testbed::in_virtual_time;
use serde_json::json;

use crate::stand::{Machines, Stand, condition};
use crate::wire::vmid;

const URL: &str = "https://git.example.com/team/castle.git";
const FIT: Fit = Fit {
    replicas: 2,
    has_data_disks: true,
    is_without_workers: false,
    is_small: false,
    has_image_automation: false,
    has_source_watcher: false,
};

#[test]
fn a_repository_refuses_in_every_way() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        stand.install_stand_in(ComponentName::Flux, &FIT).await;
        let datacenter = stand.nodes.datacenter();
        datacenter.add_repository(URL, None);
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n";
        let files: BTreeMap<String, Vec<u8>> = [("apps/a.yaml".to_owned(), map.into())].into();
        datacenter.push(URL, "main", &files, "first");
        let repository = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "castle" },
            "spec": { "url": URL, "interval": "1m", "ref": { "branch": "main" } },
        });
        let path = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/castle";
        assert_eq!(stand.apply(path, &repository).await.0, 201);
        let spec = json!({
            "interval": "1m", "retryInterval": "10s", "path": "./apps", "prune": true,
            "sourceRef": { "kind": "GitRepository", "name": "castle" },
        });
        let apps = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "apps" }, "spec": spec,
        });
        let path = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/apps";
        assert_eq!(stand.apply(path, &apps).await.0, 201);
        let source = "gitrepositories.source.toolkit.fluxcd.io";
        let group = "kustomizations.kustomize.toolkit.fluxcd.io";
        for (fault, of, name, reason, why) in [
            (ComponentFault::GitUnreachable, source, "castle", "GitOperationFailed", "connection refused"),
            (ComponentFault::GitCredential, source, "castle", "GitOperationFailed", "authentication required"),
            (ComponentFault::GitEmpty, source, "castle", "GitOperationFailed", "repository is empty"),
            (ComponentFault::GitBranch, source, "castle", "GitOperationFailed", "couldn't find remote ref"),
            (ComponentFault::GitPath, group, "apps", "ArtifactFailed", "kustomization path not found"),
        ] {
            let ready = || condition(&stand.object(of, "flux-system", name), "Ready");
            stand.pause(600.0).await;
            assert_eq!(ready().0, "True", "before {fault:?}");
            assert!(datacenter.fail_component("blue", Component::Flux, fault, true));
            stand.pause(100.0).await;
            assert_eq!(ready(), ("False".to_owned(), reason.to_owned()), "{fault:?}");
            let told = stand.object(of, "flux-system", name)["status"]["conditions"].to_string();
            assert!(told.contains(why), "{told}");
            assert!(datacenter.fail_component("blue", Component::Flux, fault, false));
        }
    });
}

#[test]
fn a_folder_is_followed_and_says_why_it_cannot_be() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        stand.install_stand_in(ComponentName::Flux, &FIT).await;
        let folder = |text: &str| Ok(Some(BTreeMap::from([("a.yaml".to_owned(), text.as_bytes().to_vec())])));
        let told = Arc::new(Mutex::new(folder("a: 1")));
        let source = told.clone();
        let source = move |name: &str| if name == "blue" { source.lock().unwrap().clone() } else { Ok(None) };
        stand.nodes.datacenter().follow_repositories(EMBEDDED_GIT, Arc::new(source));
        let repository = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "castle" },
            "spec": { "url": format!("https://{EMBEDDED_GIT}/blue.git"), "interval": "1m", "ref": { "branch": "next" } },
        });
        let path = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/castle";
        assert_eq!(stand.apply(path, &repository).await.0, 201);
        let object = || stand.object("gitrepositories.source.toolkit.fluxcd.io", "flux-system", "castle");
        let revision = || object()["status"]["artifact"]["revision"].as_str().unwrap_or_default().to_owned();
        stand.pause(10.0).await;
        let first = revision();
        assert!(first.starts_with("next@sha1:"), "{}", object());
        *told.lock().unwrap() = folder("a: 2");
        stand.pause(90.0).await;
        assert_ne!(revision(), first, "a change is seen at the next look");
        *told.lock().unwrap() = Err("the folder gitops is gone".to_owned());
        stand.pause(90.0).await;
        assert_eq!(condition(&object(), "Ready"), ("False".to_owned(), "GitOperationFailed".to_owned()));
        assert!(object()["status"]["conditions"].to_string().contains("the folder gitops is gone"), "{}", object());
    });
}

#[test]
fn a_webhook_that_dies_in_an_update_refuses_until_it_is_back() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        stand.install_stand_in(ComponentName::Metallb, &FIT).await;
        stand.pause(5.0).await;
        let pool = async |addresses: &str| {
            let pool = json!({
                "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": { "name": "castle" },
                "spec": { "addresses": [addresses] },
            });
            stand.apply("/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools/castle", &pool).await
        };
        assert_eq!(pool("10.0.0.200/32").await.0, 201);
        let datacenter = stand.nodes.datacenter();
        assert!(datacenter.fail_component("blue", Component::MetalLb, ComponentFault::DeadWebhook, true));
        let newer = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "quay.io/metallb/controller:v0.16.2" }]);
        let path = "/apis/apps/v1/namespaces/metallb-system/deployments/controller";
        let told = stand.api().ask("PATCH", path, "application/json-patch+json", &newer.to_string()).await.unwrap();
        assert_eq!(told.0, 200, "{}", told.1);
        stand.pause(30.0).await;
        let deployment = stand.object("deployments.apps", "metallb-system", "controller");
        assert_eq!(deployment["status"]["updatedReplicas"], 1, "its Pods say nothing of it");
        assert_eq!(condition(&deployment, "Available").0, "True");
        let (status, why) = pool("10.0.0.200/31").await;
        assert!(status == 500 && why.contains("connection refused"), "{status} {why}");
        assert!(datacenter.fail_component("blue", Component::MetalLb, ComponentFault::DeadWebhook, false));
        stand.pause(5.0).await;
        assert_eq!(pool("10.0.0.200/31").await.0, 200);
    });
}

#[test]
fn a_node_that_is_lost_while_longhorn_is_installed_shows_and_comes_back() {
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 5, has_data_disks: true, wants_volumes: true }).await;
        let lost = vmid("10.0.0.5");
        stand.install_stand_in(ComponentName::Longhorn, &FIT).await;
        stand.nodes.datacenter().switch(lost, false);
        stand.pause(120.0).await;
        let set = || stand.object("daemonsets.apps", "longhorn-system", "longhorn-manager")["status"].clone();
        let numbers = (set()["desiredNumberScheduled"].clone(), set()["numberReady"].clone());
        assert_eq!(numbers, (json!(1), json!(1)), "a DaemonSet does not miss a node that is tainted as unreachable");
        let node = |name: &str| condition(&stand.object("nodes.longhorn.io", "longhorn-system", name), "Ready").0;
        assert_eq!(node("node-4"), "True");
        assert_ne!(node("node-5"), "True");
        stand.nodes.datacenter().switch(lost, true);
        stand.until("both managers", |_| set()["numberReady"] == 2).await;
        stand.until("its disk", |_| node("node-5") == "True").await;
    });
}
