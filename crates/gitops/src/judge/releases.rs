//! Releases that wait for others.

use std::collections::{BTreeMap, BTreeSet};

use super::order::cycles;
use super::{Case, Code, Finding};
use crate::flux::is_unknown;
use crate::object::{Object, Reference};

pub(super) fn judge(case: &mut Case<'_>) {
    let releases: BTreeMap<Reference, &Object> =
        case.forest.releases().map(|(_, release)| (release.reference(), release)).collect();
    let mut waits: BTreeMap<Reference, BTreeSet<Reference>> = BTreeMap::new();
    let mut found = Vec::new();
    for (own, release) in &releases {
        for (index, entry) in release.list("/spec/dependsOn").enumerate() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let namespace =
                Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| own.namespace.clone());
            let needed = Reference { namespace, name: text("name"), ..own.clone() };
            if is_unknown(&needed.name) || is_unknown(&needed.namespace) {
                continue;
            }
            if !releases.contains_key(&needed) {
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
    case.unless_unread(release, &pointer, &needed.to_string(), missing)
}
