//! Text into documents, as strictly as a node does it: unknown keys, wrong types and repeated documents are refused.
//!
//! The words are the vendor's, without the values that it quotes: any of them may be a secret.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::keys;
use super::shapes::{self, Kind, Minor, SHAPES, Shape};
use super::yaml::{self, Content, Meaning, Yaml};

/// One document of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// Its kind; none for the first, the oldest.
    pub(crate) kind: Option<String>,
    /// Its name, where its kind has one.
    pub(crate) name: String,
    pub(crate) value: Yaml,
}

/// Reads a configuration, or says what is wrong with it.
pub(crate) fn decode(minor: Minor, text: &str) -> Result<Vec<Document>, String> {
    let values = yaml::documents(text).map_err(|error| format!("decode error: {error}"))?;
    let (mut documents, mut known) = (Vec::new(), BTreeSet::new());
    for value in values {
        if value.meaning() == Meaning::Null {
            continue;
        }
        if value.map().is_none() {
            return Err(format!("expected a YAML document at line {}", value.line));
        }
        let field = |name: &str| value.text_at(name).unwrap_or_default().to_owned();
        let (version, kind, name) = (field("apiVersion"), field("kind"), field("name"));
        let shown = if kind.is_empty() { "v1alpha1" } else { &kind };
        let id = format!("{version}/{shown}/{name}");
        let line = value.line;
        if !known.insert(id.clone()) {
            return Err(format!("duplicate document {id} is not allowed (line {line})"));
        }
        let wrong = |error: String| format!("error decoding document {id} (line {line}): {error}");
        let shape = shape_of(minor, &value, &version, &kind).map_err(wrong)?;
        let mut reader = Reader { minor, errors: Vec::new(), unknown: String::new() };
        reader.map(shape, &value, 0);
        if !reader.errors.is_empty() {
            let errors = reader.errors.join("\n");
            return Err(wrong(format!("error decoding {kind}: yaml: construct errors:\n{errors}")));
        }
        if !reader.unknown.is_empty() {
            return Err(wrong(format!("unknown keys found during decoding:\n{}", reader.unknown)));
        }
        documents.push(Document { kind: (!kind.is_empty()).then_some(kind), name, value });
    }
    if documents.is_empty() { Err("config not found".to_owned()) } else { Ok(documents) }
}

fn shape_of(minor: Minor, value: &Yaml, version: &str, kind: &str) -> Result<&'static Shape, String> {
    let is_first = ["machine", "cluster", "debug", "persist"].iter().any(|key| value.at(key).is_some());
    let found = match (version, kind) {
        ("" | "v1alpha1", "") if is_first || version == "v1alpha1" => SHAPES.get("Config"),
        (_, "") => return Err("missing kind".to_owned()),
        ("", _) => return Err("missing apiVersion".to_owned()),
        ("v1alpha1", kind) => shapes::document(minor, kind),
        _ => None,
    };
    found.ok_or_else(|| format!("{kind:?} {version:?}: not registered"))
}

struct Reader {
    minor: Minor,
    errors: Vec<String>,
    /// The unknown keys, as the vendor nests them.
    unknown: String,
}

impl Reader {
    fn map(&mut self, shape: &Shape, value: &Yaml, depth: usize) {
        let Some(entries) = value.map() else { return self.mismatch(value, &shape.name) };
        for (key, value) in entries {
            if shape.is_document && ["apiVersion", "kind"].contains(&key.as_str()) {
                continue;
            }
            let at = self.unknown.len();
            match shape.field(self.minor, key) {
                None => self.unknown.push_str(&format!("{}{key}:\n", "    ".repeat(depth))),
                // The one choice that the rules judge, as other rules depend on it.
                Some(_) if shape.name == "MachineConfig" && key == "type" => self.value(&Kind::Text, value, depth + 1),
                Some(field) => self.value(&field.kind, value, depth + 1),
            }
            if shape.field(self.minor, key).is_some() && self.unknown.len() > at {
                self.unknown.insert_str(at, &format!("{}{key}:\n", "    ".repeat(depth)));
            }
        }
    }

    fn value(&mut self, kind: &Kind, value: &Yaml, depth: usize) {
        let meaning = value.meaning();
        if meaning == Meaning::Null {
            return;
        }
        match kind {
            Kind::Any => {}
            Kind::Object => {
                if value.map().is_none() {
                    self.mismatch(value, "map[string]interface {}");
                }
            }
            Kind::List(inner) => match value.list() {
                Some(items) => items.iter().for_each(|item| self.value(inner, item, depth)),
                None => self.mismatch(value, "slice"),
            },
            Kind::Map(inner) => match value.map() {
                Some(entries) => entries.iter().for_each(|(_, value)| self.value(inner, value, depth)),
                None => self.mismatch(value, "map"),
            },
            Kind::Shape(name) => {
                if let Some(shape) = SHAPES.get(name) {
                    self.map(shape, value, depth);
                }
            }
            Kind::Pair => self.pem(value, &["crt", "key"], depth),
            Kind::Certificate => self.pem(value, &["crt"], depth),
            Kind::Key => self.pem(value, &["key"], depth),
            Kind::Args if value.list().is_some() => self.value(&Kind::List(Box::new(Kind::Text)), value, depth),
            scalar => match (value.text(), fault(scalar, value)) {
                (None, _) => self.mismatch(value, word(scalar)),
                (Some(_), Some(fault)) => self.errors.push(format!("  line {}: {fault}", value.line)),
                (Some(_), None) => {}
            },
        }
    }

