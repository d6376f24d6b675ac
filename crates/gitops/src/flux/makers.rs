//! Who makes Secrets, ConfigMaps and stores: objects of the repository, castle, Kubernetes itself, and controllers that copy or make them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forest, Group, HELM, KUSTOMIZE, SOURCE, is_elsewhere};
use crate::kinds::{COMPONENTS, is_of_chart, of_chart};
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

/// Accounts of programs, by how their names begin, of which the same is true.
const PREDICTABLE_PROGRAMS: &[&str] =
    &["cert-manager", "external-secrets", "helm-controller", "kustomize-controller", "longhorn"];

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
        if is_copied(object, places) {
            self.everywhere.insert((kind, name.to_owned()));
        }
    }
}

/// Whether annotations in these places have a controller copy something into other namespaces, or from them.
pub(super) fn is_copied(object: &Object, places: &[&str]) -> bool {
    let annotations = places.iter().filter_map(|place| object.value.pointer(place)?.get("annotations")?.as_object());
    let mut keys = annotations.flat_map(|annotations| annotations.keys());
    keys.any(|key| COPIED.iter().any(|prefix| key.starts_with(prefix)))
}

/// Whether cert-manager makes the certificates of an Ingress.
fn is_certified(ingress: &Object) -> bool {
    let annotations = ingress.value.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with("cert-manager.io/")))
}

/// Something that may make an object that nobody is seen to make.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) name: String,
    /// Whether nothing speaks for it but that castle does not know what it brings: charts seldom bring namespaces, stores, or what is Flux's.
    pub(crate) is_unlikely: bool,
}

impl Maker {
    pub(crate) fn likely(name: String) -> Self {
        Self { name, is_unlikely: false }
    }
}

/// Something that may make an object of this kind in a namespace (none for what has none), of which nobody here knows, and which does not wait for it
/// itself. Who is likely to is told first.
pub(crate) fn possible_maker(
    forest: &Forest,
    kind: &str,
    namespace: &str,
    waits: &dyn Fn(&Group, &Object) -> bool,
) -> Option<Maker> {
    // Charts bring Secrets and ConfigMaps for themselves; namespaces, stores and what is Flux's may be for others.
    let is_for_others = !["ConfigMap", "Secret"].contains(&kind);
    if OF_THE_SYSTEM.contains(&namespace) && !is_for_others {
        return Some(Maker::likely("Kubernetes".to_owned()));
    }
    let all = || forest.objects().filter(|(group, object)| !waits(group, object)).map(|(_, object)| object);
    let is_maker = |object: &Object| {
        let reference = object.reference();
        let target = object.text("/spec/targetNamespace");
        let is_release = object.is(HELM, "HelmRelease") && !is_elsewhere(object);
        let place = if is_release && !target.is_empty() { target } else { &reference.namespace };
        let api = object.group();
        let is_custom = api.contains('.') && !api.ends_with(".k8s.io") && !PREDICTABLE.contains(&api);
        let is_everywhere = object.kind().starts_with("Cluster") || object.namespace().is_empty();
        // Operators make namespaces of objects in others.
        let makes_namespace = kind == "Namespace" && !is_of_chart(api);
        match (is_release, is_for_others) {
            (true, true) => is_given_more(object),
            (true, false) => place == namespace,
            (false, _) => is_custom && (is_everywhere || place == namespace || makes_namespace),
        }
    };
    let likely = all().find(|object| is_maker(object)).map(|object| object.reference().to_string());
    let likely = likely.or_else(|| possible_program(forest, kind, namespace, waits)).map(Maker::likely);
    likely.or_else(|| {
        let is_unknown = |object: &&Object| {
            object.is(HELM, "HelmRelease") && !is_elsewhere(object) && !is_of_its_own(forest, object)
        };
        let release = all().find(is_unknown).filter(|_| is_for_others)?;
        Some(Maker { name: release.reference().to_string(), is_unlikely: true })
    })
}

