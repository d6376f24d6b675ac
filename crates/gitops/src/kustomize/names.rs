//! Names that change while building, and the references that follow them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::fields::visit;
use super::piece::{Id, Piece};

/// Kinds whose names are never given a prefix or a suffix.
fn keeps_name(id: &Id) -> bool {
    matches!(id.kind.as_str(), "CustomResourceDefinition" | "Namespace")
        || (id.kind == "APIService" && id.group() == "apiregistration.k8s.io")
}

/// Puts a prefix and a suffix to all names.
pub(super) fn rename(pieces: &mut [Piece], prefix: &str, suffix: &str) {
    for piece in pieces.iter_mut().filter(|piece| !keeps_name(&piece.first_id())) {
        if !prefix.is_empty() {
            piece.prefixes.push(prefix.to_owned());
            piece.remember();
            let name = format!("{prefix}{}", piece.id().name);
            piece.rename(&name);
        }
        if !suffix.is_empty() {
            piece.suffixes.push(suffix.to_owned());
            piece.remember();
            let name = format!("{}{suffix}", piece.id().name);
            piece.rename(&name);
        }
    }
}

/// Puts the hash of their content to the names of what was generated.
pub(super) fn hash(pieces: &mut [Piece]) {
    for piece in pieces.iter_mut().filter(|piece| piece.is_hashed) {
        piece.remember();
        let name = format!("{}-{}", piece.id().name, digest(&piece.value));
        piece.rename(&name);
    }
}

/// Ten letters and digits that change when the content of a ConfigMap or Secret does. The name, though meant to be hashed,
/// has always been an empty text.
fn digest(value: &Value) -> String {
    let content = |key: &str| value.get(key).cloned().unwrap_or_else(|| json!(""));
    let mut hashed = json!({"data": sorted(&content("data")), "kind": value["kind"], "name": ""});
    if value["kind"] == "Secret" {
        hashed["type"] = content("type");
    }
    for further in ["binaryData", "stringData"] {
        if let Some(map) = value.get(further).filter(|map| map.is_object()) {
            hashed[further] = sorted(map);
        }
    }
    let hash = Sha256::digest(as_go_json(&sorted(&hashed)).as_bytes());
    let digits: String = hash.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let unmistakable = |digit: char| match digit {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        digit => digit,
    };
    digits.chars().map(unmistakable).collect()
}

/// The same with its keys in order.
fn sorted(value: &Value) -> Value {
    let Value::Object(entries) = value else { return value.clone() };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// JSON as Go writes it: fit to stand in HTML.
fn as_go_json(value: &Value) -> String {
    let text = value.to_string();
    let escaped =
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];
    escaped.iter().fold(text, |text, (plain, escaped)| text.replace(plain, escaped))
}

/// A field that names an object of some kind.
struct Link {
    /// The group (any if empty) and kind of what is named.
    target: (&'static str, &'static str),
    /// The kind it is a field of.
    kind: &'static str,
    path: String,
}

