//! A SOPS file whose values are in clear, in memory.

use std::time::SystemTime;

use castle_seams::Entropy;
use zeroize::Zeroizing;

use super::cipher::{DataKey, Nonces};
use super::config::{Layout, Policy};
use super::encrypt::{encrypt, wrapped};
use super::error::{Problem, SopsError};
use super::metadata::{Group, Metadata};
use super::path::{KeyPath, Part};
use super::sealed::{RESERVED, put_metadata};
use super::tree::{Item, Kind, Node, Value};
use super::{Format, dotenv, json, moment, yaml};
use crate::Secret;

/// How many paths an error names.
const SHOWN_PATHS: usize = 8;

/// A SOPS file whose values are in clear, in memory.
pub struct Opened {
    name: String,
    format: Format,
    documents: Vec<Node>,
    metadata: Metadata,
    key: DataKey,
    nonces: Nonces,
    layout: Layout,
}

/// Who can read a file now, and could not before; and the other way round.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyChange {
    /// Who can read it from now on.
    pub added: Vec<String>,
    /// For whom it is not encrypted any more. They may have kept the data key: rotate it.
    pub removed: Vec<String>,
}

impl Opened {
    pub(super) fn new(
        name: String,
        format: Format,
        documents: Vec<Node>,
        metadata: Metadata,
        key: DataKey,
        nonces: Nonces,
    ) -> Self {
        Self { name, format, documents, metadata, key, nonces, layout: Layout::default() }
    }

    /// A new file of what is in clear, for those whom `policy` names.
    ///
    /// # Errors
    /// It cannot be read, is encrypted already, or there is nobody to encrypt for.
    pub fn fresh(
        name: &str,
        format: Format,
        clear: &[u8],
        policy: &Policy,
        entropy: &dyn Entropy,
    ) -> Result<Self, SopsError> {
        let fresh = || {
            let documents = parse_clear(format, clear)?;
            let key = DataKey::draw(entropy)?;
            let groups = wrapped(&policy.groups, policy.threshold()?, &key, entropy)?;
            let threshold = if groups.len() > 1 { policy.threshold()?.into() } else { 0 };
            let metadata = Metadata::new(groups, threshold, policy.rule.clone(), policy.mac_only_encrypted);
            let mut opened = Self::new(name.to_owned(), format, documents, metadata, key, Nonces::default());
            opened.layout = policy.layout;
            Ok(opened)
        };
        fresh().map_err(|problem: Problem| problem.of(name))
    }

    /// The documents of a file that is in clear.
    ///
    /// # Errors
    /// It cannot be read, or is encrypted already.
    pub fn read_clear(name: &str, format: Format, clear: &[u8]) -> Result<Vec<Node>, SopsError> {
        parse_clear(format, clear).map_err(|problem| problem.of(name))
    }