    /// A map of PEM texts, each as base64.
    fn pem(&mut self, value: &Yaml, keys: &[&str], depth: usize) {
        let Some(entries) = value.map() else { return self.mismatch(value, "x509.PEMEncodedCertificateAndKey") };
        for (key, value) in entries {
            match value.text().map(keys::unwrapped) {
                _ if !keys.contains(&key.as_str()) => {
                    self.unknown.push_str(&format!("{}{key}:\n", "    ".repeat(depth)));
                }
                None => self.mismatch(value, "string"),
                Some(Err(error)) => self.errors.push(format!("  line {}: {error}", value.line)),
                Some(Ok(_)) => {}
            }
        }
    }

    fn mismatch(&mut self, value: &Yaml, wanted: &str) {
        let has = match (&value.content, value.meaning()) {
            (Content::List(_), _) => "!!seq",
            (Content::Map(_), _) => "!!map",
            (_, Meaning::Bool(_)) => "!!bool",
            (_, Meaning::Int) => "!!int",
            (_, Meaning::Float) => "!!float",
            _ => "!!str",
        };
        self.errors.push(format!("  line {}: cannot construct {has} into {wanted}", value.line));
    }
}

/// What the vendor calls a kind of scalar.
fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Int => "int",
        Kind::Uint => "uint32",
        Kind::Float => "float64",
        Kind::Duration => "time.Duration",
        _ => "string",
    }
}

/// What is wrong with a scalar.
fn fault(kind: &Kind, value: &Yaml) -> Option<String> {
    let (text, meaning) = (value.text()?, value.meaning());
    let into = |is_fit: bool| (!is_fit).then(|| format!("cannot construct !!str into {}", word(kind)));
    let parsed = |is_fit: bool, what: &str| (!is_fit && !text.is_empty()).then(|| format!("unable to parse {what}"));
    match kind {
        Kind::Bool => into(matches!(meaning, Meaning::Bool(_)) || is_old_truth(text)),
        Kind::Int => into(meaning == Meaning::Int),
        Kind::Uint => into(meaning == Meaning::Int && !text.starts_with('-')),
        Kind::Float => into(matches!(meaning, Meaning::Int | Meaning::Float)),
        Kind::Duration => into(is_duration(text)),
        Kind::Address => parsed(text.parse::<IpAddr>().is_ok(), "IP"),
        Kind::Prefix => parsed(prefix(text).is_some(), "prefix"),
        Kind::Socket => parsed(text.parse::<SocketAddr>().is_ok(), "address and port"),
        Kind::Url => parsed(text.contains("://") && !text.contains(' '), "url"),
        Kind::Mac => parsed(text.split(':').all(|part| u8::from_str_radix(part, 16).is_ok()), "hardware address"),
        Kind::Cel => parsed(is_balanced(text), "expression"),
        Kind::Size => parsed(is_size(text), "size"),
        Kind::Base64 => parsed(STANDARD.decode(text.trim()).is_ok(), "base64"),
        Kind::Ports => parsed(text.split('-').all(|part| part.parse::<u16>().is_ok()), "port range"),
        Kind::Choice(words) => (!words.iter().any(|word| word == text)).then(|| format!("expected one of {words:?}")),
        _ => None,
    }
}

/// The words for truth of an older YAML, which the vendor's reader still takes where it wants one.
fn is_old_truth(text: &str) -> bool {
    ["y", "n", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str())
}

/// An address and the length of its network.
pub(crate) fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.parse().ok().filter(|length| *length <= most).map(|length| (address, length))
}

/// Numbers with units: `168h0m0s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (digits, unit) = rest.split_at(number);
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|known| unit.starts_with(**known)) else {
            return false;
        };
        if digits.parse::<f64>().is_err() {
            return false;
        }
        // `m` is also how `ms` begins.
        let is_milli = *unit == "m" && rest[number..].starts_with("ms");
        rest = &rest[number + unit.len() + usize::from(is_milli)..];
        parts += 1;
    }
    parts > 0
}

/// A number of bytes with a unit, or a share: `6GiB`, `75%`.
fn is_size(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let units =
        ["", "%", "b", "k", "kb", "kib", "m", "mb", "mib", "g", "gb", "gib", "t", "tb", "tib", "p", "pb", "pib"];
    number.parse::<f64>().is_ok() && units.contains(&unit.trim().to_lowercase().as_str())
}

/// Whether brackets and quotes of an expression close.
fn is_balanced(text: &str) -> bool {
    let (mut open, mut quote) = (Vec::new(), None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(mark), letter) if mark == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => open.push(letter),
            (None, ')' | ']' | '}') => {
                let opened = open.pop();
                if opened
                    != Some(if letter == ')' {
                        '('
                    } else if letter == ']' {
                        '['
                    } else {
                        '{'
                    })
                {
                    return false;
                }
            }
            _ => {}
        }
    }
    open.is_empty() && quote.is_none() && !text.trim().is_empty()
}
