use std::collections::BTreeSet;

use castle_kubernetes::model::manifest;
use serde_json::{Value, json};

use super::*;
use crate::fit::Fit;
use crate::known::adapt;
use crate::pins::PINS;
use crate::standin;

/// A castle of some size, and one that is as small as can be.
pub(crate) const FITS: [Fit; 2] = [
    Fit {
        replicas: 2,
        has_data_disks: true,
        is_without_workers: false,
        is_small: false,
        has_image_automation: false,
        has_source_watcher: false,
    },
    Fit {
        replicas: 1,
        has_data_disks: false,
        is_without_workers: true,
        is_small: true,
        has_image_automation: false,
        has_source_watcher: false,
    },
];

/// A file of the mirror; nothing where there is no mirror, which is never so in CI.
fn mirrored(file: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("mirror/{file}"))
}

/// What upstream has of a component, in the newest version.
pub(crate) fn upstream(component: ComponentName) -> Option<Vec<Object>> {
    let pin = PINS.iter().find(|pin| pin.component == component).unwrap();
    mirrored(pin.file).map(|text| manifest(&text).unwrap())
}

#[track_caller]
fn one<'o>(objects: &'o [Object], kind: &str, name: &str) -> &'o Object {
    let mut found = objects.iter().filter(|object| object.text("/kind") == kind && object.name() == name);
    let first = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "several {kind} {name}");
    first
}

fn both(component: ComponentName) -> Vec<Vec<Object>> {
    [Some(standin::objects(component)), upstream(component)].into_iter().flatten().collect()
}

#[test]
fn metallb_announces_from_control_planes_where_there_are_no_others() {
    for objects in both(ComponentName::Metallb) {
        let told = |fit: &Fit| {
            let adapted = adapt(ComponentName::Metallb, &objects, fit).unwrap();
            let arguments =
                one(&adapted, "DaemonSet", "speaker").list("/spec/template/spec/containers/0/args").to_vec();
            arguments.iter().filter(|argument| **argument == "--ignore-exclude-lb").count()
        };
        assert_eq!(FITS.map(|fit| told(&fit)), [0, 1]);
        let twice =
            adapt(ComponentName::Metallb, &adapt(ComponentName::Metallb, &objects, &FITS[1]).unwrap(), &FITS[1])
                .unwrap();
        let speaker = one(&twice, "DaemonSet", "speaker").clone();
        assert_eq!(
            speaker
                .list("/spec/template/spec/containers/0/args")
                .iter()
                .filter(|word| **word == "--ignore-exclude-lb")
                .count(),
            1
        );
    }
}

