//! A kustomization file, and what a Flux object adds to it.

use serde_json::{Map, Value};

use super::BuildError;
use crate::yaml::{self, Lines};

/// A kustomization file, and what it is called.
pub(super) struct Kustomization {
    pub(super) folder: String,
    pub(super) file: String,
    pub(super) value: Value,
    pub(super) lines: Lines,
}

/// What a key must hold: whoever writes something else is refused.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Any,
    Text,
    Flag,
    Texts,
    Map,
    /// Mappings, with what some of their keys must hold.
    Maps(&'static [(&'static str, Shape)]),
}

const GENERATOR: Shape = Shape::Maps(&[
    ("name", Shape::Text),
    ("namespace", Shape::Text),
    ("behavior", Shape::Text),
    ("type", Shape::Text),
    ("literals", Shape::Texts),
    ("files", Shape::Texts),
    ("envs", Shape::Texts),
    ("env", Shape::Text),
    ("options", Shape::Map),
]);
const PATCH: Shape =
    Shape::Maps(&[("patch", Shape::Text), ("path", Shape::Text), ("target", Shape::Map), ("options", Shape::Map)]);

/// What castle carries out itself.
const SUPPORTED: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("metadata", Shape::Map),
    ("resources", Shape::Texts),
    ("bases", Shape::Texts),
    ("components", Shape::Texts),
    ("patches", PATCH),
    ("patchesStrategicMerge", Shape::Texts),
    ("patchesJson6902", PATCH),
    ("configMapGenerator", GENERATOR),
    ("secretGenerator", GENERATOR),
    ("generatorOptions", Shape::Map),
    (
        "labels",
        Shape::Maps(&[("pairs", Shape::Map), ("includeSelectors", Shape::Flag), ("includeTemplates", Shape::Flag)]),
    ),
    ("commonLabels", Shape::Map),
    ("commonAnnotations", Shape::Map),
    ("namespace", Shape::Text),
    ("namePrefix", Shape::Text),
    ("nameSuffix", Shape::Text),
    (
        "images",
        Shape::Maps(&[
            ("name", Shape::Text),
            ("newName", Shape::Text),
            ("newTag", Shape::Text),
            ("digest", Shape::Text),
        ]),
    ),
    ("replicas", Shape::Maps(&[("name", Shape::Text)])),
    ("replacements", Shape::Maps(&[("path", Shape::Text), ("source", Shape::Map), ("targets", Shape::Maps(&[]))])),
    // The order of objects is Flux's own business when it applies them.
    ("sortOptions", Shape::Any),
];

/// What Kustomize knows and castle does not carry out, and whether objects may come from it.
const UNSUPPORTED: &[(&str, bool)] = &[
    ("buildMetadata", false),
    ("configurations", true),
    ("crds", false),
    ("generators", true),
    ("helmGlobals", false),
    ("imageTags", false),
    ("inventory", false),
    ("openapi", false),
    ("transformers", true),
    ("validators", false),
    ("vars", false),
];
/// What needs Helm, without which Flux builds. An empty list needs none.
const WITH_HELM: [&str; 2] = ["helmCharts", "helmChartInflationGenerator"];

