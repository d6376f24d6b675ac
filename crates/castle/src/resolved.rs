//! A complete castle, each value with its origin.

use std::fmt::Write;

use castle_spec::{Castle, Lines, Node, Origin, Resolved};
use serde_json::{Value, json};

/// The column at which origins begin, where the value leaves room.
const ORIGIN_COLUMN: usize = 60;

/// The castle as a castle.yaml that says everything, with the origin of each value as a comment, and its nodes.
pub(crate) fn text(castle: &Castle, nodes: &[Node], lines: &Lines<'_>) -> String {
    let mut text = String::new();
    if let Resolved::Map(entries) = castle.resolved() {
        map(&mut text, &entries, 0, lines);
    }
    text += "\n# What follows from it:\n#\n";
    for line in table(nodes).lines() {
        let _ = writeln!(text, "# {}", line.trim_end());
    }
    text
}

fn map(text: &mut String, entries: &[(String, Resolved, Origin)], indent: usize, lines: &Lines<'_>) {
    for (key, value, origin) in entries {
        let head = format!("{}{}:", " ".repeat(indent), plain(key));
        match value {
            Resolved::Map(entries) if !entries.is_empty() => {
                let _ = writeln!(text, "{head}");
                map(text, entries, indent + 2, lines);
            }
            value => {
                let line = format!("{head} {}", flow(value));
                let _ = writeln!(text, "{line:<ORIGIN_COLUMN$} # {}", said(*origin, lines));
            }
        }
    }
}

fn flow(value: &Resolved) -> String {
    match value {
        Resolved::Scalar(Value::String(text)) => plain(text),
        Resolved::Scalar(other) => other.to_string(),
        Resolved::List(items) => {
            format!("[{}]", items.iter().map(|(item, _)| flow(item)).collect::<Vec<_>>().join(", "))
        }
        Resolved::Map(entries) => {
            let entry = |(key, value, _): &(String, Resolved, Origin)| format!("{}: {}", plain(key), flow(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Text as every YAML reader takes it for just that text, quoted if in doubt. (A JSON string is a YAML string.)
fn plain(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./@!=+:#".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        || text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(':') && text.parse::<f64>().is_err();
    let is_word =
        !matches!(text.to_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if text.chars().all(safe) && begins && is_word && !text.ends_with(':') {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

fn said(origin: Origin, lines: &Lines<'_>) -> String {
    match origin {
        Origin::File(span) => format!("line {}", lines.position(span.start).line),
        Origin::Derived(span) => format!("follows from line {}", lines.position(span.start).line),
        Origin::Default | Origin::Broken => "default".to_owned(),
    }
}

/// The castle as objects, each value beside its origin.
pub(crate) fn value(resolved: &Resolved, lines: &Lines<'_>) -> Value {
    let leaf = |value: Value, origin: Origin| {
        let mut leaf = json!({"value": value, "origin": match origin {
            Origin::File(_) => "file",
            Origin::Derived(_) => "derived",
            Origin::Default | Origin::Broken => "default",
        }});
        if let (Some(span), Some(leaf)) = (origin.span(), leaf.as_object_mut()) {
            let position = lines.position(span.start);
            leaf.insert("line".to_owned(), position.line.into());
            leaf.insert("column".to_owned(), position.column.into());
        }
        leaf
    };
    let part = |part: &Resolved, origin: Origin| match part {
        Resolved::Scalar(scalar) => leaf(scalar.clone(), origin),
        Resolved::List(items) if items.is_empty() => leaf(json!([]), origin),
        Resolved::Map(entries) if entries.is_empty() => leaf(json!({}), origin),
        other => value(other, lines),
    };
    match resolved {
        Resolved::Scalar(scalar) => scalar.clone(),
        Resolved::List(items) => items.iter().map(|(item, origin)| part(item, *origin)).collect(),
        Resolved::Map(entries) => {
            entries.iter().map(|(key, item, origin)| (key.clone(), part(item, *origin))).collect()
        }
    }
}

/// A node as an object.
pub(crate) fn node(node: &Node) -> Value {
    json!({
        "name": node.name.value,
        "role": node.role.word(),
        "address": node.address.value,
        "vmid": node.vmid.0,
        "mac": node.mac.to_string(),
        "host": node.host.as_ref().map(|host| host.value.to_string()),
        "cores": node.cores.value,
        "memory": node.memory.to_string(),
        "disk": node.disk.to_string(),
        "dataDisk": node.data_disk.as_ref().map(|disk| disk.value.to_string()),
    })
}

/// The nodes as a table.
pub(crate) fn table(nodes: &[Node]) -> String {
    let mut rows =
        vec![["node", "role", "address", "vmid", "mac", "cores", "memory", "disk", "data disk"].map(str::to_owned)];
    rows.extend(nodes.iter().map(|node| {
        [
            node.name.value.clone(),
            node.role.word().to_owned(),
            node.address.value.to_string(),
            node.vmid.to_string(),
            node.mac.to_string(),
            node.cores.value.to_string(),
            node.memory.to_string(),
            node.disk.to_string(),
            node.data_disk.as_ref().map_or_else(|| "-".to_owned(), |disk| disk.value.to_string()),
        ]
    }));
    crate::output::table(&rows)
}
