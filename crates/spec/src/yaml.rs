//! From text to a tree of values that know their place, within fixed limits.
//!
//! The tree is an arena: an alias is a second name of one node, so a bomb of aliases costs no memory; its size, had it
//! been written out, is counted and refused. Nothing here recurses over the input.

use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError};

use crate::problem::{Code, Problem};
use crate::span::{Origin, Span};

/// What a file may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How deep collections may nest.
    pub(crate) depth: usize,
    /// How many values there may be once every alias is written out.
    pub(crate) values: u64,
}

impl Limits {
    /// For `castle.yaml`: a castle of a thousand nodes, each with overrides, has a tenth of this.
    pub(crate) const CASTLE: Self = Self { depth: 32, values: 200_000 };
    /// For the files a castle refers to.
    pub(crate) const REFERENCED: Self = Self { depth: 200, values: 2_000_000 };
}

type Id = usize;

#[derive(Debug)]
struct Node {
    span: Span,
    content: Content,
    /// How many values this is once aliases are written out.
    weight: u64,
}

#[derive(Debug)]
enum Content {
    Scalar { text: String, plain: bool },
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
}

/// The documents of one text.
#[derive(Debug)]
pub(crate) struct Stream {
    nodes: Vec<Node>,
    roots: Vec<Id>,
}

impl Stream {
    /// The documents, in order. An empty text has none.
    pub(crate) fn documents(&self) -> impl Iterator<Item = View<'_>> {
        self.roots.iter().map(|&id| View { stream: self, id })
    }
}

/// One value of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'t> {
    stream: &'t Stream,
    id: Id,
}

impl<'t> View<'t> {
    fn node(self) -> &'t Node {
        &self.stream.nodes[self.id]
    }

    /// The value itself for a scalar; the key, or the first character, for a collection.
    #[must_use]
    pub(crate) fn span(self) -> Span {
        self.node().span
    }

    /// The text of a scalar.
    #[must_use]
    pub(crate) fn scalar(self) -> Option<&'t str> {
        match &self.node().content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether nothing is written here, or a plain `null`.
    #[must_use]
    pub(crate) fn is_null(self) -> bool {
        matches!(&self.node().content,
            Content::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The items of a list.
    pub(crate) fn list(self) -> Option<impl Iterator<Item = View<'t>>> {
        match &self.node().content {
            Content::List(items) => Some(items.iter().map(move |&id| View { stream: self.stream, id })),
            _ => None,
        }
    }

    /// The entries of a mapping: the key's text, the key's place, the value.
    pub(crate) fn map(self) -> Option<impl Iterator<Item = (&'t str, Span, View<'t>)>> {
        match &self.node().content {
            Content::Map(entries) => Some(entries.iter().map(move |&(key, id)| {
                let key = View { stream: self.stream, id: key };
                (key.scalar().unwrap_or_default(), key.span(), View { stream: self.stream, id })
            })),
            _ => None,
        }
    }

    /// The value of a key of a mapping.
    #[must_use]
    pub(crate) fn get(self, key: &str) -> Option<View<'t>> {
        self.map()?.find(|(name, ..)| *name == key).map(|(.., value)| value)
    }

    /// Every scalar in it, keys left out.
    pub(crate) fn leaves(self) -> impl Iterator<Item = View<'t>> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            loop {
                let view = open.pop()?;
                if view.scalar().is_some() {
                    return Some(view);
                }
                open.extend(view.list().into_iter().flatten());
                open.extend(view.map().into_iter().flatten().map(|(.., value)| value));
            }
        })
    }

    /// What this is, in words.
    #[must_use]
    pub(crate) fn kind(self) -> &'static str {
        match &self.node().content {
            _ if self.is_null() => "nothing",
            Content::Scalar { .. } => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a mapping",
        }
    }
}

