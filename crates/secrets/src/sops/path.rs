//! The way to one value: `a.b[0].c`, or as sops writes it, `["a"]["b"][0]["c"]`.

use std::fmt;
use std::str::FromStr;

/// One step of a way.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Part {
    /// Into a map.
    Key(String),
    /// Into a list, from 0.
    Index(usize),
}

/// The way to a value, from the top of a document.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct KeyPath(Vec<Part>);

impl KeyPath {
    /// Its steps.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }
}

impl From<Vec<Part>> for KeyPath {
    fn from(parts: Vec<Part>) -> Self {
        Self(parts)
    }
}

/// A text is no way to a value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a key path: write `a.b[0]`, or `[\"a\"][\"b\"][0]` for keys with dots or brackets in them")]
pub struct BadPath(String);

impl FromStr for KeyPath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        let parts = if text.starts_with('[') { bracketed(text) } else { dotted(text) };
        parts.filter(|parts| !parts.is_empty()).map(Self).ok_or_else(|| BadPath(text.to_owned()))
    }
}

fn dotted(text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for piece in text.split('.') {
        let (key, indexes) = piece.find('[').map_or((piece, ""), |at| piece.split_at(at));
        if key.is_empty() || key.contains(']') {
            return None;
        }
        parts.push(Part::Key(key.to_owned()));
        if !indexes.is_empty() {
            for index in indexes.strip_prefix('[')?.strip_suffix(']')?.split("][") {
                parts.push(Part::Index(index.parse().ok()?));
            }
        }
    }
    Some(parts)
}

fn bracketed(mut text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let inside = text.strip_prefix('[')?;
        let quote = inside.chars().next().filter(|first| matches!(first, '"' | '\''));
        let end = match quote {
            Some(quote) => {
                let end = format!("{quote}]");
                let (key, rest) = inside[1..].split_once(&end)?;
                parts.push(Part::Key(key.to_owned()));
                rest
            }
            None => {
                let (index, rest) = inside.split_once(']')?;
                parts.push(Part::Index(index.parse().ok()?));
                rest
            }
        };
        text = end;
    }
    Some(parts)
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simple = self.0.iter().enumerate().all(|(place, part)| match part {
            Part::Key(key) => !key.is_empty() && !key.contains(['.', '[', ']']),
            Part::Index(_) => place > 0,
        });
        for (place, part) in self.0.iter().enumerate() {
            match part {
                Part::Index(index) => write!(f, "[{index}]")?,
                Part::Key(key) if !simple => {
                    let quote = if key.contains("\"]") { '\'' } else { '"' };
                    write!(f, "[{quote}{key}{quote}]")?;
                }
                Part::Key(key) if place == 0 => f.write_str(key)?,
                Part::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_written() {
        for (text, shown) in [
            ("a", "a"),
            ("a.b", "a.b"),
            ("a.b[0].c", "a.b[0].c"),
            ("a[0][12]", "a[0][12]"),
            ("[\"a\"][\"b\"][0]['c']", "a.b[0].c"),
            ("[\"a.b\"][1]", "[\"a.b\"][1]"),
            ("['say \"x\"']['y.z']", "[\"say \"x\"\"][\"y.z\"]"),
        ] {
            assert_eq!(text.parse::<KeyPath>().unwrap().to_string(), shown);
        }
        for wrong in ["", ".", "a..b", "a[", "a[x]", "a[0", "a[0]b", "[\"a\"", "[]", "a[-1]", "a]"] {
            assert!(wrong.parse::<KeyPath>().is_err(), "{wrong}");
        }
    }
}