const PODS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];
/// Those whose accounts, claims and priorities are followed.
const WORKLOADS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];
const IN_PODS: &[(&str, &[&str])] = &[
    (
        "ConfigMap",
        &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
    ),
    (
        "Secret",
        &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
    ),
];
const IN_WORKLOADS: &[((&str, &str), &str)] = &[
    (("", "ServiceAccount"), "serviceAccountName"),
    (("", "PersistentVolumeClaim"), "volumes/persistentVolumeClaim/claimName"),
    (("scheduling.k8s.io", "PriorityClass"), "priorityClassName"),
];
const RBAC: &str = "rbac.authorization.k8s.io";
const ELSEWHERE: &[((&str, &str), &str, &str)] = &[
    (("", "Deployment"), "HorizontalPodAutoscaler", "spec/scaleTargetRef/name"),
    (("", "ReplicationController"), "HorizontalPodAutoscaler", "spec/scaleTargetRef/name"),
    (("", "ReplicaSet"), "HorizontalPodAutoscaler", "spec/scaleTargetRef/name"),
    (("", "StatefulSet"), "HorizontalPodAutoscaler", "spec/scaleTargetRef/name"),
    (("", "ConfigMap"), "Node", "spec/configSource/configMap"),
    (("", "ConfigMap"), "Role", "rules/resourceNames"),
    (("", "ConfigMap"), "ClusterRole", "rules/resourceNames"),
    (("", "ConfigMap"), "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
    (("", "Secret"), "Ingress", "spec/tls/secretName"),
    (("", "Secret"), "Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
    (("", "Secret"), "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret"),
    (("", "Secret"), "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret"),
    (("", "Secret"), "ServiceAccount", "imagePullSecrets/name"),
    (("", "Secret"), "StorageClass", "parameters/secretName"),
    (("", "Secret"), "StorageClass", "parameters/adminSecretName"),
    (("", "Secret"), "StorageClass", "parameters/userSecretName"),
    (("", "Secret"), "StorageClass", "parameters/secretRef"),
    (("", "Secret"), "Role", "rules/resourceNames"),
    (("", "Secret"), "ClusterRole", "rules/resourceNames"),
    (("", "Secret"), "PersistentVolume", "spec/azureFile/secretName"),
    (("", "Service"), "StatefulSet", "spec/serviceName"),
    (("", "Service"), "Ingress", "spec/rules/http/paths/backend/serviceName"),
    (("", "Service"), "Ingress", "spec/backend/serviceName"),
    (("", "Service"), "Ingress", "spec/rules/http/paths/backend/service/name"),
    (("", "Service"), "Ingress", "spec/defaultBackend/service/name"),
    (("", "Service"), "APIService", "spec/service/name"),
    (("", "Service"), "ValidatingWebhookConfiguration", "webhooks/clientConfig/service"),
    (("", "Service"), "MutatingWebhookConfiguration", "webhooks/clientConfig/service"),
    ((RBAC, "Role"), "RoleBinding", "roleRef/name"),
    ((RBAC, "ClusterRole"), "RoleBinding", "roleRef/name"),
    ((RBAC, "ClusterRole"), "ClusterRoleBinding", "roleRef/name"),
    (("", "ServiceAccount"), "RoleBinding", "subjects"),
    (("", "ServiceAccount"), "ClusterRoleBinding", "subjects"),
    (("", "PersistentVolume"), "PersistentVolumeClaim", "spec/volumeName"),
    (("", "PersistentVolume"), "ClusterRole", "rules/resourceNames"),
    (("storage.k8s.io", "StorageClass"), "PersistentVolume", "spec/storageClassName"),
    (("storage.k8s.io", "StorageClass"), "PersistentVolumeClaim", "spec/storageClassName"),
    (("storage.k8s.io", "StorageClass"), "StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
    (
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        "ValidatingAdmissionPolicyBinding",
        "spec/policyName",
    ),
];

fn links() -> Vec<Link> {
    let mut links = Vec::new();
    for (target, paths) in IN_PODS {
        for (kind, pod) in PODS {
            links.extend(paths.iter().map(|path| Link { target: ("", target), kind, path: format!("{pod}/{path}") }));
        }
    }
    for (target, path) in IN_WORKLOADS {
        links.extend(WORKLOADS.iter().map(|(kind, pod)| Link { target: *target, kind, path: format!("{pod}/{path}") }));
    }
    links.extend(ELSEWHERE.iter().map(|(target, kind, path)| Link { target: *target, kind, path: (*path).to_owned() }));
    links
}

/// What is known of an object that may be meant by a reference.
struct Candidate {
    id: Id,
    previous: Vec<Id>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
    /// The namespaces of the accounts that a RoleBinding names: the only ones that are meant across namespaces.
    subjects: BTreeSet<String>,
}

fn subjects(piece: &Piece) -> BTreeSet<String> {
    let subjects = piece.value["subjects"].as_array().filter(|_| piece.id().kind == "RoleBinding");
    let accounts = subjects.into_iter().flatten().filter(|subject| subject["kind"] == "ServiceAccount");
    accounts.filter_map(|subject| subject["namespace"].as_str()).map(str::to_owned).collect()
}

/// Lets references follow the objects that were renamed.
pub(super) fn follow(pieces: &mut [Piece]) -> Result<(), String> {
    let candidates: Vec<Candidate> = pieces
        .iter()
        .map(|piece| Candidate {
            id: piece.id(),
            previous: piece.previous.clone(),
            prefixes: piece.prefixes.clone(),
            suffixes: piece.suffixes.clone(),
            subjects: subjects(piece),
        })
        .collect();
    let links = links();
    for (piece, own) in pieces.iter_mut().zip(&candidates) {
        for link in links.iter().filter(|link| link.kind == own.id.kind) {
            let role = link.path.ends_with("roleRef/name").then(|| piece.value["roleRef"].clone());
            let mut failure = None;
            visit(&mut piece.value, &link.path, None, &mut |value| {
                let outcome = match value {
                    Value::Array(items) => {
                        items.iter_mut().try_for_each(|item| update(item, own, &candidates, link, role.as_ref()))
                    }
                    value => update(value, own, &candidates, link, role.as_ref()),
                };
                if let Err(why) = outcome {
                    failure = Some(why);
                }
            });
            failure.map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}

fn update(
    value: &mut Value,
    own: &Candidate,
    candidates: &[Candidate],
    link: &Link,
    role: Option<&Value>,
) -> Result<(), String> {
    match value {
        Value::String(name) => {
            let all: Vec<&Candidate> = candidates.iter().collect();
            if let Some(meant) = meant(name, own, all, link, role)? {
                name.clone_from(&meant.id.name);
            }
        }
        Value::Object(entries) => {
            let text = |key: &str| entries.get(key).and_then(Value::as_str);
            let Some(name) = text("name").map(str::to_owned) else { return Ok(()) };
            let mut all: Vec<&Candidate> = candidates.iter().collect();
            if let Some(namespace) = text("namespace") {
                let first = |it: &&Candidate| it.previous.first().unwrap_or(&it.id).effective_namespace() == namespace;
                let originally: Vec<&Candidate> = all.iter().copied().filter(first).collect();
                if originally.is_empty() {
                    all.retain(|it| it.id.effective_namespace() == namespace);
                } else {
                    all = originally;
                }
            }
            if let Some(meant) = meant(&name, own, all, link, role)? {
                entries.insert("name".to_owned(), meant.id.name.as_str().into());
                if !meant.id.namespace.is_empty() {
                    entries.insert("namespace".to_owned(), meant.id.namespace.as_str().into());
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The one object that a name means, if it was renamed at all.
fn meant<'c>(
    name: &str,
    own: &Candidate,
    mut candidates: Vec<&'c Candidate>,
    link: &Link,
    role: Option<&Value>,
) -> Result<Option<&'c Candidate>, String> {
    let (group, kind) = link.target;
    let is_kind = |id: &Id| id.kind == kind && (group.is_empty() || id.group() == group);
    let is_role = |id: &Id| role.is_none_or(|role| role["kind"] == id.kind.as_str() && role["apiGroup"] == id.group());
    candidates.retain(|it| {
        it.previous.iter().any(|id| id.name == name)
            && it.previous.iter().any(is_kind)
            && it.previous.iter().any(is_role)
            && (own.id.is_cluster_scoped()
                || it.id.is_cluster_scoped()
                || (it.id.kind == "ServiceAccount" && own.subjects.contains(&it.id.namespace))
                || own.id.effective_namespace() == it.id.effective_namespace())
    });
    if candidates.len() > 1 {
        candidates.retain(|it| is_alike(it, own, true));
    }
    if candidates.len() > 1 {
        candidates.retain(|it| is_alike(it, own, false));
    }
    let same = |one: &Candidate, other: &Candidate| one.id.name == other.id.name;
    match candidates.as_slice() {
        [] => Ok(None),
        [first, rest @ ..] if rest.iter().all(|other| same(first, other)) => Ok(Some(first)),
        _ => Err(format!("{} {name} can mean several objects", link.target.1)),
    }
}

/// Whether both were given the same prefixes and suffixes, as far as both were given any.
fn is_alike(one: &Candidate, other: &Candidate, empty_is_alike: bool) -> bool {
    let ends = |one: &[String], other: &[String]| {
        if empty_is_alike && (one.is_empty() || other.is_empty()) {
            return true;
        }
        let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
        if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
    };
    ends(&one.prefixes, &other.prefixes) && ends(&one.suffixes, &other.suffixes)
}
