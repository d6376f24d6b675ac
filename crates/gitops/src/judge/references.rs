//! Secrets, ConfigMaps and stores that objects name: somebody must make them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Case, Code, Finding};
use crate::kinds::COMPONENTS;
use crate::object::Object;

/// Where the Pods of a kind are.
const PODS: &[(&str, &str)] = &[
    ("Pod", "/spec"),
    ("Deployment", "/spec/template/spec"),
    ("ReplicaSet", "/spec/template/spec"),
    ("DaemonSet", "/spec/template/spec"),
    ("StatefulSet", "/spec/template/spec"),
    ("Job", "/spec/template/spec"),
    ("CronJob", "/spec/jobTemplate/spec/template/spec"),
];
/// Groups whose objects make no Secrets but those that are told here.
const PREDICTABLE: &[&str] = &[
    "acme.cert-manager.io",
    "cert-manager.io",
    "external-secrets.io",
    "helm.toolkit.fluxcd.io",
    "image.toolkit.fluxcd.io",
    "kustomize.toolkit.fluxcd.io",
    "longhorn.io",
    "metallb.io",
    "notification.toolkit.fluxcd.io",
    "source.toolkit.fluxcd.io",
    "traefik.io",
];

/// Something that an object needs.
struct Need {
    /// `Secret`, `ConfigMap`, `SecretStore` or `ClusterSecretStore`.
    kind: &'static str,
    namespace: String,
    name: String,
    pointer: String,
}

