//! Text into documents, as strictly as a node does it: unknown keys, wrong types and repeated documents are refused.
//!
//! The words are the vendor's, with the values that it quotes: whoever sends secrets may read some of them again.

use std::collections::{BTreeMap, BTreeSet};
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
        let mut reader = Reader { minor, errors: Vec::new() };
        reader.repeated(&value);
        let unknown = reader.map(shape, &value);
        if !reader.errors.is_empty() {
            let errors = reader.errors.join("\n");
            let what = format!("error decoding {kind} to *{}", called(&kind));
            return Err(wrong(format!("{what}: yaml: construct errors:\n{errors}")));
        }
        if let Some(unknown) = unknown {
            return Err(wrong(format!("unknown keys found during decoding:\n{}", unknown.text(0))));
        }
        documents.push(Document { kind: (!kind.is_empty()).then_some(kind), name, value });
    }
    if documents.is_empty() { Err("config not found".to_owned()) } else { Ok(documents) }
}

pub(super) fn shape_of(minor: Minor, value: &Yaml, version: &str, kind: &str) -> Result<&'static Shape, String> {
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

/// What the vendor calls the type of a document.
fn called(kind: &str) -> String {
    let own = |package: &str, name: &str| format!("{package}.{name}V1Alpha1");
    match kind {
        "" => "v1alpha1.Config".to_owned(),
        "EnvironmentConfig" | "EventSinkConfig" | "KmsgLogConfig" | "OOMConfig" | "WatchdogTimerConfig" => {
            own("runtime", kind.trim_end_matches("Config"))
        }
        "ExtensionServiceConfig" => own("extensions", "ServiceConfig"),
        "SideroLinkConfig" => own("siderolink", "Config"),
        "NetworkDefaultActionConfig" | "NetworkRuleConfig" => own("network", kind.trim_start_matches("Network")),
        "PCIDriverRebindConfig" => own("hardware", kind),
        "ImageVerificationConfig" | "TrustedRootsConfig" => own("security", kind),
        _ if kind.starts_with("Registry") => own("cri", kind),
        _ if kind.ends_with("VolumeConfig") || kind == "ZswapConfig" => own("block", kind),
        _ if kind.starts_with("Kube") && !kind.starts_with("KubeSpan") => own("k8s", kind),
        _ => own("network", kind),
    }
}

/// Keys that nobody knows, as they are nested.
enum Unknown {
    Map(BTreeMap<String, Self>),
    List(Vec<Self>),
    Value(String),
}

impl Unknown {
    fn text(&self, depth: usize) -> String {
        let indent = "    ".repeat(depth);
        match self {
            Self::Value(text) => format!(" {text}\n"),
            Self::Map(entries) => {
                let entry = |(key, value): (&String, &Self)| match value {
                    Self::Value(text) => format!("{indent}{key}: {text}\n"),
                    below => format!("{indent}{key}:\n{}", below.text(depth + 1)),
                };
                entries.iter().map(entry).collect()
            }
            Self::List(items) => {
                let item = |item: &Self| format!("{indent}- {}", item.text(depth).trim_start());
                items.iter().map(item).collect()
            }
        }
    }

    fn of(entries: BTreeMap<String, Self>) -> Option<Self> {
        (!entries.is_empty()).then_some(Self::Map(entries))
    }
}

