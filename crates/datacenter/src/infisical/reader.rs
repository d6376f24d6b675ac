//! Parameters as the vendor checks them: all that is wrong is told at once, as an array.

use serde_json::{Map, Value, json};

use super::reply::VaultReply;
use crate::transport::form::percent_decoded;

/// The members of a body or a query, and what was wrong with those that were read.
pub(super) struct Reader {
    members: Map<String, Value>,
    at: Vec<Value>,
    issues: Vec<Value>,
}

impl Reader {
    /// A body; one that is no object lacks everything.
    pub(super) fn of(body: &Value) -> Self {
        Self { members: body.as_object().cloned().unwrap_or_default(), at: Vec::new(), issues: Vec::new() }
    }

    /// A query.
    pub(super) fn query(text: &str) -> Self {
        let plain = |text: &str| percent_decoded(&text.replace('+', " "));
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (plain(name), Value::String(plain(value)))
        });
        Self { members: pairs.collect(), at: Vec::new(), issues: Vec::new() }
    }

    fn issue(&mut self, name: &str, mut issue: Value) {
        let mut path = self.at.clone();
        path.push(name.into());
        issue["path"] = path.into();
        self.issues.push(issue);
    }

    /// A text that may be absent, outer whitespace removed.
    pub(super) fn optional(&mut self, name: &str) -> Option<String> {
        self.raw(name).map(|text| trimmed(&text).to_owned())
    }

    /// A text that may be absent, as it is.
    pub(super) fn raw(&mut self, name: &str) -> Option<String> {
        match self.members.get(name)?.clone() {
            Value::String(text) => Some(text),
            other => {
                let expected = json!({"code": "invalid_type", "expected": "string", "received": kind(&other),
                    "message": format!("Expected string, received {}", kind(&other))});
                self.issue(name, expected);
                None
            }
        }
    }

    /// A text that must be there; an empty one and an issue if it is not.
    pub(super) fn required(&mut self, name: &str) -> String {
        if !self.members.contains_key(name) {
            let missing =
                json!({"code": "invalid_type", "expected": "string", "received": "undefined", "message": "Required"});
            self.issue(name, missing);
        }
        self.optional(name).unwrap_or_default()
    }

    /// A flag of a query.
    pub(super) fn flag(&mut self, name: &str, usual: bool) -> bool {
        match self.optional(name).as_deref() {
            None => usual,
            Some("true") => true,
            Some("false") => false,
            Some(_) => {
                let wrong = json!({"code": "invalid_enum_value", "options": ["true", "false"],
                    "message": "Invalid enum value. Expected 'true' | 'false'"});
                self.issue(name, wrong);
                usual
            }
        }
    }

    /// A word out of a few.
    pub(super) fn word(&mut self, name: &str, words: &[&str], usual: &str) -> String {
        let word = self.optional(name).unwrap_or_else(|| usual.to_owned());
        if !words.contains(&word.as_str()) {
            let wrong = json!({"code": "invalid_enum_value", "options": words, "message": "Invalid enum value."});
            self.issue(name, wrong);
        }
        word
    }

    /// A folder, without a slash at its end.
    pub(super) fn folder(&mut self, name: &str) -> String {
        let path = self.optional(name).unwrap_or_else(|| "/".to_owned());
        match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/{path}"),
        }
    }

    /// The name of a secret.
    pub(super) fn secret_name(&mut self, name: &str, text: Option<String>) -> String {
        let text = text.unwrap_or_else(|| self.required(name));
        let text = trimmed(&text).to_owned();
        if text.is_empty() {
            self.issue(
                name,
                json!({"code": "too_small", "minimum": 1, "message": "String must contain at least 1 character(s)"}),
            );
        } else if text.contains([':', '/']) {
            self.custom(name, "Secret name cannot contain colon or forward slash.");
        }
        text
    }

    pub(super) fn custom(&mut self, name: &str, message: &str) {
        self.issue(name, json!({"code": "custom", "message": message}));
    }

    /// A value as it is kept: without outer whitespace, but with one newline at the end if it ended with one.
    pub(super) fn value(&mut self) -> Option<String> {
        let text = self.raw("secretValue")?;
        let end = if text.ends_with('\n') { "\n" } else { "" };
        Some(format!("{}{end}", trimmed(&text)))
    }

    /// Something that is kept as it comes.
    pub(super) fn any(&self, name: &str) -> Option<Value> {
        self.members.get(name).cloned()
    }

    /// The members of a list that must not be empty.
    pub(super) fn list<T>(&mut self, name: &str, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let items = match self.members.get(name) {
            Some(Value::Array(items)) => items.clone(),
            other => {
                let received = other.map_or("undefined", kind);
                let wrong =
                    json!({"code": "invalid_type", "expected": "array", "received": received, "message": "Required"});
                self.issue(name, wrong);
                return Vec::new();
            }
        };
        if items.is_empty() {
            self.issue(
                name,
                json!({"code": "too_small", "minimum": 1, "message": "Array must contain at least 1 element(s)"}),
            );
        }
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let mut inner = Self::of(item);
            inner.at = self.at.clone();
            inner.at.extend([name.into(), index.into()]);
            all.push(read(&mut inner));
            self.issues.append(&mut inner.issues);
        }
        all
    }

    /// Refuses if anything was wrong.
    pub(super) fn checked(&mut self) -> Result<(), VaultReply> {
        match std::mem::take(&mut self.issues) {
            issues if issues.is_empty() => Ok(()),
            issues => Err(VaultReply::failure(422, "ValidationFailure", issues)),
        }
    }
}

/// Without what JavaScript takes for outer whitespace.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|letter: char| letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}'))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_trimmed_as_the_vendor_trims_them() {
        let kept = |text: &str| Reader::of(&json!({ "secretValue": text })).value();
        for (text, expected) in [
            (" a b ", "a b"),
            ("a\n\n", "a\n"),
            ("\na", "a"),
            ("a \n", "a\n"),
            ("\u{feff}a\u{85}", "a\u{85}"),
            ("\n", "\n"),
        ] {
            assert_eq!(kept(text).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut reader = Reader::of(&json!({"environment": 3, "secrets": [{"secretKey": "a/b"}]}));
        reader.required("projectId");
        reader.required("environment");
        reader.list("secrets", |secret| secret.secret_name("secretKey", None));
        let refusal = reader.checked().unwrap_err().body.unwrap();
        let paths: Vec<String> =
            refusal["message"].as_array().unwrap().iter().map(|issue| issue["path"].to_string()).collect();
        assert_eq!(paths, [r#"["projectId"]"#, r#"["environment"]"#, r#"["secrets",0,"secretKey"]"#]);
    }
}
