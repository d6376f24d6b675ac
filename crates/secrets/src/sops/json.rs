//! JSON as SOPS files have it: one object, its keys in order, whole numbers whole.

use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

use super::MAX_VALUES;
use super::error::Problem;
use super::tree::{Item, Kind, Node, Position, Value};

const FORMAT: &str = "JSON";

/// The object in `bytes`.
///
/// # Errors
/// What is not JSON, or no object.
pub(super) fn read(bytes: &[u8]) -> Result<Node, Problem> {
    let Read(node) = serde_json::from_slice(bytes).map_err(|error| {
        let at = (error.line() > 0).then(|| Position { line: error.line(), column: error.column() });
        // Its own words may quote a value.
        let why = match error.classify() {
            serde_json::error::Category::Eof => "it ends too early",
            serde_json::error::Category::Data => "it has a number or a key that SOPS files may not have",
            _ => "a comma, quote or bracket is missing or in the wrong place",
        };
        Problem::Unreadable { format: FORMAT, at, why: why.to_owned() }
    })?;
    if matches!(node, Node::Map(_)) {
        return Ok(node);
    }
    let why = "its top is no object: write {\"data\": ...} around it".to_owned();
    Err(Problem::Unreadable { format: FORMAT, at: None, why })
}

struct Read(Node);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Value(Value::null()))
    }

    fn visit_bool<E>(self, is: bool) -> Result<Node, E> {
        Ok(Node::Value(Value::bool(is)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Value(Value::new(Kind::Integer, number.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        // Beyond 63 bits sops has floats.
        #[allow(clippy::cast_precision_loss, reason = "that is what sops does")]
        let value = i64::try_from(number)
            .map_or_else(|_| Value::float(number as f64), |number| Value::new(Kind::Integer, number.to_string()));
        Ok(Node::Value(value))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Value(Value::float(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Value(Value::text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(Read(node)) = list.next_element()? {
            items.push(Item::entry("", node));
            bounded::<A::Error>(&items)?;
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some((key, Read(node))) = map.next_entry::<String, Read>()? {
            items.push(Item::entry(key, node));
            bounded::<A::Error>(&items)?;
        }
        Ok(Node::Map(items))
    }
}

fn bounded<E: Error>(items: &[Item]) -> Result<(), E> {
    if items.len() > MAX_VALUES { Err(E::custom("too many values")) } else { Ok(()) }
}

/// An object as text, indented with tabs or so many spaces, comments left out.
///
/// # Errors
/// What JSON cannot say: infinities, and bytes that are not text.
pub(super) fn write(node: &Node, indent: Option<usize>) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let mut out = Zeroizing::new(String::with_capacity(4096));
    let step = indent.map_or_else(|| "\t".to_owned(), |spaces| " ".repeat(spaces));
    put(node, &step, 0, "", &mut out)?;
    out.push('\n');
    Ok(Zeroizing::new(std::mem::take(&mut *out).into_bytes()))
}

fn put(node: &Node, step: &str, depth: usize, key: &str, out: &mut String) -> Result<(), Problem> {
    let (items, brackets) = match node {
        Node::Value(value) => return scalar(value, key, out),
        Node::Map(items) => (items, ['{', '}']),
        Node::List(items) => (items, ['[', ']']),
    };
    out.push(brackets[0]);
    let mut first = true;
    for item in items {
        let Item::Entry { key: name, node, .. } = item else { continue };
        if !first {
            out.push(',');
        }
        first = false;
        line(step, depth + 1, out);
        if brackets[0] == '{' {
            quote(name, out);
            out.push_str(": ");
        }
        put(node, step, depth + 1, if name.is_empty() { key } else { name }, out)?;
    }
    if !first {
        line(step, depth, out);
    }
    out.push(brackets[1]);
    Ok(())
}

fn line(step: &str, depth: usize, out: &mut String) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str(step);
    }
}

fn scalar(value: &Value, key: &str, out: &mut String) -> Result<(), Problem> {
    let unwritable = |why| Problem::Unwritable { path: key.to_owned(), format: FORMAT, why };
    let text = value.str().ok_or_else(|| unwritable("it holds bytes that are not text"))?;
    match value.kind {
        Kind::Null => out.push_str("null"),
        Kind::Bool => out.push_str(if text == "True" { "true" } else { "false" }),
        Kind::Integer => out.push_str(text),
        Kind::Float if text.ends_with("Inf") || text == "NaN" => return Err(unwritable("it is no finite number")),
        Kind::Float if text.contains('.') => out.push_str(text),
        Kind::Float => {
            out.push_str(text);
            out.push_str(".0");
        }
        Kind::Text | Kind::Time => quote(text, out),
    }
    Ok(())
}

/// As Go writes it: what is special in HTML is escaped too.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_and_written() {
        let text = "{\n\t\"b\": \"\\u003cx\\u003e\",\n\t\"a\": [\n\t\t1,\n\t\t1.5,\n\t\t9007199254740993,\n\t\tnull,\n\t\ttrue\n\t],\n\t\"c\": {}\n}\n";
        let node = read(text.as_bytes()).unwrap();
        assert_eq!(node.get("b").unwrap().value().unwrap().clear(), "<x>");
        assert_eq!(String::from_utf8_lossy(&write(&node, None).unwrap()), text);
    }

    #[test]
    fn numbers_are_exact() {
        let kind = |text: &str| {
            let node = read(format!("{{\"a\": {text}}}").as_bytes()).unwrap();
            let value = node.get("a").unwrap().value().unwrap().clone();
            (value.kind, value.clear().to_owned())
        };
        assert_eq!(kind("9007199254740993"), (Kind::Integer, "9007199254740993".to_owned()));
        assert_eq!(kind("1.0"), (Kind::Float, "1".to_owned()));
        assert_eq!(kind("1e3"), (Kind::Float, "1000".to_owned()));
        assert_eq!(kind("18446744073709551615"), (Kind::Float, "18446744073709552000".to_owned()));
        assert_eq!(kind("0.1"), (Kind::Float, "0.1".to_owned()));
    }

    #[test]
    fn errors_never_quote() {
        for text in ["", "[1]", "\"planted\"", "{\"a\": planted}", "{\"a\": \"planted}", "{\"a\": 1e999}"] {
            let shown = read(text.as_bytes()).unwrap_err().to_string();
            assert!(!shown.contains("planted"), "{shown}");
        }
        assert!(read(&"[".repeat(100_000).into_bytes()).is_err());
    }
}
