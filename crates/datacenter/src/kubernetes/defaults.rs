//! What built-in kinds are given where nothing was said. Defaults belong to types, wherever a value of the type is.

use serde_json::{Value, json};

use super::schema::{Definition, Type};
use super::value::{self, default};

/// Counts the templates of a set of daemons.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Gives an object and everything in it its defaults.
pub(crate) fn apply(definition: &Definition, object: &mut Value) {
    let Some(members) = object.as_object_mut() else { return };
    for (name, member) in members.iter_mut() {
        if let Some(field) = definition.fields.get(name) {
            descend(&field.ty, member);
        }
    }
    for (name, field) in &definition.fields {
        if let Some(value) = &field.default
            && object.get(name).is_none_or(|known| known.is_null() || known == "")
        {
            value::set(object, name, value.clone());
        }
    }
    of_type(&definition.name, object);
}

fn descend(ty: &Type, value: &mut Value) {
    match ty {
        Type::Named(_) => {
            if let Some(definition) = ty.definition().filter(|definition| definition.alias.is_none()) {
                apply(definition, value);
            }
        }
        Type::List(item) => value.as_array_mut().into_iter().flatten().for_each(|member| descend(item, member)),
        Type::Map(item) => value.as_object_mut().into_iter().flatten().for_each(|(_, member)| descend(item, member)),
        _ => {}
    }
}

/// Writes where there is nothing, or an empty text, or zero.
fn fill(object: &mut Value, key: &str, value: impl Into<Value>) {
    let known = object.get(key);
    if known.is_none_or(|known| known.is_null() || known == "" || *known == json!(0)) {
        value::set(object, key, value);
    }
}

fn of_type(name: &str, object: &mut Value) {
    match name {
        "core.v1.PodSpec" => {
            fill(object, "dnsPolicy", "ClusterFirst");
            fill(object, "restartPolicy", "Always");
            default(object, "securityContext", json!({}));
            default(object, "terminationGracePeriodSeconds", 30);
            fill(object, "schedulerName", "default-scheduler");
            // The older name of the same field is always written along.
            let account = [value::text(object, "serviceAccountName"), value::text(object, "serviceAccount")];
            let account = account.into_iter().find(|name| !name.is_empty()).map(Value::from);
            if let Some(account) = account {
                value::set(object, "serviceAccountName", account.clone());
                value::set(object, "serviceAccount", account);
            }
        }
        "core.v1.Container" | "core.v1.EphemeralContainer" => {
            let policy = pull_policy(value::text(object, "image"));
            fill(object, "imagePullPolicy", policy);
            fill(object, "terminationMessagePath", "/dev/termination-log");
            fill(object, "terminationMessagePolicy", "File");
        }
        "core.v1.Probe" => {
            fill(object, "timeoutSeconds", 1);
            fill(object, "periodSeconds", 10);
            fill(object, "successThreshold", 1);
            fill(object, "failureThreshold", 3);
            if let Some(grpc) = object.get_mut("grpc") {
                default(grpc, "service", "");
            }
        }
        "core.v1.HTTPGetAction" => {
            fill(object, "path", "/");
            fill(object, "scheme", "HTTP");
        }
        "core.v1.Volume" => {
            if object.as_object().is_some_and(|members| members.keys().all(|key| key == "name")) {
                value::set(object, "emptyDir", json!({}));
            }
        }
        "core.v1.SecretVolumeSource"
        | "core.v1.ConfigMapVolumeSource"
        | "core.v1.DownwardAPIVolumeSource"
        | "core.v1.ProjectedVolumeSource" => default(object, "defaultMode", 0o644),
        "core.v1.HostPathVolumeSource" => default(object, "type", ""),
        "core.v1.ServiceAccountTokenProjection" => default(object, "expirationSeconds", 3_600),
        "core.v1.ObjectFieldSelector" => fill(object, "apiVersion", "v1"),
        "core.v1.Secret" => secret(object),
        "core.v1.Service" => service(object),
        "core.v1.Pod" => pod(object),
        "core.v1.Namespace" => {
            let name = value::name(object).to_owned();
            if !name.is_empty() {
                value::place(object, "metadata.labels")["kubernetes.io/metadata.name"] = json!(name);
            }
            default(object, "status.phase", "Active");
        }
        "core.v1.NodeStatus" => {
            if object.get("allocatable").is_none()
                && let Some(capacity) = object.get("capacity").cloned()
            {
                value::set(object, "allocatable", capacity);
            }
        }
        "core.v1.PersistentVolume" => {
            default(object, "status.phase", "Pending");
            default(object, "spec.persistentVolumeReclaimPolicy", "Retain");
            default(object, "spec.volumeMode", "Filesystem");
        }
        "core.v1.PersistentVolumeClaim" => default(object, "status.phase", "Pending"),
        "core.v1.PersistentVolumeClaimSpec" => default(object, "volumeMode", "Filesystem"),
        "core.v1.LimitRangeItem" if value::text(object, "type") == "Container" => limits(object),
        "core.v1.EndpointPort" | "networking.v1.NetworkPolicyPort" => fill(object, "protocol", "TCP"),
        "discovery.v1.EndpointPort" => {
            default(object, "name", "");
            default(object, "protocol", "TCP");
        }
        _ => of_group(name, object),
    }
}

