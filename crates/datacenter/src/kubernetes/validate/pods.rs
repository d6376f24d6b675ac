//! Pods and their templates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names::{self, Rule};
use crate::kubernetes::quantity;
use crate::kubernetes::status::Cause;
use crate::kubernetes::value;

/// How much a pod can count on its resources.
pub(crate) fn quality(pod: &Value) -> &'static str {
    let containers = value::items(pod, "spec.containers").iter().chain(value::items(pod, "spec.initContainers"));
    let (mut is_guaranteed, mut has_any) = (true, false);
    for container in containers {
        for name in ["cpu", "memory"] {
            let of = |kind: &str| {
                value::at(container, &format!("resources.{kind}.{name}"))
                    .and_then(Value::as_str)
                    .and_then(quantity::nano)
            };
            let (request, limit) = (of("requests").filter(|it| *it != 0), of("limits").filter(|it| *it != 0));
            has_any |= request.is_some() || limit.is_some();
            is_guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is wrong with the specification of pods at a path.
pub(crate) fn spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut volumes = BTreeSet::new();
    for (at, volume) in value::items(spec, "volumes").iter().enumerate() {
        let (name, place) = (value::text(volume, "name"), format!("{path}.volumes[{at}].name"));
        if name.is_empty() {
            causes.push(Cause::required(&place, ""));
        } else if !volumes.insert(name) {
            causes.push(Cause::duplicate(&place, &json!(name)));
        } else {
            causes.extend(
                names::faults(Rule::Label, name).iter().map(|fault| Cause::invalid(&place, &json!(name), fault)),
            );
        }
    }
    let containers = value::items(spec, "containers");
    if containers.is_empty() {
        causes.push(Cause::required(&format!("{path}.containers"), ""));
    }
    let mut known = BTreeSet::new();
    for (list, items) in [("initContainers", value::items(spec, "initContainers")), ("containers", containers)] {
        for (at, item) in items.iter().enumerate() {
            container(item, &format!("{path}.{list}[{at}]"), &volumes, &mut known, &mut causes);
        }
    }
    for (key, words) in [
        ("restartPolicy", &["Always", "OnFailure", "Never"][..]),
        ("dnsPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    ] {
        if let Some(word) = spec.get(key).and_then(Value::as_str).filter(|word| !words.contains(word)) {
            causes.push(Cause::unsupported(&format!("{path}.{key}"), &json!(word), words));
        }
    }
    if let Some(seconds) = value::number(spec, "terminationGracePeriodSeconds").filter(|seconds| *seconds < 0) {
        causes.push(Cause::invalid(
            &format!("{path}.terminationGracePeriodSeconds"),
            &json!(seconds),
            "must be greater than or equal to 0",
        ));
    }
    for (list, items) in [("initContainers", value::items(spec, "initContainers")), ("containers", containers)] {
        for (at, item) in items.iter().enumerate() {
            let image = value::text(item, "image");
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                causes.push(Cause::invalid(&format!("{path}.{list}[{at}].image"), &json!(image), detail));
            }
        }
    }
    causes
}

fn container<'a>(
    item: &'a Value,
    path: &str,
    volumes: &BTreeSet<&str>,
    known: &mut BTreeSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let name = value::text(item, "name");
    let place = format!("{path}.name");
    if name.is_empty() {
        causes.push(Cause::required(&place, ""));
    } else if !known.insert(name) {
        causes.push(Cause::duplicate(&place, &json!(name)));
    } else {
        causes.extend(names::faults(Rule::Label, name).iter().map(|fault| Cause::invalid(&place, &json!(name), fault)));
    }
    if value::text(item, "image").is_empty() {
        causes.push(Cause::required(&format!("{path}.image"), ""));
    }
    for (at, port) in value::items(item, "ports").iter().enumerate() {
        let place = format!("{path}.ports[{at}]");
        let name = value::text(port, "name");
        if !name.is_empty() {
            port_name(name, &format!("{place}.name"), causes);
        }
        match value::number(port, "containerPort").unwrap_or(0) {
            0 => causes.push(Cause::required(&format!("{place}.containerPort"), "")),
            number => port_number(number, &format!("{place}.containerPort"), causes),
        }
    }
    for (at, variable) in value::items(item, "env").iter().enumerate() {
        if value::text(variable, "name").is_empty() {
            causes.push(Cause::required(&format!("{path}.env[{at}].name"), ""));
        }
    }
    let mut paths = BTreeSet::new();
    for (at, mount) in value::items(item, "volumeMounts").iter().enumerate() {
        let (name, target) = (value::text(mount, "name"), value::text(mount, "mountPath"));
        if !volumes.contains(name) {
            causes.push(Cause::not_found(&format!("{path}.volumeMounts[{at}].name"), &json!(name)));
        }
        if target.is_empty() {
            causes.push(Cause::required(&format!("{path}.volumeMounts[{at}].mountPath"), ""));
        } else if !paths.insert(target) {
            causes.push(Cause::invalid(
                &format!("{path}.volumeMounts[{at}].mountPath"),
                &json!(target),
                "must be unique",
            ));
        }
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    if let Some(word) = item.get("imagePullPolicy").and_then(Value::as_str).filter(|word| !policies.contains(word)) {
        causes.push(Cause::unsupported(&format!("{path}.imagePullPolicy"), &json!(word), &policies));
    }
    for (name, request) in value::members(item, "resources.requests") {
        let limit = value::at(item, "resources.limits").and_then(|limits| limits.get(name)).and_then(Value::as_str);
        let (Some(request), Some(limit)) = (request.as_str(), limit) else { continue };
        if quantity::nano(request) > quantity::nano(limit) {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            causes.push(Cause::invalid(&format!("{path}.resources.requests"), &json!(request), &detail));
        }
    }
    for kind in ["requests", "limits"] {
        for (name, amount) in value::members(item, &format!("resources.{kind}")) {
            if amount.as_str().and_then(quantity::nano).is_some_and(|amount| amount < 0) {
                let place = format!("{path}.resources.{kind}[{name}]");
                causes.push(Cause::invalid(&place, amount, "must be greater than or equal to 0"));
            }
        }
    }
}

/// What is wrong with the name of a port.
pub(super) fn port_name(name: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut wrong = |detail: &str| causes.push(Cause::invalid(path, &json!(name), detail));
    if name.len() > 15 {
        wrong("must be no more than 15 bytes");
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        wrong("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong("must contain at least one letter (a-z)");
    }
}

/// What is wrong with a port.
pub(super) fn port_number(number: i64, path: &str, causes: &mut Vec<Cause>) {
    if !(1..=65_535).contains(&number) {
        causes.push(Cause::invalid(path, &json!(number), "must be between 1 and 65535, inclusive"));
    }
}

/// What of a pod may not be changed.
pub(super) fn change(old: &Value, new: &Value) -> Vec<Cause> {
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                value::remove(container, "image");
            }
        }
        for key in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
            value::remove(&mut spec, key);
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Vec::new();
    }
    let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                  `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                  `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    vec![Cause::forbidden("spec", detail)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_as_good_as_its_resources() {
        let pod = |resources: Value| json!({ "spec": { "containers": [{ "name": "a", "resources": resources }] } });
        assert_eq!(quality(&pod(json!({}))), "BestEffort");
        assert_eq!(quality(&pod(json!({ "requests": { "cpu": "1" } }))), "Burstable");
        assert_eq!(quality(&pod(json!({ "limits": { "cpu": "1", "memory": "1Gi" } }))), "Guaranteed");
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_the_real_server() {
        let wrong = json!({ "containers": [
            { "name": "A" },
            { "name": "a", "image": " x", "ports": [{ "containerPort": 0 }, { "containerPort": 70_000 }], "volumeMounts": [{ "name": "nope", "mountPath": "/x" }],
              "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } },
            { "name": "a", "image": "x" },
        ], "restartPolicy": "Foo", "volumes": [{ "name": "v" }, { "name": "v" }] });
        let told: Vec<String> =
            spec(&wrong, "spec").iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let expected = [
            "spec.volumes[1].name: Duplicate value: \"v\"",
            "spec.containers[0].image: Required value",
            "spec.containers[1].ports[0].containerPort: Required value",
            "spec.containers[1].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[1].volumeMounts[0].name: Not found: \"nope\"",
            "spec.containers[1].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            "spec.containers[2].name: Duplicate value: \"a\"",
            "spec.restartPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            "spec.containers[1].image: Invalid value: \" x\": must not have leading or trailing whitespace",
        ];
        for line in expected {
            assert!(told.iter().any(|own| own == line), "{line} is not in {told:#?}");
        }
        assert_eq!(told.len(), expected.len() + 1);
    }
}
