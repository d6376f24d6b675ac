//! Strategic merge as Kustomize does it: what a patch brings anew comes first in a list.

use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";

/// Lays a patch over an object; nothing if the patch deletes it.
pub(super) fn merge(object: &Value, patch: &Value, has_schema: bool) -> Result<Option<Value>, String> {
    let (Some(under), Some(over)) = (object.as_object(), patch.as_object()) else {
        return Err("a patch must be a mapping".to_owned());
    };
    let mut path = Vec::new();
    Ok(map(under, over, has_schema, &mut path)?.map(Value::Object))
}

type Path<'p> = Vec<&'p str>;

fn map<'p>(
    under: &Map<String, Value>,
    over: &'p Map<String, Value>,
    has_schema: bool,
    path: &mut Path<'p>,
) -> Result<Option<Map<String, Value>>, String> {
    match directive(over)? {
        Directive::Delete => return Ok(None),
        Directive::Replace => {
            let mut new = over.clone();
            new.shift_remove(DIRECTIVE);
            return Ok(Some(new));
        }
        Directive::Merge => {}
    }
    let mut new = under.clone();
    for (key, change) in over.iter().filter(|(key, _)| *key != DIRECTIVE) {
        path.push(key);
        let merged = one(new.get(key), change, has_schema, path)?;
        path.pop();
        match merged {
            Some(value) => drop(new.insert(key.clone(), value)),
            None => drop(new.shift_remove(key)),
        }
    }
    Ok(Some(new))
}

/// The value of one field; nothing if it is to be gone.
fn one<'p>(
    known: Option<&Value>,
    change: &'p Value,
    has_schema: bool,
    path: &mut Path<'p>,
) -> Result<Option<Value>, String> {
    Ok(match (known.filter(|known| !known.is_null()), change) {
        (_, Value::Null) => None,
        (Some(Value::Object(under)), Value::Object(over)) => map(under, over, has_schema, path)?.map(Value::Object),
        (None, Value::Object(over)) => map(&Map::new(), over, has_schema, path)?.map(Value::Object),
        (Some(Value::Array(under)), Value::Array(over)) => match key_of(path).filter(|_| has_schema) {
            Some(keys) => list(under, over, keys, path)?.map(Value::Array),
            None => Some(change.clone()),
        },
        (Some(known), change)
            if std::mem::discriminant(known) != std::mem::discriminant(change) && is_nested(known, change) =>
        {
            return Err(format!("{} is not of the same sort in the patch as in the object", path.join(".")));
        }
        (_, change) => Some(change.clone()),
    })
}

fn is_nested(known: &Value, change: &Value) -> bool {
    [known, change].iter().any(|value| value.is_object() || value.is_array())
}

enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(over: &Map<String, Value>) -> Result<Directive, String> {
    match over.get(DIRECTIVE).map(|word| word.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(other) => Err(format!("`$patch: {other}` is no directive: merge, replace, delete")),
    }
}

/// The keys by which the items of a list are told apart; none for a list that is replaced as a whole.
fn key_of(path: &Path<'_>) -> Option<&'static [&'static str]> {
    let parent = path.len().checked_sub(2).map(|at| path[at]);
    Some(match (parent, *path.last()?) {
        (Some("containers" | "initContainers" | "ephemeralContainers"), "ports") => &["containerPort", "protocol"],
        (Some("spec"), "ports") => &["port", "protocol"],
        (_, "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "webhooks")
        | (None, "secrets")
        | (_, "imagePullSecrets") => &["name"],
        (_, "volumeMounts") => &["mountPath"],
        (_, "volumeDevices") => &["devicePath"],
        (_, "hostAliases") => &["ip"],
        (_, "topologySpreadConstraints") => &["topologyKey", "whenUnsatisfiable"],
        (Some("metadata"), "ownerReferences") => &["uid"],
        (Some("metadata"), "finalizers") => &[],
        (Some("status"), "conditions") => &["type"],
        _ => return None,
    })
}

fn list<'p>(
    under: &[Value],
    over: &'p [Value],
    keys: &[&str],
    path: &mut Path<'p>,
) -> Result<Option<Vec<Value>>, String> {
    let is_bare = |item: &Value, word: &str| {
        item.as_object().is_some_and(|item| item.len() == 1 && item.get(DIRECTIVE).is_some_and(|it| it == word))
    };
    if over.iter().any(|item| is_bare(item, "delete")) {
        return Ok(None);
    }
    if over.iter().any(|item| is_bare(item, "replace")) {
        return Ok(Some(over.iter().filter(|item| !is_bare(item, "replace")).cloned().collect()));
    }
    let mut left: Vec<Value> = under.to_vec();
    let mut new = Vec::new();
    for item in over {
        let at = left.iter().position(|known| is_same(known, item, keys));
        let known = at.map(|at| left.remove(at));
        match (known, item.as_object()) {
            (Some(Value::Object(known)), Some(over)) => {
                if let Some(merged) = map(&known, over, true, path)? {
                    new.push(Value::Object(merged));
                }
            }
            (None, Some(over)) => {
                if let Some(merged) = map(&Map::new(), over, true, path)? {
                    new.push(Value::Object(merged));
                }
            }
            _ => new.push(item.clone()),
        }
    }
    new.extend(left);
    Ok(Some(new))
}

/// Whether two items are one: their keys agree, and one that only one of them has does not count.
fn is_same(known: &Value, item: &Value, keys: &[&str]) -> bool {
    if keys.is_empty() {
        return known == item;
    }
    let mut any = false;
    let agrees = keys.iter().all(|key| match (known.get(key), item.get(key)) {
        (Some(one), Some(other)) => {
            any = true;
            one == other
        }
        _ => true,
    });
    agrees && any
}
