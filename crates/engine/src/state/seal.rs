//! Sealing: what is stored can be read by its recipients alone, and by none of them be exchanged unnoticed.
//!
//! A sealed record is one line, `castle-state 1 <hmac>`, then a plain age file: `tail -n +2 FILE | age -d -i KEY` opens it. age
//! keeps others from reading; but recipients are public, so anyone could write a record that they can read. The HMAC is made with
//! a key that only earlier records of the same castle hold, inside of what is sealed.

use std::io::{Read, Write};
use std::str::FromStr;
use std::sync::Arc;

use age::x25519;
use bech32::primitives::iter::{ByteIterExt as _, Fe32IterExt as _};
use bech32::{Bech32, Hrp};
use castle_seams::{Entropy, EntropyError};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::id::hex;

const HEAD: &str = "castle-state 1 ";

/// Why something cannot be sealed or opened. Never says what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// There is nobody to seal for.
    #[error("there is no recipient: name at least one age public key (age1...)")]
    NoRecipient,
    /// A recipient is not one.
    #[error("recipient {0} is not an age public key (age1...), nor one of SSH (ssh-ed25519 ..., ssh-rsa ...)")]
    BadRecipient(usize),
    /// An identity is not one.
    #[error("identity {0} is not an age identity (AGE-SECRET-KEY-1...)")]
    BadIdentity(usize),
    /// None of the identities opens it.
    #[error("none of the {count} age identities opens it{}", looked_at(places))]
    WrongKey {
        /// How many there are.
        count: usize,
        /// Where identities were looked for, for people.
        places: Vec<String>,
    },
    /// It is not a sealed record, or not a whole one.
    #[error("it is damaged, or not a sealed record: {0}")]
    Damaged(String),
}

fn looked_at(places: &[String]) -> String {
    if places.is_empty() { String::new() } else { format!(" (looked at {})", places.join("; ")) }
}

/// Opens age files with further keys, which are looked for only once they are needed.
pub trait Locksmith: Send + Sync {
    /// What is in an age file, if any key opens it.
    fn open(&self, age_file: &[u8]) -> Option<Zeroizing<Vec<u8>>>;

    /// Every place that was looked at, for people.
    fn places(&self) -> Vec<String>;
}

/// Who may read, and who reads.
pub struct Seal {
    recipients: Vec<Box<dyn age::Recipient + Send + Sync>>,
    identities: Vec<x25519::Identity>,
    locksmith: Option<Arc<dyn Locksmith>>,
}

/// What an identity of age begins with, as Bech32 has it.
const IDENTITY: Hrp = Hrp::parse_unchecked("age-secret-key-");

impl Seal {
    /// Seals for `recipients`, opens with `identities`.
    ///
    /// # Errors
    ///
    /// If a key is not one; the error names its place in the list, never the key.
    pub fn new(recipients: &[String], identities: &[Zeroizing<String>]) -> Result<Self, SealError> {
        if recipients.is_empty() {
            return Err(SealError::NoRecipient);
        }
        let recipient = |(index, text): (usize, &String)| -> Result<Box<dyn age::Recipient + Send + Sync>, SealError> {
            match (x25519::Recipient::from_str(text), age::ssh::Recipient::from_str(text)) {
                (Ok(recipient), _) => Ok(Box::new(recipient)),
                (_, Ok(recipient)) => Ok(Box::new(recipient)),
                _ => Err(SealError::BadRecipient(index + 1)),
            }
        };
        let identity = |(index, text): (usize, &Zeroizing<String>)| {
            x25519::Identity::from_str(text).map_err(|_| SealError::BadIdentity(index + 1))
        };
        Ok(Self {
            recipients: recipients.iter().enumerate().map(recipient).collect::<Result<_, _>>()?,
            identities: identities.iter().enumerate().map(identity).collect::<Result<_, _>>()?,
            locksmith: None,
        })
    }

    /// Whom to ask for more keys once none of the identities opens a record.
    #[must_use]
    pub fn with_locksmith(self, locksmith: Arc<dyn Locksmith>) -> Self {
        Self { locksmith: Some(locksmith), ..self }
    }

    /// Seals for those who hold `identities`, and opens with them.
    ///
    /// # Errors
    ///
    /// If there is none, or one is not an identity.
    pub fn own(identities: &[Zeroizing<String>]) -> Result<Self, SealError> {
        let public = |(index, text): (usize, &Zeroizing<String>)| {
            let identity = x25519::Identity::from_str(text).map_err(|_| SealError::BadIdentity(index + 1))?;
            Ok(identity.to_public().to_string())
        };
        let recipients: Vec<String> = identities.iter().enumerate().map(public).collect::<Result<_, _>>()?;
        Self::new(&recipients, identities)
    }