/// A program of the repository that may create an object of this kind in a namespace (none for what has none), and does not wait for it.
pub(crate) fn possible_program(
    forest: &Forest,
    kind: &str,
    namespace: &str,
    waits: &dyn Fn(&Group, &Object) -> bool,
) -> Option<String> {
    let is_waiting = |subject: &Value| {
        forest
            .objects()
            .any(|(group, object)| object.is("", "ServiceAccount") && is_named(object, subject) && waits(group, object))
    };
    let subject = forest.objects().find_map(|(_, binding)| {
        creators(forest, binding, kind, namespace).into_iter().find(|subject| !is_waiting(subject))
    })?;
    Some(format!("{} {}", subject["kind"].as_str().unwrap_or("Pod"), subject["name"].as_str().unwrap_or_default()))
}

/// Whether a subject of a binding is this account.
fn is_named(account: &Object, subject: &Value) -> bool {
    subject["name"] == account.name() && subject["namespace"] == account.reference().namespace
}

/// Whether a release is of a chart that is known, and is given nothing that the chart does not have.
pub(crate) fn is_of_its_own(forest: &Forest, release: &Object) -> bool {
    let is_known = forest.chart(release).is_some_and(|chart| of_chart(&chart).is_some());
    is_known && !is_given_more(release)
}

/// Whether a release is given objects beside those of its chart, or values that nobody here has read.
fn is_given_more(release: &Object) -> bool {
    let values = release.value.pointer("/spec/values").and_then(Value::as_object);
    let has_objects = values.is_some_and(|values| values.keys().any(|key| EXTRA.contains(&key.as_str())));
    has_objects || release.list("/spec/valuesFrom").next().is_some()
}

/// Whom a binding lets create such objects in a namespace: then they may do so as they like.
fn creators<'f>(forest: &Forest, binding: &'f Object, kind: &str, namespace: &str) -> Vec<&'f Value> {
    const RIGHTS: &str = "rbac.authorization.k8s.io";
    let is_here = binding.is(RIGHTS, "RoleBinding") && binding.reference().namespace == namespace;
    if !is_here && !binding.is(RIGHTS, "ClusterRoleBinding") {
        return Vec::new();
    }
    let is_predictable = |name: &str| PREDICTABLE_PROGRAMS.iter().any(|known| name.starts_with(known));
    let subjects = binding.list("/subjects");
    let subjects = subjects.filter(|subject| subject["name"].as_str().is_some_and(|name| !is_predictable(name)));
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
    let allows = |role: &Object| {
        // The rules of a role that gathers those of others are written by Kubernetes.
        role.value.get("aggregationRule").is_some()
            || role.list("/rules").any(|rule| {
                has(rule, "apiGroups", &[api, "*"])
                    && has(rule, "resources", &[&resource, "*"])
                    && has(rule, "verbs", &["create", "*"])
            })
    };
    let roles = forest.objects().map(|(_, object)| object).filter(|object| {
        object.is(RIGHTS, binding.text("/roleRef/kind"))
            && object.name() == role
            && (object.kind() == "ClusterRole" || object.reference().namespace == namespace)
    });
    let roles: Vec<&Object> = roles.collect();
    match roles.as_slice() {
        [] if is_harmless(role) => Vec::new(),
        [] => subjects.filter(|subject| is_program(forest, subject)).collect(),
        roles if roles.iter().any(|role| allows(role)) => subjects.collect(),
        _ => Vec::new(),
    }
}

/// Whether a role that the repository does not have is one of Kubernetes' own that creates nothing. `cluster-admin`, `admin` and `edit` create, and what a chart
/// or castle brings nobody here knows.
fn is_harmless(role: &str) -> bool {
    role == "view" || (role.starts_with("system:") && !role.starts_with("system:aggregate-to-"))
}

/// Whether a subject is a program, and neither people nor an account in whose name Flux applies what the repository shows.
fn is_program(forest: &Forest, subject: &Value) -> bool {
    let is_of_flux = || {
        forest.objects().any(|(_, object)| {
            (object.is(KUSTOMIZE, "Kustomization") || object.is(HELM, "HelmRelease"))
                && subject["name"] == object.text("/spec/serviceAccountName")
                && subject["namespace"] == object.reference().namespace
        })
    };
    let is_of_all = subject["name"].as_str().is_some_and(|name| name.starts_with("system:serviceaccount"));
    is_of_all || (subject["kind"] == "ServiceAccount" && !is_of_flux())
}
