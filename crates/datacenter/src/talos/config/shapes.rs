//! What a configuration may consist of, by the version of Talos: tables, read once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The tables.
const TABLES: [&str; 5] = [
    include_str!("shapes/machine.txt"),
    include_str!("shapes/network.txt"),
    include_str!("shapes/storage.txt"),
    include_str!("shapes/kubernetes.txt"),
    include_str!("shapes/runtime.txt"),
];

/// The minor version of Talos 1: 13 for 1.13.
pub(crate) type Minor = u32;

/// What a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    Int,
    Uint,
    Float,
    Duration,
    Address,
    Prefix,
    Socket,
    Url,
    Cel,
    Mac,
    Size,
    Base64,
    /// A port, or a range of them.
    Ports,
    /// One text, or a list of them.
    Args,
    /// A certificate with its key, both as base64 of PEM.
    Pair,
    /// A certificate alone, as base64 of PEM.
    Certificate,
    /// A key alone, as base64 of PEM.
    Key,
    /// A map of anything.
    Object,
    Any,
    Choice(Vec<String>),
    List(Box<Self>),
    Map(Box<Self>),
    Shape(String),
}

/// One key of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    /// Whether the vendor's schema no longer names it.
    pub(crate) is_old: bool,
    pub(crate) since: Minor,
    pub(crate) until: Minor,
}

/// What a map may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: String,
    /// Whether it is a document of its own; then it has `apiVersion` and `kind`.
    pub(crate) is_document: bool,
    pub(crate) since: Minor,
    pub(crate) until: Minor,
    pub(crate) fields: Vec<Field>,
}

impl Shape {
    /// The field of this name in this version.
    pub(crate) fn field(&self, minor: Minor, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name && (field.since..field.until).contains(&minor))
    }
}

/// All shapes by name.
pub(crate) static SHAPES: LazyLock<BTreeMap<String, Shape>> = LazyLock::new(|| {
    let mut shapes = BTreeMap::new();
    for table in TABLES {
        for definition in definitions(table) {
            if let Some(shape) = shape(&definition) {
                shapes.insert(shape.name.clone(), shape);
            }
        }
    }
    shapes
});

/// The shape of the document of this kind, in this version.
pub(crate) fn document(minor: Minor, kind: &str) -> Option<&'static Shape> {
    SHAPES.get(kind).filter(|shape| shape.is_document && (shape.since..shape.until).contains(&minor))
}

/// The definitions of a table: indented lines belong to the one before.
fn definitions(table: &str) -> Vec<String> {
    let mut definitions: Vec<String> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        match definitions.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => last.push_str(line),
            None => definitions.push(line.to_owned()),
        }
    }
    definitions
}

fn shape(definition: &str) -> Option<Shape> {
    let (head, body) = definition.split_once('=')?;
    let mut words = head.split_whitespace();
    let name = words.next()?.to_owned();
    let (mut since, mut until, mut is_document) = (0, Minor::MAX, false);
    for word in words {
        is_document = true;
        match word.strip_prefix('<') {
            Some(version) => until = minor(version)?,
            None => since = minor(word)?,
        }
    }
    let fields = body.split(", ").map(str::trim).filter(|field| !field.is_empty()).map(field).collect::<Option<_>>()?;
    Some(Shape { name, is_document, since, until, fields })
}

fn field(text: &str) -> Option<Field> {
    let (head, word) = text.split_once(": ")?;
    let end = head.find(['!', '~', '@', '<']).unwrap_or(head.len());
    let (name, marks) = head.split_at(end);
    let version = |mark| Some(marks.split_once(mark)?.1).and_then(|rest| minor(rest.split('<').next()?));
    Some(Field {
        name: name.to_owned(),
        kind: kind(word)?,
        is_required: marks.contains('!'),
        is_old: marks.contains('~'),
        since: version('@').unwrap_or(0),
        until: version('<').unwrap_or(Minor::MAX),
    })
}

fn kind(word: &str) -> Option<Kind> {
    let within = |open, close| word.strip_prefix(open)?.strip_suffix(close);
    if let Some(inner) = within('[', ']') {
        return kind(inner).map(|inner| Kind::List(Box::new(inner)));
    }
    if let Some(inner) = within('{', '}') {
        return kind(inner).map(|inner| Kind::Map(Box::new(inner)));
    }
    if let Some(only) = word.strip_prefix('=') {
        return Some(Kind::Choice(vec![only.to_owned()]));
    }
    if word.contains('|') {
        return Some(Kind::Choice(word.split('|').map(Into::into).collect()));
    }
    Some(match word {
        "text" => Kind::Text,
        "bool" => Kind::Bool,
        "int" => Kind::Int,
        "uint" => Kind::Uint,
        "float" => Kind::Float,
        "duration" => Kind::Duration,
        "address" => Kind::Address,
        "prefix" => Kind::Prefix,
        "socket" => Kind::Socket,
        "url" => Kind::Url,
        "cel" => Kind::Cel,
        "mac" => Kind::Mac,
        "size" => Kind::Size,
        "base64" => Kind::Base64,
        "ports" => Kind::Ports,
        "args" => Kind::Args,
        "pair" => Kind::Pair,
        "certificate" => Kind::Certificate,
        "key" => Kind::Key,
        "object" => Kind::Object,
        "any" => Kind::Any,
        name if name.starts_with(|letter: char| letter.is_ascii_uppercase()) => Kind::Shape(name.to_owned()),
        _ => return None,
    })
}

fn minor(version: &str) -> Option<Minor> {
    version.strip_prefix("1.")?.parse().ok()
}

#[cfg(test)]
mod tests;
