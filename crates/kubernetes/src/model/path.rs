//! Fields by the paths that the API names them by: `.spec.containers[name="a"].image`.

use serde_json::{Map, Value};

/// What is at a path.
pub(crate) fn at_path<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let mut found = value;
    for place in places(value, path)? {
        found = match place {
            Place::Key(key) => found.get(key)?,
            Place::Item(index) => found.get(index)?,
        };
    }
    Some(found)
}

/// What is at a path, to be changed.
pub(crate) fn at_path_mut<'v>(value: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let mut found = &mut *value;
    for place in places(found, path)? {
        found = match place {
            Place::Key(key) => found.get_mut(key)?,
            Place::Item(index) => found.get_mut(index)?,
        };
    }
    Some(found)
}

/// One step down.
enum Place {
    Key(String),
    Item(usize),
}

/// The way down to a path. Names of labels have dots in them, so that only the object tells where a name ends.
fn places(value: &Value, path: &str) -> Option<Vec<Place>> {
    if path.is_empty() {
        return Some(Vec::new());
    }
    let then = |place: Place, below: &Value, rest: &str| {
        let mut way = places(below, rest)?;
        way.insert(0, place);
        Some(way)
    };
    match value {
        Value::Object(entries) => entries.iter().find_map(|(key, below)| {
            let rest = path.strip_prefix('.')?.strip_prefix(key.as_str())?;
            let is_end = rest.is_empty() || rest.starts_with(['.', '[']);
            is_end.then(|| then(Place::Key(key.clone()), below, rest)).flatten()
        }),
        Value::Array(items) => {
            let (keys, rest) = selector(path)?;
            let has = |item: &Value, may_lack: bool| {
                keys.iter().all(|(key, wanted)| match item.get(key) {
                    Some(own) => own == wanted,
                    None => may_lack,
                })
            };
            // A key that the server fills in may be missing.
            let index = items.iter().position(|item| has(item, false));
            let index = index.or_else(|| items.iter().position(|item| has(item, true)))?;
            then(Place::Item(index), &items[index], rest)
        }
        _ => None,
    }
}

/// The keys of an item, `[a="b",c=1]`, and what follows.
fn selector(path: &str) -> Option<(Map<String, Value>, &str)> {
    let mut keys = Map::new();
    let mut rest = path.strip_prefix('[')?;
    loop {
        let (key, value) = rest.split_once('=').filter(|(key, _)| !key.is_empty())?;
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
        keys.insert(key.to_owned(), values.next()?.ok()?);
        let behind = value.get(values.byte_offset()..)?;
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some((keys, behind.strip_prefix(']')?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_of_the_api_finds_its_field() {
        let mut value = json!({
            "metadata": {"labels": {"a.b/c": "1", "a": "2"}},
            "spec": {"containers": [
                {"name": "x]", "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}]}, {"name": "y", "image": "i"},
            ]},
        });
        let cases = [
            (".metadata.labels.a.b/c", json!("1")),
            (".metadata.labels.a", json!("2")),
            (".spec.containers[name=\"y\"].image", json!("i")),
            (".spec.containers[name=\"x]\"].ports[containerPort=80,protocol=\"TCP\"].containerPort", json!(80)),
        ];
        for (path, wanted) in cases {
            assert_eq!(at_path(&value, path), Some(&wanted), "{path}");
            assert_eq!(at_path_mut(&mut value, path), Some(&mut wanted.clone()), "{path}");
        }
        for path in
            [".nothing", ".spec.containers[name=\"z\"]", ".spec.containers[0]", ".spec.containers[name=", "nonsense"]
        {
            assert_eq!(at_path(&value, path), None, "{path}");
        }
    }
}
