//! The mistakes that are made with autoscalers. They are kept and judged; nothing is measured, and nothing scaled.

use serde_json::{Value, json};

use crate::kubernetes::status::Cause;
use crate::kubernetes::value;

/// The kinds of metrics, and the field that tells of each.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// How long a window may be, in seconds.
const LONGEST_WINDOW: i64 = 3_600;
/// How long a period may be, in seconds.
const LONGEST_PERIOD: i64 = 1_800;

/// What is wrong with an autoscaler.
pub(super) fn faults(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let least = value::number(spec, "minReplicas");
    if let Some(least) = least.filter(|least| *least < 1) {
        causes.push(Cause::invalid("spec.minReplicas", &json!(least), "must be greater than or equal to 1"));
    }
    let most = value::number(spec, "maxReplicas").unwrap_or(0);
    if most == 0 {
        causes.push(Cause::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if most < 0 {
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), "must be greater than or equal to 1"));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), detail));
    }
    for key in ["kind", "name"] {
        if value::text(spec, &format!("scaleTargetRef.{key}")).is_empty() {
            causes.push(Cause::required(&format!("spec.scaleTargetRef.{key}"), ""));
        }
    }
    for (at, metric) in value::items(spec, "metrics").iter().enumerate() {
        source(metric, &format!("spec.metrics[{at}]"), &mut causes);
    }
    for way in ["scaleUp", "scaleDown"] {
        if let Some(rules) = value::at(spec, "behavior").and_then(|behavior| behavior.get(way)) {
            judge_rules(rules, &format!("spec.behavior.{way}"), &mut causes);
        }
    }
    causes
}

fn source(metric: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = value::text(metric, "type");
    if kind.is_empty() {
        causes.push(Cause::required(&format!("{path}.type"), "must specify a metric source type"));
    }
    let own = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    let Some(own) = own else {
        let known = SOURCES.map(|(name, _)| name);
        // It is found out twice, and told twice.
        for _ in 0..2 {
            causes.push(Cause::unsupported(&format!("{path}.type"), &json!(kind), &known));
        }
        return;
    };
    match metric.get(own) {
        None => {
            let detail = "must populate information for the given metric source";
            causes.push(Cause::required(&format!("{path}.{own}"), detail));
        }
        Some(source) => target(kind, source, &format!("{path}.{own}"), causes),
    }
    for (_, field) in SOURCES.iter().filter(|(_, field)| *field != own && metric.get(*field).is_some()) {
        let detail = "must populate the given metric source only";
        causes.push(Cause::forbidden(&format!("{path}.{field}"), detail));
    }
}

fn target(kind: &str, source: &Value, path: &str, causes: &mut Vec<Cause>) {
    let target = &source["target"];
    let has = |key: &str| target.get(key).is_some_and(|it| !it.is_null());
    if ["Resource", "ContainerResource"].contains(&kind) && value::text(source, "name").is_empty() {
        causes.push(Cause::required(&format!("{path}.name"), "must specify a resource name"));
    }
    let known = ["AverageValue", "Utilization", "Value"];
    match value::text(target, "type") {
        "" => causes.push(Cause::required(&format!("{path}.target.type"), "must specify a metric target type")),
        word if known.contains(&word) => {}
        word => causes.push(Cause::unsupported(&format!("{path}.target.type"), &json!(word), &known)),
    }
    let missing = match kind {
        "Resource" | "ContainerResource" if !has("averageUtilization") && !has("averageValue") => {
            Some(("averageUtilization", "must set either a target raw value or a target utilization"))
        }
        "Pods" if !has("averageValue") => Some(("averageValue", "must specify a positive target averageValue")),
        "Object" if !has("value") && !has("averageValue") => {
            Some(("averageValue", "must set either a target value or averageValue"))
        }
        "External" if !has("value") && !has("averageValue") => {
            Some(("averageValue", "must set either a target value for metric or a per-pod target"))
        }
        _ => None,
    };
    if let Some((key, detail)) = missing {
        causes.push(Cause::required(&format!("{path}.target.{key}"), detail));
    }
}

fn judge_rules(rules: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let Some(window) = value::number(rules, "stabilizationWindowSeconds") {
        let place = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            causes.push(Cause::invalid(&place, &json!(window), "must be greater than or equal to zero"));
        } else if window > LONGEST_WINDOW {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            causes.push(Cause::invalid(&place, &json!(window), &detail));
        }
    }
    let (word, known) = (value::text(rules, "selectPolicy"), ["Disabled", "Max", "Min"]);
    if !known.contains(&word) {
        causes.push(Cause::unsupported(&format!("{path}.selectPolicy"), &json!(word), &known));
    }
    if value::items(rules, "policies").is_empty() {
        causes.push(Cause::required(&format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (at, policy) in value::items(rules, "policies").iter().enumerate() {
        let place = format!("{path}.policies[{at}]");
        let (kind, known) = (value::text(policy, "type"), ["Percent", "Pods"]);
        if !known.contains(&kind) {
            causes.push(Cause::unsupported(&format!("{place}.type"), &json!(kind), &known));
        }
        for key in ["value", "periodSeconds"] {
            let number = value::number(policy, key).unwrap_or(0);
            if number <= 0 {
                causes.push(Cause::invalid(&format!("{place}.{key}"), &json!(number), "must be greater than zero"));
            } else if key == "periodSeconds" && number > LONGEST_PERIOD {
                let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
                causes.push(Cause::invalid(&format!("{place}.{key}"), &json!(number), &detail));
            }
        }
    }
}
