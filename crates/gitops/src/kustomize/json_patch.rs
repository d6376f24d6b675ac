//! RFC 6902: a list of operations on an object.

use serde_json::Value;

/// Applies the operations in order.
///
/// # Errors
/// The first operation that cannot be, in words.
pub(super) fn apply(object: &mut Value, operations: &Value) -> Result<(), String> {
    let operations = operations.as_array().ok_or("a JSON patch is a list of operations")?;
    for operation in operations {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let path = text("path").ok_or("an operation of a JSON patch has no `path`")?;
        let value = || operation.get("value").cloned().unwrap_or_default();
        let from = || text("from").ok_or_else(|| format!("`{path}` has no `from`"));
        match text("op").unwrap_or_default() {
            "add" => add(object, path, value())?,
            "remove" => drop(remove(object, path)?),
            "replace" => replace(object, path, value())?,
            "move" => {
                let moved = remove(object, from()?)?;
                add(object, path, moved)?;
            }
            "copy" => {
                let from = from()?;
                let copied = object.pointer(from).cloned().ok_or_else(|| absent(from))?;
                add(object, path, copied)?;
            }
            "test" if object.pointer(path) == Some(&value()) => {}
            "test" => return Err(format!("the value at {path} is not the one that is tested for")),
            other => return Err(format!("`op: {other}` is no operation of a JSON patch")),
        }
    }
    Ok(())
}

fn absent(path: &str) -> String {
    format!("there is nothing at {path}")
}

fn parted(path: &str) -> Result<(&str, String), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| format!("`{path}` is no path: it begins with a slash"))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *object = value;
        return Ok(());
    }
    let (parent, last) = parted(path)?;
    match object.pointer_mut(parent) {
        Some(Value::Object(entries)) => {
            entries.insert(last, value);
        }
        Some(Value::Array(items)) if last == "-" => items.push(value),
        Some(Value::Array(items)) => {
            let at = index(&last, items.len()).filter(|at| *at <= items.len()).ok_or_else(|| absent(path))?;
            items.insert(at, value);
        }
        _ => return Err(absent(parent)),
    }
    Ok(())
}

/// Kustomize lets a member be replaced that is not there.
fn replace(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if let Some(place) = object.pointer_mut(path) {
        *place = value;
        return Ok(());
    }
    let (parent, _) = parted(path)?;
    match object.pointer(parent) {
        Some(Value::Object(_)) => add(object, path, value),
        _ => Err(absent(path)),
    }
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, last) = parted(path)?;
    match object.pointer_mut(parent) {
        Some(Value::Object(entries)) => entries.shift_remove(&last).ok_or_else(|| absent(path)),
        Some(Value::Array(items)) => {
            let at = index(&last, items.len()).filter(|at| *at < items.len()).ok_or_else(|| absent(path))?;
            Ok(items.remove(at))
        }
        _ => Err(absent(parent)),
    }
}

/// A place in a list; negative ones count from its end.
fn index(text: &str, length: usize) -> Option<usize> {
    match text.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => text.parse().ok(),
    }
}
