//! The External Secrets Operator as its vendor ships it, beside the datacenter's vault.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::blueprint::Placed;
use castle_datacenter::{
    Blueprint, Component, ComponentFault, EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT,
    EMBEDDED_PROJECT, EMBEDDED_VAULT,
};
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Stand, condition, manifest};

const FILE: &str = "external-secrets-v2.9.0.yaml";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: external-secrets\n---\n";
const HOOKS: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const STORES: &str = "/apis/external-secrets.io/v1/clustersecretstores";
const SECRETS: &str = "/apis/external-secrets.io/v1/namespaces/default/externalsecrets";

fn store(namespace: Option<&str>, rules: &Value) -> Value {
    let reference = |key: &str| {
        let mut reference = json!({ "name": "identity", "key": key });
        if let Some(namespace) = namespace {
            reference["namespace"] = json!(namespace);
        }
        reference
    };
    let auth = json!({ "universalAuthCredentials": { "clientId": reference("clientId"), "clientSecret": reference("clientSecret") } });
    let scope = json!({ "projectSlug": EMBEDDED_PROJECT, "environmentSlug": EMBEDDED_ENVIRONMENT });
    let host = format!("https://{EMBEDDED_VAULT}");
    json!({
        "apiVersion": "external-secrets.io/v1", "kind": "ClusterSecretStore", "metadata": { "name": "vault" },
        "spec": { "conditions": rules, "provider": { "infisical": { "hostAPI": host, "auth": auth, "secretsScope": scope } } },
    })
}

async fn identity(stand: &Stand, client_secret: &str) {
    let data = json!({ "clientId": EMBEDDED_CLIENT_ID, "clientSecret": client_secret });
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "identity" }, "stringData": data });
    let path = "/api/v1/namespaces/external-secrets/secrets/identity";
    assert!(stand.apply(path, &secret).await.0 < 300);
}

fn external(name: &str, key: &str) -> Value {
    json!({
        "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": { "name": name },
        "spec": {
            "secretStoreRef": { "kind": "ClusterSecretStore", "name": "vault" },
            "data": [{ "secretKey": "token", "remoteRef": { "key": key } }],
        },
    })
}

fn bundles(stand: &Stand) -> Vec<Option<String>> {
    let all = ["secretstore-validate", "externalsecret-validate"].map(|name| stand.object(HOOKS, "", name));
    let hooks = all.iter().flat_map(|it| it["webhooks"].as_array().cloned().unwrap_or_default());
    hooks.map(|hook| hook["clientConfig"]["caBundle"].as_str().map(str::to_owned)).collect()
}

fn ready(stand: &Stand) -> (String, String) {
    condition(&stand.object("clustersecretstores.external-secrets.io", "", "vault"), "Ready")
}

fn said(pair: (&str, &str)) -> (String, String) {
    (pair.0.to_owned(), pair.1.to_owned())
}

#[test]
fn its_readiness_is_made_of_its_parts_and_a_store_is_proven() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::raise(clock, Blueprint::embedded(&[]), 4).await;
        stand.install(&format!("{NAMESPACE}{text}")).await;
        let is_ready = |stand: &Stand, name: &str| {
            stand.object("deployments.apps", "external-secrets", name)["status"]["readyReplicas"] == 1
        };
        stand.until("a ready process", |stand| is_ready(stand, "external-secrets-cert-controller")).await;
        assert!(is_ready(&stand, "external-secrets-webhook"), "its endpoint is what the other waits for");
        assert!(bundles(&stand).iter().any(Option::is_some));
        let authority =
            stand.object("secrets", "external-secrets", "external-secrets-webhook")["data"]["ca.crt"].clone();
        stand.until("bundles", |stand| bundles(stand).iter().all(|it| it.as_deref() == authority.as_str())).await;
        assert_eq!(bundles(&stand).len(), 3);
        identity(&stand, EMBEDDED_CLIENT_SECRET).await;
        let path = format!("{STORES}/vault");
        let (status, why) = stand.apply(&path, &store(None, &json!([]))).await;
        assert!(status == 403 && why.contains("cluster scope requires namespace"), "{status} {why}");
        assert_eq!(stand.apply(&path, &store(Some("external-secrets"), &json!([]))).await.0, 201);
        assert_eq!(ready(&stand).0, "", "nothing is said before it has looked");
        stand.until("a store", |stand| ready(stand) == said(("True", "Valid"))).await;
    });
}

#[test]
fn secrets_follow_the_vault_and_say_why_where_they_cannot() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let datacenter = stand.nodes.datacenter();
        let put = |value: &str| {
            let placed = Placed::new(EMBEDDED_ENVIRONMENT, "/", "TOKEN", value);
            datacenter.place_secret(EMBEDDED_VAULT, EMBEDDED_PROJECT, placed);
        };
        put("first");
        stand.install(&format!("{NAMESPACE}{text}")).await;
        stand.pause(1.0).await;
        identity(&stand, "wrong").await;
        let path = format!("{STORES}/vault");
        let rules = json!([{ "namespaces": ["default"] }]);
        assert_eq!(stand.apply(&path, &store(Some("external-secrets"), &rules)).await.0, 201);
        stand.pause(1.0).await;
        assert_eq!(ready(&stand), said(("False", "InvalidProviderConfig")));
        identity(&stand, EMBEDDED_CLIENT_SECRET).await;
        stand.pause(1.0).await;
        assert_eq!(ready(&stand), said(("True", "Valid")));
        for (name, key) in [("good", "TOKEN"), ("bad", "NONE")] {
            assert_eq!(stand.apply(&format!("{SECRETS}/{name}"), &external(name, key)).await.0, 201);
        }
        let elsewhere = SECRETS.replace("/default/", "/kube-system/");
        assert_eq!(stand.apply(&format!("{elsewhere}/good"), &external("good", "TOKEN")).await.0, 201);
        stand.pause(1.0).await;
        let state = |namespace: &str, name: &str| {
            condition(&stand.object("externalsecrets.external-secrets.io", namespace, name), "Ready")
        };
        assert_eq!(state("default", "good"), said(("True", "SecretSynced")));
        assert_eq!(state("default", "bad"), said(("False", "SecretSyncedError")));
        assert_eq!(state("kube-system", "good"), said(("False", "SecretSyncedError")));
        let token = || stand.object("secrets", "default", "good")["data"]["token"].clone();
        assert_eq!(token(), STANDARD.encode("first"));
        let target = stand.object("secrets", "default", "good");
        let managers = target["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().any(|it| it["manager"] == "externalsecrets.external-secrets.io/good"));
        assert!(target["metadata"]["labels"]["reconcile.external-secrets.io/created-by"].is_string());
        put("second");
        stand.pause(3_700.0).await;
        assert_eq!(token(), STANDARD.encode("second"), "it is fetched again every hour");
        assert!(datacenter.fail_component("blue", Component::ExternalSecrets, ComponentFault::InvalidStore, true));
        stand.pause(400.0).await;
        assert_eq!(ready(&stand), said(("False", "InvalidProviderConfig")));
        assert!(datacenter.fail_component("blue", Component::ExternalSecrets, ComponentFault::DeadWebhook, true));
        stand.pause(1.0).await;
        let (status, why) = stand.apply(&format!("{SECRETS}/more"), &external("more", "TOKEN")).await;
        assert!(status == 500 && why.contains("connection refused"), "{why}");
    });
}
