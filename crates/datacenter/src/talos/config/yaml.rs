//! Text into a tree of values that know their lines.

use std::collections::BTreeMap;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle};

/// How deep collections may nest.
const DEPTH: usize = 128;
/// How many values there may be once every alias is written out.
const VALUES: usize = 200_000;

/// One value. What it says is never shown: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Yaml {
    pub(crate) line: usize,
    pub(crate) content: Content,
    /// The keys of a map that are there again: the line, the key, and the line where it was first.
    pub(crate) repeated: Vec<(usize, String, usize)>,
}

impl fmt::Debug for Yaml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yaml").field("line", &self.line).finish_non_exhaustive()
    }
}

/// What a value is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// The text, and whether it stands without quotes.
    Scalar(String, bool),
    List(Vec<Yaml>),
    /// In the order of the text. Of keys that are there twice, the first counts.
    Map(Vec<(String, Yaml)>),
}

/// What a plain scalar means to a reader of YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Null,
    Bool(bool),
    Int,
    Float,
    Text,
}

impl Yaml {
    pub(crate) fn map(&self) -> Option<&[(String, Self)]> {
        match &self.content {
            Content::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match &self.content {
            Content::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// The value at this path of keys; nothing where it is null.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        let found = path
            .split('.')
            .try_fold(self, |value, key| value.map()?.iter().find(|(name, _)| name == key).map(|(_, value)| value))?;
        (found.meaning() != Meaning::Null).then_some(found)
    }

    /// The text at this path of keys.
    pub(crate) fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.text()
    }

    /// The truth at this path of keys.
    pub(crate) fn bool_at(&self, path: &str) -> Option<bool> {
        match self.at(path)?.meaning() {
            Meaning::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// The texts of the list at this path of keys.
    pub(crate) fn texts_at(&self, path: &str) -> Vec<&str> {
        self.at(path).and_then(Self::list).unwrap_or_default().iter().filter_map(Self::text).collect()
    }

    /// What kind of scalar it is, to the vendor's reader; a collection is text to nobody.
    pub(crate) fn meaning(&self) -> Meaning {
        let Content::Scalar(text, true) = &self.content else { return Meaning::Text };
        match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" | "True" | "TRUE" => Meaning::Bool(true),
            "false" | "False" | "FALSE" => Meaning::Bool(false),
            _ => number(text),
        }
    }
}

fn number(text: &str) -> Meaning {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let in_base = |prefix: &str, base: u32| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|digit| digit.is_digit(base)))
    };
    let is_decimal = digits.starts_with(|digit: char| digit.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if is_decimal || in_base("0x", 16) || in_base("0o", 8) || in_base("0b", 2) {
        return Meaning::Int;
    }
    let starts_as_number = digits.starts_with(|digit: char| digit.is_ascii_digit() || digit == '.');
    if starts_as_number && digits.parse::<f64>().is_ok() || [".inf", ".Inf", ".nan", ".NaN"].contains(&digits) {
        return Meaning::Float;
    }
    Meaning::Text
}

/// The documents of a text, or what is wrong with it. The words never quote the text.
pub(crate) fn documents(text: &str) -> Result<Vec<Yaml>, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: Vec<(usize, Yaml)> = Vec::new();
    let (mut documents, mut values) = (Vec::new(), 0_usize);
    let options = granit_parser::options! { emit_comments: false };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| format!("yaml: line {}: {}", error.marker().line(), error.info()))?;
        let line = span.start.line();
        let mut done = None;
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar(text.into_owned(), style == ScalarStyle::Plain);
                done = Some((anchor, Yaml { line, content, repeated: Vec::new() }));
            }
            Event::SequenceStart(_, anchor, _) => {
                open.push(Open { anchor, line, key: None, parts: Parts::List(Vec::new()), ..Open::default() });
            }
            Event::MappingStart(_, anchor, _) => {
                open.push(Open { anchor, line, key: None, parts: Parts::Map(Vec::new()), ..Open::default() });
            }
            Event::SequenceEnd | Event::MappingEnd => done = open.pop().map(Open::close),
            Event::Alias(id) => {
                let known = anchors.iter().find(|(anchor, _)| *anchor == id);
                let (_, value) = known.ok_or_else(|| format!("yaml: line {line}: unknown anchor"))?;
                values += weight(value);
                if values <= VALUES {
                    done = Some((0, value.clone()));
                }
            }
            _ => {}
        }
        if open.len() > DEPTH {
            return Err(format!("yaml: line {line}: exceeded max depth of {DEPTH}"));
        }
        values += 1;
        if values > VALUES {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        let Some((anchor, value)) = done else { continue };
        if anchor > 0 {
            anchors.push((anchor, value.clone()));
        }
        match open.last_mut() {
            Some(parent) => parent.take(value)?,
            None => documents.push(value),
        }
    }
    Ok(documents)
}

