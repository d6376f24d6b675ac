//! All Kustomizations that follow from the first: each may bring objects that are Kustomizations again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::makers::{Made, possible_maker};
use super::variables::{self, Sources};
use super::{HELM, KUSTOMIZE, SOURCE, Variables, folder, inline, outcome};
use crate::kustomize::{BuildError, Note};
use crate::object::{Object, Reference};
use crate::substitute::is_unknown;
use crate::tree::Tree;

/// How many Kustomizations are followed.
const MAX_GROUPS: usize = 2_000;

/// A Flux Kustomization and what it comes to.
#[derive(Clone, Debug)]
pub struct Group {
    /// The Kustomization itself.
    pub kustomization: Object,
    /// What it applies.
    pub objects: Vec<Object>,
    /// Why it cannot be built, if so.
    pub failure: Option<BuildError>,
    /// Whether its folder is there.
    pub has_folder: bool,
    pub(crate) notes: Vec<Note>,
    pub(crate) missing: Vec<(Object, BTreeSet<String>)>,
    /// Sources of variables that nobody makes: where they are named, of which kind, and their names.
    pub(crate) sources_missing: Vec<(String, String, String)>,
    /// Encrypted files that generators read.
    pub(crate) sealed: Vec<Note>,
    /// Keys of the kustomization file that Flux drops.
    pub(crate) dropped: Vec<Note>,
    /// Whether it builds another source than this repository.
    pub(crate) is_foreign: bool,
}

/// The source that a Kustomization builds.
pub(crate) fn source(kustomization: &Object) -> Reference {
    let text = |key: &str| kustomization.text(&format!("/spec/sourceRef/{key}")).to_owned();
    let namespace =
        Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| kustomization.reference().namespace);
    Reference { group: SOURCE.to_owned(), kind: text("kind"), namespace, name: text("name") }
}

/// Whether an object of Flux's is about another cluster than this one.
pub(crate) fn is_elsewhere(object: &Object) -> bool {
    object.value.pointer("/spec/kubeConfig").is_some_and(|it| !it.is_null())
}

impl Group {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.kustomization.name()
    }

    /// What tells it from all others.
    #[must_use]
    pub fn reference(&self) -> Reference {
        self.kustomization.reference()
    }

    /// The Kustomizations that must be ready before it.
    pub fn depends_on(&self) -> impl Iterator<Item = (usize, Reference)> {
        let own = self.reference();
        self.kustomization.list("/spec/dependsOn").enumerate().map(move |(index, entry)| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let namespace =
                Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| own.namespace.clone());
            (index, Reference { namespace, name: text("name"), ..own.clone() })
        })
    }
}

/// The groups, each after the one that brings it.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    /// The first is where Flux enters the repository.
    pub groups: Vec<Group>,
    /// Whether there are more than were followed.
    is_cut: bool,
}

/// Kinds from whose objects others are made, of which nothing is known here.
const MAKERS: &[(&str, &str)] = &[
    ("fluxcd.controlplane.io", "ResourceSet"),
    ("argoproj.io", "Application"),
    ("argoproj.io", "ApplicationSet"),
    ("helm.cattle.io", "HelmChart"),
    ("kro.run", "ResourceGraphDefinition"),
];
/// Charts that make whatever their values say.
const CHARTS_OF_ANYTHING: &[&str] =
    &["any-resource", "flux2-sync", "kubernetes-resources", "manifests", "raw", "raw-resources"];

impl Forest {
    /// Every object with the group that applies it.
    pub fn objects(&self) -> impl Iterator<Item = (&Group, &Object)> {
        self.groups.iter().flat_map(|group| group.objects.iter().map(move |object| (group, object)))
    }

    /// Every release of Helm's in this cluster, with the group that applies it.
    pub(crate) fn releases(&self) -> impl Iterator<Item = (&Group, &Object)> {
        self.objects().filter(|(_, object)| object.is(HELM, "HelmRelease") && !is_elsewhere(object))
    }

    /// The chart of a release, wherever it is named.
    pub(crate) fn chart(&self, release: &Object) -> Option<String> {
        let last = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let direct = release.text("/spec/chart/spec/chart");
        if !direct.is_empty() {
            return Some(last(direct));
        }
        let text = |key: &str| release.text(&format!("/spec/chartRef/{key}")).to_owned();
        let (kind, name) = (text("kind"), text("name"));
        let namespace =
            Some(text("namespace")).filter(|it| !it.is_empty()).unwrap_or_else(|| release.reference().namespace);
        let meant = Reference { group: SOURCE.to_owned(), kind: kind.clone(), namespace, name };
        let source = self.objects().map(|(_, object)| object).find(|object| object.reference() == meant);
        let source = source
            .map(|source| if kind == "HelmChart" { source.text("/spec/chart") } else { source.text("/spec/url") });
        source.map(last).filter(|chart| !chart.is_empty())
    }

    /// Something that was not read and may bring whatever is missing, if there is such a thing.
    pub(crate) fn unread(&self) -> Option<String> {
        self.unread_besides(&|_| false)
    }

    /// The same, without what some Kustomizations leave unread.
    pub(crate) fn unread_besides(&self, is_left_out: &dyn Fn(&Group) -> bool) -> Option<String> {
        let hidden = |group: &Group| group.notes.iter().find(|note| note.hides).map(|note| note.what.clone());
        let broken = |group: &Group| {
            let is_broken = group.failure.is_some() || !group.has_folder;
            is_broken.then(|| format!("{}, which cannot be built", group.kustomization.reference()))
        };
        let maker = |(_, object): (&Group, &Object)| {
            let makes = MAKERS.iter().any(|(group, kind)| object.is(group, kind));
            makes.then(|| object.reference().to_string())
        };
        let anything = |(_, release): (&Group, &Object)| {
            let is_any = self.chart(release).is_some_and(|chart| CHARTS_OF_ANYTHING.contains(&chart.as_str()));
            is_any.then(|| release.reference().to_string())
        };
        let groups = || self.groups.iter().filter(|group| !is_left_out(group));
        (groups().find_map(hidden).or_else(|| groups().find_map(broken)))
            .or_else(|| self.objects().find_map(maker))
            .or_else(|| self.releases().find_map(anything))
            .or_else(|| self.is_cut.then(|| format!("Kustomizations beyond the first {MAX_GROUPS}")))
    }
}

