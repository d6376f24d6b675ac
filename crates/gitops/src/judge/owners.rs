//! One owner for every object: what castle owns, a repository must leave alone; what castle leaves to it, it must bring.

use std::collections::BTreeMap;

use super::served::chart;
use super::{Case, Code, Finding};
use crate::kinds::{Component, FLUX, KUBERNETES};
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
                (Finding::of(Code::OwnedObject, object, "", why, way_out(&component)), 0)
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
                way_out(component),
            ));
        }
    }
    for (mut finding, count) in owned.into_values() {
        if count > 1 {
            finding.why += &format!("; so it is with {} more objects of this file", count - 1);
        }
        components.push(finding);
    }
    components.extend(case.world.expected.iter().filter_map(|component| missing(case, component)));
    case.findings.extend(components);
}

/// How two owners become one.
fn way_out(component: &str) -> String {
    match component {
        "castle" => "remove it from the repository: castle makes it from castle.yaml".to_owned(),
        flux if flux == FLUX.name => "remove it from the repository: castle installs Flux".to_owned(),
        _ => {
            format!("remove it from the repository; or give {component} to Flux: castle handover {component} --to flux")
        }
    }
}

/// A component that castle leaves to the repository, if that does not bring it.
fn missing(case: &Case<'_>, component: &Component) -> Option<Finding> {
    let Component { name, charts, workload, kinds, .. } = component;
    let objects = || case.forest.objects().map(|(_, object)| object);
    let is_released = objects()
        .filter(|object| object.is("helm.toolkit.fluxcd.io", "HelmRelease"))
        .any(|release| chart(case.forest, release).is_some_and(|chart| charts.contains(&chart.as_str())));
    let is_defined = objects().any(|object| {
        object.is("apiextensions.k8s.io", "CustomResourceDefinition")
            && kinds.iter().any(|kinds| kinds.group == object.text("/spec/group"))
    });
    let runs =
        objects().any(|object| matches!(object.kind(), "Deployment" | "DaemonSet") && object.name().contains(workload));
    if is_released || (is_defined && runs) {
        return None;
    }
    // What could not be built has been told, and mending it comes first.
    if case.forest.groups.iter().any(|group| group.failure.is_some() || !group.has_folder) {
        return None;
    }
    let is_whole = case.forest.groups.iter().all(|group| group.notes.is_empty());
    let lacks = match (is_defined, runs) {
        (true, false) => format!("defines its kinds, but has no {workload}"),
        (false, true) => format!("has {workload}, but does not define its kinds"),
        _ => "does not bring it".to_owned(),
    };
    let (code, end) = if is_whole {
        (Code::ComponentMissing, "nobody would install it")
    } else {
        (Code::NotJudged, "perhaps by what castle does not look into")
    };
    let why = format!("castle.yaml leaves {name} to Flux (owner: flux), and the repository {lacks}: {end}");
    let fix = format!(
        "add a HelmRelease of the chart {} or its manifests to the repository; or let castle install it: castle handover {name} --to castle",
        charts.join(" or ")
    );
    Some(Finding { subject: (*name).to_owned(), ..Finding::of(code, &case.world.entry, "", why, fix) })
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