/// A value on one line.
fn flow(value: &Yaml) -> String {
    match &value.content {
        Content::Scalar(text, true) => text.clone(),
        Content::Scalar(text, false) => format!("{text:?}"),
        Content::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Content::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{key}: {}", flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

struct Reader {
    minor: Minor,
    errors: Vec<String>,
}

impl Reader {
    /// Keys that are there twice, wherever they are.
    fn repeated(&mut self, value: &Yaml) {
        for (line, key, first) in &value.repeated {
            self.errors.push(format!("  line {line}: mapping key {key:?} already defined at line {first}"));
        }
        match &value.content {
            Content::List(items) => items.iter().for_each(|item| self.repeated(item)),
            Content::Map(entries) => entries.iter().for_each(|(_, value)| self.repeated(value)),
            Content::Scalar(..) => {}
        }
    }

    /// Reads a map; what it has that nobody knows.
    fn map(&mut self, shape: &Shape, value: &Yaml) -> Option<Unknown> {
        let Some(entries) = value.map() else {
            self.mismatch(value, &shape.name);
            return None;
        };
        let mut unknown = BTreeMap::new();
        for (key, value) in entries {
            if shape.is_document && ["apiVersion", "kind"].contains(&key.as_str()) {
                continue;
            }
            let found = match shape.field(self.minor, key) {
                None => Some(Unknown::Value(flow(value))),
                // The choices that are judged elsewhere, or by nobody.
                Some(_) if shape.name == "MachineConfig" && key == "type" => self.value(&Kind::Text, value),
                Some(_) if shape.name == "Config" && key == "version" => self.value(&Kind::Text, value),
                Some(field) => self.value(&field.kind, value),
            };
            unknown.extend(found.map(|found| (key.clone(), found)));
        }
        Unknown::of(unknown)
    }

    fn value(&mut self, kind: &Kind, value: &Yaml) -> Option<Unknown> {
        if value.meaning() == Meaning::Null {
            return None;
        }
        match kind {
            Kind::Any => {}
            Kind::Object => {
                if value.map().is_none() {
                    self.mismatch(value, "map[string]interface {}");
                }
            }
            Kind::List(inner) => match value.list() {
                Some(items) => {
                    let unknown: Vec<Unknown> = items.iter().filter_map(|item| self.value(inner, item)).collect();
                    return (!unknown.is_empty()).then_some(Unknown::List(unknown));
                }
                None => self.mismatch(value, &typed(kind)),
            },
            Kind::Map(inner) => match value.map() {
                Some(entries) => {
                    let below =
                        entries.iter().filter_map(|(key, value)| Some((key.clone(), self.value(inner, value)?)));
                    return Unknown::of(below.collect());
                }
                None => self.mismatch(value, &typed(kind)),
            },
            Kind::Shape(name) => return SHAPES.get(name).and_then(|shape| self.map(shape, value)),
            Kind::Pair => return self.pem(value, &["crt", "key"]),
            Kind::Certificate => return self.pem(value, &["crt"]),
            Kind::Key => return self.pem(value, &["key"]),
            Kind::Args if value.list().is_some() => return self.value(&Kind::List(Box::new(Kind::Text)), value),
            scalar => match (value.text(), fault(scalar, value)) {
                (None, _) | (Some(_), Some(Fault::Type)) => self.mismatch(value, word(scalar)),
                (Some(_), Some(Fault::Text(fault))) => self.errors.push(format!("  line {}: {fault}", value.line)),
                (Some(_), None) => {}
            },
        }
        None
    }

    /// A map of PEM texts, each as base64.
    fn pem(&mut self, value: &Yaml, keys: &[&str]) -> Option<Unknown> {
        let Some(entries) = value.map() else {
            self.mismatch(value, "x509.PEMEncodedCertificateAndKey");
            return None;
        };
        let mut unknown = BTreeMap::new();
        for (key, value) in entries {
            match value.text().map(keys::unwrapped) {
                _ if !keys.contains(&key.as_str()) => drop(unknown.insert(key.clone(), Unknown::Value(flow(value)))),
                None => self.mismatch(value, "string"),
                Some(Err(error)) => self.errors.push(format!("  line {}: {error}", value.line)),
                Some(Ok(_)) => {}
            }
        }
        Unknown::of(unknown)
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
        // The beginning of what is there is quoted, as the vendor does.
        let quoted = match value.text() {
            Some(text) if text.len() > 10 => format!(" `{}...`", text.chars().take(7).collect::<String>()),
            Some(text) => format!(" `{text}`"),
            None => String::new(),
        };
        self.errors.push(format!("  line {}: cannot construct {has}{quoted} into {wanted}", value.line));
    }
}

/// What the vendor calls a kind of collection.
fn typed(kind: &Kind) -> String {
    match kind {
        Kind::List(inner) => format!("[]{}", typed(inner)),
        Kind::Map(inner) => format!("map[string]{}", typed(inner)),
        Kind::Shape(name) => format!("v1alpha1.{name}"),
        scalar => word(scalar).to_owned(),
    }
}

/// What the vendor calls a kind of scalar.
pub(super) fn word(kind: &Kind) -> &'static str {
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
pub(super) enum Fault {
    /// It is of another type.
    Type,
    /// It is of the right type and cannot be read.
    Text(String),
}

pub(super) fn fault(kind: &Kind, value: &Yaml) -> Option<Fault> {
    let (text, meaning) = (value.text()?, value.meaning());
    let into = |is_fit: bool| (!is_fit).then_some(Fault::Type);
    let parsed = |is_fit: bool, why: String| (!is_fit && !text.is_empty()).then_some(Fault::Text(why));
    let unable = |is_fit: bool, what: &str| parsed(is_fit, format!("unable to parse {what}"));
    match kind {
        Kind::Bool => into(matches!(meaning, Meaning::Bool(_)) || is_old_truth(text)),
        Kind::Int => into(meaning == Meaning::Int),
        Kind::Uint => into(meaning == Meaning::Int && !text.starts_with('-')),
        Kind::Float => into(matches!(meaning, Meaning::Int | Meaning::Float)),
        Kind::Duration => into(is_duration(text)),
        Kind::Address => parsed(text.parse::<IpAddr>().is_ok(), bad_address(text)),
        Kind::Prefix => parsed(prefix(text).is_some(), bad_prefix(text)),
        Kind::Socket => unable(text.parse::<SocketAddr>().is_ok(), "address and port"),
        Kind::Url if text.starts_with(':') => parsed(false, format!("parse {text:?}: missing protocol scheme")),
        Kind::Url => unable(!text.contains(' '), "url"),
        Kind::Mac => unable(text.split(':').all(|part| u8::from_str_radix(part, 16).is_ok()), "hardware address"),
        Kind::Cel => unable(is_balanced(text), "expression"),
        Kind::Size => parsed(is_size(text), bad_size(text)),
        Kind::Base64 => unable(STANDARD.decode(text.trim()).is_ok(), "base64"),
        Kind::Ports => unable(text.split('-').all(|part| part.parse::<u16>().is_ok()), "port range"),
        Kind::Choice(words) => {
            (!words.iter().any(|word| word == text)).then(|| Fault::Text(format!("expected one of {words:?}")))
        }
        _ => None,
    }
}

fn bad_address(text: &str) -> String {
    format!("ParseAddr({text:?}): unable to parse IP")
}

fn bad_prefix(text: &str) -> String {
    let why = match text.split_once('/') {
        None => "no '/'".to_owned(),
        Some((address, _)) if address.parse::<IpAddr>().is_err() => bad_address(address),
        Some(_) => "prefix length out of range".to_owned(),
    };
    format!("netip.ParsePrefix({text:?}): {why}")
}

fn bad_size(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.parse::<f64>() {
        Ok(_) => format!("unhandled size name: {}", unit.trim().to_lowercase()),
        Err(_) => format!("strconv.ParseFloat: parsing {number:?}: invalid syntax"),
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
