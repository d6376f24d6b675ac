//! Kinds: whether anybody serves them, and whether that is so by the time they are needed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::world::define;
use super::{Case, Code, Finding};
use crate::flux::{Forest, Group};
use crate::kinds::{Served, of_chart};
use crate::object::Object;

/// What a group brings that serves kinds.
struct Provider<'c> {
    group: &'c Group,
    served: Served,
    /// The release whose chart it is; otherwise the definitions themselves are in the group.
    release: Option<&'c Object>,
}

pub(super) fn judge(case: &mut Case<'_>) {
    let (providers, unknown) = providers(case.forest);
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    let mut unserved: BTreeMap<(&str, &str), (Finding, usize)> = BTreeMap::new();
    for (group, object) in case.forest.objects() {
        let (api, kind) = (object.group(), object.kind());
        let version = object.text("/apiVersion").rsplit('/').next().unwrap_or_default();
        if let Some(known) = case.world.served.get(api, kind)
            && known.versions.contains(version)
        {
            continue;
        }
        let bringing: Vec<&Provider<'_>> = providers
            .iter()
            .filter(|it| it.served.get(api, kind).is_some_and(|known| known.versions.contains(version)))
            .collect();
        if bringing.is_empty() {
            let first = || (not_served(case, &providers, &unknown, object), 0);
            unserved.entry((object.text("/apiVersion"), kind)).or_insert_with(first).1 += 1;
        } else if told.insert((group.reference(), api.to_owned(), kind.to_owned())) {
            found.extend(awaited(case, group, object, &bringing));
        }
    }
    for (mut finding, count) in unserved.into_values() {
        if count > 1 {
            finding.why += &format!("; so it is with {} more", count - 1);
        }
        found.push(finding);
    }
    case.findings.extend(found);
}

/// All that serve kinds, and the charts of which nobody here knows what they serve.
fn providers(forest: &Forest) -> (Vec<Provider<'_>>, BTreeSet<String>) {
    let mut providers = Vec::new();
    let mut unknown = BTreeSet::new();
    for group in &forest.groups {
        let mut served = Served::default();
        group.objects.iter().for_each(|object| define(&mut served, object));
        providers.push(Provider { group, served, release: None });
        for release in group.objects.iter().filter(|object| object.is("helm.toolkit.fluxcd.io", "HelmRelease")) {
            let Some(chart) = chart(forest, release) else { continue };
            match of_chart(&chart) {
                Some(kinds) => {
                    let mut served = Served::default();
                    if brings_definitions(&chart, release) {
                        served.add_all(kinds);
                    }
                    providers.push(Provider { group, served, release: Some(release) });
                }
                None => drop(unknown.insert(chart)),
            }
        }
    }
    (providers, unknown)
}

/// cert-manager leaves its definitions out unless told otherwise.
fn brings_definitions(chart: &str, release: &Object) -> bool {
    let is = |pointer: &str| release.value.pointer(pointer) == Some(&Value::Bool(true));
    chart != "cert-manager"
        || is("/spec/values/crds/enabled")
        || is("/spec/values/installCRDs")
        || release.value.pointer("/spec/valuesFrom").is_some()
}

/// The chart of a release, wherever it is named.
pub(super) fn chart(forest: &Forest, release: &Object) -> Option<String> {
    let last = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let direct = release.text("/spec/chart/spec/chart");
    if !direct.is_empty() {
        return Some(last(direct));
    }
    let (kind, name) = (release.text("/spec/chartRef/kind"), release.text("/spec/chartRef/name"));
    let source =
        forest.objects().map(|(_, object)| object).find(|object| object.kind() == kind && object.name() == name);
    let source =
        source.map(|source| if kind == "HelmChart" { source.text("/spec/chart") } else { source.text("/spec/url") });
    source.map(last).filter(|chart| !chart.is_empty())
}