type Made = BTreeSet<(&'static str, String, String)>;

pub(super) fn judge(case: &mut Case<'_>) {
    let made = made(case);
    let mut found = Vec::new();
    for (_, object) in case.forest.objects() {
        let mut told = BTreeSet::new();
        for need in needs(object) {
            let key = (need.kind, need.namespace.clone(), need.name.clone());
            if !made.contains(&key) && told.insert(key) {
                found.push(missing(case, object, &need));
            }
        }
    }
    case.findings.extend(found);
}

/// All that castle and the repository make.
fn made(case: &Case<'_>) -> Made {
    let mut made = Made::new();
    made.extend(case.world.secrets.iter().map(|(namespace, name)| ("Secret", namespace.clone(), name.clone())));
    made.extend(case.world.config_maps.keys().map(|(namespace, name)| ("ConfigMap", namespace.clone(), name.clone())));
    made.extend(case.world.stores.iter().map(|name| ("ClusterSecretStore", String::new(), name.clone())));
    for (_, object) in case.forest.objects() {
        let reference = object.reference();
        let runs = matches!(object.kind(), "Deployment" | "DaemonSet");
        for component in COMPONENTS.iter().filter(|it| runs && object.name().contains(it.workload)) {
            made.extend(
                component.secrets.iter().map(|name| ("Secret", reference.namespace.clone(), (*name).to_owned())),
            );
        }
        let mut add = |kind, name: &str| {
            made.insert((kind, reference.namespace.clone(), name.to_owned()));
        };
        let or_own = |pointer: &str| Some(object.text(pointer)).filter(|it| !it.is_empty()).unwrap_or(object.name());
        match (object.group(), object.kind()) {
            ("", "Secret") | ("bitnami.com", "SealedSecret") => add("Secret", object.name()),
            ("", "ConfigMap") => add("ConfigMap", object.name()),
            ("external-secrets.io", "ExternalSecret") => add("Secret", or_own("/spec/target/name")),
            ("external-secrets.io", "SecretStore") => add("SecretStore", object.name()),
            ("external-secrets.io", "ClusterSecretStore") => add("ClusterSecretStore", object.name()),
            ("cert-manager.io", "Certificate") => add("Secret", object.text("/spec/secretName")),
            ("cert-manager.io", _) => add("Secret", object.text("/spec/acme/privateKeySecretRef/name")),
            ("networking.k8s.io", "Ingress") if is_certified(object) => {
                for tls in object.list("/spec/tls") {
                    add("Secret", tls["secretName"].as_str().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    made
}

/// Whether cert-manager makes the certificates of an Ingress.
fn is_certified(ingress: &Object) -> bool {
    let annotations = ingress.value.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/")))
}

fn needs(object: &Object) -> Vec<Need> {
    let namespace = object.reference().namespace;
    let mut needs = Vec::new();
    let mut add = |kind, name: Option<&str>, pointer: String| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            needs.push(Need { kind, namespace: namespace.clone(), name: name.to_owned(), pointer });
        }
    };
    if let Some((_, place)) = PODS.iter().find(|(kind, _)| *kind == object.kind()) {
        pods(object.value.pointer(place).unwrap_or(&Value::Null), place, &mut add);
    }
    match (object.group(), object.kind()) {
        ("networking.k8s.io", "Ingress") => {
            for (index, tls) in object.list("/spec/tls").enumerate() {
                add("Secret", tls["secretName"].as_str(), format!("/spec/tls/{index}/secretName"));
            }
        }
        ("traefik.io", _) => {
            add("Secret", Some(object.text("/spec/tls/secretName")), "/spec/tls/secretName".to_owned());
        }
        ("source.toolkit.fluxcd.io" | "notification.toolkit.fluxcd.io", _) => {
            add("Secret", Some(object.text("/spec/secretRef/name")), "/spec/secretRef".to_owned());
        }
        ("kustomize.toolkit.fluxcd.io", _) => {
            add("Secret", Some(object.text("/spec/decryption/secretRef/name")), "/spec/decryption".to_owned());
        }
        ("helm.toolkit.fluxcd.io", _) => {
            for (index, from) in
                object.list("/spec/valuesFrom").enumerate().filter(|(_, from)| from["optional"] != true)
            {
                let kind = if from["kind"] == "Secret" { "Secret" } else { "ConfigMap" };
                add(kind, from["name"].as_str(), format!("/spec/valuesFrom/{index}"));
            }
        }
        _ => {}
    }
    stores(object, &mut needs);
    needs
}

/// The stores that an external secret reads from.
fn stores(object: &Object, needs: &mut Vec<Need>) {
    if object.group() != "external-secrets.io" {
        return;
    }
    let base = if object.kind() == "ClusterExternalSecret" { "/spec/externalSecretSpec" } else { "/spec" };
    let at = |pointer: &str| object.value.pointer(pointer);
    let mut places = vec![format!("{base}/secretStoreRef")];
    places.extend(
        (0..object.list("/spec/secretStoreRefs").count()).map(|index| format!("/spec/secretStoreRefs/{index}")),
    );
    for pointer in places {
        let Some(name) = at(&pointer).and_then(|store| store["name"].as_str()) else { continue };
        let is_clusters = at(&pointer).is_some_and(|store| store["kind"] == "ClusterSecretStore");
        let (kind, namespace) = if is_clusters {
            ("ClusterSecretStore", String::new())
        } else {
            ("SecretStore", object.reference().namespace)
        };
        needs.push(Need { kind, namespace, name: name.to_owned(), pointer });
    }
}

/// What Pods mount, and what their variables are made of.
fn pods(spec: &Value, place: &str, add: &mut dyn FnMut(&'static str, Option<&str>, String)) {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut one = |kind, source: &Value, key: &str, pointer: String| {
        if source["optional"] != true {
            add(kind, source[key].as_str(), pointer);
        }
    };
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        one("Secret", secret, "name", format!("{place}/imagePullSecrets/{index}"));
    }
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let pointer = format!("{place}/volumes/{index}");
        one("Secret", &volume["secret"], "secretName", pointer.clone());
        one("ConfigMap", &volume["configMap"], "name", pointer.clone());
        for source in list(&volume["projected"], "sources") {
            one("Secret", &source["secret"], "name", pointer.clone());
            one("ConfigMap", &source["configMap"], "name", pointer.clone());
        }
    }
    for containers in ["containers", "initContainers"] {
        for (index, container) in list(spec, containers).iter().enumerate() {
            for (inner, from) in list(container, "envFrom").iter().enumerate() {
                let pointer = format!("{place}/{containers}/{index}/envFrom/{inner}");
                one("Secret", &from["secretRef"], "name", pointer.clone());
                one("ConfigMap", &from["configMapRef"], "name", pointer);
            }
            for (inner, variable) in list(container, "env").iter().enumerate() {
                let pointer = format!("{place}/{containers}/{index}/env/{inner}");
                one("Secret", &variable["valueFrom"]["secretKeyRef"], "name", pointer.clone());
                one("ConfigMap", &variable["valueFrom"]["configMapKeyRef"], "name", pointer);
            }
        }
    }
}

fn missing(case: &Case<'_>, object: &Object, need: &Need) -> Finding {
    let Need { kind, namespace, name, pointer } = need;
    if kind.ends_with("Store") {
        let stores: Vec<&str> = case.world.stores.iter().map(String::as_str).collect();
        let fix = match stores.as_slice() {
            [] => "add the store to the repository, or secrets.infisical to castle.yaml, for which castle makes one"
                .to_owned(),
            stores => format!(
                "castle makes the ClusterSecretStore {}: name it, with kind: ClusterSecretStore",
                stores.join(", ")
            ),
        };
        let why =
            format!("reads from {kind} {name}, which neither castle nor the repository makes: the secret never syncs");
        return Finding::of(Code::StoreMissing, object, pointer, why, fix);
    }
    if let Some(maker) = possible_maker(case, namespace) {
        return Finding::of(
            Code::NotJudged,
            object,
            pointer,
            format!("needs {kind} {name} in {namespace}: castle cannot tell whether {maker} makes it"),
            "nothing, if it does",
        );
    }
    let code = if *kind == "Secret" { Code::SecretMissing } else { Code::ConfigMapMissing };
    let fix = if *kind == "Secret" {
        format!(
            "add an ExternalSecret whose target is {name}, or the Secret encrypted with SOPS, in namespace {namespace}"
        )
    } else {
        format!("add ConfigMap {name} in namespace {namespace}, or a configMapGenerator")
    };
    let why = format!(
        "needs {kind} {name} in {namespace}, which neither castle nor the repository makes: it never becomes ready"
    );
    Finding::of(code, object, pointer, why, fix)
}

/// Something in a namespace that may make Secrets of which nobody here knows.
fn possible_maker(case: &Case<'_>, namespace: &str) -> Option<String> {
    case.forest.objects().map(|(_, object)| object).find_map(|object| {
        let reference = object.reference();
        let target = object.text("/spec/targetNamespace");
        let is_release = object.is("helm.toolkit.fluxcd.io", "HelmRelease");
        let place = if is_release && !target.is_empty() { target } else { &reference.namespace };
        let api = object.group();
        let is_custom = api.contains('.') && !api.ends_with(".k8s.io") && !PREDICTABLE.contains(&api);
        (place == namespace && (is_release || is_custom)).then(|| reference.to_string())
    })
}
