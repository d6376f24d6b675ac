//! A SOPS file as it lies there.

use std::path::Path;

use castle_seams::{Disk, DiskErrorKind};
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

use super::cipher::{DataKey, Nonces, Plain, is_ciphertext};
use super::error::{Problem, SopsError};
use super::identity::Keyring;
use super::metadata::Metadata;
use super::opened::Opened;
use super::rule::{Spot, walk};
use super::tree::{Item, Kind, Node, Value};
use super::{Format, MAX_FILE_BYTES, dotenv, shamir};

/// The key of the metadata, which no file may use for itself.
pub(super) const RESERVED: &str = "sops";

/// A SOPS file as it lies there: who can read it is known, what it holds is not.
#[derive(Clone, Debug)]
pub struct Sealed {
    name: String,
    format: Format,
    documents: Vec<Node>,
    metadata: Metadata,
}

impl Sealed {
    /// Reads the file at `path`, its format being told by its name.
    ///
    /// # Errors
    /// It cannot be read, or is no SOPS file.
    pub fn load(path: &Path, disk: &dyn Disk) -> Result<Self, SopsError> {
        let name = path.display().to_string();
        let format = Format::of(path)?;
        let bytes = disk.read(path, MAX_FILE_BYTES).map_err(|error| {
            match error.kind {
                DiskErrorKind::TooLarge { .. } => Problem::TooLarge { limit_bytes: MAX_FILE_BYTES },
                _ => Problem::Disk(error),
            }
            .of(&name)
        })?;
        Self::read(&name, format, &bytes)
    }

    /// Reads a file that is in memory; `name` is what errors call it.
    ///
    /// # Errors
    /// It is no SOPS file.
    pub fn read(name: &str, format: Format, bytes: &[u8]) -> Result<Self, SopsError> {
        let read = || {
            let mut documents = format.parse(bytes, true)?;
            let metadata = take_metadata(format, &mut documents).ok_or(Problem::NotEncrypted)?;
            Ok((documents, Metadata::read(&metadata)?))
        };
        let (documents, metadata) = read().map_err(|problem: Problem| problem.of(name))?;
        Ok(Self { name: name.to_owned(), format, documents, metadata })
    }

    /// Everyone who can read it, in public words.
    #[must_use]
    pub fn recipients(&self) -> Vec<String> {
        self.metadata.recipients()
    }

    /// Opens it: every value in its place, and the MAC over all of them, are verified.
    ///
    /// # Errors
    /// No identity opens it, or something of it was changed.
    pub fn open(self, keyring: &mut Keyring<'_>) -> Result<Opened, SopsError> {
        let Self { name, format, mut documents, metadata } = self;
        let mut open = || {
            let key = data_key(&metadata, keyring)?;
            let mut nonces = Nonces::default();
            // Before 3.13 sops took every number of JSON for a float.
            let as_floats = (format == Format::Json).then(|| mac_hash(&metadata));
            let macs = decrypt(&mut documents, &metadata, (&key, &mut nonces), as_floats)?;
            let mac = key.open(&metadata.mac, &metadata.mac_context()?, &mut nonces);
            if !mac.is_some_and(|mac| macs.iter().flatten().any(|known| *known == *mac.bytes)) {
                return Err(Problem::Mac);
            }
            Ok((key, nonces))
        };
        match open() {
            Ok((key, nonces)) => Ok(Opened::new(name, format, documents, metadata, key, nonces)),
            Err(problem) => Err(problem.of(&name)),
        }
    }
}

fn data_key(metadata: &Metadata, keyring: &mut Keyring<'_>) -> Result<DataKey, Problem> {
    let groups = &metadata.groups;
    let key = if let [alone] = groups.as_slice() {
        keyring.unwrap(alone)
    } else {
        let mut shares = Vec::new();
        for group in groups {
            if shares.len() < metadata.needed() {
                shares.extend(keyring.unwrap(group));
            }
        }
        if shares.len() >= metadata.needed() { shamir::combine(&shares) } else { None }
    };
    let Some(key) = key else {
        let (tried_identities, mut remarks) = (keyring.tried(), keyring.remarks().to_vec());
        if groups.len() > 1 {
            remarks.push(format!("it takes {} of its {} key groups", metadata.needed(), groups.len()));
        }
        return Err(Problem::NoKey {
            recipients: metadata.recipients(),
            tried_identities,
            remarks,
            in_vain: keyring.in_vain(),
        });
    };
    DataKey::new(&key).ok_or_else(|| Problem::Metadata("the data key in it has the wrong length".to_owned()))
}

/// Takes the metadata out of all documents; that of the first counts.
fn take_metadata(format: Format, documents: &mut [Node]) -> Option<Node> {
    if format == Format::Dotenv {
        return documents.first_mut().and_then(dotenv::take_metadata);
    }
    let mut found = None;
    for (number, document) in documents.iter_mut().enumerate() {
        let Node::Map(items) = document else { continue };
        let is_metadata = |item: &Item| matches!(item, Item::Entry { key, .. } if key == RESERVED);
        while let Some(place) = items.iter().position(is_metadata) {
            if let (Item::Entry { node, .. }, 0, None) = (items.remove(place), number, &found) {
                found = Some(node);
            }
        }
    }
    found
}