    /// A new identity, for who has none.
    ///
    /// # Errors
    ///
    /// If there is no randomness to be had.
    pub fn mint_identity(entropy: &dyn Entropy) -> Result<Zeroizing<String>, EntropyError> {
        let mut drawn = Zeroizing::new([0; 32]);
        entropy.fill(drawn.as_mut_slice())?;
        let letters = drawn.iter().copied().bytes_to_fes();
        let encoded = letters.with_checksum::<Bech32>(&IDENTITY).chars();
        Ok(Zeroizing::new(encoded.map(|letter| letter.to_ascii_uppercase()).collect()))
    }

    /// Holds that what is sealed now can be opened again: to be asked before the first effect, for a state that nobody can read
    /// is a state that is lost.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn prove(&self) -> Result<(), SealError> {
        let key = Zeroizing::new(vec![7; 32]);
        let sealed = self.seal(b"can this be opened again?", &key)?;
        let opened = self.open(&sealed)?;
        opened.verify(&key)?;
        Ok(())
    }

    /// Seals `plain`; `key` is the castle's own, known to its earlier records.
    ///
    /// # Errors
    ///
    /// If that is not possible.
    pub fn seal(&self, plain: &[u8], key: &[u8]) -> Result<Vec<u8>, SealError> {
        let damaged = |error: &dyn std::fmt::Display| SealError::Damaged(error.to_string());
        let recipients = self.recipients.iter().map(|recipient| recipient.as_ref() as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(recipients).map_err(|error| damaged(&error))?;
        let mut body = Vec::new();
        let mut writer = encryptor.wrap_output(&mut body).map_err(|error| damaged(&error))?;
        writer.write_all(plain).map_err(|error| damaged(&error))?;
        writer.finish().map_err(|error| damaged(&error))?;
        let mut sealed = format!("{HEAD}{}\n", hex(&mac(key, &body).finalize().into_bytes())).into_bytes();
        sealed.extend(body);
        Ok(sealed)
    }

    /// Opens what was sealed. Whoever needs to know who sealed it asks [`Opened::verify`].
    ///
    /// # Errors
    ///
    /// If that is not possible.
    pub fn open(&self, sealed: &[u8]) -> Result<Opened, SealError> {
        let no_record = || SealError::Damaged("its first line is not that of a record".to_owned());
        let end = sealed.iter().position(|&byte| byte == b'\n').ok_or_else(no_record)?;
        let head = std::str::from_utf8(&sealed[..end]).map_err(|_| no_record())?;
        let mac = head.strip_prefix(HEAD).ok_or_else(no_record)?.to_owned();
        let body = sealed[end + 1..].to_vec();
        let decryptor = age::Decryptor::new(body.as_slice()).map_err(|error| SealError::Damaged(error.to_string()))?;
        let identities = self.identities.iter().map(|identity| identity as &dyn age::Identity);
        let plain = match decryptor.decrypt(identities) {
            Ok(mut reader) => {
                let mut plain = Zeroizing::new(Vec::with_capacity(body.len()));
                reader.read_to_end(&mut plain).map_err(|error| SealError::Damaged(error.to_string()))?;
                plain
            }
            Err(age::DecryptError::NoMatchingKeys) => self.ask_locksmith(&body)?,
            Err(other) => return Err(SealError::Damaged(other.to_string())),
        };
        Ok(Opened { plain, mac, body })
    }

    fn ask_locksmith(&self, body: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let count = self.identities.len();
        let Some(locksmith) = &self.locksmith else { return Err(SealError::WrongKey { count, places: Vec::new() }) };
        locksmith.open(body).ok_or_else(|| SealError::WrongKey { count, places: locksmith.places() })
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({} recipients, {} identities)", self.recipients.len(), self.identities.len())
    }
}

/// What was sealed.
pub struct Opened {
    /// What was in it.
    pub plain: Zeroizing<Vec<u8>>,
    mac: String,
    body: Vec<u8>,
}

impl Opened {
    /// Holds that whoever sealed this knew the castle's key.
    ///
    /// # Errors
    ///
    /// If they did not.
    pub fn verify(&self, key: &[u8]) -> Result<(), SealError> {
        // Compared as digests of equal length, and what is compared is public: time tells nothing.
        if hex(&mac(key, &self.body).finalize().into_bytes()) == self.mac {
            Ok(())
        } else {
            Err(SealError::Damaged("it was not sealed by this castle".to_owned()))
        }
    }
}

fn mac(key: &[u8], body: &[u8]) -> Hmac<Sha256> {
    let mut mac =
        <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(body);
    mac
}
