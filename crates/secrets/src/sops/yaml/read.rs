//! From YAML events to documents.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{Event, Parser, Placement, ScalarStyle, Span, StructureStyle, Tag};
use zeroize::Zeroizing;

use super::resolve::resolve;
use crate::sops::error::Problem;
use crate::sops::tree::{Item, Kind, Node, Position, Value};
use crate::sops::{MAX_DEPTH, MAX_VALUES};

const CORE: &str = "tag:yaml.org,2002:";

/// The documents of `text`. Each is a map; one that holds nothing is an empty map.
///
/// # Errors
/// The first thing that is not YAML, that SOPS files may not have, or that is beyond the limits.
pub(in crate::sops) fn read(text: &str) -> Result<Vec<Node>, Problem> {
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        emit_comments: true,
        max_buffered_comment_events: MAX_VALUES,
    };
    let mut reader = Reader::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = Position { line: error.marker().line(), column: error.marker().col() + 1 };
            // The parser's own words never quote the text; its kind alone would not help anyone.
            Problem::Unreadable { format: "YAML", at: Some(at), why: error.info().clone() }
        })?;
        reader.event(event, &span).map_err(|why| Problem::Unreadable {
            format: "YAML as SOPS files have it",
            at: Some(position(&span)),
            why: why.to_owned(),
        })?;
    }
    Ok(reader.documents)
}

fn position(span: &Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

/// A collection whose end has not been seen.
struct Open {
    items: Vec<Item>,
    /// For a map: the keys so far, and the one that waits for its value.
    keys: Option<BTreeSet<String>>,
    key: Option<(String, Position)>,
    anchor: usize,
    column: usize,
    is_flow: bool,
    at: Position,
    /// The line on which the last entry ends, if it is a single value.
    last_line: usize,
}

#[derive(Default)]
struct Reader {
    documents: Vec<Node>,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: BTreeMap<usize, (Node, usize)>,
    values: usize,
    /// Comments on lines of their own that wait for what they stand above, with their column.
    waiting: Vec<(Zeroizing<String>, usize)>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), &'static str> {
        match event {
            Event::Comment(text, placement) => self.comment(&text, placement, span),
            Event::Scalar(text, style, anchor, tag) => {
                let node = scalar(&text, style, tag.as_deref())?;
                self.count(1)?;
                if self.awaits_key() {
                    self.release();
                    return self.key(node, span, anchor);
                }
                self.remember(anchor, &node, 1);
                self.release();
                self.place(node, span)
            }
            Event::Alias(anchor) => {
                let (node, values) =
                    self.anchors.get(&anchor).cloned().ok_or("an alias inside of what it stands for")?;
                self.count(values)?;
                self.release();
                if self.awaits_key() { self.key(node, span, 0) } else { self.place(node, span) }
            }
            Event::SequenceStart(style, anchor, _) => self.begin(None, style, anchor, span),
            Event::MappingStart(style, anchor, _) => self.begin(Some(BTreeSet::new()), style, anchor, span),
            Event::SequenceEnd | Event::MappingEnd => {
                self.end();
                Ok(())
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            Event::DocumentEnd => self.document(),
            _ => Ok(()),
        }
    }

    fn count(&mut self, values: usize) -> Result<(), &'static str> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES { Err("it has too many values, aliases written out") } else { Ok(()) }
    }

    fn awaits_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.keys.is_some() && open.key.is_none())
    }

    /// A comment beside something belongs before it, as in the files of sops; any other waits for what follows.
    fn comment(&mut self, text: &str, placement: Placement, span: &Span) -> Result<(), &'static str> {
        self.count(1)?;
        let text = Zeroizing::new(text.to_owned());
        let line = span.start.line();
        match self.open.last_mut() {
            Some(open) if placement == Placement::Right => {
                if open.key.is_none() && open.last_line == line && !open.items.is_empty() {
                    let last = open.items.len() - 1;
                    open.items.insert(last, Item::Comment(text));
                } else {
                    open.items.push(Item::Comment(text));
                }
            }
            _ => self.waiting.push((text, span.start.col())),
        }
        Ok(())
    }

    /// Comments that waited stand before what comes now.
    fn release(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.items.extend(self.waiting.drain(..).map(|(text, _)| Item::Comment(text)));
        }
    }

    fn key(&mut self, node: Node, span: &Span, anchor: usize) -> Result<(), &'static str> {
        self.remember(anchor, &node, 1);
        let Node::Value(Value { kind: Kind::Text, bytes }) = node else {
            return Err("a key is not text: quote it");
        };
        let key = std::str::from_utf8(&bytes).map_err(|_| "a key is not text")?.to_owned();
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        if open.keys.as_mut().is_some_and(|keys| !keys.insert(key.clone())) {
            return Err("the same key is written twice");
        }
        open.key = Some((key, position(span)));
        Ok(())
    }

    fn begin(
        &mut self,
        keys: Option<BTreeSet<String>>,
        style: StructureStyle,
        anchor: usize,
        span: &Span,
    ) -> Result<(), &'static str> {
        if self.awaits_key() {
            return Err("a key is not text");
        }
        self.count(1)?;
        if self.open.len() >= MAX_DEPTH {
            return Err("values nest too deeply");
        }
        // Above a list's item they belong to the list; above the first of a map's own keys to that map.
        if self.open.last().is_some_and(|open| open.keys.is_none()) {
            self.release();
        }
        let (at, column) = (position(span), span.start.col());
        let is_flow = style == StructureStyle::Flow;
        self.open.push(Open { items: Vec::new(), keys, key: None, anchor, column, is_flow, at, last_line: 0 });
        Ok(())
    }

    fn end(&mut self) {
        let outer = self.open.len().checked_sub(2).and_then(|place| self.open.get(place)).map(|open| open.column);
        let Some(mut open) = self.open.pop() else { return };
        let inside = |column: usize| open.is_flow || outer.is_none_or(|outer| column > outer);
        let split = self.waiting.iter().position(|(_, column)| !inside(*column)).unwrap_or(self.waiting.len());
        open.items.extend(self.waiting.drain(..split).map(|(text, _)| Item::Comment(text)));
        // Most maps are small, and there may be very many.
        open.items.shrink_to_fit();
        let node = if open.keys.is_some() { Node::Map(open.items) } else { Node::List(open.items) };
        if open.anchor != 0 {
            let values = count(&node);
            self.remember(open.anchor, &node, values);
        }
        self.put(node, open.at, 0);
    }

    fn remember(&mut self, anchor: usize, node: &Node, values: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), values));
        }
    }

    fn place(&mut self, node: Node, span: &Span) -> Result<(), &'static str> {
        let single = node.value().is_some();
        self.put(node, position(span), if single { span.end.line() } else { 0 });
        Ok(())
    }

    fn put(&mut self, node: Node, at: Position, last_line: usize) {
        match self.open.last_mut() {
            Some(open) => {
                let (key, at) = open.key.take().unwrap_or((String::new(), at));
                open.items.push(Item::Entry { key, at: Some(at), node });
                open.last_line = last_line;
            }
            None => self.root = Some(node),
        }
    }

    fn document(&mut self) -> Result<(), &'static str> {
        let mut items = match self.root.take() {
            Some(Node::Map(items)) => items,
            Some(Node::Value(Value { kind: Kind::Null, .. })) | None => Vec::new(),
            Some(_) => return Err("a document is not a map of keys"),
        };
        items.extend(self.waiting.drain(..).map(|(text, _)| Item::Comment(text)));
        self.documents.push(Node::Map(items));
        Ok(())
    }
}

