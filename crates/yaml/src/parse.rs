//! Text to values, within fixed limits.

use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::plain::{Plain, resolve};
use super::{YamlError, YamlErrorKind};

/// How deep collections may nest. Machine configurations with manifests inside stay below 20.
const DEPTH: usize = 100;
/// How long a key may be: beyond it, the rules of YAML want another notation.
const KEY_CHARACTERS: usize = 1000;
/// What all copies made for aliases may take together, in bytes. The largest configuration a node accepts is smaller.
const COPIED: usize = 4 << 20;
/// What a value takes beside its text.
const VALUE: usize = 32;

/// Reads all documents of `text`. Those that hold nothing are left out.
///
/// # Errors
/// The first thing that is not YAML, not unambiguous, or beyond the limits.
pub fn parse(text: &str) -> Result<Vec<Value>, YamlError> {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
        disallow_directives: true,
        emit_comments: false,
    };
    let mut reader = Reader::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let deep = matches!(error.kind(), ErrorKind::RecursionLimitExceeded);
            at(*error.marker(), if deep { YamlErrorKind::Depth } else { YamlErrorKind::Syntax })
        })?;
        reader.event(event).map_err(|kind| at(span.start, kind))?;
    }
    Ok(reader.documents)
}

fn at(marker: Marker, kind: YamlErrorKind) -> YamlError {
    YamlError { kind, line: marker.line(), column: marker.col() + 1 }
}

/// A collection whose end has not been seen.
struct Open {
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    /// The key waits for its value.
    Map(Map<String, Value>, Option<String>),
}

#[derive(Default)]
struct Reader {
    documents: Vec<Value>,
    open: Vec<Open>,
    /// Finished anchored values. An alias to an unfinished one would contain itself.
    anchors: BTreeMap<usize, Value>,
    copied: usize,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) -> Result<(), YamlErrorKind> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_tagged(tag.as_deref(), "str")?;
                let wants_key = matches!(self.open.last(), Some(Open { content: Content::Map(_, None), .. }));
                let value = match if plain { resolve(&text) } else { Plain::Text } {
                    Plain::Merge if wants_key => return Err(YamlErrorKind::MergeKey),
                    Plain::Text | Plain::Time | Plain::Merge => Value::String(text.into_owned()),
                    _ if wants_key => return Err(YamlErrorKind::Key),
                    Plain::Null => Value::Null,
                    Plain::Bool(value) => Value::Bool(value),
                    Plain::Number(number) => Value::Number(number),
                    Plain::NoNumber => return Err(YamlErrorKind::Number),
                };
                self.finish(value, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                is_tagged(tag.as_deref(), "seq")?;
                self.begin(anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                is_tagged(tag.as_deref(), "map")?;
                self.begin(anchor, Content::Map(Map::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { anchor, content: Content::List(items) }) => self.finish(Value::Array(items), anchor),
                Some(Open { anchor, content: Content::Map(entries, _) }) => self.finish(Value::Object(entries), anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let size = self.anchors.get(&anchor).map(size).ok_or(YamlErrorKind::Aliases)?;
                self.count(size)?;
                let value = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.place(value)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, size: usize) -> Result<(), YamlErrorKind> {
        self.copied = self.copied.saturating_add(size);
        if self.copied > COPIED { Err(YamlErrorKind::Aliases) } else { Ok(()) }
    }

    fn begin(&mut self, anchor: usize, content: Content) -> Result<(), YamlErrorKind> {
        if matches!(self.open.last(), Some(Open { content: Content::Map(_, None), .. })) {
            return Err(YamlErrorKind::Key);
        }
        if self.open.len() >= DEPTH {
            return Err(YamlErrorKind::Depth);
        }
        self.open.push(Open { anchor, content });
        Ok(())
    }

    fn finish(&mut self, value: Value, anchor: usize) -> Result<(), YamlErrorKind> {
        if anchor != 0 {
            self.count(size(&value))?;
            self.anchors.insert(anchor, value.clone());
        }
        self.place(value)
    }

    /// Puts a finished value where it belongs: under the open collection, or as a document.
    fn place(&mut self, value: Value) -> Result<(), YamlErrorKind> {
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::List(items)) => items.push(value),
            Some(Content::Map(entries, key)) => match (key.take(), value) {
                (Some(key), value) => {
                    entries.insert(key, value);
                }
                (None, Value::String(text)) if entries.contains_key(&text) => return Err(YamlErrorKind::DuplicateKey),
                (None, Value::String(text)) if text.chars().count() <= KEY_CHARACTERS => *key = Some(text),
                (None, _) => return Err(YamlErrorKind::Key),
            },
            None if value.is_null() => {}
            None => self.documents.push(value),
        }
        Ok(())
    }
}

/// Whether the value has the tag that is meant; a value with another tag is refused.
fn is_tagged(tag: Option<&Tag>, meant: &str) -> Result<bool, YamlErrorKind> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema_tag(meant) => Ok(true),
        Some(_) => Err(YamlErrorKind::Tag),
    }
}

/// What a copy takes. Aliases inside are copies already, and counted.
fn size(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(entries) => entries.iter().map(|(key, value)| VALUE + key.len() + size(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}
