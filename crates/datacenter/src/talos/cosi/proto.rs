//! What a resource says, for programs: the same as its text, by numbers instead of names.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

/// The messages and their fields, and the numbers of words.
struct Table {
    messages: BTreeMap<&'static str, Vec<Field>>,
    words: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

struct Field {
    key: &'static str,
    number: u32,
    kind: &'static str,
    is_list: bool,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { messages: BTreeMap::new(), words: BTreeMap::new() };
    let mut last = "";
    for line in include_str!("proto.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let rest = if let Some((name, rest)) = line.split_once(" = ") {
            last = name;
            rest
        } else if let Some((name, rest)) = line.split_once(": ") {
            let words = rest.split("; ").filter_map(|word| {
                let (word, number) = word.rsplit_once(' ')?;
                Some((word, number.parse().ok()?))
            });
            table.words.insert(name, words.collect());
            continue;
        } else {
            line
        };
        let fields = rest.split(',').filter_map(|text| {
            let mut parts = text.split_whitespace();
            let (key, number, kind) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let inner = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']'));
            Some(Field { key, number, kind: inner.unwrap_or(kind), is_list: inner.is_some() })
        });
        table.messages.entry(last).or_default().extend(fields);
    }
    table
});

/// A value as the message of this name; nothing of what is not there, or as it is by itself.
pub(super) fn encode(message: &str, value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in TABLE.messages.get(message).into_iter().flatten() {
        let Some(value) = value.get(field.key) else { continue };
        match value.as_array().filter(|_| field.is_list) {
            Some(items) => items.iter().for_each(|item| put(&mut bytes, field, item, true)),
            None => put(&mut bytes, field, value, false),
        }
    }
    bytes
}

fn delimited(bytes: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, bytes);
    encode_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

fn varint(bytes: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        encode_key(number, WireType::Varint, bytes);
        encode_varint(value, bytes);
    }
}

fn put(bytes: &mut Vec<u8>, field: &Field, value: &Value, is_item: bool) {
    let text = value.as_str().unwrap_or_default();
    let number = field.number;
    let mut content = |content: Vec<u8>| {
        if !content.is_empty() || is_item {
            delimited(bytes, number, &content);
        }
    };
    match field.kind {
        "text" => content(text.as_bytes().to_vec()),
        "base64" => content(STANDARD.decode(text).unwrap_or_default()),
        "mac" => content(text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect()),
        "address" => content(address(text)),
        "prefix" => {
            let (ip, length) = text.split_once('/').unwrap_or((text, ""));
            let mut inner = address(ip);
            if !inner.is_empty() {
                varint(&mut inner, 2, length.parse().unwrap_or(0));
            }
            content(inner);
        }
        "map" => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let mut entry = Vec::new();
                delimited(&mut entry, 1, key.as_bytes());
                delimited(&mut entry, 2, value.as_str().unwrap_or_default().as_bytes());
                content(entry);
            }
        }
        "bool" => varint(bytes, number, u64::from(value == true)),
        "double" => {
            encode_key(number, WireType::SixtyFourBit, bytes);
            bytes.extend_from_slice(&value.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        "uint" => varint(bytes, number, value.as_u64().unwrap_or(0)),
        kind => match TABLE.words.get(kind) {
            Some(words) => varint(bytes, number, words.get(text).copied().unwrap_or(0)),
            None if value.is_object() => delimited(bytes, number, &encode(kind, value)),
            None => {}
        },
    }
}

/// An address as the bytes of a message of its own.
fn address(text: &str) -> Vec<u8> {
    let mut inner = Vec::new();
    match text.parse() {
        Ok(IpAddr::V4(ip)) => delimited(&mut inner, 1, &ip.octets()),
        Ok(IpAddr::V6(ip)) => delimited(&mut inner, 1, &ip.octets()),
        Err(_) => {}
    }
    inner
}

/// A text as the only field of a message.
pub(super) fn text(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    delimited(&mut bytes, 1, value.as_bytes());
    bytes
}

/// A word as the only field of a message.
pub(super) fn word(words: &str, value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let number = TABLE.words.get(words).and_then(|words| words.get(value)).copied();
    varint(&mut bytes, 1, number.unwrap_or(0));
    bytes
}

/// A value of any shape as the only field of a message.
pub(super) fn free(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    delimited(&mut bytes, 1, &structure(value));
    bytes
}

fn structure(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let mut entry = Vec::new();
        delimited(&mut entry, 1, key.as_bytes());
        delimited(&mut entry, 2, &any(value));
        delimited(&mut bytes, 1, &entry);
    }
    bytes
}

fn any(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value {
        Value::Null => {
            encode_key(1, WireType::Varint, &mut bytes);
            encode_varint(0, &mut bytes);
        }
        Value::Number(number) => {
            encode_key(2, WireType::SixtyFourBit, &mut bytes);
            bytes.extend_from_slice(&number.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        Value::String(text) => delimited(&mut bytes, 3, text.as_bytes()),
        Value::Bool(truth) => {
            encode_key(4, WireType::Varint, &mut bytes);
            encode_varint(u64::from(*truth), &mut bytes);
        }
        Value::Object(_) => delimited(&mut bytes, 5, &structure(value)),
        Value::Array(items) => {
            let mut list = Vec::new();
            items.iter().for_each(|item| delimited(&mut list, 1, &any(item)));
            delimited(&mut bytes, 6, &list);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_is_defined() {
        let plain = ["text", "base64", "mac", "address", "prefix", "map", "bool", "double", "uint"];
        for (name, fields) in &TABLE.messages {
            for field in fields {
                let is_known = plain.contains(&field.kind)
                    || TABLE.words.contains_key(field.kind)
                    || TABLE.messages.contains_key(field.kind);
                assert!(is_known, "{name}.{}: {}", field.key, field.kind);
            }
        }
        assert_eq!(TABLE.words["Stage"]["shutting down"], 6);
        assert_eq!(TABLE.words["LinkFlags"]["UP,LOOPBACK,RUNNING,LOWER_UP"], 65_609);
    }

    #[test]
    fn values_become_messages() {
        let status = json!({ "stage": "maintenance", "status": { "ready": true, "unmetConditions": [] } });
        assert_eq!(encode("MachineStatus", &status), [8, 3, 18, 2, 8, 1]);
        let addresses = json!({ "addresses": ["10.77.0.11/24"], "sortAlgorithm": "v1" });
        assert_eq!(encode("NodeAddress", &addresses), [10, 8, 10, 4, 10, 77, 0, 11, 16, 24]);
        assert_eq!(encode("Service", &json!({ "running": true, "healthy": false, "unknown": true })), [8, 1, 24, 1]);
        assert_eq!(word("MachineType", "controlplane"), [8, 2]);
        assert!(word("MachineType", "unknown").is_empty());
        assert_eq!(free(&json!({ "a": "b" })), [10, 10, 10, 8, 10, 1, b'a', 18, 3, 26, 1, b'b']);
    }
}
