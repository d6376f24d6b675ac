//! All Kustomizations that follow from the first: each may bring objects that are Kustomizations again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::variables::{self, Sources};
use super::{KUSTOMIZE, Variables, folder, inline, outcome};
use crate::kustomize::{BuildError, Note};
use crate::object::{Object, Reference};
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
}

impl Forest {
    /// Every object with the group that applies it.
    pub fn objects(&self) -> impl Iterator<Item = (&Group, &Object)> {
        self.groups.iter().flat_map(|group| group.objects.iter().map(move |object| (group, object)))
    }
}

/// Builds the first Kustomization and all that follow. What castle makes itself is `given`.
pub(crate) fn grow(tree: &Tree, entry: &Object, given: &Sources) -> Forest {
    // Sources of variables may be brought by any group, also by a later one: the first pass finds them.
    let first = pass(tree, entry, given);
    let mut known = given.clone();
    for group in &first.groups {
        known.extend(variables::of(&group.objects));
    }
    pass(tree, entry, &known)
}

fn pass(tree: &Tree, entry: &Object, known: &Sources) -> Forest {
    let mut forest = Forest::default();
    let mut seen = BTreeSet::from([entry.reference()]);
    let mut waiting = VecDeque::from([entry.clone()]);
    while let Some(kustomization) = waiting.pop_front() {
        let group = group(tree, kustomization, entry, known);
        for object in group.objects.iter().filter(|object| object.is(KUSTOMIZE, "Kustomization")) {
            if forest.groups.len() < MAX_GROUPS && seen.insert(object.reference()) {
                waiting.push_back(object.clone());
            }
        }
        forest.groups.push(group);
    }
    forest
}

fn group(tree: &Tree, kustomization: Object, entry: &Object, known: &Sources) -> Group {
    let mut group = Group {
        objects: Vec::new(),
        failure: None,
        has_folder: true,
        notes: Vec::new(),
        missing: Vec::new(),
        sources_missing: Vec::new(),
        kustomization,
    };
    let own = &group.kustomization;
    let same = |pointer: &str| own.text(pointer) == entry.text(pointer);
    if !same("/spec/sourceRef/kind") || !same("/spec/sourceRef/name") {
        let what = format!(
            "{} {}, another source than this repository",
            own.text("/spec/sourceRef/kind"),
            own.text("/spec/sourceRef/name")
        );
        group.notes.push(Note { file: own.file.clone(), line: own.line("/spec/sourceRef"), what });
        return group;
    }
    let (variables, sources_missing) = variables_of(own, known);
    group.has_folder = folder(own).is_some_and(|folder| tree.is_folder(&folder));
    if group.has_folder {
        match outcome(tree, own, &variables) {
            Ok(outcome) => {
                (group.objects, group.notes, group.missing) = (outcome.objects, outcome.notes, outcome.missing);
            }
            Err(failure) => group.failure = Some(failure),
        }
    }
    group.sources_missing = sources_missing;
    group
}

/// The variables of a Kustomization, and the sources of them that nobody makes.
fn variables_of(kustomization: &Object, known: &Sources) -> (Variables, Vec<(String, String, String)>) {
    let mut variables = Variables { values: BTreeMap::new(), is_open: false };
    let mut missing = Vec::new();
    for (index, source) in kustomization.list("/spec/postBuild/substituteFrom").enumerate() {
        let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text("kind"), text("name"));
        match known.get(&(kind.clone(), kustomization.reference().namespace, name.clone())) {
            Some(source) => {
                variables.values.extend(source.values.clone());
                variables.is_open |= source.is_open;
            }
            None if source.get("optional").and_then(Value::as_bool) == Some(true) => {}
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