fn count(node: &Node) -> usize {
    match node {
        Node::Value(_) => 1,
        Node::Map(items) | Node::List(items) => {
            1 + items
                .iter()
                .map(|item| if let Item::Entry { node, .. } = item { count(node) } else { 1 })
                .sum::<usize>()
        }
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Node, &'static str> {
    let named = tag.map(|tag| tag.suffix_in_namespace(CORE).map_or_else(|| "!".to_owned(), Cow::into_owned));
    resolve(text, style == ScalarStyle::Plain, named.as_deref()).map(Node::Value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items of the first document, one a line, comments among them.
    fn shown(text: &str) -> String {
        fn show(node: &Node, depth: usize, out: &mut String) {
            let (Node::Map(items) | Node::List(items)) = node else { return };
            for item in items {
                let indent = " ".repeat(depth);
                match item {
                    Item::Comment(text) => *out += &format!("{indent}#{}\n", &**text),
                    Item::Entry { key, node, .. } => {
                        let value = node.value().map(|value| value.clear().to_owned()).unwrap_or_default();
                        *out += &format!("{indent}{key}={value}\n");
                        show(node, depth + 1, out);
                    }
                }
            }
        }
        let mut out = String::new();
        show(&read(text).unwrap()[0], 0, &mut out);
        out
    }

    #[test]
    fn comments_stand_before_what_they_are_about() {
        let text = "# top\na: 1 # beside a\n# above b\nb: # beside b\n  # above c\n  c: 2\n  # below c\n# above d\nd:\n- x # beside x\n# above y\n- y\n# above e\ne: {f: 1}\n# last\n";
        assert_eq!(
            shown(text),
            "# top\n# beside a\na=1\n# above b\n# beside b\nb=\n # above c\n c=2\n # below c\n# above d\nd=\n # beside x\n =x\n # above y\n =y\n# above e\ne=\n f=1\n# last\n"
        );
    }

    #[test]
    fn values_know_their_place() {
        let documents = read("a:\n  - b: |\n      -----BEGIN\n      # no comment\n---\nc: 1\n").unwrap();
        assert_eq!(documents.len(), 2);
        let Node::Map(items) = &documents[1] else { panic!("not a map") };
        assert!(matches!(&items[0], Item::Entry { at: Some(Position { line: 6, column: 1 }), .. }), "{items:?}");
        let text = documents[0].get("a").unwrap().at(0).unwrap().get("b").unwrap();
        assert_eq!(text.value().unwrap().clear(), "-----BEGIN\n# no comment\n");
    }

    #[test]
    fn aliases_are_written_out_within_bounds() {
        let documents = read("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n").unwrap();
        assert_eq!(documents[0].get("c"), documents[0].get("a"));
        assert_eq!(documents[0].get("d").unwrap().get("b").unwrap().value().unwrap().clear(), "1");
        let bomb: String =
            std::iter::once("l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
                .chain((1..9).map(|level| {
                    format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 10].join(", "))
                }))
                .collect();
        assert!(read(&bomb).is_err());
    }

    #[test]
    fn what_sops_refuses_is_refused() {
        for text in
            ["- a\n", "x\n", "1: a\n", "true: a\n", "~: a\n", "[a]: b\n", "a: 1\na: 2\n", "a: &x [*x]\n", "a: [\n"]
        {
            assert!(matches!(read(text), Err(Problem::Unreadable { .. })), "{text}");
        }
        assert!(read(&"[".repeat(100_000)).is_err());
        assert_eq!(read("").unwrap().len(), 0);
        assert_eq!(read("---\n---\na: 1\n").unwrap().len(), 2);
    }
}
