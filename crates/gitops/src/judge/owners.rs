//! One owner for every object: what castle owns, a repository must leave alone; what castle leaves to it, it must bring.

use serde_json::Value;

use super::{Case, Code, Finding};
use crate::flux::{SSA, is_elsewhere};
use crate::kinds::{Component, FLUX};
use crate::object::Object;

const PRUNE: &str = "/metadata/annotations/kustomize.toolkit.fluxcd.io~1prune";

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for (_, object) in case.forest.objects() {
        if matches!(object.text(SSA), "Ignore" | "IfNotPresent") {
            continue;
        }
        if let Some(component) = owner(case, object) {
            found.extend(owned(object, &component));
        }
        let chart = match object.kind() {
            "HelmRelease" if !is_elsewhere(object) => case.forest.chart(object),
            "HelmChart" => Some(object.text("/spec/chart").to_owned()),
            _ => None,
        };
        if let Some((chart, component)) = chart.as_ref().and_then(|chart| case.world.charts.get_key_value(chart)) {
            let why = format!(
                "installs the chart {chart}, and castle installs {component}: Helm would take over castle's objects"
            );
            let finding = Finding::of(Code::OwnedComponent, object, "/spec", why, way_out(component));
            found.push(finding.because(component));
        }
    }
    found.extend(case.world.expected.iter().filter_map(|component| missing(case, component)));
    found.extend(unseen(case));
    case.findings.extend(found);
}

/// An object that castle owns and the repository declares, too.
fn owned(object: &Object, component: &str) -> Option<Finding> {
    if object.is("", "Namespace") && has_annotations_alone(object) {
        let why = format!(
            "castle owns it ({component}); Flux adds its annotations and no more, but deletes the namespace with all in it when it leaves the repository"
        );
        let fix = "add the annotation kustomize.toolkit.fluxcd.io/prune: disabled";
        return (object.text(PRUNE) != "disabled")
            .then(|| Finding::of(Code::NamespaceShared, object, "", why, fix).because(component));
    }
    let why =
        format!("castle owns it ({component}), and Flux applies by force: two owners would take it from each other");
    Some(Finding::of(Code::OwnedObject, object, "", why, way_out(component)).because(component))
}

/// Whether an object says nothing but its name and some annotations, so that nobody else's fields are touched.
fn has_annotations_alone(object: &Object) -> bool {
    let keys =
        |value: Option<&Value>| value.and_then(Value::as_object).map(|entries| entries.keys().cloned().collect());
    let known = |all: Option<Vec<String>>, allowed: &[&str]| {
        all.is_some_and(|keys| keys.iter().all(|key| allowed.contains(&key.as_str())))
    };
    known(keys(Some(&object.value)), &["apiVersion", "kind", "metadata"])
        && known(keys(object.value.get("metadata")), &["name", "annotations"])
        && object.value.pointer("/metadata/annotations").is_some()
}

/// That the objects of some components were not at hand to be compared with.
fn unseen(case: &Case<'_>) -> Option<Finding> {
    if case.world.unseen.is_empty() {
        return None;
    }
    let names = case.world.unseen.join(", ");
    let why = format!(
        "the manifests of {names} are not at hand: whether the repository declares some of their objects, too, is judged by namespaces, \
         definitions, Deployments and DaemonSets alone"
    );
    let fix =
        "castle mirror pull fetches them, and CASTLE_MIRROR names the mirror; castle up has them and compares all";
    Some(Finding { subject: names, ..Finding::of(Code::NotJudged, &case.world.entry, "", why, fix) })
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
    let is_released = (case.forest.releases())
        .any(|(_, release)| case.forest.chart(release).is_some_and(|chart| charts.contains(&chart.as_str())));
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
    let lacks = match (is_defined, runs) {
        (true, false) => format!("defines its kinds, but has no {workload}"),
        (false, true) => format!("has {workload}, but does not define its kinds"),
        _ => "does not bring it".to_owned(),
    };
    let (code, end) = if case.unread.is_none() {
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
        && !case.world.api_server.is_own(api)
        && !case.world.has(&object.reference())
        && case.world.served.get(api, object.text("/spec/names/kind")).is_some();
    is_definition.then(|| case.world.component_of(api))
}