    /// Written with this indentation from now on.
    #[must_use]
    pub fn laid_out(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// What it is written in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its documents.
    #[must_use]
    pub fn documents(&self) -> &[Node] {
        &self.documents
    }

    /// Everyone who can read it, in public words.
    #[must_use]
    pub fn recipients(&self) -> Vec<String> {
        self.metadata.recipients()
    }

    /// What is at `path`: in the first document that has it.
    ///
    /// # Errors
    /// There is nothing there.
    pub fn find(&self, path: &KeyPath) -> Result<&Node, SopsError> {
        self.documents.iter().find_map(|document| document.find(path)).ok_or_else(|| {
            let known: Vec<String> = self.documents.iter().flat_map(Node::paths).map(|path| path.to_string()).collect();
            let wanted = path.to_string();
            let suggestions = near(&wanted, &known);
            Problem::Missing { path: wanted, suggestions }.of(&self.name)
        })
    }

    /// The single value at `path`, as text.
    ///
    /// # Errors
    /// There is none, or it is not text.
    pub fn get(&self, path: &KeyPath) -> Result<Secret, SopsError> {
        let node = self.find(path)?;
        let Node::Value(value) = node else {
            let paths = node.paths();
            let holds = paths.iter().take(SHOWN_PATHS).map(|below| {
                let mut whole = path.parts().to_vec();
                whole.extend_from_slice(below.parts());
                KeyPath::from(whole).to_string()
            });
            return Err(Problem::NotSingle { path: path.to_string(), holds: holds.collect() }.of(&self.name));
        };
        let text = value.str().ok_or_else(|| Problem::NotText(path.to_string()).of(&self.name))?;
        Ok(Secret::from(if value.kind == Kind::Bool { text.to_ascii_lowercase() } else { text.to_owned() }))
    }

    /// Puts a value at `path`: in the first document that has it, else in the first of all.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn set(&mut self, path: &KeyPath, value: Value) -> Result<(), SopsError> {
        let place = self.documents.iter().position(|document| document.find(path).is_some()).unwrap_or(0);
        let refused = Problem::NoPlace(path.to_string()).of(&self.name);
        let is_reserved = |part: &Part| matches!(part, Part::Key(key) if is_reserved(self.format, key));
        if path.parts().first().is_none_or(is_reserved) || (self.format == Format::Dotenv && path.parts().len() > 1) {
            return Err(refused);
        }
        let document = self.documents.get_mut(place);
        if document.is_some_and(|document| document.put(path.parts(), Node::Value(value))) {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// Puts other content in its place, in clear and in the file's own format.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn replace(&mut self, clear: &[u8]) -> Result<(), SopsError> {
        self.documents = parse_clear(self.format, clear).map_err(|problem| problem.of(&self.name))?;
        Ok(())
    }

    /// All of it in clear, as `format`.
    ///
    /// # Errors
    /// The format has no way to say it.
    pub fn clear(&self, format: Format) -> Result<Zeroizing<Vec<u8>>, SopsError> {
        written(format, &self.documents, self.layout).map_err(|problem| problem.of(&self.name))
    }

    /// The file, encrypted, modified now. What was not changed keeps its ciphertext.
    ///
    /// # Errors
    /// There is no randomness, or the format has no way to say it.
    pub fn seal(&mut self, now: SystemTime, entropy: &dyn Entropy) -> Result<Vec<u8>, SopsError> {
        self.metadata.modified = moment::stamp(now);
        self.seal_unmodified(entropy)
    }

    /// The file, encrypted, with the time of its last modification as it was.
    fn seal_unmodified(&mut self, entropy: &dyn Entropy) -> Result<Vec<u8>, SopsError> {
        let mut seal = || {
            let mut documents = self.documents.clone();
            let mut nonces = self.nonces.clone();
            let mac = encrypt(&mut documents, &self.metadata, &self.key, &mut nonces, entropy)?;
            let context = self.metadata.mac_context()?;
            self.metadata.mac = self.key.seal("str", &mac, &context, &mut nonces, entropy)?;
            put_metadata(self.format, &mut documents, &self.metadata);
            let format = if self.format == Format::Binary { Format::Json } else { self.format };
            written(format, &documents, self.layout).map(|bytes| bytes.to_vec())
        };
        seal().map_err(|problem: Problem| problem.of(&self.name))
    }

    /// A new data key, wrapped anew for everyone: all ciphertext changes, the values do not.
    ///
    /// # Errors
    /// Someone cannot be wrapped for.
    pub fn rotate(&mut self, entropy: &dyn Entropy) -> Result<(), SopsError> {
        let rotate = || {
            self.refuse_foreign()?;
            let key = DataKey::draw(entropy)?;
            let names = |group: &Group| group.age.iter().map(|wrapped| wrapped.recipient.clone()).collect();
            let recipients: Vec<Vec<String>> = self.metadata.groups.iter().map(names).collect();
            let threshold = u8::try_from(self.metadata.needed()).unwrap_or(u8::MAX);
            Ok((wrapped(&recipients, threshold, &key, entropy)?, key))
        };
        let (groups, key) = rotate().map_err(|problem: Problem| problem.of(&self.name))?;
        (self.metadata.groups, self.key, self.nonces) = (groups, key, Nonces::default());
        Ok(())
    }

    /// Wraps the same data key for those whom `policy` names, and gives the file; none if nothing changes. Whoever was among the
    /// recipients and is not any more may have kept the data key.
    ///
    /// # Errors
    /// Someone cannot be wrapped for.
    pub fn update_keys(
        &mut self,
        policy: &Policy,
        entropy: &dyn Entropy,
    ) -> Result<Option<(KeyChange, Vec<u8>)>, SopsError> {
        let before = self.recipients();
        let update = || {
            self.refuse_foreign()?;
            let threshold = policy.threshold()?;
            let same =
                |(group, names): (&Group, &Vec<String>)| group.age.iter().map(|wrapped| &wrapped.recipient).eq(names);
            let unchanged = self.metadata.groups.len() == policy.groups.len()
                && self.metadata.groups.iter().zip(&policy.groups).all(same)
                && (policy.groups.len() == 1 || self.metadata.needed() == usize::from(threshold));
            if unchanged {
                return Ok(None);
            }
            let mut groups = wrapped(&policy.groups, threshold, &self.key, entropy)?;
            // Of a single group, those who stay keep what they have.
            if let ([alone], [old]) = (groups.as_mut_slice(), self.metadata.groups.as_slice()) {
                for entry in &mut alone.age {
                    if let Some(kept) = old.age.iter().find(|kept| kept.recipient == entry.recipient) {
                        entry.armored.clone_from(&kept.armored);
                    }
                }
            }
            let threshold = if groups.len() > 1 { usize::from(threshold) } else { 0 };
            Ok(Some((groups, threshold)))
        };
        let Some((groups, threshold)) = update().map_err(|problem: Problem| problem.of(&self.name))? else {
            return Ok(None);
        };
        (self.metadata.groups, self.metadata.threshold) = (groups, threshold);
        let after = self.recipients();
        let only =
            |these: &[String], others: &[String]| these.iter().filter(|name| !others.contains(name)).cloned().collect();
        let change = KeyChange { added: only(&after, &before), removed: only(&before, &after) };
        Ok(Some((change, self.seal_unmodified(entropy)?)))
    }

    fn refuse_foreign(&self) -> Result<(), Problem> {
        self.metadata.foreign().map_or(Ok(()), |services| Err(Problem::Foreign(services)))
    }
}

/// What is in clear, which must not claim to be encrypted.
fn parse_clear(format: Format, clear: &[u8]) -> Result<Vec<Node>, Problem> {
    let mut documents = format.parse(clear, false)?;
    if documents.is_empty() {
        documents.push(Node::Map(Vec::new()));
    }
    // In whichever document: what is written has the metadata in all of them.
    let keys =
        documents.iter().flat_map(|document| if let Node::Map(items) = document { items.as_slice() } else { &[] });
    let mut keys = keys.filter_map(|item| if let Item::Entry { key, .. } = item { Some(key) } else { None });
    if keys.any(|key| is_reserved(format, key)) { Err(Problem::AlreadyEncrypted) } else { Ok(documents) }
}

/// Whether a key of a document is kept for the metadata.
fn is_reserved(format: Format, key: &str) -> bool {
    match format {
        Format::Dotenv => key.starts_with(dotenv::PREFIX),
        _ => key == RESERVED,
    }
}

fn written(format: Format, documents: &[Node], layout: Layout) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let single = || match documents {
        [single] => Ok(single),
        _ => Err(Problem::Unwritable {
            path: "---".to_owned(),
            format: format.name(),
            why: "the file has several documents, which YAML alone can hold",
        }),
    };
    match format {
        Format::Yaml => Ok(yaml::write(documents, layout.yaml)),
        Format::Json => json::write(single()?, layout.json),
        Format::Dotenv => dotenv::write(single()?),
        Format::Binary => match single()?.get("data") {
            Some(Node::Value(value)) => Ok(value.bytes.clone()),
            _ => Err(Problem::Unwritable {
                path: "data".to_owned(),
                format: format.name(),
                why: "a binary file has one value, `data`",
            }),
        },
    }
}

/// The path that looks most like the wanted one; if none does, the first few.
fn near(wanted: &str, known: &[String]) -> Vec<String> {
    let best = known.iter().map(|path| (strsim::damerau_levenshtein(wanted, path), path)).min();
    match best {
        Some((distance, path)) if distance <= wanted.chars().count().div_ceil(3) => vec![path.clone()],
        _ => known.iter().take(SHOWN_PATHS).cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
