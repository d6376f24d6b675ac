//! Namespace, labels and annotations for all objects of a kustomization.

use serde_json::{Map, Value};

use super::fields::{Field, of, visit};
use super::piece::Piece;

const ANY_LABELS: Field = Field { group: None, kind: None, path: "metadata/labels", is_made: true };
const ANY_ANNOTATIONS: Field = Field { group: None, kind: None, path: "metadata/annotations", is_made: true };

const fn of_group(group: &'static str, kind: &'static str, path: &'static str, is_made: bool) -> Field {
    Field { group: Some(group), kind: Some(kind), path, is_made }
}

const TEMPLATES: &[Field] = &[
    of("ReplicationController", "spec/template/metadata/labels", true),
    of("Deployment", "spec/template/metadata/labels", true),
    of("ReplicaSet", "spec/template/metadata/labels", true),
    of("DaemonSet", "spec/template/metadata/labels", true),
    of_group("apps", "StatefulSet", "spec/template/metadata/labels", true),
    of_group("apps", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels", true),
    of_group("batch", "Job", "spec/template/metadata/labels", true),
    of_group("batch", "CronJob", "spec/jobTemplate/metadata/labels", true),
    of_group("batch", "CronJob", "spec/jobTemplate/spec/template/metadata/labels", true),
];
const TEMPLATE_ANNOTATIONS: &[Field] = &[
    of("ReplicationController", "spec/template/metadata/annotations", true),
    of("Deployment", "spec/template/metadata/annotations", true),
    of("ReplicaSet", "spec/template/metadata/annotations", true),
    of("DaemonSet", "spec/template/metadata/annotations", true),
    of("StatefulSet", "spec/template/metadata/annotations", true),
    of_group("batch", "Job", "spec/template/metadata/annotations", true),
    of_group("batch", "CronJob", "spec/jobTemplate/metadata/annotations", true),
    of_group("batch", "CronJob", "spec/jobTemplate/spec/template/metadata/annotations", true),
];
const SELECTORS: &[Field] = &[
    of("Service", "spec/selector", true),
    of("ReplicationController", "spec/selector", true),
    of("Deployment", "spec/selector/matchLabels", true),
    of("ReplicaSet", "spec/selector/matchLabels", true),
    of("DaemonSet", "spec/selector/matchLabels", true),
    of_group("apps", "StatefulSet", "spec/selector/matchLabels", true),
    of_group("batch", "Job", "spec/selector/matchLabels", false),
    of_group("batch", "CronJob", "spec/jobTemplate/spec/selector/matchLabels", false),
    of_group("policy", "PodDisruptionBudget", "spec/selector/matchLabels", false),
    of_group("networking.k8s.io", "NetworkPolicy", "spec/podSelector/matchLabels", false),
    of_group("networking.k8s.io", "NetworkPolicy", "spec/ingress/from/podSelector/matchLabels", false),
    of_group("networking.k8s.io", "NetworkPolicy", "spec/egress/to/podSelector/matchLabels", false),
];
/// Below the Pods of a Deployment or StatefulSet.
const IN_PODS: &[&str] = &[
    "affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "topologySpreadConstraints/labelSelector/matchLabels",
];

/// How far labels reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    Metadata,
    Templates,
    Selectors,
}

/// Sets labels.
pub(super) fn labels(pieces: &mut [Piece], labels: &Map<String, Value>, reach: Reach) {
    for piece in pieces {
        set(piece, &ANY_LABELS, labels);
        if reach != Reach::Metadata {
            TEMPLATES.iter().for_each(|field| set(piece, field, labels));
        }
        if reach == Reach::Selectors {
            SELECTORS.iter().for_each(|field| set(piece, field, labels));
            let id = piece.id();
            if id.group() == "apps" && matches!(id.kind.as_str(), "Deployment" | "StatefulSet") {
                for path in IN_PODS {
                    entries(&mut piece.value, &format!("spec/template/spec/{path}"), false, labels);
                }
            }
        }
    }
}

/// Sets annotations.
pub(super) fn annotations(pieces: &mut [Piece], annotations: &Map<String, Value>) {
    for piece in pieces {
        set(piece, &ANY_ANNOTATIONS, annotations);
        TEMPLATE_ANNOTATIONS.iter().for_each(|field| set(piece, field, annotations));
    }
}

fn set(piece: &mut Piece, field: &Field, pairs: &Map<String, Value>) {
    if field.is_of(&piece.id()) {
        entries(&mut piece.value, field.path, field.is_made, pairs);
    }
}

/// Sets entries of the mapping at a path.
pub(super) fn entries(value: &mut Value, path: &str, is_made: bool, pairs: &Map<String, Value>) {
    if pairs.is_empty() {
        return;
    }
    let made = Value::Object(Map::new());
    visit(value, path, is_made.then_some(&made), &mut |value| {
        if let Value::Object(known) = value {
            known.extend(pairs.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    });
}

/// Puts everything that can be in a namespace into this one.
pub(super) fn namespace(pieces: &mut [Piece], namespace: &str) -> Result<(), String> {
    for piece in pieces.iter_mut() {
        piece.remember();
        let id = piece.id();
        if !id.is_cluster_scoped() {
            piece.set("namespace", namespace);
        }
        let mut set = |path: &str, is_made: bool| {
            let made = Value::Null;
            let make = is_made.then_some(&made);
            visit(&mut piece.value, path, make, &mut |value| *value = namespace.into());
        };
        match (id.group(), id.kind.as_str()) {
            ("", "Namespace") => set("metadata/name", true),
            ("apiregistration.k8s.io", "APIService") => set("spec/service/namespace", true),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                set("spec/conversion/webhook/clientConfig/service/namespace", false);
            }
            (_, "RoleBinding" | "ClusterRoleBinding") => {
                let subjects = piece.value.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
                for subject in subjects.filter(|subject| subject["name"] == "default") {
                    subject["namespace"] = namespace.into();
                }
            }
            _ => {}
        }
    }
    for (index, piece) in pieces.iter().enumerate() {
        let id = piece.id();
        if pieces[..index].iter().any(|other| other.id().is(&id)) {
            return Err(format!("{} {} is there twice once all are in namespace {namespace}", id.kind, id.name));
        }
    }
    Ok(())
}
