//! Patches, merged as Talos merges them.
//!
//! Documents are matched by version, kind and name; what a patch has and the configuration has not is appended. Inside of a
//! document mappings merge, lists grow, truth values always override, other scalars unless they are zero (empty text, 0), and
//! `$patch: delete` removes. Where Talos does otherwise for a field, a table says so, and a test
//! holds the tables against Talos' own types.
//!
//! Talos releases differ in two corners, and the later one is followed: search domains are replaced (1.13 appends), and deleting a
//! document that is not there does nothing. Touching a document twice in one patch is refused as 1.13 does: it is a mistake.
//!
//! Whether a key exists at all is not asked here; the node and `talosctl validate` refuse unknown ones.

mod delete;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use castle_yaml::wipe;
use serde_json::{Map, Value};
use thiserror::Error;

use delete::Deletion;
use rules::{Key, Rule};

/// What tells documents apart.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DocumentId {
    /// Empty for the main document.
    pub api_version: String,
    /// `v1alpha1` for the main document.
    pub kind: String,
    /// Empty where a kind has no names.
    pub name: String,
}

/// The kind of the document that says no kind.
const MAIN: &str = "v1alpha1";

impl DocumentId {
    /// Whose document it is.
    ///
    /// # Errors
    /// Where it is none.
    pub fn of(document: &Value) -> Result<Self, MergeError> {
        let entries = document.as_object().ok_or(MergeError::NoMapping)?;
        let text = |key| entries.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = Self { api_version: text("apiVersion"), kind: text("kind"), name: text("name") };
        match (id.api_version.is_empty(), id.kind.is_empty()) {
            (false, false) => Ok(id),
            (true, false) => Err(MergeError::NoVersion { kind: id.kind }),
            (true, true)
                if ["version", "machine", "cluster", "debug", "persist"]
                    .iter()
                    .any(|key| entries.contains_key(*key)) =>
            {
                Ok(Self { api_version: String::new(), kind: MAIN.to_owned(), name: String::new() })
            }
            (_, true) => Err(MergeError::NoKind),
        }
    }

    /// Whether it is the document that holds `machine` and `cluster`.
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.api_version.is_empty()
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { f.write_str(&self.kind) } else { write!(f, "{}/{}", self.kind, self.name) }
    }
}

/// Why a patch cannot be merged. Names places, never values.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum MergeError {
    /// A document is a list or a scalar.
    #[error("a document is no mapping")]
    NoMapping,
    /// A document says neither its kind nor anything of the main one.
    #[error("a document has no kind")]
    NoKind,
    /// A document says its kind alone.
    #[error("the document {kind} has no apiVersion")]
    NoVersion {
        /// Its kind.
        kind: String,
    },
    /// Two documents of one patch are about the same thing.
    #[error("the patch has the document {document} twice")]
    Twice {
        /// Which.
        document: DocumentId,
    },
    /// A mapping meets a list, or the like.
    #[error("{document}: {path} is of another type than in the configuration")]
    Mismatch {
        /// In which document.
        document: DocumentId,
        /// Where.
        path: String,
    },
    /// Talos cannot merge this field; it has to be deleted and set in two patches.
    #[error("{document}: {path} is set already and cannot be merged: delete it in a patch before this one")]
    Settled {
        /// In which document.
        document: DocumentId,
        /// Where.
        path: String,
    },
    /// There is nothing to delete at this place.
    #[error("{document}: there is no {path} to delete")]
    NothingToDelete {
        /// In which document.
        document: DocumentId,
        /// Where.
        path: String,
    },
    /// `$patch: delete` at a place where Talos cannot delete.
    #[error("{path}: $patch: delete removes fields, whole entries of a list told by their first key, and documents")]
    CannotDelete {
        /// Where.
        path: String,
    },
    /// `$patch` with another word than `delete`.
    #[error("{path}: $patch knows only delete")]
    UnknownDirective {
        /// Where.
        path: String,
    },
}

/// Merges one patch, of one or more documents, into a configuration.
///
/// # Errors
/// Where Talos would refuse the patch, too.
pub fn merge(config: &[Value], patch: &[Value]) -> Result<Vec<Value>, MergeError> {
    let mut merged = config.to_vec();
    let outcome = merge_into(&mut merged, patch);
    if outcome.is_err() {
        merged.iter_mut().for_each(wipe);
    }
    outcome.map(|()| merged)
}

fn merge_into(merged: &mut Vec<Value>, patch: &[Value]) -> Result<(), MergeError> {
    let mut touched = BTreeSet::new();
    for document in patch.iter().filter(|document| !document.is_null()) {
        let mut document = document.clone();
        let (deletions, is_spent) = delete::extract(&mut document)?;
        for deletion in &deletions {
            remove(merged, deletion)?;
        }
        if is_spent || says_nothing(&document) {
            continue;
        }
        let id = DocumentId::of(&document)?;
        if !touched.insert(id.clone()) {
            return Err(MergeError::Twice { document: id });
        }
        match position(merged, &id)? {
            Some(index) => {
                let outcome = Merge { id: &id, path: Vec::new() }.document(&mut merged[index], &document);
                wipe(&mut document);
                outcome?;
            }
            None => merged.push(document),
        }
    }
    Ok(())
}

