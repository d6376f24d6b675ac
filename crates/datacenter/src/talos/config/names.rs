//! Labels, annotations and taints of a node: whether Kubernetes would take them, in the vendor's words.

use super::rules::listed;
use super::yaml::Yaml;

/// The entries of a map of texts, by key.
fn entries(value: Option<&Yaml>) -> Vec<(&str, &str)> {
    let entries = value.and_then(Yaml::map).unwrap_or_default().iter();
    let mut entries: Vec<_> = entries.map(|(key, value)| (key.as_str(), value.text().unwrap_or_default())).collect();
    entries.sort_unstable();
    entries
}

fn all(faults: &[String]) -> Option<String> {
    (!faults.is_empty()).then(|| listed(faults))
}

/// What is wrong with labels.
pub(super) fn labels(value: Option<&Yaml>) -> Option<String> {
    let faults = entries(value).into_iter().flat_map(|(key, text)| [name(key), label(text)]);
    all(&faults.flatten().collect::<Vec<_>>())
}

/// What is wrong with annotations.
pub(super) fn annotations(value: Option<&Yaml>) -> Option<String> {
    let reserved = |key: &str| {
        let is_own = ["talos.dev/owned-annotations", "talos.dev/owned-labels", "talos.dev/owned-taints"].contains(&key);
        is_own.then(|| format!("annotation {key:?} is reserved"))
    };
    let faults = entries(value).into_iter().flat_map(|(key, _)| [name(key), reserved(key)]);
    all(&faults.flatten().collect::<Vec<_>>())
}

/// What is wrong with taints.
pub(super) fn taints(value: Option<&Yaml>) -> Option<String> {
    let fault = |(key, text): (&str, &str)| {
        let (value, effect) = text.split_once(':').unwrap_or(("", text));
        let is_known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
        name(key).or_else(|| (!is_known).then(|| format!("invalid taint effect: {effect:?}"))).or_else(|| label(value))
    };
    all(&entries(value).into_iter().filter_map(fault).collect::<Vec<_>>())
}

fn is_named(text: &str) -> bool {
    let is_end = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    is_end(text.chars().next())
        && is_end(text.chars().last())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        is_named(part) && part.chars().all(|letter| !letter.is_ascii_uppercase() && !"_.".contains(letter))
    };
    text.split('.').all(is_part)
}

/// What is wrong with a name that may have a domain before it.
fn name(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let own = match parts.as_slice() {
        ["", _] => return Some(format!("prefix cannot be empty: {key:?}")),
        [domain, _] if domain.len() > 253 => {
            let why = format!("domain name length exceeds limit of 253: {domain:?}");
            return Some(format!("prefix {domain:?} is invalid: {why}"));
        }
        [domain, _] if !is_domain(domain) => {
            return Some(format!("prefix {domain:?} is invalid: domain doesn't match required format: {domain:?}"));
        }
        [own] | [_, own] => own,
        _ => return Some(format!("invalid format: too many slashes: {key:?}")),
    };
    match own.len() {
        0 => Some(format!("name cannot be empty: {key:?}")),
        64.. => Some(format!("name is too long: {key:?} (limit is 63)")),
        _ => (!is_named(own)).then(|| format!("name {own:?} is invalid")),
    }
}

fn label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(format!("label value length exceeds limit of 63: {text:?}"));
    }
    (!text.is_empty() && !is_named(text)).then(|| format!("label value {text:?} is invalid"))
}

#[cfg(test)]
mod tests {
    use super::super::yaml::documents;
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let judged = |judge: fn(Option<&Yaml>) -> Option<String>, text: &str| judge(documents(text).unwrap().first());
        assert_eq!(judged(labels, "{castle.dev/a: b, c: \"\"}"), None);
        let told = judged(labels, "{\"a b\": \"c d\"}").unwrap();
        assert_eq!(told, "2 errors occurred:\n\t* name \"a b\" is invalid\n\t* label value \"c d\" is invalid\n\n");
        assert!(judged(annotations, "{talos.dev/owned-taints: x}").unwrap().contains("is reserved"));
        assert!(judged(annotations, "{a/b/c: \"x y z\"}").unwrap().contains("too many slashes"));
        assert_eq!(judged(taints, "{a: NoSchedule, b: \"x:NoExecute\", c: \":PreferNoSchedule\"}"), None);
        assert!(judged(taints, "{a: Sometimes}").unwrap().contains("invalid taint effect: \"Sometimes\""));
    }
}