/// Reads all documents of `text`.
///
/// # Errors
/// The first thing that is not YAML, not unambiguous, or beyond the limits.
pub(crate) fn parse(text: &str, limits: Limits) -> Result<Stream, Problem> {
    let options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
        disallow_directives: true,
        emit_comments: false,
    };
    let mut builder =
        Builder { text, limits, nodes: Vec::new(), roots: Vec::new(), open: Vec::new(), anchors: BTreeMap::new() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax(text, &error))?;
        let range = span.byte_range().unwrap_or_default();
        builder.event(event, Span { start: range.start, end: range.end.max(range.start) })?;
    }
    Ok(Stream { nodes: builder.nodes, roots: builder.roots })
}

/// A collection whose end has not been seen.
struct Open {
    id: Id,
    anchor: usize,
    /// The key that waits for its value.
    key: Option<Id>,
    seen: BTreeMap<String, Span>,
}

struct Builder<'t> {
    text: &'t str,
    limits: Limits,
    nodes: Vec<Node>,
    roots: Vec<Id>,
    open: Vec<Open>,
    /// Finished anchored nodes. An alias to an unfinished one would contain itself.
    anchors: BTreeMap<usize, Id>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                let id = self.add(span, content);
                self.finish(id, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(span, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin(span, anchor, Content::Map(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.finish(open.id, open.anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(&id) => self.place(id, span),
                None => Err(Problem::new(Code::YamlAliases, "an alias inside the very value it stands for")
                    .at(Origin::File(span), "this would contain itself")
                    .hint("write the value out instead")),
            },
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, span: Span, content: Content) -> Id {
        self.nodes.push(Node { span, content, weight: 1 });
        self.nodes.len() - 1
    }

    fn begin(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), Problem> {
        // A collection is spoken of by its key; without one, by its first character.
        let first = character(self.text, span.start);
        let span = match self.open.last().and_then(|open| open.key) {
            Some(key) => self.nodes[key].span,
            None => first,
        };
        if self.open.len() >= self.limits.depth {
            return Err(too_deep(first, self.limits.depth));
        }
        let id = self.add(span, content);
        self.open.push(Open { id, anchor, key: None, seen: BTreeMap::new() });
        Ok(())
    }

    fn finish(&mut self, id: Id, anchor: usize) -> Result<(), Problem> {
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        self.place(id, self.nodes[id].span)
    }

    /// Puts a finished value where it belongs: under the open collection, or as a document.
    fn place(&mut self, id: Id, span: Span) -> Result<(), Problem> {
        let weight = self.nodes[id].weight;
        let Some(open) = self.open.last_mut() else {
            self.roots.push(id);
            return Ok(());
        };
        let collection = open.id;
        let key = open.key.take();
        match (&mut self.nodes[collection].content, key) {
            (Content::List(items), _) => items.push(id),
            (Content::Map(entries), Some(key)) => entries.push((key, id)),
            (Content::Map(_), None) => {
                let Content::Scalar { text, .. } = &self.nodes[id].content else {
                    return Err(Problem::new(Code::YamlSyntax, "a key must be a single word")
                        .at(Origin::File(span), "not a word")
                        .hint("write `key: value`; quote a key that begins with `[` or `{`"));
                };
                if let Some(&before) = open.seen.get(text) {
                    return Err(Problem::new(Code::YamlDuplicateKey, "the same key is written twice")
                        .at(Origin::File(span), "written again")
                        .at(Origin::File(before), "first written here")
                        .hint("keep one of the two: it would be a guess which of them you mean"));
                }
                open.seen.insert(text.clone(), span);
                open.key = Some(id);
            }
            (Content::Scalar { .. }, _) => {}
        }
        let total = &mut self.nodes[collection].weight;
        *total = total.saturating_add(weight);
        let (total, limit) = (*total, self.limits.values);
        if total > limit {
            return Err(Problem::new(
                Code::YamlAliases,
                format!("with every alias written out this is {total} values or more; {limit} are allowed"),
            )
            .at(Origin::File(span), "the limit is passed here")
            .hint("write the values out, or use `nodes.pools` and `nodes.overrides` instead of aliases"));
        }
        Ok(())
    }
}

/// The character at an offset; nothing at the end.
fn character(text: &str, offset: usize) -> Span {
    let start = offset.min(text.len());
    let length = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    Span { start, end: start + length }
}

fn too_deep(span: Span, limit: usize) -> Problem {
    Problem::new(Code::YamlDepth, format!("values nest deeper than {limit} levels"))
        .at(Origin::File(span), "one level too deep")
        .hint("no part of castle.yaml is deeper than six levels: look for a missing `]` or `}`")
}

fn syntax(text: &str, error: &ScanError) -> Problem {
    let here = character(text, error.marker().byte_offset().unwrap_or_default());
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep(here, Limits::CASTLE.depth);
    }
    if let Some(tab) = tab_in_indentation(text, here.start) {
        return Problem::new(Code::YamlTab, "a tab in the indentation")
            .at(Origin::File(Span { start: tab, end: tab + 1 }), "this is a tab")
            .hint("YAML is indented with spaces alone: replace the tab, and tell your editor to");
    }
    Problem::new(Code::YamlSyntax, format!("this is not YAML: {}", error.info())).at(Origin::File(here), "").hint(
        "look at this line and the one above it: a missing `:`, quote or bracket, or a line indented differently from \
         its neighbours",
    )
}

/// The tab that made the parser stop at `offset`: on that line, or on the next if the line runs into it.
fn tab_in_indentation(text: &str, offset: usize) -> Option<usize> {
    let mut start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
    for line in text[start..].split_inclusive('\n').take(2) {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..indent].find('\t') {
            return Some(start + tab);
        }
        start += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        parse(text, Limits::CASTLE).unwrap_err().code
    }

    #[test]
    fn values_know_their_place() {
        let text = "a: 1\nb:\n  c: [x, \"y z\"]\n";
        let stream = parse(text, Limits::CASTLE).unwrap();
        let root = stream.documents().next().unwrap();
        let shown = |view: View<'_>| &text[view.span().start..view.span().end];
        assert_eq!(shown(root.get("a").unwrap()), "1");
        assert_eq!(shown(root.get("b").unwrap()), "b", "a collection is spoken of by its key");
        let list: Vec<_> = root.get("b").unwrap().get("c").unwrap().list().unwrap().collect();
        assert_eq!(shown(list[1]), "\"y z\"");
        assert_eq!(list[1].scalar(), Some("y z"));
    }

    #[test]
    fn what_is_ambiguous_or_beyond_the_limits_is_refused() {
        assert_eq!(code("a: 1\na: 2\n"), Code::YamlDuplicateKey);
        assert_eq!(code("a:\n\tb: 1\n"), Code::YamlTab);
        assert_eq!(code("a: [1\nb: 2\n"), Code::YamlSyntax);
        assert_eq!(code("&a [*a]"), Code::YamlAliases);
        assert_eq!(code(&"[".repeat(10_000)), Code::YamlDepth);
        let block: String = (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert_eq!(code(&block), Code::YamlDepth);
        let bomb: String = std::iter::once("l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
            .chain((1..20).map(|level| {
                let alias = format!("*l{}", level - 1);
                format!("l{level}: &l{level} [{}]\n", vec![alias; 10].join(", "))
            }))
            .collect();
        assert_eq!(code(&bomb), Code::YamlAliases);
    }

    #[test]
    fn aliases_within_the_limits_are_values() {
        let stream = parse("a: &x 7\nb: *x\n", Limits::CASTLE).unwrap();
        assert_eq!(stream.documents().next().unwrap().get("b").unwrap().scalar(), Some("7"));
    }

    #[test]
    fn documents_are_counted() {
        assert_eq!(parse("", Limits::CASTLE).unwrap().documents().count(), 0);
        assert_eq!(parse("a: 1\n---\nb: 2\n", Limits::CASTLE).unwrap().documents().count(), 2);
    }
}