/// How a forest grows: what variables come from, and how they are substituted.
struct Ground<'g> {
    tree: &'g Tree,
    entry: &'g Object,
    known: Sources,
    is_lenient: bool,
    /// What an earlier pass found, all that is made by it, and whether all was read.
    found: Forest,
    made: Made,
    is_whole: bool,
}

/// Builds the first Kustomization and all that follow. What castle makes itself is `given`; whether all else that is there is known is said beside how
/// variables are substituted.
pub(crate) fn grow(tree: &Tree, entry: &Object, given: &Sources, (is_lenient, is_known): (bool, bool)) -> Forest {
    // Sources of variables may be brought by any group, also by a later one: the first pass finds them.
    let (found, made) = (Forest::default(), Made::default());
    let mut ground = Ground { tree, entry, known: given.clone(), is_lenient, found, made, is_whole: true };
    let first = pass(&ground);
    for group in &first.groups {
        variables::add(&mut ground.known, &group.objects);
    }
    (ground.is_whole, ground.made, ground.found) = (is_known && first.unread().is_none(), Made::of(&first), first);
    pass(&ground)
}

fn pass(ground: &Ground<'_>) -> Forest {
    let entry = ground.entry;
    let mut forest = Forest::default();
    let mut seen = BTreeSet::from([entry.reference()]);
    let mut waiting = VecDeque::from([entry.clone()]);
    while let Some(kustomization) = waiting.pop_front() {
        let group = group(ground, kustomization);
        for object in group.objects.iter().filter(|object| object.is(KUSTOMIZE, "Kustomization")) {
            if !seen.insert(object.reference()) {
                continue;
            }
            if seen.len() <= MAX_GROUPS {
                waiting.push_back(object.clone());
            } else {
                forest.is_cut = true;
            }
        }
        forest.groups.push(group);
    }
    forest
}

fn group(ground: &Ground<'_>, kustomization: Object) -> Group {
    let Ground { tree, entry, .. } = ground;
    let mut group = Group {
        objects: Vec::new(),
        failure: None,
        has_folder: true,
        notes: Vec::new(),
        missing: Vec::new(),
        sources_missing: Vec::new(),
        sealed: Vec::new(),
        dropped: Vec::new(),
        is_foreign: false,
        kustomization,
    };
    let own = &group.kustomization;
    let from = source(own);
    if from != source(entry) {
        let what = format!("{from}, another source than this repository");
        group.notes.push(Note { file: own.file.clone(), line: own.line("/spec/sourceRef"), what, hides: true });
        group.is_foreign = true;
        return group;
    }
    if is_unknown(own.text("/spec/path")) {
        let what = format!("the folder of {}, of which only the cluster knows the name", own.reference());
        group.notes.push(Note { file: own.file.clone(), line: own.line("/spec/path"), what, hides: true });
        return group;
    }
    let (variables, sources_missing) = variables_of(own, ground);
    group.has_folder = folder(own).is_some_and(|folder| tree.is_folder(&folder));
    if group.has_folder {
        match outcome(tree, own, &variables) {
            Ok(outcome) => {
                (group.objects, group.notes, group.missing) = (outcome.objects, outcome.notes, outcome.missing);
                (group.sealed, group.dropped) = (outcome.sealed, outcome.dropped);
            }
            Err(failure) => group.failure = Some(failure),
        }
    }
    group.sources_missing = sources_missing;
    if is_elsewhere(&group.kustomization) {
        // It can be built and no more: nobody here knows what is in that cluster.
        let own = &group.kustomization;
        let what = format!("what {} applies to another cluster (spec.kubeConfig)", own.reference());
        group.notes.push(Note { file: own.file.clone(), line: own.line("/spec/kubeConfig"), what, hides: false });
        group.objects.clear();
    }
    group
}

/// The variables of a Kustomization, and the sources of them that nobody makes.
fn variables_of(kustomization: &Object, ground: &Ground<'_>) -> (Variables, Vec<(String, String, String)>) {
    let mut variables = Variables { values: BTreeMap::new(), is_open: false, is_lenient: ground.is_lenient };
    let mut missing = Vec::new();
    for (index, source) in kustomization.list("/spec/postBuild/substituteFrom").enumerate() {
        let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let (kind, name, namespace) = (text("kind"), text("name"), kustomization.reference().namespace);
        match ground.known.get(&(kind.clone(), namespace.clone(), name.clone())) {
            Some(source) => {
                variables.values.extend(source.values.clone());
                variables.is_open |= source.is_open;
            }
            // It will be there, and only the cluster will know what is in it.
            None if ground.made.has(&kind, &namespace, &name) => variables.is_open = true,
            None if source.get("optional").and_then(Value::as_bool) == Some(true) => {
                variables.is_open |=
                    !ground.is_whole || possible_maker(&ground.found, &kind, &namespace, &|_, _| false).is_some();
            }
            None => {
                missing.push((format!("/spec/postBuild/substituteFrom/{index}"), kind, name));
                // That its variables are missing would only repeat it.
                variables.is_open = true;
            }
        }
    }
    variables.values.extend(inline(kustomization));
    (variables, missing)
}
