//! Flux as its vendor ships it, and a repository beside the datacenter.

use std::collections::BTreeMap;

use castle_datacenter::{Blueprint, Component, ComponentFault};
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Stand, condition, manifest};

const FILE: &str = "flux-v2.9.0-components.yaml";
const URL: &str = "https://git.example.com/team/castle.git";
const REPOSITORIES: &str = "gitrepositories.source.toolkit.fluxcd.io";
const KUSTOMIZATIONS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

fn files(all: &[(&str, String)]) -> BTreeMap<String, Vec<u8>> {
    all.iter().map(|(path, text)| ((*path).to_owned(), text.clone().into_bytes())).collect()
}

fn config(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: default\ndata:\n  key: '{value}'\n"
    )
}

fn deployment(name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: default\nspec:\n  selector:\n    matchLabels: {{app: {name}}}\n  \
         template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n      containers:\n      - {{name: main, image: 'example.com/{name}:1'}}\n"
    )
}

async fn repository(stand: &Stand) {
    let data = json!({ "username": "git", "password": "t0ken" });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "auth" }, "stringData": data });
    assert!(stand.apply("/api/v1/namespaces/flux-system/secrets/auth", &secret).await.0 < 300);
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "castle" },
        "spec": { "url": URL, "interval": "1m", "ref": { "branch": "main" }, "secretRef": { "name": "auth" } },
    });
    let path = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/castle";
    assert!(stand.apply(path, &object).await.0 < 300);
}

fn path_of(name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/{name}")
}

async fn kustomization(stand: &Stand, name: &str, more: &Value) {
    let mut spec = json!({
        "interval": "10m", "retryInterval": "1m", "path": format!("./{name}"), "prune": true,
        "sourceRef": { "kind": "GitRepository", "name": "castle" },
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key.as_str()] = value.clone();
    }
    let object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": name }, "spec": spec,
    });
    let told = stand.apply(&path_of(name), &object).await;
    assert!(told.0 < 300, "{told:?}");
}

fn state(stand: &Stand, name: &str) -> (String, String) {
    condition(&stand.object(KUSTOMIZATIONS, "flux-system", name), "Ready")
}

fn source(stand: &Stand) -> (String, String) {
    condition(&stand.object(REPOSITORIES, "flux-system", "castle"), "Ready")
}

fn said(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn message(stand: &Stand, name: &str) -> String {
    stand.object(KUSTOMIZATIONS, "flux-system", name)["status"]["conditions"].to_string()
}

async fn installed(stand: &Stand, text: &str) {
    stand.install(text).await;
    stand.pause(1.0).await;
    stand.nodes.datacenter().add_repository(URL, Some("t0ken"));
}

#[test]
fn what_is_pushed_is_applied_by_force_and_what_is_removed_is_pruned() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        installed(&stand, &text).await;
        let datacenter = stand.nodes.datacenter();
        let first = [
            ("apps/a.yaml", config("a", "1")),
            ("apps/b.yaml", config("b", "1")),
            ("apps/web.yaml", deployment("web")),
        ];
        let id = datacenter.push(URL, "main", &files(&first), "first");
        repository(&stand).await;
        kustomization(&stand, "apps", &json!({ "wait": true })).await;
        stand.pause(5.0).await;
        let revision = format!("main@sha1:{id}");
        assert_eq!(stand.object(REPOSITORIES, "flux-system", "castle")["status"]["artifact"]["revision"], revision);
        assert_eq!(state(&stand, "apps"), said("True", "ReconciliationSucceeded"), "{}", message(&stand, "apps"));
        let status = stand.object(KUSTOMIZATIONS, "flux-system", "apps")["status"].clone();
        assert_eq!((&status["lastAppliedRevision"], &status["observedGeneration"]), (&json!(revision), &json!(1)));
        let ids: Vec<&str> =
            status["inventory"]["entries"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
        assert_eq!(ids, ["default_a__ConfigMap", "default_b__ConfigMap", "default_web_apps_Deployment"]);
        let made = stand.object("configmaps", "default", "a");
        assert_eq!(made["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"], "apps");
        let managers = made["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().any(|it| it["manager"] == "kustomize-controller" && it["operation"] == "Apply"));
        stand.merge("/api/v1/namespaces/default/configmaps/a", &json!({ "data": { "key": "mine" } })).await;
        let id = datacenter.push(URL, "main", &files(&[("apps/a.yaml", config("a", "2"))]), "second");
        stand.pause(70.0).await;
        assert_eq!(stand.object("configmaps", "default", "a")["data"]["key"], 2.to_string(), "it takes by force");
        assert!(
            stand.object("configmaps", "default", "b").is_null()
                && stand.object("deployments.apps", "default", "web").is_null()
        );
        let revision = format!("main@sha1:{id}");
        assert_eq!(stand.object(KUSTOMIZATIONS, "flux-system", "apps")["status"]["lastAppliedRevision"], revision);
        stand.merge(&path_of("apps"), &json!({ "spec": { "suspend": true } })).await;
        datacenter.push(URL, "main", &files(&[("apps/c.yaml", config("c", "1"))]), "third");
        stand.pause(700.0).await;
        assert!(stand.object("configmaps", "default", "c").is_null(), "nothing is done while it is suspended");
        let wish = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } }, "spec": { "suspend": false } });
        stand.merge(&path_of("apps"), &wish).await;
        stand.pause(1.0).await;
        assert_eq!(stand.object(KUSTOMIZATIONS, "flux-system", "apps")["status"]["lastHandledReconcileAt"], "now");
        assert_eq!(stand.object("configmaps", "default", "c")["data"]["key"], "1");
        let (status, _) = stand.api().ask("DELETE", &path_of("apps"), "", "").await.unwrap();
        assert_eq!(status, 200);
        stand.pause(1.0).await;
        assert!(stand.object("configmaps", "default", "c").is_null(), "its objects go with it");
        assert!(stand.object(KUSTOMIZATIONS, "flux-system", "apps").is_null());
    });
}