/// The defaults of groups besides the core.
fn of_group(name: &str, object: &mut Value) {
    match name {
        "apps.v1.Deployment" => {
            default(object, "spec.replicas", 1);
            fill(value::place(object, "spec.strategy"), "type", "RollingUpdate");
            if value::text(object, "spec.strategy.type") == "RollingUpdate" {
                default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
                default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
            }
            default(object, "spec.revisionHistoryLimit", 10);
            default(object, "spec.progressDeadlineSeconds", 600);
        }
        "apps.v1.ReplicaSet" => default(object, "spec.replicas", 1),
        "apps.v1.DaemonSet" => {
            let annotations = value::place(object, "metadata.annotations");
            if annotations.get(TEMPLATE_GENERATION).is_none() {
                annotations[TEMPLATE_GENERATION] = json!("1");
            }
            fill(value::place(object, "spec.updateStrategy"), "type", "RollingUpdate");
            if value::text(object, "spec.updateStrategy.type") == "RollingUpdate" {
                default(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
                default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
            }
            default(object, "spec.revisionHistoryLimit", 10);
        }
        "apps.v1.StatefulSet" => {
            fill(value::place(object, "spec"), "podManagementPolicy", "OrderedReady");
            if value::text(object, "spec.updateStrategy.type").is_empty() {
                value::set(object, "spec.updateStrategy.type", "RollingUpdate");
                default(object, "spec.updateStrategy.rollingUpdate.partition", 0);
            }
            default(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
            default(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
            default(object, "spec.replicas", 1);
            default(object, "spec.revisionHistoryLimit", 10);
            for claim in value::place(object, "spec.volumeClaimTemplates").as_array_mut().into_iter().flatten() {
                default(claim, "apiVersion", "v1");
                default(claim, "kind", "PersistentVolumeClaim");
            }
            if value::at(object, "spec.volumeClaimTemplates") == Some(&Value::Null) {
                value::remove(object, "spec.volumeClaimTemplates");
            }
        }
        "autoscaling.v2.HorizontalPodAutoscaler" => autoscaler(object),
        "batch.v1.Job" => job(object),
        "batch.v1.CronJob" => {
            fill(value::place(object, "spec"), "concurrencyPolicy", "Allow");
            default(object, "spec.suspend", false);
            default(object, "spec.successfulJobsHistoryLimit", 3);
            default(object, "spec.failedJobsHistoryLimit", 1);
        }
        "admissionregistration.v1.ValidatingWebhook" | "admissionregistration.v1.MutatingWebhook" => {
            default(object, "failurePolicy", "Fail");
            default(object, "matchPolicy", "Equivalent");
            default(object, "namespaceSelector", json!({}));
            default(object, "objectSelector", json!({}));
            default(object, "timeoutSeconds", 10);
            if name.ends_with("MutatingWebhook") {
                default(object, "reinvocationPolicy", "Never");
            }
        }
        "admissionregistration.v1.RuleWithOperations" => default(object, "scope", "*"),
        "admissionregistration.v1.ServiceReference"
        | "apiextensions.v1.ServiceReference"
        | "apiregistration.v1.ServiceReference" => default(object, "port", 443),
        "networking.v1.NetworkPolicy" if value::items(object, "spec.policyTypes").is_empty() => {
            let has_egress = !value::items(object, "spec.egress").is_empty();
            let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            value::set(object, "spec.policyTypes", types);
        }
        "rbac.v1.ClusterRoleBinding" | "rbac.v1.RoleBinding" => {
            fill(value::place(object, "roleRef"), "apiGroup", "rbac.authorization.k8s.io");
        }
        "rbac.v1.Subject" if ["User", "Group"].contains(&value::text(object, "kind")) => {
            fill(object, "apiGroup", "rbac.authorization.k8s.io");
        }
        "storage.v1.StorageClass" => {
            default(object, "reclaimPolicy", "Delete");
            default(object, "volumeBindingMode", "Immediate");
        }
        "storage.v1.CSIDriverSpec" => {
            default(object, "attachRequired", true);
            for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
                default(object, key, false);
            }
            default(object, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            if value::items(object, "volumeLifecycleModes").is_empty() {
                value::set(object, "volumeLifecycleModes", json!(["Persistent"]));
            }
        }
        "scheduling.v1.PriorityClass" => default(object, "preemptionPolicy", "PreemptLowerPriority"),
        "apiextensions.v1.CustomResourceDefinition" => definition(object),
        _ => {}
    }
}

/// Images without a tag, or with the tag `latest`, are always pulled.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

fn autoscaler(object: &mut Value) {
    default(object, "spec.minReplicas", 1);
    if value::items(object, "spec.metrics").is_empty() {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metrics = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
        value::set(object, "spec.metrics", metrics);
    }
    let Some(behavior) = object.pointer_mut("/spec/behavior").filter(|it| it.is_object()) else { return };
    let policy = |kind: &str, number: i64| json!({ "type": kind, "value": number, "periodSeconds": 15 });
    default(behavior, "scaleUp.stabilizationWindowSeconds", 0);
    for (key, policies) in [
        ("scaleUp", json!([policy("Pods", 4), policy("Percent", 100)])),
        ("scaleDown", json!([policy("Percent", 100)])),
    ] {
        default(behavior, &format!("{key}.selectPolicy"), "Max");
        default(behavior, &format!("{key}.policies"), policies);
    }
}

fn secret(object: &mut Value) {
    use base64::Engine;
    fill(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = value::remove(object, "stringData") {
        let data = value::place(object, "data");
        for (key, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            value::set(data, &key.replace('.', "\u{0}"), encoded);
        }
        // Keys hold dots, which paths cannot.
        if let Some(members) = data.as_object_mut() {
            *members =
                std::mem::take(members).into_iter().map(|(key, value)| (key.replace('\u{0}', "."), value)).collect();
        }
    }
}

fn service(object: &mut Value) {
    let spec = value::place(object, "spec");
    fill(spec, "sessionAffinity", "None");
    match value::text(spec, "sessionAffinity") {
        "None" => drop(value::remove(spec, "sessionAffinityConfig")),
        _ => default(spec, "sessionAffinityConfig.clientIP.timeoutSeconds", 10_800),
    }
    fill(spec, "type", "ClusterIP");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", "TCP");
        let own = port.get("port").cloned().unwrap_or_default();
        fill(port, "targetPort", own);
    }
    let kind = value::text(spec, "type").to_owned();
    let has_external = !value::items(spec, "externalIPs").is_empty();
    if ["NodePort", "LoadBalancer"].contains(&kind.as_str()) || kind == "ClusterIP" && has_external {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
        let ingress = object.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for way in ingress.into_iter().flatten().filter(|way| way.get("ip").is_some()) {
            default(way, "ipMode", "VIP");
        }
    }
}

fn pod(object: &mut Value) {
    default(object, "spec.enableServiceLinks", true);
    let is_on_host = value::is_true(object, "spec.hostNetwork");
    for list in ["containers", "initContainers"] {
        let containers = object.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(limits) = value::at(container, "resources.limits").cloned() {
                let requests = value::place(container, "resources.requests");
                for (name, limit) in limits.as_object().into_iter().flatten() {
                    if requests.get(name).is_none() {
                        requests[name.as_str()] = limit.clone();
                    }
                }
            }
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|_| is_on_host) {
                let own = port.get("containerPort").cloned().unwrap_or_default();
                fill(port, "hostPort", own);
            }
        }
    }
    default(object, "status.phase", "Pending");
    if value::at(object, "status.qosClass").is_none() {
        let class = super::validate::pods::quality(object);
        value::set(object, "status.qosClass", class);
    }
}

fn limits(object: &mut Value) {
    let lay = |object: &mut Value, from: &str, into: &str| {
        let known = object.get(from).cloned().unwrap_or_default();
        let target = value::place(object, into);
        if target.is_null() {
            *target = json!({});
        }
        for (key, value) in known.as_object().into_iter().flatten() {
            if target.get(key).is_none() {
                target[key.as_str()] = value.clone();
            }
        }
    };
    lay(object, "max", "default");
    lay(object, "default", "defaultRequest");
    lay(object, "min", "defaultRequest");
}

fn job(object: &mut Value) {
    if value::at(object, "spec.parallelism").is_none() && value::at(object, "spec.completions").is_none() {
        default(object, "spec.completions", 1);
    }
    default(object, "spec.parallelism", 1);
    default(object, "spec.backoffLimit", 6);
    if value::at(object, "metadata.labels").is_none()
        && let Some(labels) = value::at(object, "spec.template.metadata.labels").cloned()
    {
        value::set(object, "metadata.labels", labels);
    }
    default(object, "spec.completionMode", "NonIndexed");
    default(object, "spec.suspend", false);
    let has_policy = value::at(object, "spec.podFailurePolicy").is_some();
    default(object, "spec.podReplacementPolicy", if has_policy { "Failed" } else { "TerminatingOrFailed" });
    default(object, "spec.manualSelector", false);
}

fn definition(object: &mut Value) {
    let kind = value::text(object, "spec.names.kind").to_owned();
    let names = value::place(object, "spec.names");
    fill(names, "singular", kind.to_lowercase());
    if !kind.is_empty() {
        fill(names, "listKind", format!("{kind}List"));
    }
    default(object, "spec.conversion.strategy", "None");
    if value::items(object, "status.storedVersions").is_empty() {
        let stored = value::items(object, "spec.versions").iter().find(|version| value::is_true(version, "storage"));
        let stored: Vec<Value> = stored.and_then(|version| version.get("name").cloned()).into_iter().collect();
        value::set(object, "status.storedVersions", stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::schema::definitions;

    fn defaulted(name: &str, mut object: Value) -> Value {
        let definition = definitions().named(name).unwrap();
        crate::kubernetes::decode::normalise(definition, &mut object);
        apply(definition, &mut object);
        object
    }

    #[test]
    fn a_deployment_gets_what_the_real_server_gives_it() {
        let object = defaulted(
            "apps.v1.Deployment",
            json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "a", "image": "x:1", "ports": [{ "containerPort": 80 }], "readinessProbe": { "httpGet": { "port": 80 } } },
        ] } } } }),
        );
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(
            object["spec"]["strategy"],
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } })
        );
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["readinessProbe"]["httpGet"], json!({ "port": 80, "path": "/", "scheme": "HTTP" }));
        assert_eq!(object["spec"]["template"]["spec"].get("enableServiceLinks"), None, "only pods have it");
    }

    #[test]
    fn images_without_a_tag_are_always_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn texts_of_a_secret_become_data() {
        let object = defaulted("core.v1.Secret", json!({ "stringData": { "a.b": "x" }, "data": { "c": "eQ==" } }));
        assert_eq!(object["data"], json!({ "c": "eQ==", "a.b": "eA==" }));
        assert_eq!(object["type"], "Opaque");
    }
}
