//! The mistakes that are made with built-in kinds.

use serde_json::{Value, json};

use super::{autoscaling, pods};
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::status::Cause;
use crate::kubernetes::{certificates, events, value};

/// The most bytes of the data of a secret or a configuration.
const DATA_LIMIT: usize = 1 << 20;

/// What is wrong with an object of a built-in kind.
pub(crate) fn content(collection: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match collection {
        "pods" => causes = pods::spec(&object["spec"], "spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            workload(object, &mut causes);
        }
        "jobs.batch" => job(object, "spec", &mut causes),
        "cronjobs.batch" => {
            let schedule = value::text(object, "spec.schedule");
            let count = schedule.split_whitespace().count();
            if schedule.is_empty() {
                causes.push(Cause::required("spec.schedule", ""));
            } else if count != 5 && !schedule.starts_with('@') {
                let words: Vec<&str> = schedule.split_whitespace().collect();
                let detail = format!("expected exactly 5 fields, found {count}: [{}]", words.join(" "));
                causes.push(Cause::invalid("spec.schedule", &json!(schedule), &detail));
            }
            job(&json!({ "spec": value::at(object, "spec.jobTemplate.spec") }), "spec.jobTemplate.spec", &mut causes);
        }
        "services" => service(object, &mut causes),
        "secrets" => secret(object, &mut causes),
        "configmaps" => config(object, &mut causes),
        "clusterroles.rbac.authorization.k8s.io" | "roles.rbac.authorization.k8s.io" => rules(object, &mut causes),
        "clusterrolebindings.rbac.authorization.k8s.io" | "rolebindings.rbac.authorization.k8s.io" => {
            binding(object, collection.starts_with("role"), &mut causes);
        }
        "validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "mutatingwebhookconfigurations.admissionregistration.k8s.io" => {
            webhooks(object, &mut causes);
        }
        "endpointslices.discovery.k8s.io" => {
            for (at, endpoint) in value::items(object, "endpoints").iter().enumerate() {
                for (item, address) in value::items(endpoint, "addresses").iter().enumerate() {
                    if address
                        .as_str()
                        .and_then(|text| text.parse::<std::net::IpAddr>().ok())
                        .is_some_and(|ip| ip.is_loopback())
                    {
                        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
                        causes.push(Cause::invalid(&format!("endpoints[{at}].addresses[{item}]"), address, detail));
                    }
                }
            }
        }
        "ingresses.networking.k8s.io" => {
            for (at, rule) in value::items(object, "spec.rules").iter().enumerate() {
                for (item, path) in value::items(rule, "http.paths").iter().enumerate() {
                    if value::text(path, "pathType").is_empty() {
                        let place = format!("spec.rules[{at}].http.paths[{item}].pathType");
                        causes.push(Cause::required(&place, "pathType must be specified"));
                    }
                }
            }
        }
        "events" => {
            let (own, about) = (value::namespace(object), value::text(object, "involvedObject.namespace"));
            let expected = if about.is_empty() { "default" } else { about };
            if own != expected {
                let detail = "does not match event.namespace";
                causes.push(Cause::invalid("involvedObject.namespace", &json!(about), detail));
            }
        }
        events::NEW => causes = events::faults(object),
        certificates::REQUESTS => causes = certificates::faults(object),
        "horizontalpodautoscalers.autoscaling" => causes = autoscaling::faults(&object["spec"]),
        "namespaces" => security_labels(object, &mut causes),
        "storageclasses.storage.k8s.io" if value::text(object, "provisioner").is_empty() => {
            causes.push(Cause::required("provisioner", ""));
        }
        "persistentvolumeclaims" => {
            if value::items(object, "spec.accessModes").is_empty() {
                causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
            }
            if value::at(object, "spec.resources.requests.storage").is_none() {
                causes.push(Cause::required("spec.resources[storage]", ""));
            }
        }
        "priorityclasses.scheduling.k8s.io" => {
            let (name, number) = (value::name(object), value::number(object, "value").unwrap_or(0));
            let is_system = ["system-node-critical", "system-cluster-critical"].contains(&name);
            if name.starts_with("system-") && !is_system {
                let detail = "priority class names with 'system-' prefix are reserved for system use only. error: is not a known system priority class";
                causes.push(Cause::forbidden("metadata.name", detail));
            } else if number > 1_000_000_000 && !is_system {
                let detail = "maximum allowed value of a user defined priority is 1000000000";
                causes.push(Cause::forbidden("value", detail));
            }
        }
        _ => {}
    }
    causes
}

