//! Replacements: a value of one object copied into others.

use serde_json::{Map, Value};

use super::Failure;
use super::piece::Piece;
use super::select::Selector;

const NAME: &str = "metadata.name";

/// Carries out one replacement.
///
/// # Errors
/// What cannot be found or is not understood, in words.
pub(super) fn replace(pieces: &mut [Piece], replacement: &Value) -> Result<(), Failure> {
    let value = match replacement.get("sourceValue").and_then(Value::as_str) {
        Some(text) => text.into(),
        None => source(pieces, &replacement["source"])?,
    };
    for target in replacement["targets"].as_array().into_iter().flatten() {
        let select = Selector::read(&target["select"])?;
        let rejects = target["reject"].as_array().into_iter().flatten().map(Selector::read);
        let rejects = rejects.collect::<Result<Vec<_>, _>>()?;
        let paths: Vec<&str> = match target["fieldPaths"].as_array() {
            Some(paths) if !paths.is_empty() => paths.iter().filter_map(Value::as_str).collect(),
            _ => vec![NAME],
        };
        for piece in pieces.iter_mut() {
            if !select.selects(piece) || rejects.iter().any(|reject| reject.selects(piece)) {
                continue;
            }
            for path in &paths {
                write(&mut piece.value, path, &value, &target["options"])?;
            }
        }
    }
    Ok(())
}

fn source(pieces: &[Piece], source: &Value) -> Result<Value, Failure> {
    // Unlike a target, a source is named, not described.
    let is = |key: &str, text: &str| source[key].as_str().is_none_or(|wanted| wanted.is_empty() || wanted == text);
    let named = |piece: &&Piece| {
        piece.previous.iter().cloned().chain([piece.id()]).any(|id| {
            let version = id.api_version.rsplit('/').next().unwrap_or_default();
            is("group", id.group())
                && is("version", version)
                && is("kind", &id.kind)
                && is("name", &id.name)
                && is("namespace", id.effective_namespace())
        })
    };
    let found: Vec<&Piece> = pieces.iter().filter(named).collect();
    let piece = match found.as_slice() {
        [piece] => piece,
        [] => return Err(Failure::Nobody(format!("no object is the source of a replacement: {source}"))),
        several => {
            let what = format!("the source of a replacement must be one object, and {} are it", several.len());
            return Err(Failure::Wrong(what));
        }
    };
    let path = source["fieldPath"].as_str().unwrap_or(NAME);
    let mut object = piece.value.clone();
    let mut values = Vec::new();
    walk(&mut object, &split(path), None, &mut |value| values.push(value.clone()));
    let value = values.into_iter().next().filter(|value| !value.is_null());
    let value = value.ok_or_else(|| format!("the source of a replacement has no {path}"))?;
    let options = &source["options"];
    match options["delimiter"].as_str().filter(|delimiter| !delimiter.is_empty()) {
        None => Ok(value),
        Some(delimiter) => {
            let index = usize::try_from(options["index"].as_i64().unwrap_or(0)).unwrap_or(usize::MAX);
            let text = scalar(&value);
            let part = text.split(delimiter).nth(index);
            let part = part.ok_or_else(|| format!("{path} has no part {index} between `{delimiter}`"))?;
            Ok(part.into())
        }
    }
}

fn write(object: &mut Value, path: &str, value: &Value, options: &Value) -> Result<(), String> {
    let delimiter = options["delimiter"].as_str().filter(|delimiter| !delimiter.is_empty());
    let made =
        (options["create"] == true).then(|| if value.is_object() { Value::Object(Map::new()) } else { Value::Null });
    let mut found = false;
    walk(object, &split(path), made.as_ref(), &mut |target| {
        found = true;
        let text = match delimiter {
            None => return copy(target, value),
            Some(delimiter) => {
                let known = scalar(target);
                let mut parts: Vec<String> = known.split(delimiter).map(str::to_owned).collect();
                let index = options["index"].as_i64().unwrap_or(0);
                match usize::try_from(index) {
                    Err(_) => parts.insert(0, scalar(value)),
                    Ok(index) if index >= parts.len() => parts.push(scalar(value)),
                    Ok(index) => parts[index] = scalar(value),
                }
                parts.join(delimiter)
            }
        };
        *target = text.into();
    });
    if found { Ok(()) } else { Err(format!("the target of a replacement has no {path}")) }
}

/// A value that replaces a text stays a text.
fn copy(target: &mut Value, value: &Value) {
    let is_leaf = !value.is_object() && !value.is_array();
    *target = if target.is_string() && is_leaf { scalar(value).into() } else { value.clone() };
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

/// The parts between dots, but not between those in brackets; `\.` is a dot.
fn split(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut escaped) = (0, false);
    for c in path.chars() {
        let Some(last) = parts.last_mut() else { break };
        match c {
            '.' if escaped => {
                last.pop();
                last.push('.');
            }
            '.' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            c => {
                depth += i32::from(c == '[') - i32::from(c == ']');
                last.push(c);
            }
        }
        escaped = c == '\\';
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn walk(value: &mut Value, path: &[String], made: Option<&Value>, act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return act(value) };
    let condition =
        first.strip_prefix('[').and_then(|part| part.strip_suffix(']')).and_then(|part| part.split_once('='));
    match (value, condition) {
        (Value::Array(items), Some((key, wanted))) => {
            let is_it =
                |item: &Value| if key.is_empty() { scalar(item) == wanted } else { scalar(&item[key]) == wanted };
            items.iter_mut().filter(|item| is_it(item)).for_each(|item| walk(item, rest, made, act));
        }
        (Value::Array(items), None) if first == "*" => items.iter_mut().for_each(|item| walk(item, rest, made, act)),
        (Value::Array(items), None) => match first.parse::<usize>() {
            Ok(index) => items.get_mut(index).into_iter().for_each(|item| walk(item, rest, made, act)),
            Err(_) => items.iter_mut().for_each(|item| walk(item, path, made, act)),
        },
        (Value::Object(entries), None) if first == "*" => {
            entries.values_mut().for_each(|item| walk(item, rest, made, act));
        }
        (Value::Object(entries), None) => {
            if !entries.contains_key(first)
                && let Some(last) = made
            {
                entries.insert(first.clone(), if rest.is_empty() { last.clone() } else { Value::Object(Map::new()) });
            }
            if let Some(inner) = entries.get_mut(first) {
                walk(inner, rest, made, act);
            }
        }
        _ => {}
    }
}
