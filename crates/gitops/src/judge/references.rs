//! Secrets, ConfigMaps and stores that objects name: somebody must make them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Case, Code, Finding};
use crate::flux::{Group, HELM, Made, PROGRAMS};
use crate::object::Object;
use crate::substitute::is_unknown;

/// Something that an object needs.
struct Need {
    /// `Secret`, `ConfigMap`, `SecretStore` or `ClusterSecretStore`.
    kind: &'static str,
    namespace: String,
    name: String,
    pointer: String,
    weight: Weight,
}

/// How badly something is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Weight {
    /// Nothing starts without it.
    Needed,
    /// It goes on without it, worse.
    Wanted,
}

pub(super) fn judge(case: &mut Case<'_>) {
    let made = made(case);
    let mut found = Vec::new();
    for (_, object) in case.forest.objects() {
        let mut told = BTreeSet::new();
        for need in needs(object).iter().filter(|need| !is_unknown(&need.name) && !is_unknown(&need.namespace)) {
            let key = (need.kind, need.namespace.clone(), need.name.clone());
            if !made.has(need.kind, &need.namespace, &need.name) && told.insert(key) {
                found.push(missing(case, object, need));
            }
        }
    }
    case.findings.extend(found);
}

/// All that castle, Kubernetes and the repository make.
fn made(case: &Case<'_>) -> Made {
    let (mut made, world) = (Made::of(case.forest), case.world);
    world.found.iter().for_each(|object| made.add(object));
    world.secrets.iter().for_each(|(namespace, name)| made.give("Secret", namespace, name));
    world.config_maps.keys().for_each(|(namespace, name)| made.give("ConfigMap", namespace, name));
    world.stores.iter().for_each(|name| made.give("ClusterSecretStore", "", name));
    made
}

fn needs(object: &Object) -> Vec<Need> {
    let namespace = object.reference().namespace;
    let mut needs = Vec::new();
    let mut add = |kind, name: Option<&str>, pointer: String, weight: Weight| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            needs.push(Need { kind, namespace: namespace.clone(), name: name.to_owned(), pointer, weight });
        }
    };
    if let Some((_, place)) = PROGRAMS.iter().find(|(kind, _)| *kind == object.kind()) {
        pods(object.value.pointer(place).unwrap_or(&Value::Null), place, &mut add);
    }
    match (object.group(), object.kind()) {
        ("networking.k8s.io", "Ingress") => {
            for (index, tls) in object.list("/spec/tls").enumerate() {
                add("Secret", tls["secretName"].as_str(), format!("/spec/tls/{index}/secretName"), Weight::Wanted);
            }
        }
        ("traefik.io", _) => {
            add("Secret", Some(object.text("/spec/tls/secretName")), "/spec/tls/secretName".to_owned(), Weight::Wanted);
        }
        ("source.toolkit.fluxcd.io" | "notification.toolkit.fluxcd.io", _) => {
            add("Secret", Some(object.text("/spec/secretRef/name")), "/spec/secretRef".to_owned(), Weight::Needed);
        }
        ("kustomize.toolkit.fluxcd.io", _) => {
            let name = object.text("/spec/decryption/secretRef/name");
            add("Secret", Some(name), "/spec/decryption".to_owned(), Weight::Needed);
        }
        ("helm.toolkit.fluxcd.io", _) => {
            for (index, from) in
                object.list("/spec/valuesFrom").enumerate().filter(|(_, from)| from["optional"] != true)
            {
                let kind = if from["kind"] == "Secret" { "Secret" } else { "ConfigMap" };
                add(kind, from["name"].as_str(), format!("/spec/valuesFrom/{index}"), Weight::Needed);
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
        needs.push(Need { kind, namespace, name: name.to_owned(), pointer, weight: Weight::Needed });
    }
}

/// Takes something that is needed: its kind, its name if there is one, where it is named, and how badly it is needed.
type Take<'t> = dyn FnMut(&'static str, Option<&str>, String, Weight) + 't;

/// What Pods mount, and what their variables are made of.
fn pods(spec: &Value, place: &str, add: &mut Take<'_>) {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        // The kubelet tries without.
        add("Secret", secret["name"].as_str(), format!("{place}/imagePullSecrets/{index}"), Weight::Wanted);
    }
    let mut one = |kind, source: &Value, key: &str, pointer: String| {
        if source["optional"] != true {
            add(kind, source[key].as_str(), pointer, Weight::Needed);
        }
    };
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
    let Need { kind, namespace, name, pointer, weight } = need;
    // A release is not installed before its values are there.
    let waits = |_: &Group, other: &Object| {
        let is_same = |theirs: &Need| (theirs.kind, &theirs.namespace, &theirs.name) == (*kind, namespace, name);
        other.is(HELM, "HelmRelease") && needs(other).iter().any(is_same)
    };
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
        let finding = Finding::of(Code::StoreMissing, object, pointer, why, fix).because(format!("{namespace}/{name}"));
        return case.unless_made(object, pointer, (kind, namespace, name), finding, &waits);
    }
    let (code, ends) = match (*kind, weight) {
        ("Secret", Weight::Wanted) => {
            (Code::SecretAbsent, "it goes on without: with another certificate, or images that anybody may pull")
        }
        ("Secret", Weight::Needed) => (Code::SecretMissing, "it never becomes ready"),
        _ => (Code::ConfigMapMissing, "it never becomes ready"),
    };
    let fix = if *kind == "Secret" {
        format!(
            "add an ExternalSecret whose target is {name}, or the Secret encrypted with SOPS, in namespace {namespace}"
        )
    } else {
        format!("add ConfigMap {name} in namespace {namespace}, or a configMapGenerator")
    };
    let why = format!("needs {kind} {name} in {namespace}, which neither castle nor the repository makes: {ends}");
    let finding = Finding::of(code, object, pointer, why, fix).because(format!("{kind} {namespace}/{name}"));
    case.unless_made(object, pointer, (kind, namespace, name), finding, &waits)
}