fn not_served(case: &Case<'_>, providers: &[Provider<'_>], unknown: &BTreeSet<String>, object: &Object) -> Finding {
    let (api, kind, version) = (object.group(), object.kind(), object.text("/apiVersion"));
    let others: BTreeMap<&str, &BTreeSet<String>> = providers
        .iter()
        .map(|provider| &provider.served)
        .chain([&case.world.served])
        .filter_map(|served| served.get(api, kind))
        .map(|known| (kind, &known.versions))
        .collect();
    if let Some(versions) = others.get(kind) {
        let known: Vec<String> =
            versions.iter().map(|it| if api.is_empty() { it.clone() } else { format!("{api}/{it}") }).collect();
        return Finding::of(
            Code::KindNotServed,
            object,
            "/apiVersion",
            format!("{kind} is not served as {version}: what will be installed serves {}", known.join(", ")),
            format!("write apiVersion: {}", known.last().map_or("", String::as_str)),
        );
    }
    let without = providers.iter().filter_map(|it| it.release).find(|release| {
        let kinds = chart(case.forest, release).and_then(|chart| of_chart(&chart)).unwrap_or_default();
        kinds.iter().any(|kinds| kinds.group == api)
    });
    let (code, why, fix) = match (without, api) {
        (Some(release), _) => (
            Code::KindNotServed,
            format!(
                "{kind} of {version} is not served: the chart of {} leaves its definitions out",
                release.reference()
            ),
            format!("add crds: {{enabled: true}} to spec.values of {}", release.reference()),
        ),
        (None, "image.toolkit.fluxcd.io") => (
            Code::KindNotServed,
            format!("{kind} needs the controllers of image automation, which are not installed"),
            "write imageAutomation: true under gitops in castle.yaml, or remove the object".to_owned(),
        ),
        (None, "source.extensions.fluxcd.io") => (
            Code::KindNotServed,
            format!("{kind} needs Flux's source-watcher, which is not installed"),
            "let Flux be installed with it, or name the GitRepository flux-system as the source".to_owned(),
        ),
        (None, _) if !unknown.is_empty() && !case.world.served.has_group(api) => (
            Code::NotJudged,
            format!(
                "castle does not know whether anything serves {kind} of {version}: perhaps {}",
                perhaps(unknown, api)
            ),
            "make sure that its Kustomization waits for the one with the chart".to_owned(),
        ),
        (None, _) => (
            Code::KindNotServed,
            format!(
                "nothing that will be installed serves {kind} of {version}: Flux applies nothing of its Kustomization"
            ),
            "add what defines the kind to the repository, in a Kustomization that this one waits for".to_owned(),
        ),
    };
    Finding::of(code, object, "/apiVersion", why, fix)
}

/// The charts that may bring a kind: those that share a word with its group, or else how many there are.
fn perhaps(charts: &BTreeSet<String>, group: &str) -> String {
    let words = |text: &str| {
        text.split(['.', '-', '/']).filter(|word| word.len() > 3).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let of_group = words(group);
    let likely: Vec<&str> =
        charts.iter().filter(|chart| !words(chart).is_disjoint(&of_group)).map(String::as_str).take(3).collect();
    match (likely.as_slice(), charts.len()) {
        ([], 1) => format!("the chart {}", charts.iter().map(String::as_str).collect::<String>()),
        ([], count) => format!("one of {count} charts that castle does not know"),
        (likely, _) => format!("the chart {}", likely.join(" or ")),
    }
}

/// Whether a kind is served by the time its objects are applied.
fn awaited(case: &Case<'_>, group: &Group, object: &Object, bringing: &[&Provider<'_>]) -> Option<Finding> {
    let own = group.reference();
    let is_good = |it: &&&Provider<'_>| {
        let theirs = it.group.reference();
        match it.release {
            // Flux applies definitions before anything else, and waits until they are served.
            None => case.order.is_before(&theirs, &own),
            Some(release) => theirs != own && case.order.is_before(&theirs, &own) && waits_for(it.group, release),
        }
    };
    if bringing.iter().any(|it| is_good(&it)) {
        return None;
    }
    let kind = object.kind();
    let provider = bringing.iter().find(|it| it.group.reference() == own).or(bringing.first())?;
    let theirs = provider.group.name();
    Some(match provider.release {
        Some(release) if provider.group.reference() == own => Finding::of(
            Code::OperatorInSameGroup,
            object,
            "/apiVersion",
            format!(
                "{kind} is served only once {} is installed, and both are in {theirs}: the dry run of the whole fails, and so the chart never comes",
                release.reference()
            ),
            format!(
                "move it to a Kustomization of its own with dependsOn: [{{name: {theirs}}}], and let {theirs} have wait: true"
            ),
        ),
        Some(release) if case.order.is_before(&provider.group.reference(), &own) => Finding::of(
            Code::OperatorNotAwaited,
            &provider.group.kustomization,
            "/spec",
            format!(
                "{} depends on {theirs} for {kind}, but {theirs} is ready as soon as {} is applied, not when it is installed",
                group.name(),
                release.reference()
            ),
            format!("add wait: true to {theirs}"),
        ),
        _ => Finding::of(
            Code::OperatorNotAwaited,
            object,
            "/apiVersion",
            format!("{kind} is served by {theirs}, and {} does not wait for it: the first attempts fail", group.name()),
            format!("add dependsOn: [{{name: {theirs}}}] to {}", group.name()),
        ),
    })
}

/// Whether a group is ready only when a release of it is.
fn waits_for(group: &Group, release: &Object) -> bool {
    group.kustomization.value["spec"]["wait"] == true
        || group
            .kustomization
            .list("/spec/healthChecks")
            .any(|check| check["kind"] == "HelmRelease" && check["name"] == release.name())
}