/// The labels that say how much pods of a namespace are allowed.
fn security_labels(object: &Value, causes: &mut Vec<Cause>) {
    for (key, given) in value::members(object, "metadata.labels") {
        let Some(mode) = key.strip_prefix("pod-security.kubernetes.io/") else { continue };
        let word = given.as_str().unwrap_or_default();
        let detail = if let Some(mode) = mode.strip_suffix("-version") {
            let minor = word.strip_prefix("v1.").unwrap_or_default();
            let is_known = word == "latest" || !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
            (["enforce", "audit", "warn"].contains(&mode) && !is_known).then_some("must be \"latest\" or \"v1.x\"")
        } else {
            let is_known = ["privileged", "baseline", "restricted"].contains(&word);
            let detail = "must be one of privileged, baseline, restricted";
            (["enforce", "audit", "warn"].contains(&mode) && !is_known).then_some(detail)
        };
        if let Some(detail) = detail {
            causes.push(Cause::invalid(&format!("metadata.labels[{key}]"), given, detail));
        }
    }
}

fn workload(object: &Value, causes: &mut Vec<Cause>) {
    if let Some(replicas) = value::number(object, "spec.replicas").filter(|replicas| *replicas < 0) {
        causes.push(Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0"));
    }
    let selector = value::at(object, "spec.selector").filter(|selector| !selector.is_null());
    let labels = value::at(object, "spec.template.metadata.labels").unwrap_or(&Value::Null);
    match selector {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(selector) if Labels::of(selector).is_empty() => {
            causes.push(Cause::invalid("spec.selector", selector, "empty selector is invalid for deployment"));
        }
        Some(_) => {}
    }
    if selector.is_none_or(|selector| !Labels::of(selector).fits(labels)) {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    causes.extend(pods::spec(&object["spec"]["template"]["spec"], "spec.template.spec"));
    let policy = value::text(object, "spec.template.spec.restartPolicy");
    if ["OnFailure", "Never"].contains(&policy) {
        causes.push(Cause::unsupported("spec.template.spec.restartPolicy", &json!(policy), &["Always"]));
    }
}

fn job(object: &Value, path: &str, causes: &mut Vec<Cause>) {
    causes.extend(pods::spec(&object["spec"]["template"]["spec"], &format!("{path}.template.spec")));
    let policy = value::text(object, "spec.template.spec.restartPolicy");
    if !["OnFailure", "Never"].contains(&policy) {
        causes.push(Cause::required(
            &format!("{path}.template.spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
}

fn service(object: &Value, causes: &mut Vec<Cause>) {
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let kind = value::text(object, "spec.type");
    let ports = value::items(object, "spec.ports");
    let is_headless = value::text(object, "spec.clusterIP") == "None";
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        let place = format!("spec.ports[{at}]");
        let name = value::text(port, "name");
        if ports.len() > 1 && name.is_empty() {
            causes.push(Cause::required(&format!("{place}.name"), ""));
        } else if !name.is_empty() {
            let faults = super::names::faults(super::names::Rule::Label, name);
            causes.extend(faults.iter().map(|fault| Cause::invalid(&format!("{place}.name"), &json!(name), fault)));
        }
        pods::port_number(value::number(port, "port").unwrap_or(0), &format!("{place}.port"), causes);
        match port.get("targetPort") {
            Some(Value::Number(number)) => {
                pods::port_number(number.as_i64().unwrap_or(0), &format!("{place}.targetPort"), causes);
            }
            Some(Value::String(name)) => pods::port_name(name, &format!("{place}.targetPort"), causes),
            _ => {}
        }
        let protocol = value::text(port, "protocol");
        if !["SCTP", "TCP", "UDP"].contains(&protocol) {
            causes.push(Cause::unsupported(&format!("{place}.protocol"), &json!(protocol), &["SCTP", "TCP", "UDP"]));
        }
        if !name.is_empty() && ports[..at].iter().any(|other| value::text(other, "name") == name) {
            causes.push(Cause::duplicate(&format!("{place}.name"), &json!(name)));
        }
    }
    if !kinds.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &json!(kind), &kinds));
    }
    if kind == "ExternalName" && value::text(object, "spec.externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    for (at, way) in value::items(object, "status.loadBalancer.ingress").iter().enumerate() {
        if !value::text(way, "ip").is_empty() && value::text(way, "ipMode").is_empty() {
            let place = format!("status.loadBalancer.ingress[{at}].ipMode");
            causes.push(Cause::required(&place, "must be specified when `ip` is set"));
        }
    }
    if kind == "LoadBalancer" && is_headless {
        causes.push(Cause::invalid(
            "spec.clusterIPs[0]",
            &json!("None"),
            "may not be set to 'None' for LoadBalancer services",
        ));
    }
}

fn keys(object: &Value, path: &str, causes: &mut Vec<Cause>) -> usize {
    let mut size = 0;
    for (key, text) in value::members(object, path) {
        size += text.as_str().map_or(0, str::len);
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
                          or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            causes.push(Cause::invalid(&format!("{path}[{key}]"), &json!(key), detail));
        }
    }
    size
}

fn secret(object: &Value, causes: &mut Vec<Cause>) {
    // Three bytes of data are four of text.
    if keys(object, "data", causes) / 4 * 3 > DATA_LIMIT {
        causes.push(Cause::too_long("data", DATA_LIMIT as u64));
    }
    let needed: &[&str] = match value::text(object, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    let data = value::at(object, "data").unwrap_or(&Value::Null);
    for key in needed.iter().filter(|key| data.get(**key).is_none()) {
        causes.push(Cause::required(&format!("data[{key}]"), ""));
    }
}

fn config(object: &Value, causes: &mut Vec<Cause>) {
    let texts = keys(object, "data", causes);
    let bytes = keys(object, "binaryData", causes) / 4 * 3;
    if texts + bytes > DATA_LIMIT {
        causes.push(Cause::too_long("[]", DATA_LIMIT as u64));
    }
}

fn rules(object: &Value, causes: &mut Vec<Cause>) {
    for (at, rule) in value::items(object, "rules").iter().enumerate() {
        let (place, list) = (format!("rules[{at}]"), |key: &str| value::items(rule, key));
        if list("verbs").is_empty() {
            causes.push(Cause::required(&format!("{place}.verbs"), "verbs must contain at least one value"));
        }
        if !list("nonResourceURLs").is_empty() {
            if !list("apiGroups").is_empty() || !list("resources").is_empty() || !list("resourceNames").is_empty() {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(&format!("{place}.nonResourceURLs"), &rule["nonResourceURLs"], detail));
            }
            continue;
        }
        if list("apiGroups").is_empty() {
            causes.push(Cause::required(
                &format!("{place}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if list("resources").is_empty() {
            causes.push(Cause::required(
                &format!("{place}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

fn binding(object: &Value, is_namespaced: bool, causes: &mut Vec<Cause>) {
    let kind = value::text(object, "roleRef.kind");
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind) {
        causes.push(Cause::unsupported("roleRef.kind", &json!(kind), kinds));
    }
    if value::text(object, "roleRef.name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (at, subject) in value::items(object, "subjects").iter().enumerate() {
        if value::text(subject, "name").is_empty() {
            causes.push(Cause::required(&format!("subjects[{at}].name"), ""));
        }
        if !is_namespaced
            && value::text(subject, "kind") == "ServiceAccount"
            && value::text(subject, "namespace").is_empty()
        {
            causes.push(Cause::required(&format!("subjects[{at}].namespace"), ""));
        }
    }
}

fn webhooks(object: &Value, causes: &mut Vec<Cause>) {
    for (at, hook) in value::items(object, "webhooks").iter().enumerate() {
        let (place, name) = (format!("webhooks[{at}]"), value::text(hook, "name"));
        if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            causes.push(Cause::invalid(&format!("{place}.name"), &json!(name), detail));
        }
        if value::items(object, "webhooks")[..at].iter().any(|other| value::text(other, "name") == name) {
            causes.push(Cause::duplicate(&format!("{place}.name"), &json!(name)));
        }
        let effects = value::text(hook, "sideEffects");
        if effects.is_empty() {
            causes.push(Cause::required(&format!("{place}.sideEffects"), "must specify one of None, NoneOnDryRun"));
        } else if !["None", "NoneOnDryRun"].contains(&effects) {
            causes.push(Cause::unsupported(
                &format!("{place}.sideEffects"),
                &json!(effects),
                &["None", "NoneOnDryRun"],
            ));
        }
        if let Some(seconds) = value::number(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
            causes.push(Cause::invalid(
                &format!("{place}.timeoutSeconds"),
                &json!(seconds),
                "the timeout value must be between 1 and 30 seconds",
            ));
        }
        let has = |key: &str| value::at(hook, &format!("clientConfig.{key}")).is_some();
        if has("url") == has("service") {
            causes.push(Cause::required(&format!("{place}.clientConfig"), "exactly one of url or service is required"));
        }
        if let Some(url) = value::at(hook, "clientConfig.url").and_then(Value::as_str) {
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            let form = "; desired format: https://host[/path]";
            let mut wrong = |given: &str, why: &str| {
                causes.push(Cause::invalid(
                    &format!("{place}.clientConfig.url"),
                    &json!(given),
                    &format!("{why}{form}"),
                ));
            };
            if scheme != "https" {
                wrong(scheme, "'https' is the only allowed URL scheme");
            }
            if rest.split('/').next().is_none_or(str::is_empty) {
                wrong("", "host must be specified");
            }
        }
        if value::items(hook, "admissionReviewVersions").is_empty() {
            causes
                .push(Cause::required(&format!("{place}.admissionReviewVersions"), "must specify one of v1, v1beta1"));
        }
    }
}
