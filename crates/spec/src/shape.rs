//! How a type is written in the file: read, described as JSON Schema, and shown again with the origin of each value.
//!
//! One definition gives all three (`section!`, `choice!`, `words!`), so the documentation cannot disagree with the
//! reader. Reading never stops at the first mistake: what cannot be read is reported, and a placeholder of origin
//! [`Origin::Broken`] takes its place.

mod macros;

use std::fmt;

use serde_json::{Map, Value, json};

use crate::problem::{Code, Problem, Problems};
use crate::span::{Origin, Sourced, Span};
use crate::suggest;
use crate::yaml::{self, Limits, View};
pub(crate) use macros::{choice, section, words};

/// What reading a file gathers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) problems: Problems,
    /// Places that hold what should have been a reference to a secret: never to be shown.
    pub(crate) masks: Vec<Span>,
    path: Vec<String>,
    /// Keys that a misspelt one was probably meant to be: that they are missing goes without saying.
    suggested: Vec<String>,
    reads_default: bool,
    /// Finds the section that has a key of just this name, for hints.
    home_of: Option<fn(&str) -> Option<String>>,
}

impl Reader {
    /// One whose hints tell where a misplaced key belongs.
    pub(crate) fn knowing(home_of: fn(&str) -> Option<String>) -> Self {
        Self { home_of: Some(home_of), ..Self::default() }
    }

    /// The dotted name of the value being read.
    pub(crate) fn path(&self) -> String {
        self.path.join(".")
    }

    fn path_of(&self, key: &str) -> String {
        self.path.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join(".")
    }

    fn origin(&self, span: Span) -> Origin {
        if self.reads_default { Origin::Default } else { Origin::File(span) }
    }

    /// Reads the value of a key or item.
    pub(crate) fn read<T: Shape>(&mut self, step: &str, view: View<'_>) -> Sourced<T> {
        self.path.push(step.to_owned());
        let value = if view.is_null() { self.nothing::<T>(view) } else { T::decode(view, self) };
        self.path.pop();
        match value {
            Some(value) => Sourced::new(value, self.origin(view.span())),
            None => Sourced::new(T::placeholder(), Origin::Broken),
        }
    }

    fn nothing<T: Shape>(&mut self, view: View<'_>) -> Option<T> {
        self.problems.report(
            Problem::new(Code::WrongType, format!("`{}` has no value", self.path()))
                .at(Origin::File(view.span()), format!("{} belongs here", T::noun()))
                .hint(format!("write a value, such as `{}`, or remove the line", T::example())),
        );
        None
    }

    /// Reports that the value at hand is of another kind than its place wants.
    pub(crate) fn wrong_type<T: Shape>(&mut self, view: View<'_>) {
        self.problems.report(
            Problem::new(Code::WrongType, format!("`{}` must be {}", self.path(), T::noun()))
                .at(Origin::File(view.span()), format!("this is {}", view.kind()))
                .hint(format!("for example `{}`", T::example())),
        );
    }

    /// The entries of a section. Keys that are not in `known` are reported.
    pub(crate) fn entries<'t, T: Shape>(
        &mut self,
        view: View<'t>,
        known: &[String],
    ) -> Option<Vec<(&'t str, View<'t>)>> {
        let Some(entries) = view.map() else {
            self.wrong_type::<T>(view);
            return None;
        };
        let mut found = Vec::with_capacity(known.len());
        for (key, span, value) in entries {
            if known.iter().any(|name| name == key) {
                found.push((key, value));
            } else {
                self.unknown_key(key, span, known);
            }
        }
        Some(found)
    }

    fn unknown_key(&mut self, key: &str, span: Span, known: &[String]) {
        if self.problems.is_full() {
            return;
        }
        let place = if self.path.is_empty() { "castle.yaml".to_owned() } else { format!("`{}`", self.path()) };
        let hint = match (suggest::nearest(key, known), self.home_of.and_then(|home_of| home_of(key))) {
            (Some(near), _) => {
                self.suggested.push(self.path_of(near));
                format!("did you mean `{near}`?")
            }
            (None, Some(home)) => format!("`{key}` belongs to `{home}`: check the indentation"),
            (None, None) => format!("known here: {}", known.join(", ")),
        };
        self.problems.report(
            Problem::new(Code::UnknownKey, format!("{place} has no such key"))
                .at(Origin::File(span), "unknown")
                .hint(hint),
        );
    }

    fn missing<T: Shape>(&mut self, key: &str, section: Span) {
        let path = self.path_of(key);
        if self.suggested.contains(&path) {
            return;
        }
        self.problems.report(
            Problem::new(Code::MissingKey, format!("`{path}` is missing"))
                .at(Origin::File(section), format!("`{key}` belongs here"))
                .hint(format!("add `{key}: {}`", T::example())),
        );
    }

    fn read_default<T: Shape>(text: &str) -> Sourced<T> {
        let mut reader = Self { reads_default: true, ..Self::default() };
        let stream = yaml::parse(text, Limits::CASTLE);
        let view = stream.as_ref().ok().and_then(|stream| stream.documents().next());
        let value = view.and_then(|view| T::decode(view, &mut reader)).filter(|_| !reader.problems.refuse());
        debug_assert!(value.is_some(), "the default `{text}` must be readable");
        Sourced::new(value.unwrap_or_else(T::placeholder), Origin::Default)
    }
}

