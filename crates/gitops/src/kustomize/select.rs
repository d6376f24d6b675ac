//! Which objects a patch, a replacement or a reference means.

use regex::Regex;
use serde_json::Value;

use super::piece::{Id, Piece};

/// A target as it is written: every part of it a pattern, what is left out is any.
pub(super) struct Selector {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Vec<Requirement>,
    annotations: Vec<Requirement>,
}

/// One condition on labels.
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// What cannot be understood, in words.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let pattern = |key: &str| match value.get(key).and_then(Value::as_str) {
            None | Some("") => Ok(None),
            Some(text) => {
                Regex::new(&format!("^(?:{text})$")).map(Some).map_err(|_| format!("{key} `{text}` is no pattern"))
            }
        };
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        Ok(Self {
            group: pattern("group")?,
            version: pattern("version")?,
            kind: pattern("kind")?,
            name: pattern("name")?,
            namespace: pattern("namespace")?,
            labels: requirements(text("labelSelector"))?,
            annotations: requirements(text("annotationSelector"))?,
        })
    }

    pub(super) fn selects(&self, piece: &Piece) -> bool {
        let (now, first) = (piece.id(), piece.first_id());
        let either = |pattern: &Option<Regex>, now: &str, first: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.is_match(now) || pattern.is_match(first))
        };
        either(&self.namespace, now.effective_namespace(), first.effective_namespace())
            && either(&self.name, &now.name, &first.name)
            && self.selects_kind(&now)
            && met(&self.labels, piece.value.pointer("/metadata/labels"))
            && met(&self.annotations, piece.value.pointer("/metadata/annotations"))
    }

    fn selects_kind(&self, id: &Id) -> bool {
        let version = id.api_version.rsplit('/').next().unwrap_or_default();
        let is = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
        is(&self.group, id.group()) && is(&self.version, version) && is(&self.kind, &id.kind)
    }
}

fn met(requirements: &[Requirement], labels: Option<&Value>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    requirements.iter().all(|requirement| match requirement {
        Requirement::In(key, values) => value(key).is_some_and(|value| values.iter().any(|wanted| wanted == value)),
        Requirement::NotIn(key, values) => value(key).is_none_or(|value| values.iter().all(|wanted| wanted != value)),
        Requirement::Exists(key) => value(key).is_some(),
        Requirement::Absent(key) => value(key).is_none(),
    })
}

/// `a=b,c!=d,e in (f, g),h,!i`.
fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parts: Vec<String> = Vec::new();
    let mut depth = 0;
    for piece in text.split(',') {
        match parts.last_mut() {
            Some(last) if depth > 0 => *last = format!("{last},{piece}"),
            _ => parts.push(piece.to_owned()),
        }
        depth += piece.matches('(').count() as isize - piece.matches(')').count() as isize;
    }
    parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).map(requirement).collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let set = |key: &str, values: &str| {
        let inner = values.trim().strip_prefix('(').and_then(|values| values.strip_suffix(')'));
        let values = inner.ok_or_else(|| format!("`{text}` is no selector"))?;
        Ok::<_, String>((key.trim().to_owned(), values.split(',').map(|value| value.trim().to_owned()).collect()))
    };
    let pair = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, values)) = text.split_once(" notin ") {
        return set(key, values).map(|(key, values)| Requirement::NotIn(key, values));
    }
    if let Some((key, values)) = text.split_once(" in ") {
        return set(key, values).map(|(key, values)| Requirement::In(key, values));
    }
    Ok(if let Some((key, value)) = text.split_once("!=") {
        let (key, values) = pair(key, value);
        Requirement::NotIn(key, values)
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        let (key, values) = pair(key, value);
        Requirement::In(key, values)
    } else if let Some(key) = text.strip_prefix('!') {
        Requirement::Absent(key.trim().to_owned())
    } else {
        Requirement::Exists(text.to_owned())
    })
}
