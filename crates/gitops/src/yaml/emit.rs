//! Values to text, as Flux has them before it substitutes variables: whether a text is in quotes decides what becomes of
//! it once its variables have values.

use serde_json::Value;

use super::plain::misread;

/// Writes a value in block style, keys in alphabetical order.
pub(crate) fn emit(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, false, &mut out);
    if out.is_empty() || !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Writes a value; `inline` if something stands before it on the line.
fn block(value: &Value, indent: usize, inline: bool, out: &mut String) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let mut keys: Vec<&String> = entries.keys().collect();
            keys.sort();
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str(&scalar(key));
                out.push(':');
                member(&entries[key], indent, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str("- ");
                match item {
                    Value::Object(_) | Value::Array(_) => {
                        block(item, indent + 2, true, out);
                        if !out.ends_with('\n') {
                            out.push('\n');
                        }
                    }
                    item => leaf(item, indent + 2, out),
                }
            }
        }
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        value => leaf(value, indent, out),
    }
}

/// What follows `key:`.
fn member(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            out.push('\n');
            block(value, indent + 2, false, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, indent, false, out);
        }
        value => {
            out.push(' ');
            match value {
                Value::Object(_) => out.push_str("{}\n"),
                Value::Array(_) => out.push_str("[]\n"),
                value => leaf(value, indent + 2, out),
            }
        }
    }
}

fn leaf(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if is_literal(text) => literal(text, indent, out),
        Value::String(text) => {
            out.push_str(&scalar(text));
            out.push('\n');
        }
        value => {
            out.push_str(&value.to_string());
            out.push('\n');
        }
    }
}

/// Whether a text is lines, of which at least one says something.
fn is_literal(text: &str) -> bool {
    text.contains('\n') && !text.trim().is_empty() && is_printable(text)
}

/// Lines as they are, under a `|`.
fn literal(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    let ends = text.len() - body.len();
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    out.push_str(match ends {
        0 => "-\n",
        1 => "\n",
        _ => "+\n",
    });
    for line in body.split('\n') {
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent.max(2)));
            out.push_str(line);
        }
        out.push('\n');
    }
    out.push_str(&"\n".repeat(ends.saturating_sub(1)));
}

fn is_printable(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()) && !text.contains('\u{feff}')
}

/// A text of one line, in quotes where it needs them.
fn scalar(text: &str) -> String {
    if !is_printable(text) || text.contains(['\n', '\t']) {
        return Value::String(text.to_owned()).to_string();
    }
    if misread(text) {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    if needs_quotes(text) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    text.to_owned()
}

/// Whether the grammar does not let a text stand plain in block style.
fn needs_quotes(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return true };
    let second = text.chars().nth(1);
    let indicator = "#,[]{}&*!|>'\"%@`".contains(first)
        || (matches!(first, '?' | ':' | '-') && second.is_none_or(|next| next == ' '))
        || text.starts_with("---")
        || text.starts_with("...");
    indicator
        || text.starts_with(' ')
        || text.ends_with(' ')
        || text.ends_with(':')
        || text.contains(": ")
        || text.contains(" #")
}