/// The named parts of a JSON Schema, filled as types describe themselves.
pub(crate) type Definitions = Map<String, Value>;

/// A type with a place in the file.
pub(crate) trait Shape: Sized {
    /// Reads it; `None` when that was not possible, which has then been reported.
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self>;
    /// Stands in for what could not be read.
    fn placeholder() -> Self;
    /// What it is, for a sentence: `a size`.
    fn noun() -> String;
    /// How it is written.
    fn example() -> String;
    /// Its JSON Schema.
    fn schema(definitions: &mut Definitions) -> Value;
    /// Its value with the origin of each part.
    fn resolved(&self) -> Resolved;
}

/// A value with the origin of each of its parts.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// A single value.
    Scalar(Value),
    /// A list.
    List(Vec<(Resolved, Origin)>),
    /// A mapping.
    Map(Vec<(String, Resolved, Origin)>),
}

/// Why a text is not what it should be, without the text: an excerpt shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(String);

impl From<&str> for Unfit {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<String> for Unfit {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// A type written as a single word or number.
pub(crate) trait Scalar: Sized {
    /// What it is, for a sentence.
    const NOUN: &'static str;
    /// How it is written.
    const EXAMPLE: &'static str;
    /// Reads it.
    ///
    /// The error says what is wrong without repeating the text, which the excerpt shows.
    fn parse(text: &str) -> Result<Self, Unfit>;
    /// Stands in for what could not be read.
    fn placeholder() -> Self;
    /// Its JSON Schema.
    fn schema() -> Value;
    /// As it is shown.
    fn show(&self) -> Value;
}

impl<T: Scalar> Shape for T {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        let Some(text) = view.scalar() else {
            reader.wrong_type::<Self>(view);
            return None;
        };
        T::parse(text)
            .map_err(|reason| {
                reader.problems.report(
                    Problem::new(Code::BadValue, format!("`{}` must be {}", reader.path(), T::NOUN))
                        .at(Origin::File(view.span()), reason.to_string())
                        .hint(format!("for example `{}`", T::EXAMPLE)),
                );
            })
            .ok()
    }

    fn placeholder() -> Self {
        T::placeholder()
    }

    fn noun() -> String {
        T::NOUN.to_owned()
    }

    fn example() -> String {
        T::EXAMPLE.to_owned()
    }

    fn schema(_: &mut Definitions) -> Value {
        let mut schema = T::schema();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("title".to_owned(), T::NOUN.into());
        }
        schema
    }

    fn resolved(&self) -> Resolved {
        Resolved::Scalar(self.show())
    }
}

/// A list in the file.
pub type List<T> = Vec<Sourced<T>>;

impl<T: Shape> Shape for List<T> {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        let Some(items) = view.list() else {
            reader.wrong_type::<Self>(view);
            return None;
        };
        Some(items.enumerate().map(|(index, item)| reader.read(&index.to_string(), item)).collect())
    }

    fn placeholder() -> Self {
        Vec::new()
    }

    fn noun() -> String {
        "a list".to_owned()
    }

    fn example() -> String {
        format!("[{}]", T::example())
    }

    fn schema(definitions: &mut Definitions) -> Value {
        json!({"type": "array", "items": T::schema(definitions)})
    }

    fn resolved(&self) -> Resolved {
        Resolved::List(self.iter().map(|item| (item.value.resolved(), item.origin)).collect())
    }
}

/// A mapping whose keys are the user's own, in the order of the file.
pub type Entries<K, V> = Vec<(Sourced<K>, Sourced<V>)>;

impl<K: Scalar, V: Shape> Shape for Entries<K, V> {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        let Some(entries) = view.map() else {
            reader.wrong_type::<Self>(view);
            return None;
        };
        let mut found = Vec::new();
        for (key, span, value) in entries {
            let name = match K::parse(key) {
                Ok(name) => Sourced::new(name, reader.origin(span)),
                Err(reason) => {
                    reader.problems.report(
                        Problem::new(Code::BadValue, format!("a key of `{}` must be {}", reader.path(), K::NOUN))
                            .at(Origin::File(span), reason.to_string())
                            .hint(format!("for example `{}`", K::EXAMPLE)),
                    );
                    Sourced::new(K::placeholder(), Origin::Broken)
                }
            };
            found.push((name, reader.read(key, value)));
        }
        Some(found)
    }

    fn placeholder() -> Self {
        Vec::new()
    }

    fn noun() -> String {
        "a mapping".to_owned()
    }

    fn example() -> String {
        format!("{{{}: {}}}", K::EXAMPLE, V::example())
    }

    fn schema(definitions: &mut Definitions) -> Value {
        let mut names = K::schema();
        if let Some(names) = names.as_object_mut() {
            names.remove("type");
        }
        json!({"type": "object", "propertyNames": names, "additionalProperties": V::schema(definitions)})
    }

    fn resolved(&self) -> Resolved {
        let entry = |(key, value): &(Sourced<K>, Sourced<V>)| {
            let key = match key.value.show() {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (key, value.value.resolved(), value.origin)
        };
        Resolved::Map(self.iter().map(entry).collect())
    }
}

