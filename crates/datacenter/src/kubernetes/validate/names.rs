//! Names, labels, and what they may hold.

use crate::kubernetes::kinds::Resource;

/// What a name must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A label of RFC 1123.
    Label,
    /// A subdomain of RFC 1123.
    Subdomain,
    /// Anything that fits into a path.
    Path,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
     alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with \
     an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
     (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The rule for names of a resource.
pub(crate) fn rule_of(resource: &Resource) -> Rule {
    if resource.custom().is_some() {
        return Rule::Subdomain;
    }
    match resource.qualified().as_str() {
        "namespaces" | "services" => Rule::Label,
        name if name.ends_with(".rbac.authorization.k8s.io") => Rule::Path,
        _ => Rule::Subdomain,
    }
}

fn is_label(text: &str) -> bool {
    let inside = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    inside && first && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// What is wrong with a name.
pub(crate) fn faults(rule: Rule, name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (most, fits, words) = match rule {
        Rule::Label => (63, is_label(name), LABEL),
        Rule::Subdomain => (253, is_subdomain(name), SUBDOMAIN),
        Rule::Path => {
            if [".", ".."].contains(&name) {
                faults.push(format!("may not be '{name}'"));
            }
            for wrong in ['/', '%'].into_iter().filter(|wrong| name.contains(*wrong)) {
                faults.push(format!("may not contain '{wrong}'"));
            }
            return faults;
        }
    };
    if name.len() > most {
        faults.push(format!("must be no more than {most} characters"));
    }
    if !fits {
        faults.push(words.to_owned());
    }
    faults
}

/// What is wrong with the key of a label: `example.com/name`.
pub(crate) fn qualified(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        Some((prefix, name)) if !name.contains('/') => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else if !is_subdomain(prefix) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
            name
        }
        Some(_) => {
            return vec![format!(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        None => key,
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_value(name) || name.is_empty() {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

fn is_value(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!is_value(text)).then(|| VALUE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_rules() {
        assert_eq!(faults(Rule::Subdomain, "a-b.c"), Vec::<String>::new());
        assert!(faults(Rule::Subdomain, "A_b")[0].starts_with("a lowercase RFC 1123 subdomain"));
        assert!(faults(Rule::Label, "a.b")[0].starts_with("a lowercase RFC 1123 label"));
        assert_eq!(faults(Rule::Path, "system:node"), Vec::<String>::new());
        assert_eq!(faults(Rule::Path, "a/b"), ["may not contain '/'"]);
    }

    #[test]
    fn keys_and_values_of_labels_are_judged() {
        assert_eq!(qualified("example.com/name"), Vec::<String>::new());
        assert_eq!(qualified("name"), Vec::<String>::new());
        assert!(!qualified("a b").is_empty() && !qualified("/x").is_empty() && !qualified("").is_empty());
        assert_eq!(label_value(""), None);
        assert_eq!(label_value("a.b_c-1"), None);
        assert!(label_value("-a").is_some() && label_value(&"a".repeat(64)).is_some());
    }
}
