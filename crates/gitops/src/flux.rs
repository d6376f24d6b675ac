//! Flux's Kustomizations: one built as its controller would, and all that follow from the first.

mod forest;
mod makers;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::kustomize::{self, BuildError, Built, Note};
use crate::object::Object;
use crate::substitute::{SubstituteError, UNKNOWN, substitute};
use crate::tree::{Tree, joined};
use crate::yaml;

pub use forest::{Forest, Group};
pub(crate) use forest::{grow, is_elsewhere, source};
pub(crate) use makers::{Made, Maker, is_of_its_own, possible_maker, possible_program};
pub(crate) use variables::{Source, Sources, add as add_sources};

/// The group of Flux's Kustomizations.
pub(crate) const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io";
/// The group of its releases.
pub(crate) const HELM: &str = "helm.toolkit.fluxcd.io";
/// The group of its sources.
pub(crate) const SOURCE: &str = "source.toolkit.fluxcd.io";
/// The kinds that run programs, and where their Pods are.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("Pod", "/spec"),
    ("Deployment", "/spec/template/spec"),
    ("ReplicaSet", "/spec/template/spec"),
    ("DaemonSet", "/spec/template/spec"),
    ("StatefulSet", "/spec/template/spec"),
    ("Job", "/spec/template/spec"),
    ("CronJob", "/spec/jobTemplate/spec/template/spec"),
];
/// Where an object says that Flux is not its only owner: `Merge`, `IfNotPresent` or `Ignore`.
pub(crate) const SSA: &str = "/metadata/annotations/kustomize.toolkit.fluxcd.io~1ssa";
const SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";

/// What one Kustomization comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) objects: Vec<Object>,
    pub(crate) notes: Vec<Note>,
    /// For each object whose variables are not all known: which are missing. None, if Flux would leave them all as they are.
    pub(crate) missing: Vec<(Object, BTreeSet<String>)>,
    /// Encrypted files that generators read.
    pub(crate) sealed: Vec<Note>,
    /// Keys of the kustomization file that Flux drops.
    pub(crate) dropped: Vec<Note>,
}

/// What is known of the variables of a Kustomization.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    pub(crate) values: BTreeMap<String, String>,
    /// Whether there may be more than these.
    pub(crate) is_open: bool,
    /// Whether Flux leaves empty what has no value, as it did before 2.9.
    pub(crate) is_lenient: bool,
}

/// Builds the folder of a Flux Kustomization, and substitutes its variables.
///
/// # Errors
///
/// [`BuildError`] where Flux would fail to build it. That a variable is missing is one, too.
pub fn build(tree: &Tree, kustomization: &Object) -> Result<Vec<Object>, BuildError> {
    let variables = Variables { values: inline(kustomization), ..Variables::default() };
    let outcome = outcome(tree, kustomization, &variables)?;
    match outcome.missing.iter().find(|(_, names)| !names.is_empty()) {
        None => Ok(outcome.objects),
        Some((object, names)) => {
            let what = SubstituteError::Missing(names.clone()).to_string();
            Err(BuildError::new(&object.file, object.line(""), &what))
        }
    }
}

/// The variables that are written in the object itself.
pub(crate) fn inline(kustomization: &Object) -> BTreeMap<String, String> {
    let pairs = kustomization.value.pointer("/spec/postBuild/substitute").and_then(Value::as_object);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).replace('\n', "");
    pairs.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// The folder that an object builds; nothing if it leads out of the repository.
pub(crate) fn folder(kustomization: &Object) -> Option<String> {
    joined("", kustomization.text("/spec/path").trim_start_matches('/'))
}

pub(crate) fn outcome(tree: &Tree, kustomization: &Object, variables: &Variables) -> Result<Outcome, BuildError> {
    let spec = kustomization.value.get("spec").cloned().unwrap_or_default();
    let line = kustomization.line("/spec/path");
    let here = |what: &str| BuildError::new(&kustomization.file, line, what);
    let folder = folder(kustomization).ok_or_else(|| here("spec.path leads out of the repository"))?;
    let Built { objects, notes, sealed, dropped } = kustomize::build(tree, &folder, &spec)?;
    let mut outcome = Outcome { objects, notes, missing: Vec::new(), sealed, dropped };
    if !spec["postBuild"].is_null() && (variables.is_open || !variables.values.is_empty()) {
        for object in &mut outcome.objects {
            match substituted(object, variables) {
                Ok((value, names)) => {
                    if !names.is_empty() {
                        outcome.missing.push((object.clone(), names));
                    }
                    object.value = value;
                }
                Err(Failure::Missing(names)) => outcome.missing.push((object.clone(), names)),
                Err(Failure::Wrong(what)) => return Err(BuildError::new(&object.file, object.line(""), &what)),
            }
        }
    }
    if !spec["postBuild"].is_null() && !variables.is_open && variables.values.is_empty() {
        let left = outcome.objects.iter().filter(|object| object.value.to_string().contains("${"));
        outcome.missing = left.map(|object| (object.clone(), BTreeSet::new())).collect();
    }
    for object in &mut outcome.objects {
        common(&mut object.value, &spec["commonMetadata"]);
    }
    Ok(outcome)
}

/// Adds the labels and annotations that all objects get when they are applied.
fn common(object: &mut Value, metadata: &Value) {
    for key in ["labels", "annotations"] {
        let Some(pairs) = metadata[key].as_object() else { continue };
        let Some(own) = object.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        if let Value::Object(known) = own.entry(key).or_insert_with(|| Value::Object(Map::new())) {
            known.extend(pairs.clone());
        }
    }
}

enum Failure {
    Missing(BTreeSet<String>),
    Wrong(String),
}

/// An object with its variables substituted, the way Flux does it: in its text. With it the names of those that came out empty.
fn substituted(object: &Object, variables: &Variables) -> Result<(Value, BTreeSet<String>), Failure> {
    let at = SUBSTITUTE.replace('/', "~1");
    let is_disabled =
        ["labels", "annotations"].iter().any(|place| object.text(&format!("/metadata/{place}/{at}")) == "disabled");
    if is_disabled {
        return Ok((object.value.clone(), BTreeSet::new()));
    }
    let mut empty = BTreeSet::new();
    let source = yaml::emit(&object.value);
    let text = match substitute(&source, &variables.values) {
        Err(SubstituteError::Missing(names)) if variables.is_open => {
            let mut guessed = variables.values.clone();
            guessed.extend(names.into_iter().map(|name| (name, UNKNOWN.to_owned())));
            substitute(&source, &guessed)
        }
        Err(SubstituteError::Missing(names)) if variables.is_lenient => {
            let mut known = variables.values.clone();
            known.extend(names.iter().map(|name| (name.clone(), String::new())));
            empty = names;
            substitute(&source, &known)
        }
        other => other,
    };
    let text = text.map_err(|error| match error {
        SubstituteError::Missing(names) => Failure::Missing(names),
        wrong => Failure::Wrong(wrong.to_string()),
    })?;
    let documents = yaml::read_old(&text)
        .map_err(|error| Failure::Wrong(format!("with its variables substituted it is no YAML any more: {error}")))?;
    let value = documents.into_iter().next().map(|document| document.value);
    let value = value.ok_or_else(|| Failure::Wrong("with its variables substituted nothing is left of it".to_owned()));
    Ok((value?, empty))
}
