//! Objects as `kubectl create` and other clients that know their kinds send them: Protobuf.
//!
//! What a field is comes from [`schema`](super::schema); `schema/numbers.txt` adds the numbers: one type a line, `=2:TYPE`
//! for fields that are written as those of the type around them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::{Map, Number, Value, json};

use super::kube::stamp;
use super::schema::{Definition, Type, definitions};
use super::value;

const NUMBERS: &str = include_str!("schema/numbers.txt");

/// The media type.
pub(crate) const KIND: &str = "application/vnd.kubernetes.protobuf";

/// What every message begins with.
const MAGIC: &[u8] = b"k8s\0";

/// No object is nested deeper.
const DEPTH: usize = 64;

/// What a number stands for.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// A field by its name.
    Field(&'static str),
    /// The fields of another type.
    Inline(&'static str),
}

type Numbers = BTreeMap<&'static str, BTreeMap<u32, Entry>>;

fn numbers() -> &'static Numbers {
    static ALL: OnceLock<Numbers> = OnceLock::new();
    ALL.get_or_init(|| {
        let lines = NUMBERS.lines().filter_map(|line| line.split_once(' '));
        let entry = |word: &'static str| {
            let (name, number) = word.split_once('=')?;
            match number.split_once(':') {
                Some((number, of)) => Some((number.parse().ok()?, Entry::Inline(of))),
                None => Some((number.parse().ok()?, Entry::Field(name))),
            }
        };
        lines.map(|(name, words)| (name, words.split(' ').filter_map(entry).collect())).collect()
    })
}

/// Reads an object; or says why it is none.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    each(rest, |number, part| {
        match (number, part) {
            (1, Part::Bytes(bytes)) => each(bytes, |number, part| {
                match (number, part) {
                    (1, Part::Bytes(text)) => api_version = String::from_utf8_lossy(text).into_owned(),
                    (2, Part::Bytes(text)) => kind = String::from_utf8_lossy(text).into_owned(),
                    _ => {}
                }
                Ok(())
            })?,
            (2, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
        Ok(())
    })?;
    let definition = definition(&api_version, &kind);
    let definition = definition.ok_or_else(|| format!("no kind {kind:?} of {api_version:?} is known in Protobuf"))?;
    let mut object = json!({ "apiVersion": api_version, "kind": kind });
    if let Some(members) = object.as_object_mut() {
        message(&definition.name, definition, raw, members, 0)?;
    }
    Ok(object)
}

/// The type of a kind: `apps/v1` and `Deployment` are `apps.v1.Deployment`.
fn definition(api_version: &str, kind: &str) -> Option<&'static Definition> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let group = group.split('.').next().unwrap_or_default();
    let named = |group: &str| {
        let name = format!("{group}.{version}.{kind}");
        definitions().named(&name).filter(|_| numbers().contains_key(name.as_str()))
    };
    named(if group.is_empty() { "core" } else { group }).or_else(|| named("meta"))
}

/// One field as it comes.
#[derive(Clone, Copy)]
enum Part<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

fn each<'a>(mut bytes: &'a [u8], mut act: impl FnMut(u32, Part<'a>) -> Result<(), String>) -> Result<(), String> {
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).map_err(|error| error.to_string())?;
        let part = match wire {
            WireType::Varint => Part::Number(decode_varint(&mut bytes).map_err(|error| error.to_string())?),
            WireType::SixtyFourBit if bytes.len() >= 8 => Part::Double(bytes.get_f64_le()),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(|error| error.to_string())?;
                let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
                let (part, rest) = bytes.split_at(length.ok_or("unexpected EOF")?);
                bytes = rest;
                Part::Bytes(part)
            }
            _ => return Err("proto: illegal wireType".to_owned()),
        };
        act(number, part)?;
    }
    Ok(())
}

fn message(
    of: &str,
    definition: &Definition,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), String> {
    if depth > DEPTH {
        return Err("proto: nested too deep".to_owned());
    }
    let Some(entries) = numbers().get(of) else { return Ok(()) };
    each(bytes, |number, part| {
        match (entries.get(&number), part) {
            (Some(Entry::Inline(of)), Part::Bytes(bytes)) => message(of, definition, bytes, into, depth + 1),
            (Some(Entry::Field(name)), part) => match definition.fields.get(*name) {
                Some(field) => put(&field.ty, part, into, name, depth),
                None => Ok(()),
            },
            // What a later version adds is nothing to this one.
            _ => Ok(()),
        }
    })
}

