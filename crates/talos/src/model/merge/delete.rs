//! `$patch: delete`.

use serde_json::Value;

use super::{DocumentId, MAIN, MergeError, rules};

/// Something to delete from a document.
pub(super) struct Deletion {
    pub(super) document: DocumentId,
    path: Vec<String>,
    /// The entry of the list at the path that has this value under this key.
    entry: Option<(String, Value)>,
}

/// Takes the deletions out of a document, in order, and tells whether nothing else is left of it.
pub(super) fn extract(document: &mut Value) -> Result<(Vec<Deletion>, bool), MergeError> {
    let mut found = Vec::new();
    let is_spent = take(document, &mut Vec::new(), false, &mut found)?;
    if found.is_empty() {
        return Ok((Vec::new(), false));
    }
    let whole = found.iter().any(|(path, _)| path.is_empty());
    let target = target(document, whole)?;
    let deletion = |(path, entry)| Deletion { document: target.clone(), path, entry };
    Ok((found.into_iter().map(deletion).collect(), is_spent))
}

type Found = (Vec<String>, Option<(String, Value)>);

/// Whose fields are deleted. Unlike elsewhere, a document without a kind is the main one whatever it holds.
fn target(document: &Value, whole: bool) -> Result<DocumentId, MergeError> {
    let text = |key| document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = DocumentId { api_version: text("apiVersion"), kind: text("kind"), name: text("name") };
    match (id.api_version.is_empty(), id.kind.is_empty()) {
        (false, false) => Ok(id),
        (true, true) if !whole => {
            Ok(DocumentId { api_version: String::new(), kind: MAIN.to_owned(), name: String::new() })
        }
        (true, false) => Err(MergeError::NoVersion { kind: id.kind }),
        (_, true) => Err(MergeError::NoKind),
    }
}

/// Tells whether the value is gone from the patch: deleted, or emptied by deletions below it.
fn take(value: &mut Value, path: &mut Vec<String>, in_list: bool, found: &mut Vec<Found>) -> Result<bool, MergeError> {
    let here = |path: &[String]| path.join(".");
    match value {
        Value::Object(entries) => {
            for key in entries.keys().cloned().collect::<Vec<_>>() {
                if key == "$patch" {
                    if entries[&key].as_str() != Some("delete") {
                        return Err(MergeError::UnknownDirective { path: here(path) });
                    }
                    let lists = path.iter().filter(|step| *step == LIST).count();
                    let entry = entries.iter().find(|(other, _)| *other != "$patch");
                    let entry = match (in_list, lists, entry) {
                        (false, 0, _) => None,
                        // Told by its first key; entries of lists inside of lists cannot be reached.
                        (true, 1, Some((key, value))) => Some((key.clone(), value.clone())),
                        _ => return Err(MergeError::CannotDelete { path: here(path) }),
                    };
                    let path = path.iter().filter(|step| *step != LIST).cloned().collect();
                    found.push((path, entry));
                    return Ok(true);
                }
                path.push(key.clone());
                let is_gone = take(&mut entries[&key], path, false, found)?;
                path.pop();
                if is_gone {
                    entries.shift_remove(&key);
                    if entries.is_empty() {
                        return Ok(true);
                    }
                }
            }
        }
        Value::Array(items) => {
            let mut index = 0;
            path.push(LIST.to_owned());
            while index < items.len() {
                if take(&mut items[index], path, true, found)? {
                    items.remove(index);
                    if items.is_empty() {
                        path.pop();
                        return Ok(true);
                    }
                } else {
                    index += 1;
                }
            }
            path.pop();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(false)
}

/// A step into a list.
const LIST: &str = "[]";

impl Deletion {
    pub(super) fn is_whole(&self) -> bool {
        self.path.is_empty()
    }

    pub(super) fn apply(&self, document: &mut Value) -> Result<(), MergeError> {
        if !rules::is_deletable(&self.document.kind, &self.path) {
            return Err(MergeError::CannotDelete { path: self.path.join(".") });
        }
        let missing = || MergeError::NothingToDelete { document: self.document.clone(), path: self.path.join(".") };
        let Some((last, above)) = self.path.split_last() else { return Err(missing()) };
        let mut parent = document;
        for (depth, key) in above.iter().enumerate() {
            match parent.get_mut(key).filter(|value| value.is_object()) {
                Some(value) => parent = value,
                // Such a section is always there for Talos, so what is below it is deleted already.
                None if rules::is_always_there(&self.document.kind, &self.path[..=depth]) && self.entry.is_none() => {
                    return Ok(());
                }
                None => return Err(missing()),
            }
        }
        let Value::Object(entries) = parent else { return Err(missing()) };
        if let Some((key, value)) = &self.entry {
            let items = entries.get_mut(last).and_then(Value::as_array_mut).ok_or_else(missing)?;
            // Talos compares texts alone.
            let matches = |item: &Value| value.is_string() && item.get(key) == Some(value);
            let index = items.iter().position(matches).ok_or_else(missing)?;
            items.remove(index);
        } else if entries.shift_remove(last).is_none() && rules::is_mapping(&self.document.kind, above) {
            // A field that is not set can be unset; a key that is not there cannot be removed.
            return Err(missing());
        }
        Ok(())
    }
}
