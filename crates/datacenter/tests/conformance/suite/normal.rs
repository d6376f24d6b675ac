//! What differs from run to run gets a stable name; the rest stays as it is.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

/// Gives names to what is drawn at random or counted by the server, the same name for the same value.
pub(crate) struct Names {
    known: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// Values that scenarios name themselves, longest first.
    variables: Vec<(String, String)>,
    uid: Regex,
    service_address: Regex,
    /// What is told by one name wherever it stands.
    plain: Vec<(Regex, &'static str)>,
    /// The same in what programs print for people.
    printed: Vec<(Regex, &'static str)>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let regex = |text: &str| Regex::new(text).unwrap();
        Self {
            known: BTreeMap::new(),
            counts: BTreeMap::new(),
            variables: Vec::new(),
            uid: regex(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            // The range that Talos gives to Services.
            service_address: regex(r"\b10\.(9[6-9]|10\d|11[01])\.\d+\.\d+"),
            plain: [
                (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
                (r"(too old resource version: \d+ \(|Too large resource version: \d+, current: )\d+", "${1}<rv>"),
                (r"(the ResourceVersion in record \()\d+", "${1}<rv>"),
                // A whole object in a message: its bytes follow from the order in which Go writes fields.
                (r#""\{\\"apiVersion\\".*\}": "#, "\"<object>\": "),
                (r"(larger than max \()\d+", "${1}<size>"),
                (r"hash=[0-9A-F]{128}", "hash=<hash>"),
                (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<fingerprint>"),
            ]
            .map(|(pattern, name)| (regex(pattern), name))
            .to_vec(),
            printed: [
                (r#"(resourceVersion: )"\d+""#, "${1}<rv>"),
                (r"(Resource Version: +)\d+", "${1}<rv>"),
                (r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}", "<time>"),
                // The last column of a table.
                (r" +\d+(s|ms|m)$", "  <age>"),
                // Columns are as wide as what is in them.
                (r"(\S) {2,}", "${1}  "),
                (r"  \d+(s|m)( |$)", "  <age>${2}"),
            ]
            .map(|(pattern, name)| (regex(pattern), name))
            .to_vec(),
        }
    }

    /// From now on this value is told by this name. Short and numeric values stay as they are: they may be anything.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self.variables.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    }

    /// Puts values where names stand: `<ns>`, and `<x*100>` for a hundred of one letter.
    pub(crate) fn fill(&mut self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.variables {
            filled = filled.replace(&format!("<{name}>"), value);
        }
        let repeated = Regex::new(r"<([a-z])\*(\d+)>").unwrap();
        while let Some(found) = repeated.captures(&filled) {
            let many = found[1].repeat(found[2].parse().unwrap());
            self.set(&format!("{}*{}", &found[1], &found[2]), &many);
            filled = filled.replace(&found[0], &many);
        }
        filled
    }

    /// A text with names for what varies.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut told = text.to_owned();
        for (name, value) in &self.variables {
            if value.len() > 4 && value.parse::<u64>().is_err() {
                told = told.replace(value, &format!("<{name}>"));
            }
        }
        for (pattern, name) in &self.plain {
            told = pattern.replace_all(&told, *name).into_owned();
        }
        for (kind, regex) in [("uid", self.uid.clone()), ("ip", self.service_address.clone())] {
            told = regex.replace_all(&told, |found: &regex::Captures<'_>| self.token(kind, &found[0])).into_owned();
        }
        told
    }

    /// A line that a program printed for people.
    pub(crate) fn printed(&mut self, line: &str) -> String {
        let mut told = self.text(line);
        for (pattern, name) in &self.printed {
            told = pattern.replace_all(&told, *name).into_owned();
        }
        told.trim_end().to_owned()
    }

    fn token(&mut self, kind: &'static str, value: &str) -> String {
        let key = format!("{kind} {value}");
        if let Some(token) = self.known.get(&key) {
            return token.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let token = format!("<{kind}-{count}>");
        self.known.insert(key, token.clone());
        token
    }

    /// A value with names for what varies, its keys in order, its managed fields as lines.
    pub(crate) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => self.members(members).into(),
            other => other.clone(),
        }
    }

    fn members(&mut self, members: &Map<String, Value>) -> Map<String, Value> {
        let sorted: BTreeMap<&String, &Value> = members.iter().collect();
        let mut told = Map::new();
        for (key, value) in sorted {
            let text = value.as_str().unwrap_or_default();
            let value = match key.as_str() {
                // Of a list or a bookmark it is whatever the whole store has come to.
                "resourceVersion" if !members.contains_key("name") && !text.is_empty() => "<rv>".into(),
                "resourceVersion" if text.parse::<u64>().is_ok_and(|rv| rv > 1) => self.token("rv", text).into(),
                "continue" if !text.is_empty() => "<continue>".into(),
                "nodePort" | "healthCheckNodePort" if value.is_number() => "<port>".into(),
                "managedFields" => self.managed(value),
                _ => self.value(value),
            };
            told.insert(self.text(key), value);
        }
        told
    }

    /// A line for each manager. The server orders them by time, so that the order differs from run to run.
    fn managed(&mut self, value: &Value) -> Value {
        let mut lines = Vec::new();
        for entry in value.as_array().into_iter().flatten() {
            let word = |key: &str| entry[key].as_str().unwrap_or_default();
            let mut paths = Vec::new();
            owned("", &entry["fieldsV1"], &mut paths);
            paths.sort();
            let subresource = entry["subresource"].as_str().map_or(String::new(), |name| format!("/{name}"));
            let (manager, operation, version) = (word("manager"), word("operation"), word("apiVersion"));
            lines.push(self.text(&format!("{manager}{subresource} {operation} {version}: {}", paths.join(" "))));
        }
        lines.sort();
        lines.into()
    }
}

/// The leaves of a set of fields. A dot at the end means the thing itself and not only what is in it.
fn owned(place: &str, fields: &Value, paths: &mut Vec<String>) {
    let Some(fields) = fields.as_object() else { return };
    if fields.is_empty() {
        paths.push(place.to_owned());
    }
    for (key, inner) in fields {
        let deeper = match key.split_once(':') {
            Some(("f", name)) if place.is_empty() => name.to_owned(),
            Some(("f", name)) => format!("{place}.{name}"),
            Some((_, item)) => format!("{place}[{item}]"),
            None => format!("{place}{key}"),
        };
        owned(&deeper, inner, paths);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_varies_is_named_and_equal_values_have_equal_names() {
        let mut names = Names::new();
        names.set("ns", "apply-1");
        let value = json!({"metadata": {"name": "a", "namespace": "apply-1", "resourceVersion": "77",
            "uid": "0d9a4f2c-1111-4222-8333-444455556666", "creationTimestamp": "2026-01-02T03:04:05Z"}});
        let told = names.value(&value);
        let expected = json!({"metadata": {"creationTimestamp": "<time>", "name": "a", "namespace": "<ns>",
            "resourceVersion": "<rv-1>", "uid": "<uid-1>"}});
        assert_eq!(told, expected);
        assert_eq!(names.value(&value), expected, "the same again");
    }

    #[test]
    fn managers_are_told_in_lines() {
        let entry = json!([{"manager": "one", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
            "fieldsV1": {"f:data": {".": {}, "f:k": {}}, "f:ports": {"k:{\"port\":80}": {}}}}]);
        let told = Names::new().value(&json!({ "managedFields": entry }));
        assert_eq!(told["managedFields"], json!([r#"one Apply v1: data. data.k ports[{"port":80}]"#]));
    }

    #[test]
    fn many_letters_are_written_short() {
        let mut names = Names::new();
        let filled = names.fill("name-<a*60>");
        assert_eq!(filled.len(), 65);
        assert_eq!(names.text(&filled), "name-<a*60>");
    }
}
