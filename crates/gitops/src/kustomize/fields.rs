//! Fields by their path: `spec/template/metadata/labels`, lists on the way entered item by item.

use serde_json::{Map, Value};

use super::piece::Id;

/// A field of objects of some kinds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// The group it is of, or any.
    pub(super) group: Option<&'static str>,
    /// The kind it is of, or any.
    pub(super) kind: Option<&'static str>,
    pub(super) path: &'static str,
    /// Whether it is made where there is none.
    pub(super) is_made: bool,
}

impl Field {
    pub(super) fn is_of(&self, id: &Id) -> bool {
        self.group.is_none_or(|group| group == id.group()) && self.kind.is_none_or(|kind| kind == id.kind)
    }
}

/// A field of any object of a kind.
pub(super) const fn of(kind: &'static str, path: &'static str, is_made: bool) -> Field {
    Field { group: None, kind: Some(kind), path, is_made }
}

/// Visits every value at a path. What is missing on the way is made if `make` says what the last is to be.
pub(super) fn visit(value: &mut Value, path: &str, make: Option<&Value>, act: &mut dyn FnMut(&mut Value)) {
    let parts: Vec<String> = split(path);
    walk(value, &parts, make, act);
}

/// The parts of a path; a slash in one is written `\/`.
fn split(path: &str) -> Vec<String> {
    path.replace("\\/", "\u{0}").split('/').map(|part| part.replace('\u{0}', "/")).collect()
}

fn walk(value: &mut Value, path: &[String], make: Option<&Value>, act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return act(value) };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, path, make, act)),
        Value::Object(entries) => {
            let name = first.trim_end_matches("[]");
            let is_missing = entries.get(name).is_none_or(Value::is_null);
            // A list cannot be made: nobody knows how many items it would have.
            if is_missing && (first.ends_with("[]") || make.is_none()) {
                return;
            }
            if is_missing && let Some(last) = make {
                let made = if rest.is_empty() { last.clone() } else { Value::Object(Map::new()) };
                entries.insert(name.to_owned(), made);
            }
            if let Some(inner) = entries.get_mut(name) {
                walk(inner, rest, make, act);
            }
        }
        _ => {}
    }
}
