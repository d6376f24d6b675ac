//! What of built-in kinds may not be changed.

use serde_json::{Value, json};

use super::pods;
use crate::kubernetes::kinds::Resource;
use crate::kubernetes::status::Cause;
use crate::kubernetes::{events, value};

/// What of an object may not be changed.
pub(crate) fn change(resource: &Resource, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_fixed = |path: &str, causes: &mut Vec<Cause>| {
        let (was, is) = (value::at(old, path), value::at(new, path));
        if was != is {
            causes.push(Cause::invalid(path, is.unwrap_or(&Value::Null), "field is immutable"));
        }
    };
    match resource.qualified().as_str() {
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" => is_fixed("spec.selector", &mut causes),
        "statefulsets.apps" => {
            let fixed = |object: &Value| {
                let mut spec = object["spec"].clone();
                for key in [
                    "replicas",
                    "ordinals",
                    "template",
                    "updateStrategy",
                    "revisionHistoryLimit",
                    "persistentVolumeClaimRetentionPolicy",
                    "minReadySeconds",
                ] {
                    value::remove(&mut spec, key);
                }
                spec
            };
            if fixed(old) != fixed(new) {
                let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                              'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
                causes.push(Cause::forbidden("spec", detail));
            }
        }
        "jobs.batch" => {
            is_fixed("spec.selector", &mut causes);
            is_fixed("spec.template", &mut causes);
            is_fixed("spec.completions", &mut causes);
        }
        "pods" => causes = pods::change(old, new),
        events::NEW => events::FIXED.iter().for_each(|path| is_fixed(path, &mut causes)),
        "endpointslices.discovery.k8s.io" => is_fixed("addressType", &mut causes),
        "secrets" | "configmaps" => {
            if value::is_true(old, "immutable") {
                for key in ["immutable", "data", "binaryData"] {
                    if value::at(old, key) != value::at(new, key) {
                        causes.push(Cause::forbidden(key, "field is immutable when `immutable` is set"));
                    }
                }
            }
            if resource.is("secrets") {
                is_fixed("type", &mut causes);
            }
        }
        "services" => {
            let (was, is) = (value::text(old, "spec.clusterIP"), value::text(new, "spec.clusterIP"));
            if was != is
                && !was.is_empty()
                && value::text(new, "spec.type") != "ExternalName"
                && value::text(old, "spec.type") != "ExternalName"
            {
                let detail = "may not change once set";
                causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([is]), detail));
            }
        }
        "clusterrolebindings.rbac.authorization.k8s.io" | "rolebindings.rbac.authorization.k8s.io"
            if old["roleRef"] != new["roleRef"] =>
        {
            let part = |key: &str| value::text(&new["roleRef"], key).to_owned();
            let shown = json!({ "APIGroup": part("apiGroup"), "Kind": part("kind"), "Name": part("name") });
            causes.push(Cause::invalid("roleRef", &shown, "cannot change roleRef"));
        }
        "persistentvolumeclaims" => {
            let fixed = |object: &Value| {
                let mut spec = object["spec"].clone();
                for key in ["resources", "volumeAttributesClassName", "volumeName"] {
                    value::remove(&mut spec, key);
                }
                spec
            };
            if fixed(old) != fixed(new) {
                let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
                causes.push(Cause::forbidden("spec", detail));
            }
        }
        "storageclasses.storage.k8s.io" => {
            for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                if value::at(old, key) != value::at(new, key) {
                    causes.push(if key == "parameters" || key == "provisioner" {
                        Cause::forbidden(key, &format!("updates to {key} are forbidden."))
                    } else {
                        Cause::invalid(key, value::at(new, key).unwrap_or(&Value::Null), "field is immutable")
                    });
                }
            }
        }
        "priorityclasses.scheduling.k8s.io" if old["value"] != new["value"] => {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        _ => {}
    }
    causes
}