/// Sets a field, or adds to it if there may be many.
fn put(ty: &Type, part: Part<'_>, into: &mut Map<String, Value>, name: &str, depth: usize) -> Result<(), String> {
    match (ty.resolved(), part) {
        (Type::List(item), part) => {
            let item = single(item, part, depth)?;
            if let Some(list) = into.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                list.push(item);
            }
        }
        (Type::Map(item), Part::Bytes(bytes)) => {
            let (mut key, mut own) = (String::new(), zero(item));
            each(bytes, |number, part| {
                match (number, part) {
                    (1, Part::Bytes(text)) => key = String::from_utf8_lossy(text).into_owned(),
                    (2, part) => own = single(item, part, depth)?,
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(members) = into.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                members.insert(key, own);
            }
        }
        (_, part) => drop(into.insert(name.to_owned(), single(ty, part, depth)?)),
    }
    Ok(())
}

/// What a value is that is not written.
fn zero(ty: &Type) -> Value {
    match ty.resolved() {
        Type::String | Type::Bytes => json!(""),
        Type::Int32 | Type::Int64 | Type::Double => json!(0),
        Type::Bool => json!(false),
        Type::List(_) => json!([]),
        Type::Map(_) | Type::Named(_) | Type::Object => json!({}),
        _ => Value::Null,
    }
}

fn single(ty: &Type, part: Part<'_>, depth: usize) -> Result<Value, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match (ty.resolved(), part) {
        (Type::String, Part::Bytes(bytes)) => json!(text(bytes)),
        (Type::Bytes, Part::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        // Signed numbers are written as the unsigned ones of the same bits.
        (Type::Int32 | Type::Int64, Part::Number(number)) => json!(number.cast_signed()),
        (Type::Double, Part::Double(number)) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        (Type::Bool, Part::Number(number)) => json!(number != 0),
        (Type::Time, Part::Bytes(bytes)) => time(ty, bytes)?,
        (Type::Scalar, Part::Bytes(bytes)) => json!(first_text(bytes)?),
        (Type::IntOrString, Part::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Object, Part::Bytes(bytes)) => serde_json::from_str(&first_text(bytes)?).unwrap_or_else(|_| json!({})),
        (Type::Named(number), Part::Bytes(bytes)) => {
            let definition = definitions().get(*number);
            let mut members = Map::new();
            message(&definition.name, definition, bytes, &mut members, depth + 1)?;
            Value::Object(members)
        }
        // A list within a map is a message of its own.
        (Type::List(item), Part::Bytes(bytes)) => {
            let mut items = Vec::new();
            each(bytes, |_, part| {
                items.push(single(item, part, depth + 1)?);
                Ok(())
            })?;
            Value::Array(items)
        }
        _ => return Err("proto: wrong wireType".to_owned()),
    })
}

/// The first field of a message, which is a text.
fn first_text(bytes: &[u8]) -> Result<String, String> {
    let mut found = String::new();
    each(bytes, |number, part| {
        if let (1, Part::Bytes(text)) = (number, part) {
            found = String::from_utf8_lossy(text).into_owned();
        }
        Ok(())
    })?;
    Ok(found)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let mut found = json!({ "kind": 0, "number": 0, "text": "" });
    each(bytes, |number, part| {
        match (number, part) {
            (1, Part::Number(kind)) => found["kind"] = json!(kind),
            (2, Part::Number(number)) => found["number"] = json!(number.cast_signed()),
            (3, Part::Bytes(text)) => found["text"] = json!(String::from_utf8_lossy(text)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(if value::number(&found, "kind") == Some(0) { found["number"].clone() } else { found["text"].clone() })
}

/// A moment; nothing if it is that before all time.
fn time(ty: &Type, bytes: &[u8]) -> Result<Value, String> {
    let (mut seconds, mut nanos, mut is_set) = (0, 0, false);
    each(bytes, |number, part| {
        is_set = true;
        match (number, part) {
            (1, Part::Number(number)) => seconds = number.cast_signed(),
            (2, Part::Number(number)) => nanos = number,
            _ => {}
        }
        Ok(())
    })?;
    let Some(since) = u64::try_from(seconds).ok().filter(|_| is_set) else { return Ok(Value::Null) };
    let text = stamp(std::time::Duration::from_secs(since));
    let is_fine = ty.definition().is_some_and(|definition| definition.name.ends_with("MicroTime"));
    if is_fine {
        return Ok(json!(format!("{}.{:06}Z", text.trim_end_matches('Z'), nanos / 1_000)));
    }
    Ok(json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that has a length.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        all.extend(bytes);
        all
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let of = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &of), &field(2, raw), &field(3, b""), &field(4, b"")].concat()
    }

    #[test]
    fn an_object_is_read() {
        // As client-go writes it: fields that have no pointer are there even if they are empty.
        let metadata = [field(1, b"a"), field(2, b""), field(3, b"n"), field(8, b"")].concat();
        let data = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &data)].concat();
        let read = read(&envelope("v1", "ConfigMap", &raw)).unwrap();
        let metadata = json!({ "name": "a", "generateName": "", "namespace": "n", "creationTimestamp": null });
        assert_eq!(
            read,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "k": "v" } })
        );
    }

    #[test]
    fn what_is_within_is_read_as_it_is_written_in_json() {
        let port =
            [field(1, b"web"), vec![3 << 3, 80], field(4, &[1 << 3, 0, 2 << 3, 0x90, 0x3f, 3 << 3 | 2, 0])].concat();
        let spec = field(1, &port);
        let read = read(&envelope("v1", "Service", &field(2, &spec))).unwrap();
        assert_eq!(read["spec"]["ports"], json!([{ "name": "web", "port": 80, "targetPort": 8_080 }]));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(read(b"{}").is_err());
        assert!(read(&envelope("v1", "Nonsense", b"")).unwrap_err().contains("Nonsense"));
        let cut = envelope("v1", "ConfigMap", b"");
        assert!(read(&cut[..cut.len() - 9]).is_err());
    }

    #[test]
    fn every_number_is_that_of_a_known_field() {
        let mut fields = 0;
        for (name, entries) in numbers() {
            let definition = definitions().named(name);
            for entry in entries.values() {
                match (entry, definition) {
                    (Entry::Field(field), Some(definition)) => {
                        assert!(definition.fields.contains_key(*field), "{name}.{field}");
                        fields += 1;
                    }
                    (Entry::Field(_), None) => {}
                    (Entry::Inline(of), _) => assert!(numbers().contains_key(of), "{name}: {of}"),
                }
            }
        }
        assert!(fields > 1_200, "{fields}");
    }
}
