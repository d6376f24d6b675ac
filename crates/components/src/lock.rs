//! `castle.lock`: which manifest of each component a castle has.

use std::collections::BTreeMap;
use std::fmt::Write;

use castle_spec::values::ComponentVersion;
use castle_spec::{ComponentName, WantedComponent};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::digest::is_digest;
use crate::pins::upstream;
use crate::source::{Entry, Source};

/// The name of the file, beside castle.yaml.
pub const FILE: &str = "castle.lock";

/// No lock file is longer.
pub const MAX_BYTES: u64 = 64 << 10;

const HEAD: &str = "\
# Which manifests castle installs in this castle's cluster, and what their bytes must be.
# Written by `castle lock`. Keep it in git: castle uses nothing that differs from it.
schema: 1
components:";

/// All that is pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// By component.
    pub entries: BTreeMap<ComponentName, Entry>,
}

/// Why a text is no lock file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("castle.lock, line {line}: {why}")]
pub struct LockError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

/// Why a lock file is not the one that a castle needs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Stale {
    /// A component is not in it.
    #[error("{0} is not in castle.lock")]
    Missing(ComponentName),
    /// It pins another version.
    #[error("castle.yaml wants {0} {1}, castle.lock pins {2}")]
    Version(ComponentName, ComponentVersion, ComponentVersion),
    /// It pins another source.
    #[error("castle.yaml has {0} from {1}, castle.lock from {2}")]
    Source(ComponentName, String, String),
    /// The file beside castle.yaml is not the one that is pinned.
    #[error("{0}: {1} has changed since it was pinned")]
    Changed(ComponentName, String),
    /// It pins what castle does not install.
    #[error("castle.lock pins {0}, which castle does not install here")]
    Surplus(ComponentName),
}

impl Lock {
    /// Reads a lock file.
    ///
    /// # Errors
    ///
    /// [`LockError`] with the line, if it is none.
    pub fn read(text: &str) -> Result<Self, LockError> {
        let at = |line: usize, why: &str| LockError { line, why: why.to_owned() };
        let documents = castle_yaml::parse(text).map_err(|error| at(error.line, &error.kind.to_string()))?;
        let [document] = documents.as_slice() else { return Err(at(1, "it must be one document")) };
        let Some(root) = document.as_object() else { return Err(at(1, "it must be a mapping")) };
        if root.get("schema").and_then(Value::as_u64) != Some(1) {
            return Err(at(line_of(text, &["schema"]), "castle reads `schema: 1` alone; a newer castle may read this"));
        }
        if let Some(key) = root.keys().find(|key| !["schema", "components"].contains(&key.as_str())) {
            return Err(at(line_of(text, &[key]), "unknown key: `schema` and `components` are known"));
        }
        let empty = Map::new();
        let components = match root.get("components") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(components)) => components,
            Some(_) => return Err(at(line_of(text, &["components"]), "`components` must be a mapping")),
        };
        let mut lock = Self::default();
        for (word, value) in components {
            let path = ["components", word.as_str()];
            let name = ComponentName::of_word(word).ok_or_else(|| {
                let known: Vec<&str> = ComponentName::ALL.map(ComponentName::word).to_vec();
                at(line_of(text, &path), &format!("no such component; known: {}", known.join(", ")))
            })?;
            lock.entries.insert(name, entry(text, word, value)?);
        }
        Ok(lock)
    }

    /// The text of the lock file: the same for the same pins, byte for byte.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = HEAD.to_owned();
        if self.entries.is_empty() {
            text += " {}\n";
            return text;
        }
        text.push('\n');
        for (name, Entry { version, source, sha256 }) in &self.entries {
            let source = Value::String(source.to_string());
            let source = castle_yaml::emit_for_kubernetes(&source);
            let source = source.trim_end();
            let _ = write!(text, "  {name}:\n    version: {version}\n    source: {source}\n    sha256: {sha256}\n");
        }
        text
    }

    /// How it differs from what a castle needs that wants these components. Looks at no file.
    #[must_use]
    pub fn stale(&self, wanted: &[WantedComponent]) -> Vec<Stale> {
        let installed: Vec<&WantedComponent> = wanted.iter().filter(|wanted| wanted.is_castles()).collect();
        let mut stale: Vec<Stale> = Vec::new();
        for want in &installed {
            let Some(entry) = self.entries.get(&want.name) else {
                stale.push(Stale::Missing(want.name));
                continue;
            };
            if entry.version != want.version {
                stale.push(Stale::Version(want.name, want.version.clone(), entry.version.clone()));
            }
            let is_from = match (&want.source, &entry.source) {
                (Some(file), Source::File(pinned)) => file == pinned,
                (None, Source::Url(_) | Source::Mirror(_)) => true,
                _ => false,
            };
            if !is_from {
                let from = want
                    .source
                    .as_ref()
                    .map_or_else(|| upstream(want.name, &want.version), |file| Source::File(file.clone()).to_string());
                stale.push(Stale::Source(want.name, from, entry.source.to_string()));
            }
        }
        let surplus = self.entries.keys().filter(|name| installed.iter().all(|want| want.name != **name));
        stale.extend(surplus.map(|name| Stale::Surplus(*name)));
        stale
    }
}

fn entry(text: &str, word: &str, value: &Value) -> Result<Entry, LockError> {
    const KEYS: [&str; 3] = ["version", "source", "sha256"];
    let wrong = |keys: &[&str], why: String| {
        let path: Vec<&str> = ["components", word].into_iter().chain(keys.iter().copied()).collect();
        LockError { line: line_of(text, &path), why }
    };
    let Some(entries) = value.as_object() else { return Err(wrong(&[], format!("`{word}` must be a mapping"))) };
    if let Some(key) = entries.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(wrong(&[key], format!("unknown key: {} are known", KEYS.join(", "))));
    }
    let told = |key: &str| match entries.get(key).and_then(Value::as_str) {
        Some(told) => Ok(told),
        None if entries.contains_key(key) => Err(wrong(&[key], format!("the {key} of {word} must be text"))),
        None => Err(wrong(&[], format!("the {key} of {word} is missing"))),
    };
    let version =
        told("version")?.parse().map_err(|why| wrong(&["version"], format!("the version of {word}: {why}")))?;
    let source = told("source")?.parse().map_err(|why| wrong(&["source"], format!("the source of {word} {why}")))?;
    let sha256 = told("sha256")?;
    if !is_digest(sha256) {
        return Err(wrong(&["sha256"], format!("the sha256 of {word} must be 64 hexadecimal digits in lower case")));
    }
    Ok(Entry { version, source, sha256: sha256.to_owned() })
}

/// The line of a key: the first that begins with it below the line of the key before. As far down the path as there are lines.
fn line_of(text: &str, path: &[&str]) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut line = 0;
    for key in path {
        let is_key = |text: &str| {
            let text = text.trim_start().trim_start_matches(['"', '\'']);
            text.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
        };
        let Some(found) = lines.iter().skip(line).position(|text| is_key(text)) else { break };
        line += found + 1;
    }
    line.max(1)
}

#[cfg(test)]
mod tests;