/// A collection that is being read.
#[derive(Default)]
struct Open {
    anchor: usize,
    line: usize,
    key: Option<String>,
    parts: Parts,
    /// Where each key was first.
    lines: BTreeMap<String, usize>,
    repeated: Vec<(usize, String, usize)>,
}

enum Parts {
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Default for Parts {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Open {
    fn take(&mut self, value: Yaml) -> Result<(), String> {
        match (&mut self.parts, self.key.take()) {
            (Parts::List(items), _) => items.push(value),
            (Parts::Map(entries), Some(key)) => entries.push((key, value)),
            (Parts::Map(_), None) => {
                let line = value.line;
                let Content::Scalar(key, _) = value.content else {
                    return Err(format!("yaml: line {line}: invalid map key"));
                };
                match self.lines.get(&key) {
                    Some(first) => self.repeated.push((line, key.clone(), *first)),
                    None => drop(self.lines.insert(key.clone(), line)),
                }
                self.key = Some(key);
            }
        }
        Ok(())
    }

    fn close(self) -> (usize, Yaml) {
        let content = match self.parts {
            Parts::List(items) => Content::List(items),
            Parts::Map(entries) => Content::Map(entries),
        };
        (self.anchor, Yaml { line: self.line, content, repeated: self.repeated })
    }
}

/// How many values it is.
fn weight(value: &Yaml) -> usize {
    match &value.content {
        Content::Scalar(..) => 1,
        Content::List(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Content::Map(entries) => 1 + entries.iter().map(|(_, value)| weight(value)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_in_order_with_their_lines() {
        let read = documents("a: 1\nb:\n  - x\n  - 'true'\n---\nc: {d: ~}\n").unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].text_at("a"), Some("1"));
        assert_eq!(read[0].texts_at("b"), ["x", "true"]);
        assert_eq!(read[0].at("b").unwrap().list().unwrap()[1].meaning(), Meaning::Text);
        assert_eq!((read[1].line, read[1].at("c.d")), (6, None));
    }

    #[test]
    fn scalars_mean_what_they_mean_to_the_vendor() {
        let cases = [
            ("x: 0o17", Meaning::Int),
            ("x: -3", Meaning::Int),
            ("x: 1.5", Meaning::Float),
            ("x: 1.13.9", Meaning::Text),
            ("x: yes", Meaning::Text),
            ("x: True", Meaning::Bool(true)),
            ("x: \"1\"", Meaning::Text),
        ];
        for (text, meaning) in cases {
            let read = documents(text).unwrap();
            assert_eq!(read[0].map().unwrap()[0].1.meaning(), meaning, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_by_its_line_alone() {
        for (text, told) in
            [("a: *b\n", "yaml: line 1"), ("? [a]\n: b\n", "yaml: line 1: invalid map key"), ("a: [\n", "yaml: line")]
        {
            let error = documents(text).unwrap_err();
            assert!(error.starts_with(told), "{text}: {error}");
        }
        let twice = &documents("a: 1\nb: 2\na: 3\n").unwrap()[0];
        assert_eq!((twice.text_at("a"), twice.repeated.as_slice()), (Some("1"), [(3, "a".to_owned(), 1)].as_slice()));
        let bomb = (1..20).fold("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
            let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
            format!("{text}a{n}: &a{n} [{aliases}]\n")
        });
        assert_eq!(documents(&bomb).unwrap_err(), "yaml: document contains excessive aliasing");
    }
}
