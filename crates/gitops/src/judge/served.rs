//! Kinds: whether anybody serves them, and whether that is so by the time they are needed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::world::define;
use super::{Case, Code, Finding, unless_made_by};
use crate::flux::{Forest, Group, Maker, is_of_its_own, possible_program};
use crate::kinds::{Served, may_serve, of_chart};
use crate::object::Object;
use crate::substitute::is_unknown;

/// What a group brings that serves kinds.
struct Provider<'c> {
    group: &'c Group,
    served: Served,
    /// The release whose chart it is; otherwise the definitions themselves are in the group.
    release: Option<&'c Object>,
}

/// A release of whose chart nobody here knows what it serves, or what it was given to bring.
struct Unknown<'c> {
    group: &'c Group,
    release: &'c Object,
    chart: String,
}

impl Unknown<'_> {
    /// Whether its name says that it brings definitions, or that it has to do with a group.
    fn may_bring(&self, api: &str) -> bool {
        self.chart.contains("crd") || !words(&self.chart).is_disjoint(&words(api))
    }
}

/// All that may serve a kind.
struct Providers<'c> {
    known: Vec<Provider<'c>>,
    unknown: Vec<Unknown<'c>>,
    /// Releases of known charts without the definitions, and the charts.
    without: Vec<(&'c Object, String)>,
}

pub(super) fn judge(case: &mut Case<'_>) {
    let providers = Providers::of(case.forest);
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    for (group, object) in case.forest.objects() {
        let (api, kind) = (object.group(), object.kind());
        let version = object.text("/apiVersion").rsplit('/').next().unwrap_or_default();
        let is_served = |served: &Served| served.get(api, kind).is_some_and(|known| known.versions.contains(version));
        if is_served(&case.world.served) {
            continue;
        }
        let bringing: Vec<&Provider<'_>> = providers.known.iter().filter(|it| is_served(&it.served)).collect();
        if bringing.is_empty() {
            found.extend(not_served(case, &providers, object).map(|finding| match finding.cause.is_empty() {
                true => finding.because(object.text("/apiVersion")),
                false => finding,
            }));
        } else if told.insert((group.reference(), api.to_owned(), kind.to_owned())) {
            found.extend(awaited(case, &providers, group, object, &bringing));
        }
    }
    case.findings.extend(found);
}

