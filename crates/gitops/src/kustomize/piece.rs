//! What a build works on: an object, and who it was before it was renamed.

use serde_json::Value;

use super::{BuildError, fields};
use crate::object::{Object, group};
use crate::tree::Tree;
use crate::yaml::{self, Document, Lines};

/// Who an object is, at one moment of a build.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Id {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Id {
    pub(super) fn of(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    pub(super) fn group(&self) -> &str {
        group(&self.api_version)
    }

    /// Kustomize does not know the custom resources of anybody, nor what is newer than Kubernetes 1.21: to it they all have a
    /// namespace.
    pub(super) fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.iter().any(|(group, kinds)| *group == self.group() && kinds.contains(&self.kind.as_str()))
    }

    pub(super) fn effective_namespace(&self) -> &str {
        match self.namespace.as_str() {
            _ if self.is_cluster_scoped() => "",
            "" => "default",
            namespace => namespace,
        }
    }

    /// Whether both mean the same object.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.api_version == other.api_version
            && self.kind == other.kind
            && self.name == other.name
            && self.effective_namespace() == other.effective_namespace()
    }
}

/// Kinds that Kustomize puts into no namespace.
const CLUSTER_SCOPED: &[(&str, &[&str])] = &[
    ("", &["ComponentStatus", "Namespace", "Node", "NodeProxyOptions", "PersistentVolume"]),
    ("admissionregistration.k8s.io", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("certificates.k8s.io", &["CertificateSigningRequest"]),
    ("networking.k8s.io", &["IngressClass"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodSecurityPolicy"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    ("storage.k8s.io", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
];

/// Whether a group is of Kubernetes itself.
pub(super) fn is_built_in(group: &str) -> bool {
    !group.contains('.') || (group.ends_with(".k8s.io") && group != "gateway.networking.k8s.io")
}

/// An object in the making.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) value: Value,
    pub(super) file: String,
    pub(super) lines: Lines,
    /// Who it was, oldest first.
    pub(super) previous: Vec<Id>,
    pub(super) prefixes: Vec<String>,
    pub(super) suffixes: Vec<String>,
    /// Whether its name ends in a hash of its content.
    pub(super) is_hashed: bool,
}

impl Piece {
    pub(super) fn new(value: Value, file: &str, lines: Lines) -> Self {
        let (previous, prefixes, suffixes) = (Vec::new(), Vec::new(), Vec::new());
        Self { value, file: file.to_owned(), lines, previous, prefixes, suffixes, is_hashed: false }
    }

    pub(super) fn id(&self) -> Id {
        Id::of(&self.value)
    }

    /// Who it was at first.
    pub(super) fn first_id(&self) -> Id {
        self.previous.first().cloned().unwrap_or_else(|| self.id())
    }

    pub(super) fn was_ever(&self, id: &Id) -> bool {
        self.id().is(id) || self.previous.iter().any(|before| before.is(id))
    }

    /// Remembers who it is before that changes.
    pub(super) fn remember(&mut self) {
        self.previous.push(self.id());
    }

    pub(super) fn rename(&mut self, name: &str) {
        self.set("name", name);
    }

    pub(super) fn set(&mut self, key: &str, text: &str) {
        let path = format!("metadata/{key}");
        fields::visit(&mut self.value, &path, Some(&Value::Null), &mut |value| *value = text.into());
    }

    pub(super) fn into_object(self) -> Object {
        Object { value: self.value, file: self.file, lines: self.lines }
    }
}

/// The objects of a file, lists taken apart.
pub(super) fn load(tree: &Tree, file: &str) -> Result<Vec<Piece>, BuildError> {
    let bytes = tree.file(file).ok_or_else(|| BuildError::new(file, 1, "there is no such file"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| BuildError::new(file, 1, "this is not text in UTF-8"))?;
    objects(text, file, 1)
}

/// The objects of a text that begins at a line of a file.
pub(super) fn objects(text: &str, file: &str, first_line: usize) -> Result<Vec<Piece>, BuildError> {
    let documents = yaml::read(text)
        .map_err(|error| BuildError::new(file, error.line + first_line - 1, &format!("cannot be read: {error}")))?;
    let mut pieces = Vec::new();
    for Document { value, lines } in documents {
        let at = |lines: &Lines| if first_line == 1 { lines.clone() } else { Lines::at(lines.of("") + first_line - 1) };
        if !value.is_object() {
            return Err(BuildError::new(file, at(&lines).of(""), "this is no Kubernetes object: it is not a mapping"));
        }
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match value.get("items").and_then(Value::as_array) {
            Some(items) if is_list => {
                for (index, item) in items.iter().enumerate() {
                    let line = at(&lines).of(&format!("/items/{index}"));
                    pieces.push(Piece::new(item.clone(), file, Lines::at(line)));
                }
            }
            _ => pieces.push(Piece::new(value, file, at(&lines))),
        }
    }
    for piece in &pieces {
        let id = piece.id();
        let missing = if id.kind.is_empty() {
            "kind"
        } else if id.name.is_empty() && piece.value.pointer("/metadata/generateName").is_none() {
            "metadata.name"
        } else {
            continue;
        };
        return Err(BuildError::new(
            file,
            piece.lines.of(""),
            &format!("this is no Kubernetes object: it has no {missing}"),
        ));
    }
    Ok(pieces)
}
