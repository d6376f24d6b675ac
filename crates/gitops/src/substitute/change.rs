//! What an expression does to the value of its variable.

use regex::Regex;

#[derive(Clone, Debug)]
pub(super) enum Change {
    None,
    Lower,
    Upper,
    LowerFirst,
    UpperFirst,
    /// From a place, so many bytes of it.
    Part(String, Option<String>),
    ShortestPrefix(String),
    LongestPrefix(String),
    ShortestSuffix(String),
    LongestSuffix(String),
    ReplaceFirst(String, Option<String>),
    ReplaceAll(String, Option<String>),
    ReplacePrefix(String, Option<String>),
    ReplaceSuffix(String, Option<String>),
}

impl Change {
    pub(super) fn apply(&self, value: &str) -> String {
        let first = |change: fn(char) -> String| {
            let mut rest = value.chars();
            rest.next().map_or_else(String::new, |first| change(first) + rest.as_str())
        };
        match self {
            Self::Lower => value.to_lowercase(),
            Self::Upper => value.to_uppercase(),
            Self::LowerFirst => first(|c| c.to_lowercase().collect()),
            Self::UpperFirst => first(|c| c.to_uppercase().collect()),
            Self::Part(from, length) => part(value, from, length.as_deref()),
            Self::ShortestPrefix(pattern) => trimmed(value, pattern, true),
            Self::LongestPrefix(pattern) => trimmed(value, pattern, false),
            Self::ShortestSuffix(pattern) => reversed(&trimmed(&reversed(value), &reversed(pattern), true)),
            Self::LongestSuffix(pattern) => reversed(&trimmed(&reversed(value), &reversed(pattern), false)),
            Self::ReplaceFirst(what, by) => value.replacen(what, by.as_deref().unwrap_or_default(), 1),
            Self::ReplaceAll(what, by) => value.replace(what, by.as_deref().unwrap_or_default()),
            Self::ReplacePrefix(what, Some(by)) => {
                value.strip_prefix(what).map_or_else(|| value.to_owned(), |rest| format!("{by}{rest}"))
            }
            Self::ReplaceSuffix(what, Some(by)) => {
                value.strip_suffix(what).map_or_else(|| value.to_owned(), |rest| format!("{rest}{by}"))
            }
            Self::None | Self::ReplacePrefix(_, None) | Self::ReplaceSuffix(_, None) => value.to_owned(),
        }
    }
}

fn part(value: &str, from: &str, length: Option<&str>) -> String {
    let total = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let Ok(from) = from.parse::<i64>() else { return value.to_owned() };
    let start = if from < 0 { (total + from).max(0) } else { from };
    let end = match length.map(str::parse::<i64>) {
        None => total,
        Some(Err(_)) => return value.to_owned(),
        Some(Ok(length)) if length < 0 => total + length,
        Some(Ok(length)) => start.saturating_add(length).min(total),
    };
    let place = |at: i64| usize::try_from(at).unwrap_or(usize::MAX);
    if start > end { String::new() } else { value.get(place(start)..place(end)).unwrap_or_default().to_owned() }
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// The value without what a pattern matches at its beginning, as little or as much as possible, never nothing.
fn trimmed(value: &str, pattern: &str, shortest: bool) -> String {
    let Some(pattern) = glob(pattern) else { return value.to_owned() };
    let ends: Vec<usize> = value.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
    let matches = |end: &&usize| pattern.is_match(&value[..**end]);
    let end = if shortest { ends.iter().find(matches) } else { ends.iter().rev().find(matches) };
    end.map_or_else(|| value.to_owned(), |end| value[*end..].to_owned())
}

/// A pattern with `*`, `?` and `[...]`.
fn glob(pattern: &str) -> Option<Regex> {
    let mut expression = "(?s)^".to_owned();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => expression += ".*",
            '?' => expression.push('.'),
            '[' => {
                expression.push('[');
                for c in chars.by_ref() {
                    expression.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '\\' => expression += &regex::escape(&chars.next()?.to_string()),
            c => expression += &regex::escape(&c.to_string()),
        }
    }
    Regex::new(&(expression + "$")).ok()
}