fn position(documents: &[Value], id: &DocumentId) -> Result<Option<usize>, MergeError> {
    for (index, document) in documents.iter().enumerate() {
        if DocumentId::of(document)? == *id {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn remove(documents: &mut Vec<Value>, deletion: &Deletion) -> Result<(), MergeError> {
    let Some(index) = position(documents, &deletion.document)? else { return Ok(()) };
    if deletion.is_whole() {
        documents.remove(index);
        return Ok(());
    }
    deletion.apply(&mut documents[index])
}

/// A document that names itself and no more.
fn says_nothing(document: &Value) -> bool {
    document.as_object().is_some_and(|entries| {
        entries.iter().all(|(key, value)| {
            ["version", "kind", "name"].contains(&key.as_str()) && !value.is_object() && !value.is_array()
        })
    })
}

/// One document on its way into another.
struct Merge<'a> {
    id: &'a DocumentId,
    path: Vec<String>,
}

impl Merge<'_> {
    fn document(&mut self, left: &mut Value, right: &Value) -> Result<(), MergeError> {
        for (pattern, needs_parent) in rules::cleared_by_absence(&self.id.kind) {
            let pattern: Vec<&str> = pattern.split('.').collect();
            clear(left, Some(right), &pattern, needs_parent);
        }
        self.value(left, right, false)
    }

    /// `free` is below a mapping that Talos gives no types: there types must agree.
    fn value(&mut self, left: &mut Value, right: &Value, free: bool) -> Result<(), MergeError> {
        if right.is_null() {
            return Ok(());
        }
        if left.is_null() {
            *left = right.clone();
            return Ok(());
        }
        let rule = if free { Rule::Free } else { rules::of(&self.id.kind, &self.path) };
        match (rule, &mut *left, right) {
            // An empty mapping is nothing to Talos; an empty list is a list.
            (Rule::Replaced, _, Value::Object(entries)) if entries.is_empty() => {}
            (Rule::Replaced | Rule::ZeroCounts, _, _) => left.clone_from(right),
            (Rule::Settled, _, _) => return Err(MergeError::Settled { document: self.id.clone(), path: self.path() }),
            (Rule::ZeroIs(zero), Value::String(_), Value::String(word)) if word == zero => {}
            (Rule::Url, Value::String(old), Value::String(new)) => *old = merged_url(old, new),
            (Rule::EntriesReplaced, Value::Object(old), Value::Object(new)) => old.extend(new.clone()),
            (Rule::Keyed(key), Value::Array(old), Value::Array(new)) => self.keyed(key, old, new)?,
            (rule, Value::Object(old), Value::Object(new)) => self.entries(old, new, rule == Rule::Free)?,
            (_, Value::Array(old), Value::Array(new)) => old.extend(new.iter().cloned()),
            (_, Value::Object(_) | Value::Array(_), _) | (_, _, Value::Object(_) | Value::Array(_)) => {
                return Err(self.mismatch());
            }
            (Rule::Free, old, new) if std::mem::discriminant(old) != std::mem::discriminant(new) => {
                return Err(self.mismatch());
            }
            (Rule::Size, Value::String(old), Value::String(new)) if !old.ends_with('%') && new.ends_with('%') => {}
            (_, _, new) if is_zero(new) => {}
            (_, old, new) => old.clone_from(new),
        }
        Ok(())
    }

    fn entries(
        &mut self,
        left: &mut Map<String, Value>,
        right: &Map<String, Value>,
        free: bool,
    ) -> Result<(), MergeError> {
        for (key, new) in right {
            match left.get_mut(key) {
                Some(old) => self.below(key.clone(), |merge| merge.value(old, new, free))?,
                None if new.is_null() => {}
                None => {
                    left.insert(key.clone(), new.clone());
                }
            }
        }
        Ok(())
    }

    fn keyed(&mut self, key: Key, left: &mut Vec<Value>, right: &[Value]) -> Result<(), MergeError> {
        for new in right {
            match left.iter_mut().find(|old| key.is_same(old, new)) {
                Some(old) if key == Key::ImageReplaced => old.clone_from(new),
                Some(old) => self.below("[]".to_owned(), |merge| merge.value(old, new, false))?,
                None => left.push(new.clone()),
            }
        }
        Ok(())
    }

    fn below(
        &mut self,
        key: String,
        merge: impl FnOnce(&mut Self) -> Result<(), MergeError>,
    ) -> Result<(), MergeError> {
        self.path.push(key);
        merge(self)?;
        self.path.pop();
        Ok(())
    }

    fn path(&self) -> String {
        self.path.join(".")
    }

    fn mismatch(&self) -> MergeError {
        MergeError::Mismatch { document: self.id.clone(), path: self.path() }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Null => true,
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Removes from the left what Talos always takes from the right, and the right has not.
fn clear(left: &mut Value, right: Option<&Value>, pattern: &[&str], needs_parent: bool) {
    let (Value::Object(entries), [key, rest @ ..]) = (left, pattern) else { return };
    let right = right.filter(|right| right.is_object());
    let found = |key: &str| right.and_then(|right| right.get(key));
    if rest.is_empty() {
        if found(key).is_none_or(is_zero) && (right.is_some() || !needs_parent) {
            entries.shift_remove(*key);
        }
    } else if *key == "*" {
        for (key, value) in entries.iter_mut() {
            clear(value, found(key), rest, needs_parent);
        }
    } else if let Some(value) = entries.get_mut(*key) {
        clear(value, found(key), rest, needs_parent);
    }
}

/// Talos merges a URL part by part: what the new one does not say stays.
fn merged_url(old: &str, new: &str) -> String {
    let parts = url_parts(old).into_iter().zip(url_parts(new));
    parts.map(|(old, new)| if new.is_empty() { old } else { new }).collect()
}

/// Scheme, host, path, query and fragment, each with its mark, so that they join again.
fn url_parts(url: &str) -> [&str; 5] {
    let (url, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let (url, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    [scheme, host, path, query, fragment]
}
