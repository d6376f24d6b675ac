//! Sources: whoever builds or installs from one must name one that is there, in the namespace that it is in.

use super::{Case, Code, Finding, unless_made_by};
use crate::flux::{Group, HELM, SOURCE, possible_maker, source};
use crate::object::{Object, Reference};
use crate::substitute::is_unknown;

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for group in case.forest.groups.iter().filter(|group| group.is_foreign) {
        let own = &group.kustomization;
        let from = source(own);
        if is_there(case, &from) || is_unknown(&from.name) || is_unknown(&from.namespace) {
            let why = format!(
                "castle does not build {from}, another source than this repository: what it brings is not judged"
            );
            let fix = "flux build kustomization shows what it comes to";
            found.push(Finding::of(Code::NotJudged, own, "/spec/sourceRef", why, fix).because(from.to_string()));
        } else {
            found.extend(missing(case, own, "/spec/sourceRef", &from));
        }
    }
    for (_, object) in case.forest.objects() {
        for (pointer, from) in named(object) {
            if !is_there(case, &from) {
                found.extend(missing(case, object, pointer, &from));
            }
        }
    }
    case.findings.extend(found);
}

/// The sources that a release or a chart names, and where.
fn named(object: &Object) -> Vec<(&'static str, Reference)> {
    let own = object.reference().namespace;
    let at = |pointer: &'static str, is_bound: bool| {
        let text = |key: &str| object.text(&format!("{pointer}/{key}")).to_owned();
        let namespace = Some(text("namespace")).filter(|it| !it.is_empty() && !is_bound).unwrap_or_else(|| own.clone());
        let from = Reference { group: SOURCE.to_owned(), kind: text("kind"), namespace, name: text("name") };
        (!from.kind.is_empty() && !from.name.is_empty()).then_some((pointer, from))
    };
    let places = match (object.group(), object.kind()) {
        (HELM, "HelmRelease") => [at("/spec/chart/spec/sourceRef", false), at("/spec/chartRef", false)],
        // A chart is beside its source.
        (SOURCE, "HelmChart") => [at("/spec/sourceRef", true), None],
        _ => [None, None],
    };
    places.into_iter().flatten().collect()
}

/// Whether a Kustomization builds a source that nobody makes.
fn is_astray(case: &Case<'_>, group: &Group) -> bool {
    group.is_foreign && !is_there(case, &source(&group.kustomization))
}

fn is_there(case: &Case<'_>, from: &Reference) -> bool {
    *from == source(&case.world.entry)
        || case.world.found.iter().any(|object| makes(object, from))
        || case.forest.objects().any(|(_, object)| makes(object, from))
}

/// Whether an object is a source, or makes it.
fn makes(object: &Object, from: &Reference) -> bool {
    let is_generator = object.is("source.extensions.fluxcd.io", "ArtifactGenerator");
    object.reference() == *from
        || (is_generator
            && from.kind == "ExternalArtifact"
            && object.reference().namespace == from.namespace
            && object.list("/spec/artifacts").any(|artifact| artifact["name"] == from.name.as_str()))
}

fn missing(case: &Case<'_>, object: &Object, pointer: &str, from: &Reference) -> Option<Finding> {
    if is_unknown(&from.name) || is_unknown(&from.namespace) {
        return None;
    }
    let same = |other: &Reference| other.kind == from.kind && other.name == from.name;
    let entry = source(&case.world.entry);
    let elsewhere = (case.forest.objects().map(|(_, object)| object.reference()))
        .chain([entry])
        .find(|other| other.group == SOURCE && same(other));
    let fix = match &elsewhere {
        Some(other) if object.is(SOURCE, "HelmChart") => format!("move it to the namespace {}", other.namespace),
        Some(other) => {
            format!(
                "it is in {}: add namespace: {} to {}",
                other.namespace,
                other.namespace,
                pointer.trim_start_matches("/spec/").replace('/', ".")
            )
        }
        None => format!("add the {} to the repository, or correct the name", from.kind),
    };
    let why = format!("comes from {from}, which does not exist: nothing of it is applied");
    let finding = Finding::of(Code::SourceMissing, object, pointer, why, fix).because(from.to_string());
    // A Kustomization whose own source is not there does not excuse itself.
    let unread = case.forest.unread_besides(&|group| is_astray(case, group));
    let unread = unread.or_else(|| case.world.unread.first().cloned());
    let what = (from.kind.as_str(), from.namespace.as_str(), from.name.as_str());
    let is_stuck = |_: &Group, other: &Object| named(other).iter().any(|(_, theirs)| !is_there(case, theirs));
    // Where one of the same name is in another namespace, that is what was meant, and no chart's.
    let maker = || possible_maker(case.forest, &from.kind, &from.namespace, &is_stuck);
    let maker = if elsewhere.is_none() { maker() } else { None };
    Some(unless_made_by((unread.as_deref(), maker), object, pointer, what, finding))
}
