//! Releases that wait for others.

use std::collections::{BTreeMap, BTreeSet};

use super::order::cycles;
use super::{Case, Code, Finding, unless_made_by};
use crate::flux::{Group, HELM, possible_maker};
use crate::object::{Object, Reference};
use crate::substitute::is_unknown;

pub(super) fn judge(case: &mut Case<'_>) {
    // Also those that install into another cluster: they themselves are in this one.
    let releases = case.forest.objects().map(|(_, object)| object).filter(|object| object.is(HELM, "HelmRelease"));
    let releases: BTreeMap<Reference, &Object> = releases.map(|release| (release.reference(), release)).collect();
    let mut waits: BTreeMap<Reference, BTreeSet<Reference>> = BTreeMap::new();
    let mut found = Vec::new();
    for (own, release) in &releases {
        for (index, needed) in depends_on(release).enumerate() {
            if is_unknown(&needed.name) || is_unknown(&needed.namespace) {
                continue;
            }
            if !releases.contains_key(&needed) && !case.world.has(&needed) {
                found.push(unknown(case, &releases, release, index, &needed));
            }
            waits.entry(own.clone()).or_default().insert(needed);
        }
    }
    for circle in cycles(&waits) {
        let names: Vec<String> = circle.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
        found.extend(circle.first().and_then(|first| releases.get(first)).map(|release| {
            Finding::of(
                Code::DependsOnCycle,
                release,
                "/spec/dependsOn",
                format!("{} wait for each other, so none of them is ever installed", names.join(", ")),
                "remove one of the dependencies",
            )
        }));
    }
    case.findings.extend(found);
}

/// The releases that one waits for.
fn depends_on(release: &Object) -> impl Iterator<Item = Reference> {
    let own = release.reference();
    release.list("/spec/dependsOn").map(move |entry| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let namespace = Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| own.namespace.clone());
        Reference { namespace, name: text("name"), ..own.clone() }
    })
}

fn unknown(
    case: &Case<'_>,
    releases: &BTreeMap<Reference, &Object>,
    release: &Object,
    index: usize,
    needed: &Reference,
) -> Finding {
    let pointer = format!("/spec/dependsOn/{index}");
    let elsewhere = releases.keys().find(|other| other.name == needed.name);
    let fix = match elsewhere {
        Some(other) => format!("it is in {}: add namespace: {}", other.namespace, other.namespace),
        None => "correct the name (and namespace), or remove the entry".to_owned(),
    };
    let why = format!("waits for {needed}, which does not exist: it stays at DependencyNotReady for ever");
    let missing = Finding::of(Code::DependsOnUnknown, release, &pointer, why, fix).because(needed.to_string());
    let what = (needed.kind.as_str(), needed.namespace.as_str(), needed.name.as_str());
    let waits = |_: &Group, other: &Object| other.kind() == needed.kind && depends_on(other).any(|it| it == *needed);
    // Where one of the same name is in another namespace, that is what was meant, and no chart's.
    let maker = || possible_maker(case.forest, &needed.kind, &needed.namespace, &waits);
    let maker = if elsewhere.is_none() { maker() } else { None };
    unless_made_by((case.unread.as_deref(), maker), release, &pointer, what, missing)
}