/// Puts the metadata into all documents.
pub(super) fn put_metadata(format: Format, documents: &mut [Node], metadata: &Metadata) {
    let map = metadata.write(format != Format::Binary);
    for document in documents {
        let Node::Map(items) = document else { continue };
        if format == Format::Dotenv {
            items.extend(dotenv::flatten(&map));
        } else {
            items.push(Item::entry(RESERVED, map.clone()));
        }
    }
}

/// The hash that the MAC is made with: what one sort of file hashes never equals what the other does.
pub(super) fn mac_hash(metadata: &Metadata) -> Sha512 {
    let mut hash = Sha512::new();
    if metadata.mac_only_encrypted {
        hash.update(Sha256::digest(b"sops"));
    }
    hash
}

/// The hash as it is kept.
pub(super) fn mac_text(hash: Sha512) -> Vec<u8> {
    hash.finalize().iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect()
}

/// Decrypts in place; gives what the MAC may be: of the values as they are, and with whole numbers as floats if that hash is given.
fn decrypt(
    documents: &mut [Node],
    metadata: &Metadata,
    (key, nonces): (&DataKey, &mut Nonces),
    mut as_floats: Option<Sha512>,
) -> Result<[Option<Vec<u8>>; 2], Problem> {
    let mut exact = mac_hash(metadata);
    let rule = metadata.rule.clone().unwrap_or_default();
    for document in documents {
        walk(document, &rule, &mut |spot| {
            let is_encrypted = spot.is_encrypted;
            let Some(value) = decrypt_one(spot, key, nonces)? else { return Ok(()) };
            if is_encrypted || !metadata.mac_only_encrypted {
                exact.update(&*value.bytes);
                if let Some(as_floats) = &mut as_floats {
                    as_floats.update(&*as_float(value).bytes);
                }
            }
            Ok(())
        })?;
    }
    Ok([Some(mac_text(exact)), as_floats.map(mac_text)])
}

/// Decrypts one item in its place; gives the value that takes part in the MAC.
fn decrypt_one<'t>(spot: Spot<'t>, key: &DataKey, nonces: &mut Nonces) -> Result<Option<&'t Value>, Problem> {
    let at = spot.at();
    let Spot { item, context, is_encrypted, in_list, way } = spot;
    if let Item::Comment(text) = item {
        // A comment that does not open was never encrypted, as older versions of sops left them.
        if let Some(plain) = is_encrypted.then(|| open_comment(text, context, key, nonces)).flatten() {
            *text = plain;
        }
        return Ok(None);
    }
    let Item::Entry { node: Node::Value(value), .. } = &*item else { return Ok(None) };
    if is_encrypted && !(value.kind == Kind::Text && value.bytes.is_empty()) {
        let Some(text) = value.str().filter(|text| value.kind == Kind::Text && is_ciphertext(text)) else {
            return Err(Problem::Clear { path: way.told(), at });
        };
        let tampered = || Problem::Tampered { path: way.told(), at };
        let plain = key.open(text, context, nonces).ok_or_else(tampered)?;
        if plain.kind == "comment" && in_list {
            let text = std::str::from_utf8(&plain.bytes).map_err(|_| tampered())?;
            *item = Item::Comment(Zeroizing::new(text.to_owned()));
            return Ok(None);
        }
        let plain = typed(plain).ok_or_else(tampered)?;
        if let Item::Entry { node, .. } = item {
            *node = Node::Value(plain);
        }
    }
    let Item::Entry { node, .. } = item else { return Ok(None) };
    Ok(node.value())
}

/// What a comment hides. It may have wandered to a neighbouring level, which nobody promises it does not.
fn open_comment(text: &str, context: &str, key: &DataKey, nonces: &mut Nonces) -> Option<Zeroizing<String>> {
    if !is_ciphertext(text) {
        return None;
    }
    let mut context = context;
    let plain = loop {
        match key.open(text, context, nonces) {
            Some(plain) => break plain,
            None if context == ":" => return None,
            None => {
                let above = context[..context.len() - 1].rfind(':');
                context = above.map_or(":", |end| &context[..=end]);
            }
        }
    };
    std::str::from_utf8(&plain.bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
}

/// A decrypted value of the type that it says it has.
fn typed(plain: Plain) -> Option<Value> {
    let text = std::str::from_utf8(&plain.bytes).ok();
    Some(match plain.kind.as_str() {
        "str" | "bytes" => Value { kind: Kind::Text, bytes: plain.bytes },
        "int" => Value::new(Kind::Integer, text?.parse::<i64>().ok()?.to_string()),
        "float" => Value::float(text?.parse().ok()?),
        "bool" => match text? {
            "True" | "true" | "TRUE" | "T" | "t" | "1" => Value::bool(true),
            "False" | "false" | "FALSE" | "F" | "f" | "0" => Value::bool(false),
            _ => return None,
        },
        "time" => Value::new(Kind::Time, text?),
        _ => return None,
    })
}

/// A whole number as a float has it, and anything else as it is.
fn as_float(value: &Value) -> std::borrow::Cow<'_, Value> {
    match value.str().map(str::parse::<f64>) {
        Some(Ok(number)) if value.kind == Kind::Integer => std::borrow::Cow::Owned(Value::float(number)),
        _ => std::borrow::Cow::Borrowed(value),
    }
}
