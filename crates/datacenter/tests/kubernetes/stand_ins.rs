//! Castle's own small manifests, made to fit as castle does it: they wake the same controllers as the vendors' do.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_components::Fit;
use castle_datacenter::blueprint::Placed;
use castle_datacenter::{
    EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT, EMBEDDED_VAULT,
};
use castle_spec::ComponentName;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Machines, Stand, condition};

/// Three control planes and two workers with disks; and one machine with nothing but itself.
const CASTLES: [(Machines, Fit); 2] = [
    (
        Machines { count: 5, has_data_disks: true, wants_volumes: true },
        Fit {
            replicas: 2,
            has_data_disks: true,
            is_without_workers: false,
            is_small: false,
            has_image_automation: false,
            has_source_watcher: false,
        },
    ),
    (
        Machines { count: 1, has_data_disks: false, wants_volumes: false },
        Fit {
            replicas: 1,
            has_data_disks: false,
            is_without_workers: true,
            is_small: true,
            has_image_automation: false,
            has_source_watcher: false,
        },
    ),
];

/// Installs a component into each castle, and looks.
#[expect(clippy::needless_pass_by_value, reason = "a closure reads better without a reference")]
fn within_each(component: ComponentName, look: impl AsyncFn(&Stand, &Fit)) {
    for (machines, fit) in CASTLES {
        in_virtual_time(async |clock| {
            let stand = Stand::on(clock, machines).await;
            stand.install_stand_in(component, &fit).await;
            stand.pause(30.0).await;
            look(&stand, &fit).await;
        });
    }
}

/// The nodes that work.
fn workers(fit: &Fit) -> &'static [&'static str] {
    if fit.is_without_workers { &["node-1"] } else { &["node-4", "node-5"] }
}

async fn made(stand: &Stand, path: &str, object: &Value) {
    let (status, why) = stand.apply(path, object).await;
    assert_eq!(status, 201, "{path}: {why}");
}

/// What is not as it should be with the Deployments and DaemonSets of a namespace.
fn unready(stand: &Stand, namespace: &str) -> Vec<String> {
    let mut late = Vec::new();
    for collection in ["deployments.apps", "daemonsets.apps"] {
        for place in stand.names(collection) {
            let Some(name) = place.strip_prefix(&format!("{namespace}/")) else { continue };
            let status = stand.object(collection, namespace, name)["status"].clone();
            let wanted = status["replicas"].as_i64().or(status["desiredNumberScheduled"].as_i64()).unwrap_or(0);
            let ready = status["readyReplicas"].as_i64().or(status["numberReady"].as_i64()).unwrap_or(0);
            if wanted == 0 || ready < wanted {
                late.push(format!("{name}: {ready} of {wanted}"));
            }
        }
    }
    late
}

#[test]
fn metallb_gives_an_address_and_announces_it() {
    within_each(ComponentName::Metallb, async |stand, fit| {
        assert_eq!(unready(stand, "metallb-system"), [""; 0]);
        let api = "/apis/metallb.io/v1beta1/namespaces/metallb-system";
        let object = |kind: &str, spec: &Value| json!({ "apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": { "name": "castle" }, "spec": spec });
        let pool = object("IPAddressPool", &json!({ "addresses": ["10.0.0.200-10.0.0.209"] }));
        made(stand, &format!("{api}/ipaddresspools/castle"), &pool).await;
        let advertisement = object("L2Advertisement", &json!({ "ipAddressPools": ["castle"] }));
        made(stand, &format!("{api}/l2advertisements/castle"), &advertisement).await;
        stand.app("web", "LoadBalancer", &json!({})).await;
        stand.pause(30.0).await;
        let service = stand.object("services", "default", "web");
        assert_eq!(service["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.200");
        let states = stand.names("configurationstates.metallb.io");
        let speakers = if fit.is_without_workers { 1 } else { 5 };
        assert_eq!(states.len(), 1 + speakers, "{states:?}");
        for state in states {
            let (namespace, name) = state.split_once('/').unwrap();
            let state = stand.object("configurationstates.metallb.io", namespace, name);
            assert_eq!(state["status"]["result"], "Valid", "{name}");
        }
        assert_eq!(stand.names("servicel2statuses.metallb.io").len(), 1, "somebody announces it");
        let wrong = object("IPAddressPool", &json!({ "addresses": ["10.0.0.9-10.0.0.1"] }));
        assert_eq!(stand.apply(&format!("{api}/ipaddresspools/castle"), &wrong).await.0, 403, "it is judged");
    });
}

#[test]
fn external_secrets_make_what_a_template_says_of_what_the_vault_holds() {
    within_each(ComponentName::ExternalSecrets, async |stand, _| {
        assert_eq!(unready(stand, "external-secrets"), [""; 0]);
        let placed = Placed::new(EMBEDDED_ENVIRONMENT, "/", "GIT_TOKEN", "t0ken");
        stand.nodes.datacenter().place_secret(EMBEDDED_VAULT, EMBEDDED_PROJECT, placed);
        let data = json!({ "clientId": EMBEDDED_CLIENT_ID, "clientSecret": EMBEDDED_CLIENT_SECRET });
        let identity =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "identity" }, "stringData": data });
        made(stand, "/api/v1/namespaces/external-secrets/secrets/identity", &identity).await;
        let reference = |key: &str| json!({ "name": "identity", "key": key, "namespace": "external-secrets" });
        let auth = json!({ "universalAuthCredentials": { "clientId": reference("clientId"), "clientSecret": reference("clientSecret") } });
        let scope = json!({ "projectSlug": EMBEDDED_PROJECT, "environmentSlug": EMBEDDED_ENVIRONMENT });
        let provider = json!({ "infisical": { "hostAPI": format!("https://{EMBEDDED_VAULT}"), "auth": auth, "secretsScope": scope } });
        let store = json!({
            "apiVersion": "external-secrets.io/v1", "kind": "ClusterSecretStore", "metadata": { "name": "infisical" },
            "spec": { "provider": provider },
        });
        made(stand, "/apis/external-secrets.io/v1/clustersecretstores/infisical", &store).await;
        let template = json!({ "type": "Opaque", "data": { "username": "git", "password": "{{ .token }}" } });
        let external = json!({
            "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": { "name": "flux-system" },
            "spec": {
                "refreshInterval": "1h", "secretStoreRef": { "kind": "ClusterSecretStore", "name": "infisical" },
                "target": { "name": "flux-system", "template": template },
                "data": [{ "secretKey": "token", "remoteRef": { "key": "GIT_TOKEN" } }],
            },
        });
        made(stand, "/apis/external-secrets.io/v1/namespaces/default/externalsecrets/flux-system", &external).await;
        stand.pause(60.0).await;
        let store = stand.object("clustersecretstores.external-secrets.io", "", "infisical");
        assert_eq!(condition(&store, "Ready").1, "Valid", "{store}");
        let external = stand.object("externalsecrets.external-secrets.io", "default", "flux-system");
        assert_eq!(condition(&external, "Ready").1, "SecretSynced", "{external}");
        let expected = json!({ "username": STANDARD.encode("git"), "password": STANDARD.encode("t0ken") });
        assert_eq!(stand.object("secrets", "default", "flux-system")["data"], expected, "the token itself is not kept");
    });
}

