//! Whose everything is, on a live cluster.

use castle_kubernetes::model::{Key, Object, Owner};
use castle_kubernetes::steps::{inventories, rivals, survey};
use serde_json::json;

use crate::room::{Room, in_room, mark, object, well};

fn config(name: &str, value: &str) -> Object {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": value}}),
    )
}

async fn told(room: &Room, name: &str) -> (Vec<String>, bool) {
    let served = room.api.served().await.unwrap();
    let maps = served.called("configmaps").unwrap().clone();
    let found = survey(&room.api, &[maps]).await.unwrap();
    let one = found.into_iter().find(|ownership| ownership.key.name == name).unwrap();
    (one.claims.iter().map(|claim| claim.owner.to_string()).collect(), one.is_contested())
}

#[test]
fn every_kind_of_owner_is_told() {
    in_room(async |room| {
        well(&room.apply("x", &[config("mine", "1")]).await);
        assert_eq!(told(room, "mine").await, (vec!["castle (networking/x of blue)".to_owned()], false));

        let path = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
        assert_eq!(room.as_other("kubectl", &path("theirs"), config("theirs", "1").value()).await, 201);
        assert_eq!(told(room, "theirs").await, (vec!["a person (kubectl)".to_owned()], false));

        let mut helm = config("helm", "1").value().clone();
        helm["metadata"]["annotations"] =
            json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "apps"});
        assert_eq!(room.as_other("helm", &path("helm"), &helm).await, 201);
        assert_eq!(told(room, "helm").await, (vec!["Helm (release apps/web)".to_owned()], false));

        // What Kubernetes makes by itself is nobody's.
        assert_eq!(told(room, "kube-root-ca.crt").await, (Vec::new(), false));
    });
}

#[test]
fn two_who_say_the_same_quarrel_and_the_one_who_says_otherwise_is_named() {
    in_room(async |room| {
        well(&room.apply("x", &[config("a", "1")]).await);
        let path = "/api/v1/namespaces/default/configmaps/a";
        let mut flux = config("a", "1").value().clone();
        flux["metadata"]["labels"] =
            json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
        assert_eq!(room.as_other("kustomize-controller", path, &flux).await, 200);
        let (owners, is_contested) = told(room, "a").await;
        assert!(is_contested);
        assert_eq!(owners, ["castle (networking/x of blue)", "Flux (Kustomization flux-system/apps)"]);
        // Equal values make no rival; others do.
        assert_eq!(rivals(&room.api, &mark("x").on(config("a", "1"))).await.unwrap(), []);
        let found = rivals(&room.api, &mark("x").on(config("a", "2"))).await.unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|rival| (rival.manager.as_str(), rival.field.as_str())).collect();
        assert_eq!(found, [("kustomize-controller", ".data.a")]);
    });
}

#[test]
fn inventories_of_castle_flux_and_talos_are_read() {
    in_room(async |room| {
        let own = object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "castle-networking-x", "namespace": "kube-system"},
            "data": {"objects": "apps/Deployment/default/web\nnonsense"},
        }));
        well(&room.apply("x", &[own]).await);
        let talos = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "talos-bootstrap-manifests-inventory"},
            "data": {"kube-system_coredns_apps_Deployment": "sha256:0"},
        });
        let path = "/api/v1/namespaces/kube-system/configmaps/talos-bootstrap-manifests-inventory";
        assert!([200, 201].contains(&room.as_other("talos", path, &talos).await));
        let found = inventories(&room.api).await.unwrap();
        assert_eq!(found[&Key::new("apps", "Deployment", "default", "web")], [Owner::Castle(Some(mark("x")))].into());
        assert_eq!(found[&Key::new("apps", "Deployment", "kube-system", "coredns")], [Owner::Talos].into());
    });
}
