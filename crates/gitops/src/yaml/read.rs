//! Text to documents, within fixed limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::{Document, Lines, YamlError, escaped, plain};

/// How deep collections may nest. Definitions of custom resources reach 40.
const DEPTH: usize = 100;
/// How deep the lines of values are remembered: as deep as the reference of a variable of a container.
const LINE_DEPTH: usize = 11;
/// What all copies made for aliases may take together, in values.
const COPIED: usize = 200_000;

/// Reads all documents of a text as Kustomize does. Those that hold nothing are left out.
///
/// # Errors
/// The first thing that is not YAML, not unambiguous, or beyond the limits.
pub(crate) fn read(text: &str) -> Result<Vec<Document>, YamlError> {
    read_with(text, false)
}

/// The same by the older rules, where `yes` is a truth value.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_old(text: &str) -> Result<Vec<Document>, YamlError> {
    read_with(text, true)
}

fn read_with(text: &str, old: bool) -> Result<Vec<Document>, YamlError> {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
        emit_comments: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { old, ..Reader::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let deep = matches!(error.kind(), ErrorKind::RecursionLimitExceeded);
            let what = if deep { "values nest too deep" } else { "this is not YAML" };
            YamlError { what, line: error.marker().line() }
        })?;
        let line = span.start.line();
        reader.event(event, line).map_err(|what| YamlError { what, line })?;
    }
    Ok(reader.documents)
}

/// A collection whose end has not been seen.
struct Open {
    anchor: usize,
    content: Content,
    /// Its place in the document.
    pointer: String,
}

enum Content {
    List(Vec<Value>),
    /// The key waits for its value; what `<<` brings is laid under the rest.
    Map {
        entries: Map<String, Value>,
        key: Option<String>,
        merged: Vec<Value>,
    },
}

#[derive(Default)]
struct Reader {
    old: bool,
    documents: Vec<Document>,
    open: Vec<Open>,
    lines: BTreeMap<String, usize>,
    /// Finished anchored values. An alias to an unfinished one would contain itself.
    anchors: BTreeMap<usize, Value>,
    copied: usize,
}

impl Reader {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_key() {
                    return self.key(text.into_owned(), line, style == ScalarStyle::Plain);
                }
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref());
                let value = if plain { plain::value(&text, self.old) } else { Value::String(text.into_owned()) };
                self.mark(line);
                self.finish(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, line, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map { entries: Map::new(), key: None, merged: Vec::new() };
                self.begin(anchor, line, content)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { anchor, content: Content::List(items), .. }) => self.finish(Value::Array(items), anchor),
                Some(Open { anchor, content: Content::Map { entries, merged, .. }, .. }) => {
                    self.finish(Value::Object(under(entries, &merged)?), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or("an alias inside the very value it stands for")?;
                self.copied = self.copied.saturating_add(size(value));
                if self.copied > COPIED {
                    return Err("aliases stand for too much: write the values out");
                }
                let value = value.clone();
                self.mark(line);
                self.place(value)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.lines.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, text: String, line: usize, is_plain: bool) -> Result<(), &'static str> {
        let Some(Open { content: Content::Map { entries, key, .. }, pointer, .. }) = self.open.last_mut() else {
            return Ok(());
        };
        if entries.contains_key(&text) {
            return Err("the same key is written twice");
        }
        let place = format!("{pointer}/{}", escaped(&text));
        // A key in quotes is never a merge key.
        *key = Some(if text == "<<" && !is_plain { "\u{0}<<".to_owned() } else { text });
        if self.open.len() < LINE_DEPTH {
            self.lines.insert(place, line);
        }
        Ok(())
    }

    /// The place of the value that comes next.
    fn pointer(&self) -> String {
        match self.open.last() {
            Some(Open { content: Content::List(items), pointer, .. }) => format!("{pointer}/{}", items.len()),
            Some(Open { content: Content::Map { key: Some(key), .. }, pointer, .. }) => {
                format!("{pointer}/{}", escaped(key))
            }
            _ => String::new(),
        }
    }

    /// Remembers the line of the value that comes next, unless its key has told it.
    fn mark(&mut self, line: usize) {
        if self.open.len() < LINE_DEPTH {
            let pointer = self.pointer();
            self.lines.entry(pointer).or_insert(line);
        }
    }

    fn begin(&mut self, anchor: usize, line: usize, content: Content) -> Result<(), &'static str> {
        if self.wants_key() {
            return Err("a key must be a single word");
        }
        if self.open.len() >= DEPTH {
            return Err("values nest too deep");
        }
        self.mark(line);
        let pointer = self.pointer();
        self.open.push(Open { anchor, content, pointer });
        Ok(())
    }

    fn finish(&mut self, value: Value, anchor: usize) -> Result<(), &'static str> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        self.place(value)
    }

    /// Puts a finished value where it belongs: under the open collection, or as a document.
    fn place(&mut self, value: Value) -> Result<(), &'static str> {
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::List(items)) => items.push(value),
            Some(Content::Map { entries, key, merged }) => match key.take().as_deref() {
                Some("<<") => merged.push(value),
                Some(key) => drop(entries.insert(key.trim_start_matches('\u{0}').to_owned(), value)),
                None => return Err("a key must be a single word"),
            },
            None if value.is_null() => {}
            None => {
                let lines = Lines(Arc::new(std::mem::take(&mut self.lines)));
                self.documents.push(Document { value, lines });
            }
        }
        Ok(())
    }
}

/// A mapping over what its merge keys bring.
fn under(mut entries: Map<String, Value>, merged: &[Value]) -> Result<Map<String, Value>, &'static str> {
    for value in merged {
        let maps: Vec<&Value> = match value {
            Value::Array(maps) => maps.iter().collect(),
            map => vec![map],
        };
        for map in maps {
            let map = map.as_object().ok_or("`<<` must name a mapping")?;
            for (key, value) in map {
                if !entries.contains_key(key) {
                    entries.insert(key.clone(), value.clone());
                }
            }
        }
    }
    Ok(entries)
}

fn is_text(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"))
}

/// How many values there are in it.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.values().map(size).sum(),
        _ => 0,
    }
}
