//! Bodies of requests: JSON or YAML, with the fields that were given twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::talos::config::yaml::{self, Content, Meaning, Yaml};

/// A body that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Body {
    pub(crate) value: Value,
    /// The paths of fields that were given more than once; the last counts.
    pub(crate) twice: Vec<String>,
}

/// Reads JSON.
pub(crate) fn json(bytes: &[u8]) -> Result<Body, String> {
    let mut twice = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Seed { path: String::new(), twice: &mut twice }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value)).map_err(|error| told(bytes, &error))?;
    Ok(Body { value, twice })
}

/// What is wrong with a text that is no JSON, in about the words of Go.
fn told(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = bytes.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = error.column().checked_sub(1).and_then(|at| line.get(at)).copied().unwrap_or(b' ');
    format!("invalid character {:?} looking for beginning of value", char::from(found))
}

/// Reads YAML, of which JSON is a part: one document.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Body, String> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        return json(bytes);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let documents = yaml::documents(text).map_err(|error| as_go_tells(&error))?;
    let mut value = documents.first().map_or(Value::Null, converted);
    if !text.ends_with('\n') {
        unended(&mut value, text);
    }
    Ok(Body { value, twice: Vec::new() })
}

/// A mistake of YAML in Go's words: a mistake of grammar is counted from line zero there, and its place is not described.
fn as_go_tells(error: &str) -> String {
    let told = || {
        let (line, rest) = error.strip_prefix("yaml: line ")?.split_once(": ")?;
        let (_, why) = rest.strip_prefix("while parsing ")?.split_once(", ")?;
        let line = line.parse::<usize>().ok()?.saturating_sub(1);
        Some(format!("yaml: line {line}: {why}"))
    };
    told().unwrap_or_else(|| error.to_owned())
}

/// A block at the end of a text that has no last newline has none either.
fn unended(value: &mut Value, text: &str) {
    match value {
        Value::Object(members) => members.values_mut().next_back().into_iter().for_each(|last| unended(last, text)),
        Value::Array(items) => items.last_mut().into_iter().for_each(|last| unended(last, text)),
        Value::String(own) => {
            let line = own.strip_suffix('\n').and_then(|own| own.lines().next_back());
            if line.is_some_and(|line| text.ends_with(line)) {
                own.pop();
            }
        }
        _ => {}
    }
}

fn converted(yaml: &Yaml) -> Value {
    match &yaml.content {
        Content::List(items) => Value::Array(items.iter().map(converted).collect()),
        Content::Map(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), converted(value))).collect())
        }
        Content::Scalar(text, _) => match yaml.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Bool(truth) => Value::Bool(truth),
            Meaning::Int => whole(text).unwrap_or_else(|| Value::String(text.clone())),
            Meaning::Float => {
                text.parse().ok().and_then(Number::from_f64).map_or_else(|| Value::String(text.clone()), Value::Number)
            }
            Meaning::Text => Value::String(text.clone()),
        },
    }
}

fn whole(text: &str) -> Option<Value> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let digits = digits.trim_start_matches('+').replace('_', "");
    let read = |digits: &str, base| i64::from_str_radix(digits, base).ok();
    let number = match digits.get(..2) {
        Some("0x") => read(&digits[2..], 16),
        Some("0o") => read(&digits[2..], 8),
        Some("0b") => read(&digits[2..], 2),
        // A leading zero is octal to this reader.
        _ if digits.len() > 1 && digits.starts_with('0') => read(&digits, 8).or_else(|| read(&digits, 10)),
        _ => read(&digits, 10),
    };
    number.map(|number| Value::from(sign * number))
}

struct Seed<'a> {
    path: String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, items.len());
            match access.next_element_seed(Seed { path, twice: &mut *self.twice })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let value = access.next_value_seed(Seed { path: path.clone(), twice: &mut *self.twice })?;
            if members.insert(key, value).is_some() && !self.twice.contains(&path) {
                self.twice.push(path);
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn fields_that_are_given_twice_are_told() {
        let read = json(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(read.value, value!({ "a": { "b": 2 }, "c": [{ "d": 1 }] }));
        assert_eq!(read.twice, ["a.b", "c[0].d"]);
    }

    #[test]
    fn yaml_is_read_as_the_real_reader_does() {
        let read = yaml(b"a: 0644\nb: 'x'\nc: [1, 2.5, true, ~]\nd: yes\n").unwrap();
        assert_eq!(read.value, value!({ "a": 420, "b": "x", "c": [1, 2.5, true, null], "d": "yes" }));
        let read = yaml(b"a: |\n  x\nb:\n- |\n  y: \"z\"").unwrap();
        assert_eq!(read.value, value!({ "a": "x\n", "b": ["y: \"z\""] }));
        let error = yaml(b"a: 1\nb: 2\nc: {d: e\nf: [\n").unwrap_err();
        assert_eq!(error, "yaml: line 3: did not find expected ',' or '}'");
    }

    #[test]
    fn what_is_no_json_is_told() {
        assert_eq!(json(b"{").unwrap_err(), "unexpected end of JSON input");
        assert!(json(b"nonsense").unwrap_err().starts_with("invalid character"));
    }
}
