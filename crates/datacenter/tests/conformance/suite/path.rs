//! Places in an answer: `status.conditions[type=Ready].status`, `items[0].metadata.name`, `items[*].metadata.name`.

use serde_json::Value;

/// What is at a place: nothing, one value, or, after a `[*]`, many.
pub(crate) fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| next(value, &step)).collect();
    }
    found
}

/// The value at a place, as text without quotes.
pub(crate) fn text(value: &Value, path: &str) -> Option<String> {
    find(value, path).first().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

enum Step {
    Key(String),
    At(usize),
    Each,
    Where(String, String),
}

/// A dot within quotes or brackets does not end a step: `metadata.annotations."a.b/c"`.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(inner) = rest.strip_prefix('"') {
            let (key, after) = inner.split_once('"').unwrap_or((inner, ""));
            steps.push(Step::Key(key.to_owned()));
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let (within, after) = inner.split_once(']').unwrap_or((inner, ""));
            steps.push(match (within, within.parse(), within.split_once('=')) {
                ("*", ..) => Step::Each,
                (_, Ok(at), _) => Step::At(at),
                (_, _, Some((key, wanted))) => Step::Where(key.to_owned(), wanted.to_owned()),
                _ => Step::Key(within.to_owned()),
            });
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    steps
}

fn next<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    let items = || value.as_array().into_iter().flatten();
    match step {
        Step::Key(key) => value.get(key).into_iter().collect(),
        Step::At(at) => value.get(at).into_iter().collect(),
        Step::Each => items().collect(),
        Step::Where(key, wanted) => items().filter(|item| item[key].as_str() == Some(wanted)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_found() {
        let value = json!({"a": {"b.c/d": 1}, "list": [{"type": "x", "is": "1"}, {"type": "y", "is": "2"}]});
        assert_eq!(text(&value, "a.\"b.c/d\"").as_deref(), Some("1"));
        assert_eq!(text(&value, "list[type=y].is").as_deref(), Some("2"));
        assert_eq!(text(&value, "list[0].is").as_deref(), Some("1"));
        assert_eq!(find(&value, "list[*].is"), [&json!("1"), &json!("2")]);
        assert_eq!(text(&value, "list[type=z].is"), None);
    }
}
