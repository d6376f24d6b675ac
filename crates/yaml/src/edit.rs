//! A text that others wrote, changed where it has to be: whatever is not changed stays as they wrote it, with their comments.

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::parse::parse;

/// Writes a value alone.
type Emit = fn(&Value) -> String;

/// The text of `old` as one of `new`: lines of entries that are the same in both stay, the others are written anew, those that are new come after them. Nothing
/// if the text is not laid out in lines, so that its lines do not tell what belongs to which entry: what comes out is read again before it is believed.
#[must_use]
pub fn edit(text: &str, old: &Value, new: &Value, emit: Emit) -> Option<String> {
    let mut edited = level(text, 0, old, new, emit)?;
    let is_meant = parse(&edited).is_ok_and(|mut documents| {
        let is_meant = documents.len() == 1 && documents[0] == *new;
        documents.iter_mut().for_each(super::wipe);
        is_meant
    });
    is_meant.then(|| std::mem::take(&mut *edited))
}

/// The entries of a mapping or a list that begin at a column.
fn level(text: &str, column: usize, old: &Value, new: &Value, emit: Emit) -> Option<Zeroizing<String>> {
    let is_list = old.is_array();
    let (head, parts) = parts(text, column, is_list);
    let (before, after) = (entries(old)?, entries(new)?);
    if parts.len() != before.len() || is_list != new.is_array() {
        return None;
    }
    // Room for all of it: a text that grows is copied, and the copies are not wiped.
    let mut edited = Zeroizing::new(String::with_capacity(2 * text.len() + (16 << 10)));
    edited.push_str(head);
    for ((name, old), part) in before.iter().zip(parts) {
        match after.iter().find(|(other, _)| other == name) {
            Some((_, new)) if new == old => edited.push_str(part),
            Some((_, new)) => match below(part, old, new, emit) {
                Some(part) => edited.push_str(&part),
                None => {
                    written(&mut edited, name, new, column, emit);
                    edited.push_str(tail(part));
                }
            },
            None => edited.push_str(tail(part)),
        }
    }
    for (name, value) in after.iter().filter(|(name, _)| !before.iter().any(|(other, _)| other == name)) {
        if !edited.is_empty() && !edited.ends_with('\n') {
            edited.push('\n');
        }
        written(&mut edited, name, value, column, emit);
    }
    Some(edited)
}

/// What an entry is called: its key, or its place in a list.
#[derive(Debug, PartialEq, Eq)]
enum Name<'v> {
    Key(&'v str),
    Place(usize),
}

fn entries(value: &Value) -> Option<Vec<(Name<'_>, &Value)>> {
    match value {
        Value::Object(entries) => Some(entries.iter().map(|(key, value)| (Name::Key(key), value)).collect()),
        Value::Array(items) => Some(items.iter().enumerate().map(|(place, item)| (Name::Place(place), item)).collect()),
        _ => None,
    }
}

/// The lines of an entry whose value begins on the next line, with that changed.
fn below(part: &str, old: &Value, new: &Value, emit: Emit) -> Option<Zeroizing<String>> {
    let (first, rest) = part.split_at(part.find('\n')? + 1);
    let line = rest.lines().find(|line| !is_aside(line))?;
    let column = line.len() - line.trim_start_matches(' ').len();
    let rest = level(rest, column, old, new, emit)?;
    let mut whole = Zeroizing::new(String::with_capacity(first.len() + rest.len()));
    whole.push_str(first);
    whole.push_str(&rest);
    Some(whole)
}

/// Writes an entry at a column.
fn written(text: &mut String, name: &Name<'_>, value: &Value, column: usize, emit: Emit) {
    let mut alone = match name {
        Name::Key(key) => Value::Object(Map::from_iter([((*key).to_owned(), value.clone())])),
        Name::Place(_) => Value::Array(vec![value.clone()]),
    };
    for line in Zeroizing::new(emit(&alone)).lines() {
        let indent = if line.is_empty() { 0 } else { column };
        text.extend(std::iter::repeat_n(' ', indent));
        text.push_str(line);
        text.push('\n');
    }
    super::wipe(&mut alone);
}

/// What stands before the first entry at a column, and the lines of each.
fn parts(text: &str, column: usize, is_list: bool) -> (&str, Vec<&str>) {
    let begins = |line: &str| {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let is_item = line[spaces..].trim_end() == "-" || line[spaces..].starts_with("- ");
        let is_other = is_aside(line) || line.starts_with("---") || line.starts_with('%');
        spaces == column && !is_other && is_item == is_list
    };
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if begins(line) {
            starts.push(at);
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect();
    (&text[..starts.first().copied().unwrap_or(text.len())], parts)
}

/// Whether a line is empty, or a comment.
fn is_aside(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// The comments below an entry: they stand above the next one.
fn tail(part: &str) -> &str {
    let mut end = part.len();
    for line in part.split_inclusive('\n').rev().take_while(|line| is_aside(line)) {
        end -= line.len();
    }
    &part[end..]
}
