//! What was asked and answered, as text that people read and that two servers are compared by.

use std::fmt::Write as _;

use serde_json::Value;

/// No line is longer if it can be broken.
const WIDTH: usize = 140;

/// One scenario's requests and answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Told {
    pub(crate) title: String,
    /// Each begins with the line of the request.
    pub(crate) blocks: Vec<String>,
}

/// The text of a theme.
pub(crate) fn write(scenarios: &[Told]) -> String {
    let mut text = String::new();
    for scenario in scenarios {
        let _ = write!(text, "== {}\n\n", scenario.title);
        for block in &scenario.blocks {
            let _ = write!(text, "{}\n\n", block.trim_end());
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Reads what [`write`] wrote.
pub(crate) fn read(text: &str) -> Vec<Told> {
    let mut scenarios: Vec<Told> = Vec::new();
    for block in text.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()) {
        match (block.strip_prefix("== "), scenarios.last_mut()) {
            (Some(title), _) => scenarios.push(Told { title: title.to_owned(), blocks: Vec::new() }),
            (None, Some(scenario)) => scenario.blocks.push(block.to_owned()),
            (None, None) => {}
        }
    }
    scenarios
}

/// JSON, broken into lines only where it is long.
pub(crate) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    put(value, 0, "", &mut text);
    text
}

fn put(value: &Value, depth: usize, before: &str, text: &mut String) {
    let short = value.to_string();
    let fits = depth + before.len() + short.len() <= WIDTH;
    let indent = " ".repeat(depth);
    let (open, close, members): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(members) if !fits => {
            ('{', '}', members.iter().map(|(key, value)| (format!("{}:", Value::from(key.as_str())), value)).collect())
        }
        Value::Array(items) if !fits => ('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
        _ => {
            let _ = write!(text, "{indent}{before}{short}");
            return;
        }
    };
    let _ = writeln!(text, "{indent}{before}{open}");
    let last = members.len().saturating_sub(1);
    for (at, (key, member)) in members.into_iter().enumerate() {
        put(member, depth + 1, &key, text);
        text.push_str(if at == last { "\n" } else { ",\n" });
    }
    let _ = write!(text, "{indent}{close}");
}

/// What differs between two tellings of one block, line by line: first what is expected, then what came.
pub(crate) fn difference(expected: &str, came: &str) -> String {
    let (expected, came): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), came.lines().collect());
    let same_start = expected.iter().zip(&came).take_while(|(one, other)| one == other).count();
    let ends = expected.iter().rev().zip(came.iter().rev());
    let shorter = expected.len().min(came.len());
    let same_end = ends.take_while(|(one, other)| one == other).count().min(shorter - same_start);
    let mut text = String::new();
    for line in &expected[same_start..expected.len() - same_end] {
        let _ = writeln!(text, "  - {line}");
    }
    for line in &came[same_start..came.len() - same_end] {
        let _ = writeln!(text, "  + {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let told = vec![
            Told { title: "one".to_owned(), blocks: vec!["GET /a\n200\n{}".to_owned(), "GET /b\n404".to_owned()] },
            Told { title: "two".to_owned(), blocks: vec!["GET /c\n200".to_owned()] },
        ];
        assert_eq!(read(&write(&told)), told);
    }

    #[test]
    fn long_json_is_broken_and_stays_json() {
        let value = json!({"a": "x".repeat(100), "b": [1, 2, {"c": "y".repeat(60)}], "d": {}});
        let text = pretty(&value);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(pretty(&json!({"a": [1]})), r#"{"a":[1]}"#);
    }

    #[test]
    fn a_difference_shows_only_what_differs() {
        assert_eq!(difference("a\nb\nc", "a\nx\nc"), "  - b\n  + x\n");
        assert_eq!(difference("a\na", "a"), "  - a\n");
        assert_eq!(difference("a", "a"), "");
    }
}
