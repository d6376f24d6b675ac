//! What a file holds, whatever it is written in: maps, lists, values and comments, in their order.

use std::fmt;

use zeroize::Zeroizing;

use super::path::{KeyPath, Part};

/// What a value is. Its bytes are the same in every format, and are what the MAC is made of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Nothing.
    Null,
    /// A text; in a binary file, any bytes.
    Text,
    /// A whole number, in decimal.
    Integer,
    /// A number, in decimal and without an exponent; or `+Inf`, `-Inf`, `NaN`.
    Float,
    /// `True` or `False`.
    Bool,
    /// A moment as RFC 3339 writes it.
    Time,
}

/// One value. It is wiped when dropped, and shows only what kind it is.
#[derive(Clone, Eq, PartialEq)]
pub struct Value {
    /// What it is.
    pub kind: Kind,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl Value {
    pub(super) fn new(kind: Kind, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind, bytes: Zeroizing::new(bytes.into()) }
    }

    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::new(Kind::Text, text)
    }

    /// A value of a kind, from how people write it; none if it is no such value.
    #[must_use]
    pub fn read(kind: Kind, text: &str) -> Option<Self> {
        match kind {
            Kind::Null => text.is_empty().then(Self::null),
            Kind::Text => Some(Self::text(text)),
            Kind::Integer => Some(Self::new(kind, text.trim().parse::<i64>().ok()?.to_string())),
            Kind::Float => Some(Self::float(text.trim().parse().ok()?)),
            Kind::Bool => Some(Self::bool(text.trim().to_ascii_lowercase().parse().ok()?)),
            Kind::Time => super::moment::read(text.trim()).map(|moment| Self::new(kind, moment)),
        }
    }

    /// Without the quotes around it, as shells read dotenv files; sops takes them for a part of the value.
    #[must_use]
    pub fn unquoted(&self) -> Self {
        let bytes = match self.bytes.as_slice() {
            [first @ (b'"' | b'\''), inside @ .., last] if first == last => inside,
            bytes => bytes,
        };
        Self::new(self.kind, bytes)
    }

    pub(super) fn null() -> Self {
        Self::new(Kind::Null, "")
    }

    pub(super) fn float(number: f64) -> Self {
        let text = if number.is_infinite() {
            if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
        } else {
            number.to_string()
        };
        Self::new(Kind::Float, text)
    }

    pub(super) fn bool(is: bool) -> Self {
        Self::new(Kind::Bool, if is { "True" } else { "False" })
    }

    /// The bytes as text, where they are.
    pub(super) fn str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// The text of what the file itself says in clear: of its metadata, never of a secret.
    pub(super) fn clear(&self) -> &str {
        self.str().unwrap_or_default()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

/// Where something is written, counted from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A part of a document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Node {
    /// Keys and what they stand for.
    Map(Vec<Item>),
    /// One after the other.
    List(Vec<Item>),
    /// A single value.
    Value(Value),
}

/// What stands in a map or a list.
#[derive(Clone, Eq, PartialEq)]
pub enum Item {
    /// What is after a `#`.
    Comment(Zeroizing<String>),
    /// An entry.
    Entry {
        /// Its key; empty in a list.
        key: String,
        /// Where it is written, if the format tells.
        at: Option<Position>,
        /// What is there.
        node: Node,
    },
}

impl Item {
    pub(super) fn entry(key: impl Into<String>, node: Node) -> Self {
        Self::Entry { key: key.into(), at: None, node }
    }

    pub(super) fn text(key: &str, text: &str) -> Self {
        Self::entry(key, Node::Value(Value::text(text)))
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment(_) => f.write_str("Comment"),
            Self::Entry { key, node, .. } => write!(f, "{key}: {node:?}"),
        }
    }
}

impl Node {
    /// What `key` of a map stands for, merged-in maps included.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(items) = self else { return None };
        let named = |wanted: &str| {
            items.iter().find_map(|item| match item {
                Item::Entry { key, node, .. } if key == wanted => Some(node),
                _ => None,
            })
        };
        named(key).or_else(|| match named("<<")? {
            Self::List(merged) => merged.iter().find_map(|item| match item {
                Item::Entry { node, .. } => node.get(key),
                Item::Comment(_) => None,
            }),
            merged => merged.get(key),
        })
    }

    /// What is at `index` of a list, comments not counted.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Self> {
        self.list().nth(index)
    }

    /// What is in a list, comments left out; nothing for anything else.
    pub fn list(&self) -> impl Iterator<Item = &Self> {
        let items = if let Self::List(items) = self { items.as_slice() } else { &[] };
        items.iter().filter_map(|item| match item {
            Item::Entry { node, .. } => Some(node),
            Item::Comment(_) => None,
        })
    }

    /// The single value here.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// What is at `path`.
    #[must_use]
    pub fn find(&self, path: &KeyPath) -> Option<&Self> {
        path.parts().iter().try_fold(self, |node, part| match part {
            Part::Key(key) => node.get(key),
            Part::Index(index) => node.at(*index),
        })
    }

    /// The paths of all values, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<KeyPath> {
        let mut found = Vec::new();
        self.walk(&mut Vec::new(), &mut |path, _| found.push(KeyPath::from(path.to_vec())));
        found
    }

    /// Every value with its path, in order.
    pub fn walk(&self, path: &mut Vec<Part>, visit: &mut dyn FnMut(&[Part], &Value)) {
        match self {
            Self::Value(value) => visit(path, value),
            Self::Map(items) => {
                for item in items {
                    if let Item::Entry { key, node, .. } = item {
                        path.push(Part::Key(key.clone()));
                        node.walk(path, visit);
                        path.pop();
                    }
                }
            }
            Self::List(_) => {
                for (index, node) in self.list().enumerate() {
                    path.push(Part::Index(index));
                    node.walk(path, visit);
                    path.pop();
                }
            }
        }
    }

    /// Puts `value` at `path`, making what is missing on the way. False if something else is in the way.
    pub(super) fn put(&mut self, path: &[Part], value: Self) -> bool {
        let Some((first, rest)) = path.split_first() else {
            *self = value;
            return true;
        };
        let (items, place) = match (self, first) {
            (Self::Map(items), Part::Key(wanted)) => {
                let place = items.iter().position(|item| matches!(item, Item::Entry { key, .. } if key == wanted));
                (items, place)
            }
            (Self::List(items), Part::Index(wanted)) => {
                let entries = items.iter().enumerate().filter(|(_, item)| matches!(item, Item::Entry { .. }));
                let places: Vec<usize> = entries.map(|(place, _)| place).collect();
                if *wanted > places.len() {
                    return false;
                }
                let place = places.get(*wanted).copied();
                (items, place)
            }
            _ => return false,
        };
        if let Some(Item::Entry { node, .. }) = place.and_then(|place| items.get_mut(place)) {
            return node.put(rest, value);
        }
        let mut made = match rest.first() {
            Some(Part::Index(_)) => Self::List(Vec::new()),
            Some(Part::Key(_)) | None => Self::Map(Vec::new()),
        };
        let fits = made.put(rest, value);
        if fits {
            let key = if let Part::Key(key) = first { key.as_str() } else { "" };
            items.push(Item::entry(key, made));
        }
        fits
    }
}
