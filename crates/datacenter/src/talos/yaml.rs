//! Values as YAML text, in the vendor's style: four spaces, lists indented under their keys.

use serde_json::{Map, Value};

/// A value as a YAML document.
pub(crate) fn text(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(members) if !members.is_empty() => map(&mut text, members, 0),
        Value::Array(items) if !items.is_empty() => list(&mut text, items, 0),
        scalar => inline(&mut text, scalar, 0),
    }
    text
}

/// The members of a map, the first of which may stand behind a dash.
fn map(text: &mut String, members: &Map<String, Value>, indent: usize) {
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 || text.is_empty() || text.ends_with('\n') {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&scalar(key));
        text.push(':');
        nested(text, value, indent);
    }
}

fn list(text: &mut String, items: &[Value], indent: usize) {
    for item in items {
        text.push_str(&" ".repeat(indent));
        text.push('-');
        match item {
            Value::Object(members) if !members.is_empty() => {
                text.push(' ');
                map(text, members, indent + 2);
            }
            other => nested(text, other, indent),
        }
    }
}

/// What stands behind a colon or a dash: on the same line, or on the lines below.
fn nested(text: &mut String, value: &Value, indent: usize) {
    let deeper = (indent / 4 + 1) * 4;
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            map(text, members, deeper);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            list(text, items, deeper);
        }
        other => {
            text.push(' ');
            inline(text, other, deeper);
        }
    }
}

fn inline(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(_) => text.push_str("{}"),
        Value::Array(_) => text.push_str("[]"),
        Value::String(lines) if lines.contains('\n') => {
            text.push_str(if lines.ends_with('\n') { "|" } else { "|-" });
            for line in lines.lines() {
                text.push('\n');
                if !line.is_empty() {
                    text.push_str(&" ".repeat(indent.max(4)));
                    text.push_str(line);
                }
            }
        }
        Value::String(plain) => text.push_str(&scalar(plain)),
        other => text.push_str(&other.to_string()),
    }
    text.push('\n');
}

/// A text, in quotes where it would be read as something else.
fn scalar(text: &str) -> String {
    let is_fit = !text.is_empty()
        && !text.starts_with(|letter: char| letter.is_whitespace() || "!&*-?:,[]{}#|>@`\"'%=~".contains(letter))
        && !text.ends_with(|letter: char| letter.is_whitespace() || letter == ':')
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(|letter| !letter.is_control());
    match (text.is_empty() || is_other(text) || text.chars().any(char::is_control), is_fit) {
        (true, _) => Value::String(text.to_owned()).to_string(),
        (false, true) => text.to_owned(),
        (false, false) => format!("'{}'", text.replace('\'', "''")),
    }
}

/// Whether a text without quotes would be a truth, a number, a time of day or a date.
fn is_other(text: &str) -> bool {
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let starts = digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.');
    let is_number = starts && digits.replace('_', "").parse::<f64>().is_ok();
    let is_in_base = ["0x", "0o", "0b"].iter().any(|base| digits.starts_with(base));
    // Numbers to the base of sixty, such as hardware addresses may look like.
    let mut parts = digits.split(':');
    let is_small = |part: &str| part.len() <= 2 && part.parse::<u8>().is_ok_and(|number| number < 60);
    let is_sixty = digits.contains(':')
        && parts.next().is_some_and(|first| !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit()))
        && parts.all(is_small);
    let is_date = text.len() >= 10 && text.is_char_boundary(10) && {
        let shape = text[..10].bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq(*b"0000-00-00")
    };
    is_word || is_number || is_in_base || is_sixty || is_date
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::config::yaml::documents;
    use super::*;

    #[test]
    fn values_are_written_as_the_vendor_does() {
        let value =
            json!({ "a": 1, "b": { "c": ["x", "10.0.0.1"], "d": {} }, "e": [{ "f": true, "g": "" }], "h": "u\nv\n" });
        let expected = "a: 1\nb:\n    c:\n        - x\n        - 10.0.0.1\n    d: {}\n\
                        e:\n    - f: true\n      g: \"\"\nh: |\n    u\n    v\n";
        let written = text(&value);
        assert_eq!(written, expected);
        let read = &documents(&written).unwrap()[0];
        assert_eq!(read.texts_at("b.c"), ["x", "10.0.0.1"]);
        assert_eq!(read.at("e").unwrap().list().unwrap()[0].bool_at("f"), Some(true));
        assert_eq!(read.text_at("h"), Some("u\nv\n"));
    }

    #[test]
    fn only_what_would_be_read_otherwise_is_quoted() {
        for plain in ["10.77.0.11/24", "fe80::/64", "ff:ff:ff:ff:ff:ff", "252902638f78db76", "v1.13.9", "a, b"] {
            assert_eq!(text(&json!(plain)), format!("{plain}\n"));
        }
        for quoted in ["02:00:00:00:00:11", "1.0", "2", "", "true", "2026-11-16", "0x1f"] {
            assert_eq!(text(&json!(quoted)), format!("{quoted:?}\n"));
        }
        for quoted in ["a: b", "{.stage}", "-x", "a:"] {
            assert_eq!(text(&json!(quoted)), format!("'{quoted}'\n"));
        }
    }

    #[test]
    fn what_is_nested_in_a_list_stands_under_its_keys() {
        let value = json!({ "users": [{ "name": "a", "user": { "key": "k", "roles": ["r"] } }] });
        let expected = "users:\n    - name: a\n      user:\n        key: k\n        roles:\n            - r\n";
        assert_eq!(text(&value), expected);
        assert_eq!(text(&json!("one\ntwo\n")), "|\n    one\n    two\n");
    }
}