#[test]
fn a_repository_that_cannot_be_read_says_why() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        installed(&stand, &text).await;
        let datacenter = stand.nodes.datacenter();
        repository(&stand).await;
        kustomization(&stand, "apps", &json!({})).await;
        let why = || stand.object(REPOSITORIES, "flux-system", "castle")["status"]["conditions"].to_string();
        stand.pause(1.0).await;
        assert_eq!(source(&stand), said("False", "GitOperationFailed"));
        assert!(why().contains("remote repository is empty"), "{}", why());
        assert_eq!(state(&stand, "apps"), said("False", "ArtifactFailed"));
        datacenter.push(URL, "other", &files(&[("apps/a.yaml", config("a", "1"))]), "first");
        stand.pause(400.0).await;
        assert!(why().contains("couldn't find remote ref"), "{}", why());
        datacenter.push(URL, "main", &files(&[("apps/a.yaml", config("a", "1"))]), "first");
        stand.pause(400.0).await;
        assert_eq!(source(&stand), said("True", "Succeeded"));
        assert_eq!(state(&stand, "apps"), said("True", "ReconciliationSucceeded"));
        datacenter.add_repository(URL, Some("another"));
        stand.pause(70.0).await;
        assert!(why().contains("authentication required"), "{}", why());
        datacenter.git_down("git.example.com", true);
        stand.pause(400.0).await;
        assert!(why().contains("connection refused"), "{}", why());
        assert_eq!(state(&stand, "apps").0, "True", "what was applied stays");
    });
}

#[test]
fn kustomizations_wait_for_each_other_and_for_health_and_are_strict() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::raise(clock, Blueprint::embedded(&[]), 4).await;
        stand.install(&text).await;
        let datacenter = stand.nodes.datacenter();
        datacenter.add_repository(URL, Some("t0ken"));
        let tree = [
            ("base/web.yaml", deployment("web")),
            ("apps/a.yaml", config("a", "${colour}")),
            ("crds/x.yaml", "apiVersion: nowhere.example.com/v1\nkind: X\nmetadata:\n  name: x\n".to_owned()),
        ];
        datacenter.push(URL, "main", &files(&tree), "first");
        stand
            .until("Flux", |stand| {
                let all = ["source-controller", "kustomize-controller"]
                    .map(|name| stand.object("deployments.apps", "flux-system", name));
                all.iter().all(|it| it["status"]["readyReplicas"] == 1)
            })
            .await;
        repository(&stand).await;
        kustomization(&stand, "base", &json!({ "wait": true, "timeout": "2m" })).await;
        kustomization(
            &stand,
            "apps",
            &json!({ "dependsOn": [{ "name": "base" }], "postBuild": { "substitute": { "size": "1" } } }),
        )
        .await;
        kustomization(&stand, "crds", &json!({})).await;
        kustomization(&stand, "none", &json!({})).await;
        stand.until("a dependency", |stand| state(stand, "apps") == said("False", "DependencyNotReady")).await;
        assert_ne!(state(&stand, "base").0, "True", "a pod is pulled first");
        stand.until("health", |stand| state(stand, "base") == said("True", "ReconciliationSucceeded")).await;
        stand.until("a build", |stand| state(stand, "apps") == said("False", "BuildFailed")).await;
        assert!(message(&stand, "apps").contains("variable not set (strict mode)"), "{}", message(&stand, "apps"));
        assert_eq!(state(&stand, "crds"), said("False", "ReconciliationFailed"), "{}", message(&stand, "crds"));
        assert_eq!(state(&stand, "none"), said("False", "ArtifactFailed"));
        stand
            .merge(&path_of("apps"), &json!({ "spec": { "postBuild": { "substitute": { "colour": "blue" } } } }))
            .await;
        stand.until("a value", |stand| state(stand, "apps").0 == "True").await;
        assert_eq!(stand.object("configmaps", "default", "a")["data"]["key"], "blue");
        assert!(datacenter.fail_component("blue", Component::Flux, ComponentFault::FailedHealthChecks, true));
        let wish = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "again" } } });
        stand.merge(&path_of("base"), &wish).await;
        stand.until("a failure", |stand| state(stand, "base") == said("False", "HealthCheckFailed")).await;
        assert!(datacenter.fail_component("blue", Component::Flux, ComponentFault::FailedHealthChecks, false));
        stand.until("health", |stand| state(stand, "base").0 == "True").await;
    });
}

#[test]
fn a_release_of_a_known_chart_is_ready_when_its_pods_are() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        installed(&stand, &text).await;
        for (name, chart) in [("ingress", "traefik"), ("odd", "unheard-of")] {
            let spec = json!({
                "interval": "10m", "targetNamespace": "default",
                "chart": { "spec": { "chart": chart, "version": "1.0.0", "sourceRef": { "kind": "HelmRepository", "name": "charts" } } },
            });
            let release = json!({
                "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": name }, "spec": spec,
            });
            let path = format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases/{name}");
            assert_eq!(stand.apply(&path, &release).await.0, 201);
        }
        stand.pause(2.0).await;
        let ready =
            |name: &str| condition(&stand.object("helmreleases.helm.toolkit.fluxcd.io", "flux-system", name), "Ready");
        assert_eq!(ready("ingress"), said("True", "InstallSucceeded"));
        assert_eq!(ready("odd"), said("False", "InstallFailed"));
        let made = stand.object("deployments.apps", "default", "traefik");
        assert_eq!(made["metadata"]["annotations"]["meta.helm.sh/release-name"], "ingress");
    });
}
