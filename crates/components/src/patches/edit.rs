//! Objects while they are changed.

use castle_kubernetes::model::Object;
use castle_spec::ComponentName;
use serde_json::{Map, Value, json};

use super::PatchError;

/// The objects of a component.
pub(crate) struct Objects {
    pub(super) component: ComponentName,
    /// The namespace that it is to live in.
    pub(super) namespace: &'static str,
    pub(super) all: Vec<Value>,
}

impl Objects {
    pub(super) fn new(component: ComponentName, namespace: &'static str, objects: &[Object]) -> Self {
        Self { component, namespace, all: objects.iter().map(|object| object.value().clone()).collect() }
    }

    pub(super) fn finish(self) -> Result<Vec<Object>, PatchError> {
        let component = self.component;
        let what = || "kind and name in each object".to_owned();
        let object = |value| {
            Object::new(value).ok_or_else(|| PatchError::Missing { component, what: what(), purpose: "apply them" })
        };
        self.all.into_iter().map(object).collect()
    }

    pub(super) fn missing(&self, what: impl Into<String>, purpose: &'static str) -> PatchError {
        PatchError::Missing { component: self.component, what: what.into(), purpose }
    }

    /// Those of a kind.
    pub(super) fn of_kind<'o>(&'o mut self, kind: &'o str) -> impl Iterator<Item = &'o mut Value> {
        self.all.iter_mut().filter(move |object| object["kind"] == kind)
    }

    /// The one of this kind and name.
    pub(super) fn one(&mut self, kind: &str, name: &str, purpose: &'static str) -> Result<&mut Value, PatchError> {
        let missing = self.missing(format!("{kind} {name}"), purpose);
        self.all.iter_mut().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).ok_or(missing)
    }

    /// A container of a Deployment or DaemonSet.
    pub(super) fn container(
        &mut self,
        (kind, name): (&str, &str),
        container: &str,
        purpose: &'static str,
    ) -> Result<&mut Map<String, Value>, PatchError> {
        let missing = self.missing(format!("container {container} in {kind} {name}"), purpose);
        self.one(kind, name, purpose)?
            .pointer_mut("/spec/template/spec/containers")
            .and_then(Value::as_array_mut)
            .and_then(|containers| containers.iter_mut().find(|one| one["name"] == container))
            .and_then(Value::as_object_mut)
            .ok_or(missing)
    }

    /// Lets Pods in the component's namespace do what PodSecurity would forbid.
    pub(super) fn privilege(&mut self) -> Result<(), PatchError> {
        let name = self.namespace;
        let missing = self.missing(format!("metadata in Namespace {name}"), PRIVILEGE);
        let metadata = self.one("Namespace", name, PRIVILEGE)?["metadata"].as_object_mut().ok_or(missing)?;
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        for mode in ["enforce", "audit", "warn"] {
            labels[format!("pod-security.kubernetes.io/{mode}")] = "privileged".into();
        }
        Ok(())
    }

    /// Takes away what says that Helm installs it: castle does.
    pub(super) fn without_helm(&mut self) {
        for object in &mut self.all {
            for place in ["/metadata/labels", "/spec/template/metadata/labels"] {
                let Some(labels) = object.pointer_mut(place).and_then(Value::as_object_mut) else { continue };
                labels.shift_remove("helm.sh/chart");
                if labels.get("app.kubernetes.io/managed-by").is_some_and(|by| by == "Helm") {
                    labels.shift_remove("app.kubernetes.io/managed-by");
                }
            }
        }
    }
}

const PRIVILEGE: &str = "let its Pods reach their hosts, which Talos forbids otherwise";
