//! Namespaces: there before anything is put into them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Code, Finding, unless_made_by};
use crate::flux::{Group, HELM, is_elsewhere, possible_maker};
use crate::object::Object;
use crate::substitute::is_unknown;

pub(super) fn judge(case: &mut Case<'_>) {
    let mut makers: BTreeMap<&str, Vec<&Group>> = BTreeMap::new();
    for (group, object) in case.forest.objects() {
        if object.is("", "Namespace") {
            makers.entry(object.name()).or_default().push(group);
        }
        if let Some(namespace) = made_by_release(object) {
            makers.entry(namespace).or_default().push(group);
        }
    }
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for (group, object) in case.forest.objects() {
        for (pointer, namespace) in needed(case, object) {
            if is_unknown(&namespace)
                || case.world.namespaces.contains(&namespace)
                || !told.insert((group.reference(), namespace.clone()))
            {
                continue;
            }
            let own = group.reference();
            let groups = makers.get(namespace.as_str()).map(Vec::as_slice).unwrap_or_default();
            if groups.iter().any(|maker| case.order.is_before(&maker.reference(), &own)) {
                continue;
            }
            found.push(match groups.first() {
                None => {
                    let missing = Finding::of(
                        Code::NamespaceMissing,
                        object,
                        pointer,
                        format!("nothing makes the namespace {namespace}: Flux applies nothing of {}", group.name()),
                        format!("add a Namespace {namespace} to {}", group.name()),
                    );
                    let lies_in_it = |_: &Group, other: &Object| other.reference().namespace == namespace;
                    let maker = possible_maker(case.forest, "Namespace", "", &lies_in_it);
                    let (unread, missing) = (case.unread.as_deref(), missing.because(&namespace));
                    unless_made_by((unread, maker), object, pointer, ("Namespace", "", &namespace), missing)
                }
                Some(maker) => Finding::of(
                    Code::NamespaceLate,
                    object,
                    pointer,
                    format!(
                        "the namespace {namespace} is made by {}, and {} does not wait for it: the first attempts may fail",
                        maker.name(),
                        group.name()
                    ),
                    format!(
                        "add dependsOn: [{{name: {}}}] to {}, or move the Namespace there",
                        maker.name(),
                        group.name()
                    ),
                )
                .because(&namespace),
            });
        }
    }
    case.findings.extend(found);
}

/// The namespaces that an object needs, and where it names them.
fn needed(case: &Case<'_>, object: &Object) -> Vec<(&'static str, String)> {
    let known = case.world.served.get(object.group(), object.kind());
    let is_clusters_own = known.map_or(object.namespace().is_empty(), |known| known.is_cluster_scoped);
    let own = (!is_clusters_own && !object.namespace().is_empty())
        .then(|| ("/metadata/namespace", object.namespace().to_owned()));
    let target = object.text("/spec/targetNamespace");
    let is_release = object.is(HELM, "HelmRelease") && !is_elsewhere(object) && !target.is_empty();
    let target =
        (is_release && made_by_release(object).is_none()).then(|| ("/spec/targetNamespace", target.to_owned()));
    own.into_iter().chain(target).collect()
}

/// The namespace that a release makes.
fn made_by_release(object: &Object) -> Option<&str> {
    let target = object.text("/spec/targetNamespace");
    let makes = object.value["spec"]["install"]["createNamespace"] == true;
    (object.is(HELM, "HelmRelease") && !is_elsewhere(object) && makes && !target.is_empty()).then_some(target)
}