#[test]
fn longhorn_has_disks_and_binds_claims() {
    within_each(ComponentName::Longhorn, async |stand, fit| {
        const NAMESPACE: &str = "longhorn-system";
        stand.pause(60.0).await;
        assert_eq!(unready(stand, NAMESPACE), [""; 0]);
        for node in workers(fit) {
            let object = stand.object("nodes.longhorn.io", NAMESPACE, node);
            let disks: Vec<Value> = object["status"]["diskStatus"].as_object().unwrap().values().cloned().collect();
            assert_eq!(disks.len(), 1, "{node}");
            for of in [&object, &json!({ "status": disks[0] })] {
                assert_eq!(
                    ["Ready", "Schedulable"].map(|kind| condition(of, kind).0),
                    ["True", "True"],
                    "{node}: {of}"
                );
            }
        }
        let copies = if fit.is_small { 1 } else { 3 };
        for part in ["attacher", "provisioner", "resizer", "snapshotter"] {
            let deployment = stand.object("deployments.apps", NAMESPACE, &format!("csi-{part}"));
            assert_eq!(deployment["status"]["readyReplicas"], copies, "csi-{part}");
        }
        assert_eq!(stand.names("csinodes.storage.k8s.io").len(), workers(fit).len());
        assert_eq!(stand.object("csidrivers.storage.k8s.io", "", "driver.longhorn.io")["spec"]["attachRequired"], true);
        let class = stand.object("storageclasses.storage.k8s.io", "", "longhorn");
        assert_eq!(class["parameters"]["numberOfReplicas"], fit.replicas.to_string());
        let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" }, "spec": spec });
        made(stand, "/api/v1/namespaces/default/persistentvolumeclaims/data", &claim).await;
        stand.pause(30.0).await;
        assert_eq!(stand.object("persistentvolumeclaims", "default", "data")["status"]["phase"], "Bound");
        let volume = stand.names("volumes.longhorn.io")[0].split_once('/').unwrap().1.to_owned();
        assert_eq!(stand.object("volumes.longhorn.io", NAMESPACE, &volume)["status"]["robustness"], "healthy");
    });
}

#[test]
fn flux_follows_a_repository() {
    const URL: &str = "https://git.example.com/team/castle.git";
    within_each(ComponentName::Flux, async |stand, _| {
        assert_eq!(unready(stand, "flux-system"), [""; 0]);
        let datacenter = stand.nodes.datacenter();
        datacenter.add_repository(URL, None);
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {key: value}\n";
        let files: BTreeMap<String, Vec<u8>> = [("clusters/blue/a.yaml".to_owned(), map.into())].into();
        let id = datacenter.push(URL, "main", &files, "first");
        let repository = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "flux-system" },
            "spec": { "url": URL, "interval": "1m", "ref": { "branch": "main" } },
        });
        let api = |group: &str, plural: &str| {
            format!("/apis/{group}.toolkit.fluxcd.io/v1/namespaces/flux-system/{plural}/flux-system")
        };
        made(stand, &api("source", "gitrepositories"), &repository).await;
        let kustomization = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "flux-system" },
            "spec": {
                "interval": "10m", "retryInterval": "30s", "path": "./clusters/blue", "prune": true, "wait": true,
                "sourceRef": { "kind": "GitRepository", "name": "flux-system" },
            },
        });
        made(stand, &api("kustomize", "kustomizations"), &kustomization).await;
        stand.pause(60.0).await;
        let revision = format!("main@sha1:{id}");
        let repository = stand.object("gitrepositories.source.toolkit.fluxcd.io", "flux-system", "flux-system");
        assert_eq!(repository["status"]["artifact"]["revision"], revision);
        let kustomization = stand.object("kustomizations.kustomize.toolkit.fluxcd.io", "flux-system", "flux-system");
        assert_eq!(condition(&kustomization, "Ready"), ("True".to_owned(), "ReconciliationSucceeded".to_owned()));
        assert_eq!(kustomization["status"]["lastAppliedRevision"], revision);
        assert_eq!(stand.object("configmaps", "default", "a")["data"]["key"], "value");
    });
}