/// What was read, and which of its keys mean nothing here.
pub(super) struct Read {
    pub(super) kustomization: Kustomization,
    /// Keys that castle does not carry out, and whether objects may come from them.
    pub(super) unsupported: Vec<(&'static str, bool)>,
    /// Keys that Kustomize does not know.
    pub(super) unknown: Vec<String>,
}

/// The key as Kustomize spells it: it reads as Go does, whatever the case of the letters.
fn spelt(key: &str) -> &str {
    let known = SUPPORTED.iter().map(|(known, _)| *known).chain(UNSUPPORTED.iter().map(|(known, _)| *known));
    known.chain(WITH_HELM).find(|known| known.eq_ignore_ascii_case(key)).unwrap_or(key)
}

impl Shape {
    /// The place and the name of the first value that is of another shape.
    fn misses(self, value: &Value, pointer: &str) -> Option<(String, &'static str)> {
        let is = |fits: bool, what| if fits || value.is_null() { None } else { Some((pointer.to_owned(), what)) };
        match self {
            Self::Any => None,
            Self::Text => is(value.is_string(), "a text"),
            Self::Flag => is(value.is_boolean(), "true or false"),
            Self::Map => is(value.is_object(), "a mapping"),
            Self::Texts => {
                is(value.as_array().is_some_and(|items| items.iter().all(Value::is_string)), "a list of texts")
            }
            Self::Maps(keys) => match value.as_array() {
                None => is(false, "a list of mappings"),
                Some(items) => items.iter().enumerate().find_map(|(index, item)| {
                    let place = format!("{pointer}/{index}");
                    if !item.is_object() {
                        return Some((place, "a mapping"));
                    }
                    keys.iter().find_map(|(key, shape)| shape.misses(item.get(key)?, &format!("{place}/{key}")))
                }),
            },
        }
    }
}

impl Kustomization {
    pub(super) fn list(&self, key: &str) -> impl Iterator<Item = (usize, &Value)> {
        let items = self.value.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
        items.map(move |(index, item)| (self.lines.of(&format!("/{key}/{index}")), item))
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn line(&self, key: &str) -> usize {
        self.lines.of(&format!("/{key}"))
    }

    pub(super) fn wrong(&self, line: usize, what: &str) -> BuildError {
        BuildError::new(&self.file, line, what)
    }

    /// Reads the file of a folder.
    pub(super) fn read(folder: &str, file: &str, text: &str) -> Result<Read, BuildError> {
        let wrong = |line, what: &str| BuildError::new(file, line, what);
        let documents = yaml::read(text).map_err(|error| wrong(error.line, &format!("cannot be read: {error}")))?;
        let (value, lines) = documents
            .into_iter()
            .next()
            .map_or_else(|| (Value::Object(Map::new()), Lines::default()), |document| (document.value, document.lines));
        let Value::Object(entries) = value else { return Err(wrong(1, "a kustomization file is a mapping")) };
        let entries = entries.into_iter().filter(|(_, value)| !value.is_null());
        let entries: Map<String, Value> = entries.map(|(key, value)| (spelt(&key).to_owned(), value)).collect();
        let (mut unsupported, mut unknown) = (Vec::new(), Vec::new());
        for (key, value) in &entries {
            if WITH_HELM.contains(&key.as_str()) {
                if value.as_array().is_none_or(|charts| !charts.is_empty()) {
                    let what = format!("{key} needs Helm, and Flux builds without: a HelmRelease installs a chart");
                    return Err(wrong(lines.of(&format!("/{key}")), &what));
                }
                continue;
            }
            let Some((_, shape)) = SUPPORTED.iter().find(|(known, _)| known == key) else {
                match UNSUPPORTED.iter().find(|(known, _)| known == key) {
                    Some(known) => unsupported.push(*known),
                    None => unknown.push(key.clone()),
                }
                continue;
            };
            if let Some((pointer, what)) = shape.misses(value, &format!("/{key}")) {
                let place = pointer.trim_start_matches('/').replace('/', ".");
                return Err(wrong(lines.of(&pointer), &format!("{place} must be {what}")));
            }
        }
        let value = Value::Object(entries);
        let kustomization = Self { folder: folder.to_owned(), file: file.to_owned(), value, lines };
        Ok(Read { kustomization, unsupported, unknown })
    }

    /// Whether it says nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.value.as_object().is_none_or(Map::is_empty)
    }

    /// Adds what the Flux object says, as kustomize-controller writes it into the file.
    pub(super) fn overlaid(&mut self, spec: &Value) {
        let Value::Object(own) = &mut self.value else { return };
        for (from, to) in [("targetNamespace", "namespace"), ("namePrefix", "namePrefix"), ("nameSuffix", "nameSuffix")]
        {
            if let Some(text) = spec.get(from).filter(|text| text.is_string()) {
                own.insert(to.to_owned(), text.clone());
            }
        }
        for key in ["patches", "components", "patchesStrategicMerge", "patchesJson6902"] {
            let added = spec.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
            if let Value::Array(items) = own.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
                items.extend(added);
            }
        }
        let images = spec.get("images").and_then(Value::as_array).cloned().unwrap_or_default();
        if let Value::Array(known) = own.entry("images").or_insert_with(|| Value::Array(Vec::new())) {
            for image in images {
                match known.iter_mut().find(|it| it["name"] == image["name"]).and_then(Value::as_object_mut) {
                    Some(known) => overlaid_image(known, &image),
                    None => known.push(image),
                }
            }
        }
    }
}

fn overlaid_image(known: &mut Map<String, Value>, image: &Value) {
    let given = |key: &str| image[key].as_str().is_some_and(|text| !text.is_empty());
    if given("newName") {
        known.insert("newName".to_owned(), image["newName"].clone());
    }
    // Tag and digest both say which version is meant: one that is set replaces both.
    if given("newTag") || given("digest") {
        for key in ["newTag", "digest"] {
            known.insert(key.to_owned(), if given(key) { image[key].clone() } else { "".into() });
        }
    }
}
