//! One owner for every object: what castle owns, a repository must leave alone.

use std::collections::BTreeMap;

use super::served::chart;
use super::{Case, Code, Finding};
use crate::kinds::KUBERNETES;
use crate::object::Object;

const SSA: &str = "/metadata/annotations/kustomize.toolkit.fluxcd.io~1ssa";

pub(super) fn judge(case: &mut Case<'_>) {
    let mut owned: BTreeMap<(String, String), (Finding, usize)> = BTreeMap::new();
    let mut components = Vec::new();
    for (_, object) in case.forest.objects() {
        if matches!(object.text(SSA), "Ignore" | "IfNotPresent") {
            continue;
        }
        if let Some(component) = owner(case, object) {
            let key = (object.file.clone(), component.clone());
            let first = || {
                let why = format!(
                    "castle owns it ({component}), and Flux applies by force: two owners would take it from each other"
                );
                let fix = if component == "castle" {
                    "remove it from the repository: castle makes it from castle.yaml".to_owned()
                } else {
                    format!("remove it from the repository, or switch {component} off in castle.yaml")
                };
                (Finding::of(Code::OwnedObject, object, "", why, fix), 0)
            };
            owned.entry(key).or_insert_with(first).1 += 1;
        }
        let chart = match object.kind() {
            "HelmRelease" => chart(case.forest, object),
            "HelmChart" => Some(object.text("/spec/chart").to_owned()),
            _ => None,
        };
        if let Some((chart, component)) = chart.and_then(|chart| case.world.charts.get_key_value(&chart)) {
            components.push(Finding::of(
                Code::OwnedComponent,
                object,
                "/spec",
                format!(
                    "installs the chart {chart}, and castle installs {component}: Helm would take over castle's objects"
                ),
                format!("remove it, or switch {component} off in castle.yaml"),
            ));
        }
    }
    for (mut finding, count) in owned.into_values() {
        if count > 1 {
            finding.why += &format!("; so it is with {} more objects of this file", count - 1);
        }
        components.push(finding);
    }
    case.findings.extend(components);
}

/// The component that owns an object, if castle does.
fn owner(case: &Case<'_>, object: &Object) -> Option<String> {
    if let Some(component) = case.world.owned.get(&object.reference()) {
        return Some(component.clone());
    }
    // Whoever serves a kind owns its definition.
    let api = object.text("/spec/group");
    let is_definition = object.is("apiextensions.k8s.io", "CustomResourceDefinition")
        && KUBERNETES.iter().all(|kinds| kinds.group != api)
        && case.world.served.get(api, object.text("/spec/names/kind")).is_some();
    is_definition.then(|| case.world.component_of(api))
}
