//! Who makes Secrets, ConfigMaps and stores: objects of the repository, castle, Kubernetes itself, and controllers that copy or make them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forest, Group, HELM, KUSTOMIZE, SOURCE, is_elsewhere};
use crate::kinds::{COMPONENTS, of_chart};
use crate::object::Object;

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

/// Annotations by which controllers copy a Secret or ConfigMap into other namespaces.
const COPIED: &[&str] = &[
    "config-syncer.appscode.com/",
    "kubed.appscode.com/",
    "reflector.v1.k8s.emberstack.com/",
    "replicator.v1.mittwald.de/",
];
/// Namespaces in which Kubernetes and Talos make what no repository shows.
const OF_THE_SYSTEM: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// Values by which charts are given objects that are none of their own.
const EXTRA: &[&str] = &["extraDeploy", "extraManifests", "extraObjects", "extraResources"];

/// All that is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// By kind, namespace and name.
    places: BTreeSet<(&'static str, String, String)>,
    /// What is in many namespaces, or in all, by kind and name.
    everywhere: BTreeSet<(&'static str, String)>,
}

impl Made {
    /// All that Kubernetes and the repository make.
    pub(crate) fn of(forest: &Forest) -> Self {
        let mut made = Self::default();
        // The certificate of the API server's authority, for every Pod.
        made.everywhere.insert(("ConfigMap", "kube-root-ca.crt".to_owned()));
        for (_, object) in forest.objects() {
            made.add(object);
        }
        made
    }

    /// Adds something that castle makes.
    pub(crate) fn give(&mut self, kind: &'static str, namespace: &str, name: &str) {
        self.places.insert((kind, namespace.to_owned(), name.to_owned()));
    }

    pub(crate) fn has(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.places.contains(&(kind, namespace.to_owned(), name.to_owned()))
            || self.everywhere.contains(&(kind, name.to_owned()))
    }

    /// Adds what an object is, or makes.
    pub(crate) fn add(&mut self, object: &Object) {
        let namespace = object.reference().namespace;
        let or_own = |pointer: &str| Some(object.text(pointer)).filter(|it| !it.is_empty()).unwrap_or(object.name());
        let here = |kind, name: &str| (kind, namespace.clone(), name.to_owned());
        match (object.group(), object.kind()) {
            ("", "Secret") | ("bitnami.com", "SealedSecret") => {
                self.places.insert(here("Secret", object.name()));
                self.copy(object, &["/metadata", "/spec/template/metadata"], "Secret", object.name());
            }
            ("", "ConfigMap") => {
                self.places.insert(here("ConfigMap", object.name()));
                self.copy(object, &["/metadata"], "ConfigMap", object.name());
            }
            ("external-secrets.io", "ExternalSecret") => {
                let name = or_own("/spec/target/name");
                self.places.insert(here("Secret", name));
                self.copy(object, &["/metadata", "/spec/target/template/metadata"], "Secret", name);
            }
            ("external-secrets.io", "ClusterExternalSecret") => {
                let target = object.text("/spec/externalSecretSpec/target/name");
                let name = if target.is_empty() { or_own("/spec/externalSecretName") } else { target };
                self.everywhere.insert(("Secret", name.to_owned()));
            }
            ("trust.cert-manager.io", "Bundle") => {
                self.everywhere.extend(["ConfigMap", "Secret"].map(|kind| (kind, object.name().to_owned())));
            }
            ("external-secrets.io", "SecretStore") => drop(self.places.insert(here("SecretStore", object.name()))),
            ("external-secrets.io", "ClusterSecretStore") => {
                self.places.insert(("ClusterSecretStore", String::new(), object.name().to_owned()));
            }
            ("cert-manager.io", "Certificate") => {
                let name = object.text("/spec/secretName");
                self.places.insert(here("Secret", name));
                self.copy(object, &["/spec/secretTemplate"], "Secret", name);
            }
            ("cert-manager.io", _) => {
                self.places.insert(here("Secret", object.text("/spec/acme/privateKeySecretRef/name")));
            }
            ("networking.k8s.io", "Ingress") if is_certified(object) => {
                for tls in object.list("/spec/tls") {
                    self.places.insert(here("Secret", tls["secretName"].as_str().unwrap_or_default()));
                }
            }
            ("apps", "Deployment" | "DaemonSet") => {
                let components = COMPONENTS.iter().filter(|component| object.name().contains(component.workload));
                let secrets = components.flat_map(|component| component.secrets);
                self.places.extend(secrets.map(|name| here("Secret", name)));
            }
            _ => {}
        }
    }

    /// Adds what is copied into other namespaces, if one of the object's annotations says so.
    fn copy(&mut self, object: &Object, places: &[&str], kind: &'static str, name: &str) {
        let annotations =
            places.iter().filter_map(|place| object.value.pointer(place)?.get("annotations")?.as_object());
        let mut keys = annotations.flat_map(|annotations| annotations.keys());
        if keys.any(|key| COPIED.iter().any(|prefix| key.starts_with(prefix))) {
            self.everywhere.insert((kind, name.to_owned()));
        }
    }
}

/// Whether cert-manager makes the certificates of an Ingress.
fn is_certified(ingress: &Object) -> bool {
    let annotations = ingress.value.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/")))
}

/// Something that may make an object of this kind in a namespace (none for what has none), of which nobody here knows.
pub(crate) fn possible_maker(forest: &Forest, kind: &str, namespace: &str) -> Option<String> {
    possible_maker_besides(forest, kind, namespace, &|_, _| false)
}

/// The same, without what itself waits for it.
pub(crate) fn possible_maker_besides(
    forest: &Forest,
    kind: &str,
    namespace: &str,
    waits: &dyn Fn(&Group, &Object) -> bool,
) -> Option<String> {
    let objects = || forest.objects().map(|(_, object)| object);
    // Charts bring Secrets and ConfigMaps for themselves; namespaces, stores and what is Flux's may be for others.
    let is_for_others = !["ConfigMap", "Secret"].contains(&kind);
    if OF_THE_SYSTEM.contains(&namespace) && !is_for_others {
        return Some("Kubernetes".to_owned());
    }
    let all = forest.objects().filter(|(group, object)| !waits(group, object)).map(|(_, object)| object);
    let custom = all.into_iter().find(|object| {
        let reference = object.reference();
        let target = object.text("/spec/targetNamespace");
        let is_release = object.is(HELM, "HelmRelease") && !is_elsewhere(object);
        let place = if is_release && !target.is_empty() { target } else { &reference.namespace };
        let api = object.group();
        let is_custom = api.contains('.') && !api.ends_with(".k8s.io") && !PREDICTABLE.contains(&api);
        let is_everywhere = is_custom && (object.kind().starts_with("Cluster") || object.namespace().is_empty());
        match (is_release, is_for_others) {
            (true, true) => !is_of_its_own(forest, object),
            (true, false) => place == namespace,
            (false, _) => is_everywhere || (is_custom && place == namespace),
        }
    });
    custom.map(|object| object.reference().to_string()).or_else(|| {
        let binding = objects().find(|binding| may_create(forest, binding, kind, namespace));
        binding.and_then(|binding| binding.list("/subjects").next()).map(|subject| {
            format!("{} {}", subject["kind"].as_str().unwrap_or("Pod"), subject["name"].as_str().unwrap_or_default())
        })
    })
}

/// Whether a release is of a chart that is known, and is given nothing that the chart does not have.
fn is_of_its_own(forest: &Forest, release: &Object) -> bool {
    let values = release.value.pointer("/spec/values").and_then(Value::as_object);
    let is_given_more = values.is_some_and(|values| values.keys().any(|key| EXTRA.contains(&key.as_str())));
    let is_known = forest.chart(release).is_some_and(|chart| of_chart(&chart).is_some());
    is_known && !is_given_more && release.list("/spec/valuesFrom").next().is_none()
}

/// Whether a binding lets a program of the repository create such objects in a namespace: then it may do so as it likes.
fn may_create(forest: &Forest, binding: &Object, kind: &str, namespace: &str) -> bool {
    const RIGHTS: &str = "rbac.authorization.k8s.io";
    let is_here = binding.is(RIGHTS, "RoleBinding") && binding.reference().namespace == namespace;
    if !is_here && !binding.is(RIGHTS, "ClusterRoleBinding") {
        return false;
    }
    // What these make is told by their objects.
    let is_predictable = |name: &str| ["cert-manager", "external-secrets"].iter().any(|known| name.starts_with(known));
    if binding.list("/subjects").all(|subject| subject["name"].as_str().is_none_or(is_predictable)) {
        return false;
    }
    let api = match kind {
        "ConfigMap" | "Namespace" | "Secret" => "",
        "ClusterSecretStore" | "SecretStore" => "external-secrets.io",
        "Kustomization" => KUSTOMIZE,
        "HelmRelease" => HELM,
        "CustomResourceDefinition" => "apiextensions.k8s.io",
        _ => SOURCE,
    };
    let (role, kind) = (binding.text("/roleRef/name"), kind.to_lowercase());
    let resource = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    let has = |rule: &Value, key: &str, wanted: &[&str]| {
        let words = rule[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        words.into_iter().any(|word| wanted.contains(&word))
    };
    forest.objects().map(|(_, object)| object).any(|object| {
        object.is(RIGHTS, binding.text("/roleRef/kind"))
            && object.name() == role
            && (object.kind() == "ClusterRole" || object.reference().namespace == namespace)
            && object.list("/rules").any(|rule| {
                has(rule, "apiGroups", &[api, "*"])
                    && has(rule, "resources", &[&resource, "*"])
                    && has(rule, "verbs", &["create", "*"])
            })
    })
}