/// A choice with nothing more to say.
impl Shape for () {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        reader.entries::<Self>(view, &[]).map(|_| ())
    }

    fn placeholder() -> Self {}

    fn noun() -> String {
        "an empty mapping".to_owned()
    }

    fn example() -> String {
        "{}".to_owned()
    }

    fn schema(_: &mut Definitions) -> Value {
        json!({"type": "object", "additionalProperties": false})
    }

    fn resolved(&self) -> Resolved {
        Resolved::Map(Vec::new())
    }
}

/// A key of a section: `Sourced<T>` is required or has a default, `Option<Sourced<T>>` may be left out.
pub(crate) trait Field: Sized {
    fn read(reader: &mut Reader, section: Span, key: &str, view: Option<View<'_>>, default: Option<&str>) -> Self;
    fn is_required() -> bool;
    fn example() -> String;
    fn schema(definitions: &mut Definitions) -> Value;
    fn resolved(&self) -> Option<(Resolved, Origin)>;
}

impl<T: Shape> Field for Sourced<T> {
    fn read(reader: &mut Reader, section: Span, key: &str, view: Option<View<'_>>, default: Option<&str>) -> Self {
        match (view, default) {
            (Some(view), _) => reader.read(key, view),
            (None, Some(text)) => Reader::read_default(text),
            (None, None) => {
                reader.missing::<T>(key, section);
                Sourced::new(T::placeholder(), Origin::Broken)
            }
        }
    }

    fn is_required() -> bool {
        true
    }

    fn example() -> String {
        T::example()
    }

    fn schema(definitions: &mut Definitions) -> Value {
        T::schema(definitions)
    }

    fn resolved(&self) -> Option<(Resolved, Origin)> {
        Some((self.value.resolved(), self.origin))
    }
}

impl<T: Shape> Field for Option<Sourced<T>> {
    fn read(reader: &mut Reader, _: Span, key: &str, view: Option<View<'_>>, _: Option<&str>) -> Self {
        view.map(|view| reader.read(key, view))
    }

    fn is_required() -> bool {
        false
    }

    fn example() -> String {
        T::example()
    }

    fn schema(definitions: &mut Definitions) -> Value {
        T::schema(definitions)
    }

    fn resolved(&self) -> Option<(Resolved, Origin)> {
        self.as_ref().map(|value| (value.value.resolved(), value.origin))
    }
}

/// `first_address` is written `firstAddress`.
pub(crate) fn key(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |key, word| key + &word[..1].to_uppercase() + &word[1..])
}

/// Adds what the schema says of a key beyond its type.
pub(crate) fn describe(mut schema: Value, docs: &[&str], default: Option<&str>) -> Value {
    // A `$ref` may have siblings since draft 2019-09.
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), Value::String(prose(docs)));
        if let Some(text) = default {
            object.insert("default".to_owned(), json_of(text));
        }
    }
    schema
}

/// The lines of a doc comment as one paragraph.
pub(crate) fn prose(docs: &[&str]) -> String {
    docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

fn json_of(text: &str) -> Value {
    fn convert(view: View<'_>) -> Value {
        if let Some(items) = view.list() {
            Value::Array(items.map(convert).collect())
        } else if let Some(entries) = view.map() {
            Value::Object(entries.map(|(key, _, value)| (key.to_owned(), convert(value))).collect())
        } else {
            let text = view.scalar().unwrap_or_default();
            // Only what JSON itself calls a number or boolean is one; the rest are strings.
            match serde_json::from_str(text) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                _ => Value::String(text.to_owned()),
            }
        }
    }
    yaml::parse(text, Limits::CASTLE)
        .ok()
        .as_ref()
        .and_then(|stream| stream.documents().next())
        .map_or(Value::Null, convert)
}

/// Reports a word that is none of the known ones.
pub(crate) fn wrong_word(reader: &mut Reader, view: View<'_>, text: &str, known: &[String], noun: &str) {
    let hint = match suggest::nearest(text, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("one of: {}", known.join(", ")),
    };
    reader.problems.report(
        Problem::new(Code::BadValue, format!("`{}` must be {noun}", reader.path()))
            .at(Origin::File(view.span()), format!("exactly one of {}", known.join(", ")))
            .hint(hint),
    );
}