#[test]
fn longhorn_has_the_castles_copies_path_and_reserves() {
    for objects in both(ComponentName::Longhorn) {
        let [large, small] = FITS.map(|fit| adapt(ComponentName::Longhorn, &objects, &fit).unwrap());
        let held = |objects: &[Object], map: &str, entry: &str| {
            let text = one(objects, "ConfigMap", map).value()["data"][entry].as_str().unwrap().to_owned();
            castle_yaml::parse(&text).unwrap().remove(0)
        };
        let settings = |objects: &[Object]| held(objects, "longhorn-default-setting", "default-setting.yaml");
        let class = |objects: &[Object]| held(objects, "longhorn-storageclass", "storageclass.yaml");
        let of = |settings: Value| {
            [
                "default-replica-count",
                "default-data-path",
                "storage-minimal-available-percentage",
                "guaranteed-instance-manager-cpu",
                "priority-class",
            ]
            .map(|key| settings[key].clone())
        };
        let (path, class_name) = (json!("/var/mnt/longhorn"), json!("longhorn-critical"));
        assert_eq!(
            of(settings(&large)),
            [json!(r#"{"v1":"2","v2":"2"}"#), path.clone(), json!("10"), Value::Null, class_name.clone()]
        );
        assert_eq!(
            of(settings(&small)),
            [json!(r#"{"v1":"1","v2":"1"}"#), path, Value::Null, json!(r#"{"v1":"5","v2":"5"}"#), class_name]
        );
        assert_eq!(class(&large)["parameters"]["numberOfReplicas"], "2");
        assert_eq!(class(&small)["parameters"]["numberOfReplicas"], "1");
        assert_eq!(
            class(&large)["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"],
            "true",
            "still text"
        );
        for adapted in [&large, &small] {
            let namespace = one(adapted, "Namespace", "longhorn-system");
            assert_eq!(namespace.label("pod-security.kubernetes.io/enforce"), Some("privileged"));
        }
        assert_eq!(one(&large, "Deployment", "longhorn-ui").number("/spec/replicas"), Some(2));
        assert_eq!(one(&small, "Deployment", "longhorn-ui").number("/spec/replicas"), Some(1));
        let variables = |objects: &[Object]| {
            let deployer = one(objects, "Deployment", "longhorn-driver-deployer");
            deployer.list("/spec/template/spec/containers/0/env").iter().filter(|one| one["value"] == "1").count()
        };
        assert_eq!((variables(&large), variables(&small)), (0, 4));
    }
}

#[test]
fn external_secrets_gets_a_namespace_of_its_own() {
    let Some(text) = mirrored("external-secrets-v2.9.0.yaml") else { return };
    let adapted = adapt(ComponentName::ExternalSecrets, &manifest(&text).unwrap(), &FITS[0]).unwrap();
    assert_eq!(adapted.len(), 45);
    // As upstream publishes it: rendered into the namespace `default`.
    let elsewhere = text
        .replace("namespace: external-secrets\n", "namespace: default\n")
        .replace("namespace: \"external-secrets\"\n", "namespace: \"default\"\n")
        .replace("-namespace=external-secrets\n", "-namespace=default\n")
        .replace("external-secrets-webhook.external-secrets.svc", "external-secrets-webhook.default.svc");
    let elsewhere = manifest(&elsewhere).unwrap();
    let of_default = elsewhere.iter().filter(|object| object.namespace() == "default").count();
    assert!(of_default > 8, "{of_default}");
    let moved = adapt(ComponentName::ExternalSecrets, &elsewhere, &FITS[0]).unwrap();
    for (moved, expected) in moved.iter().zip(&adapted) {
        assert_eq!(moved.value(), expected.value());
    }
    assert_eq!(moved.len(), adapted.len());
    for object in &adapted {
        assert_eq!(object.label("app.kubernetes.io/managed-by"), None, "{object:?}");
        assert_eq!(object.label("helm.sh/chart"), None, "{object:?}");
    }
    // And without any namespace, as whoever renders it with another tool may have it.
    let bare = text.replace("  namespace: external-secrets\n  labels", "  labels");
    let bare: Vec<Object> = manifest(&bare).unwrap();
    assert!(bare.iter().any(|object| object.text("/kind") == "Service" && object.namespace().is_empty()));
    let told = adapt(ComponentName::ExternalSecrets, &bare, &FITS[0]).unwrap_err().to_string();
    assert!(told.contains("no subject in namespace default of ClusterRoleBinding"), "{told}");
}

#[test]
fn flux_has_the_controllers_that_are_wanted() {
    let controllers = |objects: &[Object]| -> BTreeSet<String> {
        let deployments = objects.iter().filter(|object| object.text("/kind") == "Deployment");
        deployments.map(|object| object.name().to_owned()).collect()
    };
    let four: BTreeSet<String> =
        ["helm-controller", "kustomize-controller", "notification-controller", "source-controller"]
            .map(str::to_owned)
            .into();
    let Some(text) = mirrored("flux-v2.8.8-install.yaml") else { return };
    let all = manifest(&text).unwrap();
    assert_eq!(controllers(&all).len(), 7);
    let few = adapt(ComponentName::Flux, &all, &FITS[0]).unwrap();
    assert_eq!(controllers(&few), four);
    let more = adapt(ComponentName::Flux, &all, &Fit { has_image_automation: true, ..FITS[0] }).unwrap();
    assert_eq!(controllers(&more).len(), 6);
    for (objects, images) in [(&few, false), (&more, true)] {
        let text: String = objects
            .iter()
            .filter(|object| object.text("/kind") != "ClusterRole")
            .map(|object| object.value().to_string())
            .collect();
        assert!(!text.contains("source-watcher"));
        assert_eq!(text.contains("image-reflector-controller"), images);
        assert_eq!(text.contains("imagepolicies"), images);
    }
    assert_eq!((few.len(), more.len()), (32, 39));
    let watching = adapt(ComponentName::Flux, &all, &Fit { has_source_watcher: true, ..FITS[0] }).unwrap();
    assert_eq!((controllers(&watching).len(), watching.len()), (5, 36), "with its account, service and kind");
    let Some(newest) = upstream(ComponentName::Flux) else { return };
    let told = adapt(ComponentName::Flux, &newest, &Fit { has_image_automation: true, ..FITS[0] }).unwrap_err();
    assert!(
        told.to_string().contains("no Deployment image-reflector-controller, which castle needs to follow image tags"),
        "{told}"
    );
    let told = adapt(ComponentName::Flux, &newest, &Fit { has_source_watcher: true, ..FITS[0] }).unwrap_err();
    assert!(told.to_string().contains("no Deployment source-watcher, which castle needs to make sources"), "{told}");
    let small = adapt(ComponentName::Flux, &newest, &FITS[1]).unwrap();
    let cpu = |name: &str| {
        one(&small, "Deployment", name).text("/spec/template/spec/containers/0/resources/requests/cpu").to_owned()
    };
    assert_eq!(four.iter().map(|name| cpu(name)).collect::<Vec<_>>(), ["10m"; 4]);
}

/// Whatever is missing of what castle changes is named.
#[test]
fn a_manifest_that_has_become_another_is_refused() {
    let without = |component: ComponentName, place: &str, fit: &Fit| {
        let (whole, pointer) = place.split_once(' ').unwrap_or((place, ""));
        let (kind, name) = whole.split_once('/').unwrap();
        let mut values: Vec<Value> = standin::objects(component).iter().map(|object| object.value().clone()).collect();
        let index = values.iter().position(|value| value["kind"] == kind && value["metadata"]["name"] == name).unwrap();
        if pointer.is_empty() {
            values.remove(index);
        } else {
            *values[index].pointer_mut(pointer).unwrap() = json!("something else");
        }
        let objects: Vec<Object> = values.into_iter().map(|value| Object::new(value).unwrap()).collect();
        let told = adapt(component, &objects, fit).unwrap_err().to_string();
        told.split("; versions").next().unwrap().to_owned()
    };
    use ComponentName::{ExternalSecrets, Flux, Longhorn, Metallb};
    let (fit, small) = (&FITS[0], &FITS[1]);
    let all = [
        without(ExternalSecrets, "Deployment/external-secrets", fit),
        without(ExternalSecrets, "ClusterRoleBinding/external-secrets-controller /subjects/0/namespace", fit),
        without(ExternalSecrets, "RoleBinding/external-secrets-leaderelection", fit),
        without(ExternalSecrets, "ValidatingWebhookConfiguration/secretstore-validate /webhooks/1/clientConfig", fit),
        without(ExternalSecrets, "ValidatingWebhookConfiguration/externalsecret-validate /webhooks", fit),
        without(
            ExternalSecrets,
            "Deployment/external-secrets-cert-controller /spec/template/spec/containers/0/args/4",
            fit,
        ),
        without(ExternalSecrets, "Deployment/external-secrets-webhook /spec/template/spec/containers/0/args", fit),
        without(Metallb, "Namespace/metallb-system", fit),
        without(Metallb, "DaemonSet/speaker /spec/template/spec/containers/0/name", fit),
        without(Metallb, "DaemonSet/speaker /spec/template/spec/containers/0/args", fit),
        without(Longhorn, "Namespace/longhorn-system", fit),
        without(Longhorn, "ConfigMap/longhorn-default-setting", fit),
        without(Longhorn, "ConfigMap/longhorn-default-setting /data", fit),
        without(Longhorn, "ConfigMap/longhorn-default-setting /data/default-setting.yaml", fit),
        without(Longhorn, "ConfigMap/longhorn-storageclass /data/storageclass.yaml", fit),
        without(Longhorn, "Deployment/longhorn-ui", small),
        without(Longhorn, "Deployment/longhorn-driver-deployer /spec/template/spec/containers/0/env", small),
        without(Flux, "Deployment/helm-controller", fit),
        without(Flux, "Deployment/source-controller /spec/template/spec/containers/0/resources", small),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
