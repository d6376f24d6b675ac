//! What changes on an object when it goes from one owner to another: never what it is, only who says so.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{KUSTOMIZE, Managed, Mark, Object, leaves};

/// The managers by which Flux applies: from a tree, and from a chart.
const CONTROLLERS: [&str; 2] = ["kustomize-controller", "helm-controller"];

/// The annotations that keep Flux from an object it has listed: it neither applies nor prunes it.
const PAUSE: [&str; 2] = ["kustomize.toolkit.fluxcd.io/reconcile", "kustomize.toolkit.fluxcd.io/prune"];

/// Whether Flux is kept from an object while it still lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It is: castle takes the object over.
    On,
    /// It need not be.
    Off,
}

impl Pause {
    /// The object as castle wants it meanwhile.
    #[must_use]
    pub fn of(self, mut object: Object) -> Object {
        if let (Self::On, Value::Object(metadata)) = (self, &mut object.value_mut()["metadata"]) {
            let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(annotations) = annotations {
                annotations.extend(PAUSE.map(|name| (name.to_owned(), "disabled".into())));
            }
        }
        object
    }
}

fn is_flux(managed: &Managed<'_>) -> bool {
    managed.subresource.is_empty() && CONTROLLERS.contains(&managed.manager)
}

/// The fields that would change if castle let go: those it has applied and Flux has not, as paths. What castle alone says of an
/// object, its mark and the pause, is not among them. A mark that Flux says, too, is: it would stay behind.
#[must_use]
pub fn unshared(object: &Object) -> BTreeSet<String> {
    let Some(castle) = Managed::castle(object) else { return BTreeSet::new() };
    let flux: BTreeSet<String> =
        Managed::of(object).filter(is_flux).flat_map(|managed| leaves(managed.fields)).collect();
    let marks = Mark::LABELS.map(|label| format!(".metadata.labels.{label}"));
    let pauses = PAUSE.map(|annotation| format!(".metadata.annotations.{annotation}"));
    let is_own = |field: &String| marks.contains(field) || pauses.contains(field);
    // An empty map is a leaf, until somebody says more of it.
    let is_held = |field: &String| {
        let below = |own: &String| own.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['.', '[']));
        flux.contains(field) || flux.iter().any(below)
    };
    let castle = leaves(castle.fields);
    let lacking = castle.iter().filter(|field| !is_own(field) && !is_held(field)).cloned();
    lacking.chain(marks.iter().filter(|mark| flux.contains(*mark)).cloned()).collect()
}

