//! What a node would not read in documents that are merged into its configuration: places, and never values.

use super::decode::{Fault, fault, shape_of, word};
use super::keys;
use super::shapes::{Kind, Minor, SHAPES, Shape};
use super::yaml::{self, Meaning, Yaml};

/// What tells Talos to remove something rather than to have it.
const DIRECTIVE: &str = "$patch";

/// Something in a text that a node of a version would not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The line, counted from 1.
    pub line: usize,
    /// The place: `machine.network.hostnam`, with the kind before it in documents that have one.
    pub place: String,
    /// What is wrong there.
    pub why: String,
    /// The keys that are known there, if it is a key that nobody knows.
    pub known: Vec<String>,
}

/// All that a node of this minor version of Talos would not read in the documents of a patch. What is missing is not asked: the rest is
/// in what it is merged into.
pub(crate) fn misread(minor: Minor, text: &str) -> Vec<Misread> {
    let Ok(documents) = yaml::documents(text) else {
        return vec![Misread { line: 1, place: String::new(), why: "this is no YAML".to_owned(), known: Vec::new() }];
    };
    let mut walk = Walk { minor, found: Vec::new() };
    for value in documents.iter().filter(|value| value.map().is_some_and(|entries| !entries.is_empty())) {
        let field = |name: &str| value.text_at(name).unwrap_or_default();
        let (version, kind) = (field("apiVersion"), field("kind"));
        match shape_of(minor, value, version, kind) {
            Ok(shape) => walk.map(shape, value, kind),
            Err(_) if kind.is_empty() => {
                walk.tell(value, "", "this is neither the main document nor one with a kind");
            }
            Err(_) if version.is_empty() => walk.tell(value, kind, "the document has no apiVersion"),
            Err(_) => walk.tell(value, kind, "this Talos knows no such document"),
        }
    }
    walk.found
}

struct Walk {
    minor: Minor,
    found: Vec<Misread>,
}

impl Walk {
    fn tell(&mut self, value: &Yaml, place: &str, why: &str) {
        let (place, why) = (place.to_owned(), why.to_owned());
        self.found.push(Misread { line: value.line, place, why, known: Vec::new() });
    }

    fn map(&mut self, shape: &Shape, value: &Yaml, place: &str) {
        for (line, key, first) in &value.repeated {
            let (place, why) = (below(place, key), format!("is there already, on line {first}"));
            self.found.push(Misread { line: *line, place, why, known: Vec::new() });
        }
        let Some(entries) = value.map() else { return self.tell(value, place, "must be a mapping") };
        for (key, value) in entries {
            let is_its_own = shape.is_document && ["apiVersion", "kind"].contains(&key.as_str());
            if is_its_own || key == DIRECTIVE {
                continue;
            }
            let inner = below(place, key);
            match shape.field(self.minor, key) {
                None => {
                    let why = "this Talos knows no such key".to_owned();
                    let known = shape.fields.iter().map(|field| field.name.clone());
                    let known = known.filter(|name| shape.field(self.minor, name).is_some()).collect();
                    self.found.push(Misread { line: value.line, place: inner, why, known });
                }
                Some(field) => self.value(&field.kind, value, &inner),
            }
        }
    }

    fn value(&mut self, kind: &Kind, value: &Yaml, place: &str) {
        let is_removed = value.map().is_some_and(|entries| entries.iter().any(|(key, _)| key == DIRECTIVE));
        if value.meaning() == Meaning::Null || is_removed {
            return;
        }
        match (kind, value.list(), value.map()) {
            (Kind::Any, ..) | (Kind::Object, _, Some(_)) => {}
            (Kind::Args, Some(items), _) => {
                items.iter().for_each(|item| self.value(&Kind::Text, item, &format!("{place}[]")));
            }
            (Kind::List(inner), Some(items), _) => {
                items.iter().for_each(|item| self.value(inner, item, &format!("{place}[]")));
            }
            (Kind::Map(inner), _, Some(entries)) => {
                entries.iter().for_each(|(key, value)| self.value(inner, value, &below(place, key)));
            }
            (Kind::Shape(name), ..) => {
                if let Some(shape) = SHAPES.get(name) {
                    self.map(shape, value, place);
                }
            }
            (Kind::Pair | Kind::Certificate | Kind::Key, _, Some(entries)) => {
                for (key, value) in entries {
                    let is_pem = value.text().is_some_and(|text| keys::unwrapped(text).is_ok());
                    if !["crt", "key"].contains(&key.as_str()) {
                        self.tell(value, &below(place, key), "this Talos knows no such key");
                    } else if !is_pem {
                        self.tell(value, &below(place, key), "must be PEM as base64");
                    }
                }
            }
            (Kind::List(_), ..) => self.tell(value, place, "must be a list"),
            (Kind::Object | Kind::Map(_) | Kind::Pair | Kind::Certificate | Kind::Key, ..) => {
                self.tell(value, place, "must be a mapping");
            }
            (_, None, None) => match fault(kind, value) {
                None => {}
                Some(Fault::Type) => self.tell(value, place, &format!("must be a {}", word(kind))),
                Some(Fault::Text(_)) => match kind {
                    Kind::Choice(words) => self.tell(value, place, &format!("must be one of {}", words.join(", "))),
                    _ => self.tell(value, place, "cannot be read as what belongs here"),
                },
            },
            _ => self.tell(value, place, &format!("must be a {}", word(kind))),
        }
    }
}

fn below(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(minor: Minor, text: &str) -> Vec<String> {
        misread(minor, text).into_iter().map(|it| format!("{}: {}: {}", it.line, it.place, it.why)).collect()
    }

    #[test]
    fn places_are_told_and_values_are_not() {
        let text = "machine:\n  network:\n    hostnam: secret-1\n  kubelet:\n    extraArgs: secret-2\n  install:\n    wipe: secret-3\n\
                    ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: x\nprovisionin: {}\n\
                    ---\napiVersion: v1alpha1\nkind: Nothing\nname: secret-4\n";
        let found = told(13, text);
        assert_eq!(
            found,
            [
                "3: machine.network.hostnam: this Talos knows no such key",
                "5: machine.kubelet.extraArgs: must be a mapping",
                "7: machine.install.wipe: must be a bool",
                "12: UserVolumeConfig.provisionin: this Talos knows no such key",
                "14: Nothing: this Talos knows no such document",
            ]
        );
    }

    #[test]
    fn what_is_removed_need_not_be_whole() {
        let text = "machine:\n  network:\n    $patch: delete\n  kubelet: {extraArgs: {v: '4'}}\ncluster:\n  apiServer:\n    certSANs: {$patch: delete}\n";
        assert_eq!(told(13, text), Vec::<String>::new());
        assert_eq!(told(13, "# nothing\n"), Vec::<String>::new());
    }

    #[test]
    fn documents_are_those_of_the_version() {
        let text = "apiVersion: v1alpha1\nkind: KubeInlineManifestConfig\nname: a\nmanifest: ''\n";
        assert_eq!(told(14, text), Vec::<String>::new());
        assert_eq!(told(13, text), ["1: KubeInlineManifestConfig: this Talos knows no such document"]);
    }
}