impl<'c> Providers<'c> {
    fn of(forest: &'c Forest) -> Self {
        let (mut known, mut unknown, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for group in &forest.groups {
            let mut served = Served::default();
            group.objects.iter().for_each(|object| define(&mut served, object));
            known.push(Provider { group, served, release: None });
        }
        for (group, release) in forest.releases() {
            // Who makes the source that names the chart may not be known either.
            let chart = forest.chart(release).unwrap_or_else(|| format!("of {}", release.reference()));
            match of_chart(&chart) {
                Some(kinds) if brings_definitions(&chart, release) => {
                    let mut served = Served::default();
                    served.add_all(kinds);
                    known.push(Provider { group, served, release: Some(release) });
                }
                Some(_) => without.push((release, chart.clone())),
                None => {}
            }
            if !is_of_its_own(forest, release) {
                unknown.push(Unknown { group, release, chart });
            }
        }
        Self { known, unknown, without }
    }

    /// The charts that may bring a kind of a group which none is known to bring. A chart that `leaves_out` the definitions of the group has others for them
    /// alone.
    fn suspects(&self, forest: &Forest, api: &str, leaves_out: bool) -> BTreeSet<String> {
        let unknown =
            self.unknown.iter().filter(|it| !leaves_out || it.chart.contains("crd")).map(|it| it.chart.clone());
        let known = self.known.iter().filter_map(|it| forest.chart(it.release?));
        unknown.chain(known.filter(|chart| may_serve(chart, api))).collect()
    }
}

/// cert-manager leaves its definitions out unless told otherwise.
fn brings_definitions(chart: &str, release: &Object) -> bool {
    // As Helm takes it: a value that only the cluster knows is a text here.
    let is = |pointer: &str| !matches!(release.value.pointer(pointer), None | Some(Value::Null | Value::Bool(false)));
    chart != "cert-manager"
        || is("/spec/values/crds/enabled")
        || is("/spec/values/installCRDs")
        || release.value.pointer("/spec/valuesFrom").is_some()
}

/// What is told of a kind that nothing is known to serve as it is written.
fn not_served(case: &Case<'_>, providers: &Providers<'_>, object: &Object) -> Option<Finding> {
    let (api, kind, version) = (object.group(), object.kind(), object.text("/apiVersion"));
    if is_unknown(version) {
        return None;
    }
    let own_version = version.rsplit('/').next().unwrap_or_default();
    if case.world.api_server.may_serve(api, own_version, kind) {
        let minor = case.world.api_server.minor;
        let why = format!(
            "castle does not know whether Kubernetes 1.{minor} serves {kind} of {version} as its API server is told to"
        );
        return Some(Finding::of(Code::NotJudged, object, "/apiVersion", why, "nothing, if it does"));
    }
    if let Some(component) = case.world.may_serve(api) {
        let why = format!(
            "castle does not know whether this {} serves {kind} of {version}: its manifest is not at hand",
            component.name
        );
        return Some(Finding::of(Code::NotJudged, object, "/apiVersion", why, "nothing, if it does"));
    }
    if let Some(finding) = in_another_version(case, providers, object) {
        return Some(finding);
    }
    let leaving_out = providers
        .without
        .iter()
        .find(|(_, chart)| of_chart(chart).unwrap_or_default().iter().any(|kinds| kinds.group == api));
    let leaving_out = leaving_out.map(|(release, _)| *release);
    let (why, fix) = match (leaving_out, api) {
        (Some(release), _) => (
            format!(
                "{kind} of {version} is not served: the chart of {} leaves its definitions out",
                release.reference()
            ),
            format!("add crds: {{enabled: true}} to spec.values of {}", release.reference()),
        ),
        (None, "image.toolkit.fluxcd.io") => (
            format!("{kind} needs the controllers of image automation, which are not installed"),
            "write imageAutomation: true under gitops in castle.yaml, or remove the object".to_owned(),
        ),
        (None, "source.extensions.fluxcd.io") => (
            format!("{kind} needs Flux's source-watcher, which is not installed"),
            "write sourceWatcher: true under components.flux in castle.yaml, or remove the object".to_owned(),
        ),
        (None, _) => (
            format!(
                "nothing that will be installed serves {kind} of {version}: Flux applies nothing of its Kustomization"
            ),
            "add what defines the kind to the repository, in a Kustomization that this one waits for".to_owned(),
        ),
    };
    let unserved = Finding::of(Code::KindNotServed, object, "/apiVersion", why, fix);
    if case.world.served.has_group(api) && !case.world.defines(api) {
        return Some(unserved);
    }
    let charts = providers.suspects(case.forest, api, leaving_out.is_some());
    if api.ends_with(".fluxcd.io") || charts.is_empty() {
        let definition = format!("of {kind} in {version}");
        let wanted = ("CustomResourceDefinition", "", definition.as_str());
        let program = || possible_program(case.forest, wanted.0, wanted.1, &|_, _| false).map(Maker::likely);
        let program = if api.ends_with(".fluxcd.io") || leaving_out.is_some() { None } else { program() };
        return Some(unless_made_by((case.unread.as_deref(), program), object, "/apiVersion", wanted, unserved));
    }
    let why =
        format!("castle does not know whether anything serves {kind} of {version}: perhaps {}", perhaps(&charts, api));
    let fix = "make sure that its Kustomization waits for the one with the chart";
    Some(Finding::of(Code::NotJudged, object, "/apiVersion", why, fix))
}

/// What is told of a kind that is served, but not in this version.
fn in_another_version(case: &Case<'_>, providers: &Providers<'_>, object: &Object) -> Option<Finding> {
    let (api, kind, version) = (object.group(), object.kind(), object.text("/apiVersion"));
    let known = |served: &Served| served.get(api, kind).map(|known| known.versions.clone());
    let of_definitions = providers.known.iter().filter(|it| it.release.is_none()).find_map(|it| known(&it.served));
    let versions = known(&case.world.served).or(of_definitions);
    let of_chart = || providers.known.iter().find_map(|it| Some((it.release?, known(&it.served)?)));
    match (versions, of_chart()) {
        (Some(versions), _) => {
            let known: Vec<String> =
                versions.iter().map(|it| if api.is_empty() { it.clone() } else { format!("{api}/{it}") }).collect();
            let why = format!("{kind} is not served as {version}: what will be installed serves {}", known.join(", "));
            let fix = format!("write apiVersion: {}", known.last().map_or("", String::as_str));
            Some(Finding::of(Code::KindNotServed, object, "/apiVersion", why, fix))
        }
        // Which version of a chart comes is nobody's business here; older ones serve older versions.
        (None, Some((release, _))) => {
            let why =
                format!("castle does not know whether the chart of {} serves {kind} as {version}", release.reference());
            let fix = "make sure that its version does";
            Some(Finding::of(Code::NotJudged, object, "/apiVersion", why, fix))
        }
        (None, None) => None,
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(['.', '-', '/']).filter(|word| word.len() > 3).map(str::to_owned).collect()
}

/// The charts that may bring a kind: those that share a word with its group, or else how many there are.
fn perhaps(charts: &BTreeSet<String>, group: &str) -> String {
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
fn awaited(
    case: &Case<'_>,
    providers: &Providers<'_>,
    group: &Group,
    object: &Object,
    bringing: &[&Provider<'_>],
) -> Option<Finding> {
    let own = group.reference();
    let is_good = |it: &&&Provider<'_>| {
        let theirs = it.group.reference();
        match it.release {
            // Flux applies definitions before anything else, and waits until they are served.
            None => case.order.is_before(&theirs, &own),
            Some(release) => theirs != own && case.order.is_before(&theirs, &own) && waits_for(it.group, release),
        }
    };
    // A chart of definitions alone, which nobody here knows, may come first.
    let elsewhere =
        || providers.unknown.iter().filter(|it| it.may_bring(object.group()) && it.group.reference() != own);
    let comes_first =
        |it: &Unknown<'_>| case.order.is_before(&it.group.reference(), &own) && waits_for(it.group, it.release);
    if bringing.iter().any(|it| is_good(&it)) || elsewhere().any(comes_first) {
        return None;
    }
    let kind = object.kind();
    // Whoever else brings it ends the waiting, in the end.
    let provider =
        bringing.iter().find(|it| it.group.reference() != own || it.release.is_none()).or(bringing.first())?;
    let theirs = provider.group.name();
    let cause = format!("{own} {theirs}");
    let is_alone = provider.group.reference() == own && elsewhere().next().is_none();
    let finding = match provider.release {
        Some(release) if is_alone => Finding::of(
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
        Some(release)
            if provider.group.reference() != own && case.order.is_before(&provider.group.reference(), &own) =>
        {
            Finding::of(
                Code::OperatorNotAwaited,
                &provider.group.kustomization,
                "/spec",
                format!(
                    "{} depends on {theirs} for {kind}, but {theirs} is ready as soon as {} is applied, not when it is installed",
                    group.name(),
                    release.reference()
                ),
                format!("add wait: true to {theirs}"),
            )
        }
        _ => Finding::of(
            Code::OperatorNotAwaited,
            object,
            "/apiVersion",
            format!("{kind} is served by {theirs}, and {} does not wait for it: the first attempts fail", group.name()),
            format!("add dependsOn: [{{name: {theirs}}}] to {}", group.name()),
        ),
    };
    let finding = finding.because(cause);
    Some(match finding.code {
        Code::OperatorInSameGroup => case.unless_unread(object, "/apiVersion", &format!("{kind} served"), finding),
        _ => finding,
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