/// What to change in the metadata of an object so that Flux no longer takes it for its own: its labels go, and with [`Pause::Off`]
/// the fields that it manages are managed by it no more. Nothing if there is nothing to change.
#[must_use]
pub fn sole(object: &Object, pause: Pause) -> Option<Map<String, Value>> {
    let mut metadata = Map::new();
    let labels: Map<String, Value> = KUSTOMIZE
        .into_iter()
        .filter(|label| object.label(label).is_some())
        .map(|label| (label.to_owned(), Value::Null))
        .collect();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), labels.into());
    }
    if pause == Pause::Off && Managed::of(object).any(|managed| is_flux(&managed)) {
        let is_kept = |entry: &&Value| {
            let is_of_status = entry["subresource"].as_str().is_some_and(|subresource| !subresource.is_empty());
            is_of_status || entry["manager"].as_str().is_none_or(|manager| !CONTROLLERS.contains(&manager))
        };
        let kept: Vec<Value> = object.list("/metadata/managedFields").iter().filter(is_kept).cloned().collect();
        // An empty list means that nothing was said of it.
        if !kept.is_empty() {
            metadata.insert("managedFields".to_owned(), kept.into());
        }
    }
    (!metadata.is_empty()).then_some(metadata)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::owners;
    use super::*;

    fn object(labels: &Value, managed: &[(&str, &str, Value)]) -> Object {
        let managed: Vec<Value> = managed
            .iter()
            .map(|(manager, operation, fields)| json!({"manager": manager, "operation": operation, "fieldsV1": fields}))
            .collect();
        let metadata = json!({"name": "a", "labels": labels, "managedFields": managed});
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    }

    fn marked(more: &Value) -> Value {
        let labels = json!({"f:castle.dev/castle": {}, "f:castle.dev/component": {}, "f:castle.dev/layer": {}});
        let mut fields = json!({"f:metadata": {"f:labels": labels}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    }

    fn told(object: &Object) -> Vec<String> {
        unshared(object).into_iter().collect()
    }

    #[test]
    fn what_castle_alone_says_is_found_but_for_its_mark_and_the_pause() {
        let mut own = marked(&json!({"f:data": {"f:a": {}, "f:b": {}}, "f:spec": {"f:empty": {}}}));
        own["f:metadata"]["f:annotations"] = json!({"f:kustomize.toolkit.fluxcd.io/prune": {}});
        let flux = json!({"f:data": {"f:a": {}}, "f:spec": {"f:empty": {"f:more": {}}}});
        let found = object(&json!({}), &[("castle", "Apply", own), ("kustomize-controller", "Apply", flux)]);
        assert_eq!(told(&found), [".data.b"]);
    }

    #[test]
    fn a_status_or_a_person_holds_nothing_for_flux_and_a_chart_does() {
        let own = marked(&json!({"f:data": {"f:a": {}}}));
        let data = json!({"f:data": {"f:a": {}}});
        let person = object(&json!({}), &[("castle", "Apply", own.clone()), ("kubectl", "Apply", data.clone())]);
        assert_eq!(told(&person), [".data.a"]);
        let chart = object(&json!({}), &[("castle", "Apply", own), ("helm-controller", "Update", data)]);
        assert!(told(&chart).is_empty());
    }

    #[test]
    fn a_mark_in_the_tree_would_stay_behind() {
        let own = marked(&json!({}));
        let found = object(&json!({}), &[("castle", "Apply", own.clone()), ("kustomize-controller", "Apply", own)]);
        assert_eq!(told(&found).first().unwrap(), ".metadata.labels.castle.dev/castle");
    }

    #[test]
    fn flux_loses_its_labels_first_and_its_fields_last() {
        let labels =
            json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "f", "x": "y"});
        let data = json!({"f:data": {"f:a": {}}});
        let managed = [("castle", "Apply", data.clone()), ("kustomize-controller", "Apply", data)];
        let both = object(&labels, &managed);
        let first = sole(&both, Pause::On).unwrap();
        let gone = json!({"kustomize.toolkit.fluxcd.io/name": null, "kustomize.toolkit.fluxcd.io/namespace": null});
        assert_eq!(Value::from(first), json!({ "labels": gone }));
        let last = sole(&both, Pause::Off).unwrap();
        let managers: Vec<&Value> = last["managedFields"].as_array().unwrap().iter().map(|it| &it["manager"]).collect();
        assert_eq!(managers, ["castle"]);
        assert_eq!(sole(&object(&json!({"x": "y"}), &managed), Pause::On), None);
        assert_eq!(sole(&object(&json!({"x": "y"}), &managed[..1]), Pause::Off), None);
    }

    /// As a real API server keeps them after castle has applied MetalLB, and after Flux has, by force.
    fn recorded() -> Vec<Object> {
        let all: Vec<Value> = serde_json::from_str(include_str!("handover/recorded.json")).unwrap();
        all.into_iter().map(|value| Object::new(value).unwrap()).collect()
    }

    #[test]
    fn what_a_real_server_keeps_is_shared_whole_and_contested() {
        assert_eq!(recorded().len(), 3);
        for object in recorded() {
            assert_eq!(told(&object), Vec::<String>::new(), "{object:?}");
            let found = owners(&object, &BTreeMap::new());
            let names: Vec<String> = found.claims.iter().map(|claim| claim.owner.to_string()).collect();
            assert_eq!(names, ["castle (storage/metallb of blue)", "Flux (Kustomization flux-system/apps)"]);
            assert!(found.is_contested(), "{object:?}");
            let alone = sole(&object, Pause::Off).unwrap();
            assert_eq!(alone["labels"].as_object().unwrap().len(), 2);
            let left = alone["managedFields"].as_array().unwrap();
            assert!(
                left.iter().all(|entry| entry["manager"] != "kustomize-controller") && !left.is_empty(),
                "{object:?}"
            );
        }
    }

    #[test]
    fn what_only_castle_would_say_to_a_real_server_is_found() {
        let mut object = recorded().into_iter().find(|object| object.text("/kind") == "Deployment").unwrap();
        let entries = object.value_mut()["metadata"]["managedFields"].as_array_mut().unwrap();
        let flux = entries.iter_mut().find(|entry| entry["manager"] == "kustomize-controller").unwrap();
        flux["fieldsV1"]["f:spec"].as_object_mut().unwrap().remove("f:revisionHistoryLimit");
        assert_eq!(told(&object), [".spec.revisionHistoryLimit"]);
    }

    #[test]
    fn a_pause_is_two_annotations() {
        let paused = Pause::On.of(object(&json!({}), &[]));
        assert_eq!(paused.annotation("kustomize.toolkit.fluxcd.io/reconcile"), Some("disabled"));
        assert_eq!(paused.annotation("kustomize.toolkit.fluxcd.io/prune"), Some("disabled"));
        assert_eq!(Pause::Off.of(object(&json!({}), &[])).at("/metadata/annotations"), &Value::Null);
    }
}
