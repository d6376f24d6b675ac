//! Sets of fields, and how they are written in objects.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// A step from a value to one inside of it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The field of a structure or a map.
    Field(String),
    /// The item of a list with these keys, in the order of their names.
    Keys(Vec<(String, Value)>),
    /// The item of a set.
    Item(Value),
    /// The item at a place.
    Index(u64),
}

impl Step {
    /// The order among kinds of steps, and what they are ordered by.
    fn rank(&self) -> (u8, String) {
        match self {
            Self::Field(name) => (0, name.clone()),
            Self::Keys(_) | Self::Item(_) => (1 + u8::from(matches!(self, Self::Item(_))), self.written()),
            Self::Index(at) => (3, format!("{at:020}")),
        }
    }

    /// As it is written in `fieldsV1`.
    pub(crate) fn written(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Keys(keys) => {
                let members: Map<String, Value> = keys.iter().cloned().collect();
                format!("k:{}", Value::Object(members))
            }
            Self::Item(value) => format!("v:{value}"),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let Value::Object(members) = serde_json::from_str(rest).ok()? else { return None };
                let mut keys: Vec<(String, Value)> = members.into_iter().collect();
                keys.sort_by(|left, right| left.0.cmp(&right.0));
                Some(Self::Keys(keys))
            }
            "v" => Some(Self::Item(serde_json::from_str(rest).ok()?)),
            "i" => Some(Self::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Keys(keys) => {
                let texts: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "[{}]", texts.join(","))
            }
            Self::Item(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// A set of paths, as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// Whether the path that leads here is in the set.
    pub(crate) is_member: bool,
    pub(crate) children: BTreeMap<Step, Self>,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.children.values().all(Self::is_empty)
    }

    /// The set below a step, made on the way there.
    pub(crate) fn below(&mut self, step: Step) -> &mut Self {
        self.children.entry(step).or_default()
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Takes all paths of another in.
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().add(child);
        }
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self { is_member: self.is_member && !other.is_member, children: BTreeMap::new() };
        for (step, child) in &self.children {
            let left = match other.children.get(step) {
                Some(others) => child.difference(others),
                None => child.clone(),
            };
            if !left.is_empty() {
                rest.children.insert(step.clone(), left);
            }
        }
        rest
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { is_member: self.is_member && other.is_member, children: BTreeMap::new() };
        for (step, child) in &self.children {
            if let Some(others) = other.children.get(step) {
                let common = child.intersection(others);
                if !common.is_empty() {
                    both.children.insert(step.clone(), common);
                }
            }
        }
        both
    }

    /// Removes a path and all below it.
    pub(crate) fn forget(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => drop(self.children.remove(&Step::Field((*last).to_owned()))),
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(&Step::Field((*first).to_owned())) {
                    child.forget(rest);
                }
            }
        }
    }

    /// Removes a path itself, and leaves what is below it.
    pub(crate) fn forget_only(&mut self, path: &[&str]) {
        let end = path.iter().try_fold(self, |set, name| set.children.get_mut(&Step::Field((*name).to_owned())));
        if let Some(end) = end {
            end.is_member = false;
        }
    }

    /// Drops what leads to nothing.
    pub(crate) fn trim(&mut self) {
        self.children.retain(|_, child| {
            child.trim();
            child.is_member || !child.children.is_empty()
        });
    }

    /// The paths, as messages write them, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect(&mut String::new(), &mut all);
        all
    }

    fn collect(&self, path: &mut String, all: &mut Vec<String>) {
        if self.is_member {
            all.push(path.clone());
        }
        for (step, child) in &self.children {
            let length = path.len();
            path.push_str(&step.to_string());
            child.collect(path, all);
            path.truncate(length);
        }
    }

    /// The written form.
    pub(crate) fn written(&self) -> Value {
        let mut members = Map::new();
        for (step, child) in &self.children {
            if child.is_empty() {
                continue;
            }
            let mut below = Map::new();
            let deeper = child.written();
            if child.is_member && deeper.as_object().is_some_and(|deeper| !deeper.is_empty()) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            if let Value::Object(deeper) = deeper {
                below.extend(deeper);
            }
            members.insert(step.written(), Value::Object(below));
        }
        Value::Object(members)
    }

    /// Reads the written form; nothing if it is none.
    pub(crate) fn read(written: &Value) -> Option<Self> {
        let members = written.as_object()?;
        let mut set = Self::default();
        for (key, below) in members {
            if key == "." {
                set.is_member = true;
                continue;
            }
            let mut child = Self::read(below)?;
            if child.children.is_empty() {
                child.is_member = true;
            }
            set.children.insert(Step::read(key)?, child);
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(written: &Value) -> Set {
        Set::read(written).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = json!({
            "f:metadata": { "f:labels": { ".": {}, "f:app": {} }, "f:finalizers": { "v:\"a\"": {} } },
            "f:spec": { "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {} } } },
        });
        assert_eq!(set(&written).written(), written);
        let paths = set(&written).paths();
        assert_eq!(
            paths,
            [
                ".metadata.finalizers[=\"a\"]",
                ".metadata.labels",
                ".metadata.labels.app",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port"
            ]
        );
    }

    #[test]
    fn sets_are_added_and_taken_apart() {
        let (one, two) =
            (set(&json!({ "f:a": { "f:b": {}, "f:c": {} } })), set(&json!({ "f:a": { "f:c": {}, "f:d": {} } })));
        assert_eq!(one.union(&two).paths(), [".a.b", ".a.c", ".a.d"]);
        assert_eq!(one.difference(&two).paths(), [".a.b"]);
        assert_eq!(one.intersection(&two).paths(), [".a.c"]);
        assert!(one.difference(&one).is_empty());
    }

    #[test]
    fn what_is_no_set_is_not_read() {
        for wrong in [json!("x"), json!({ "x:y": {} }), json!({ "i:x": {} }), json!({ "k:[]": {} })] {
            assert_eq!(Set::read(&wrong), None, "{wrong}");
        }
    }
}
