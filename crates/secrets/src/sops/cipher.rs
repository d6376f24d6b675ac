//! One encrypted value: `ENC[AES256_GCM,data:...,iv:...,tag:...,type:...]`.

use std::collections::BTreeMap;

use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::aead::generic_array::typenum::{U12, U16, U32};
use aes_gcm::aes::Aes256;
use aes_gcm::{AeadInPlace, AesGcm, KeyInit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use castle_seams::{Entropy, EntropyError};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const NONCE_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const START: &str = "ENC[AES256_GCM,data:";

/// The key that all values of one file are encrypted with.
#[derive(Clone)]
pub(super) struct DataKey {
    bytes: Zeroizing<[u8; 32]>,
    cipher: Box<AesGcm<Aes256, U32>>,
}

/// A value that was encrypted: its type, and its bytes.
pub(super) struct Plain {
    pub(super) kind: String,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// The nonces that values were found with, by what they hide: an unchanged value keeps its ciphertext. Equal values of a list
/// have one each, in their order.
#[derive(Clone, Default)]
pub(super) struct Nonces {
    /// In the order in which they were found, or sorted by what they hide: then those that hide the same in that order.
    found: Vec<([u8; 32], [u8; NONCE_BYTES])>,
    is_sorted: bool,
    /// How many were taken of those that hide the same.
    taken: BTreeMap<[u8; 32], usize>,
}

impl Nonces {
    /// Files are opened far more often than written: what is found is only noted.
    fn note(&mut self, print: [u8; 32], nonce: [u8; NONCE_BYTES]) {
        self.found.push((print, nonce));
        self.is_sorted = false;
    }

    /// The next nonce for a value that was there before. The last one may be taken again: it hides the same.
    fn next(&mut self, print: &[u8; 32]) -> Option<[u8; NONCE_BYTES]> {
        if !self.is_sorted {
            self.found.sort_by_key(|(print, _)| *print);
            self.is_sorted = true;
        }
        let first = self.found.partition_point(|(known, _)| known < print);
        let alike = &self.found[first..self.found.partition_point(|(known, _)| known <= print)];
        let (_, last) = alike.last()?;
        let taken = self.taken.entry(*print).or_default();
        *taken += 1;
        Some(alike.get(*taken - 1).map_or(*last, |(_, nonce)| *nonce))
    }
}

/// Whether a text is ciphertext.
pub(super) fn is_ciphertext(text: &str) -> bool {
    text.starts_with(START)
}

impl DataKey {
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = Zeroizing::new(<[u8; 32]>::try_from(bytes).ok()?);
        let cipher = Box::new(AesGcm::new(GenericArray::from_slice(bytes.as_slice())));
        Some(Self { bytes, cipher })
    }

    pub(super) fn draw(entropy: &dyn Entropy) -> Result<Self, EntropyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        entropy.fill(bytes.as_mut_slice())?;
        let cipher = Box::new(AesGcm::new(GenericArray::from_slice(bytes.as_slice())));
        Ok(Self { bytes, cipher })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// What a ciphertext hides, if nothing of it or around it was changed.
    pub(super) fn open(&self, text: &str, context: &str, nonces: &mut Nonces) -> Option<Plain> {
        let (data, rest) = text.strip_prefix(START)?.split_once(",iv:")?;
        let (nonce, rest) = rest.split_once(",tag:")?;
        let (tag, kind) = rest.split_once(",type:")?;
        let kind = kind.strip_suffix(']')?;
        let decode = |text: &str| BASE64_STANDARD.decode(text).ok();
        let mut bytes = Zeroizing::new(decode(data)?);
        let (nonce, tag) = (decode(nonce)?, decode(tag)?);
        if tag.len() != TAG_BYTES {
            return None;
        }
        let (tag, context_bytes) = (GenericArray::from_slice(&tag), context.as_bytes());
        let key = GenericArray::from_slice(self.bytes.as_slice());
        let opened = match nonce.len() {
            NONCE_BYTES => {
                self.cipher.decrypt_in_place_detached(GenericArray::from_slice(&nonce), context_bytes, &mut bytes, tag)
            }
            // Other programs have written these.
            12 => AesGcm::<Aes256, U12>::new(key).decrypt_in_place_detached(
                GenericArray::from_slice(&nonce),
                context_bytes,
                &mut bytes,
                tag,
            ),
            16 => AesGcm::<Aes256, U16>::new(key).decrypt_in_place_detached(
                GenericArray::from_slice(&nonce),
                context_bytes,
                &mut bytes,
                tag,
            ),
            _ => return None,
        };
        opened.ok()?;
        if let Ok(nonce) = nonce.try_into() {
            nonces.note(print(kind, &bytes, context), nonce);
        }
        Some(Plain { kind: kind.to_owned(), bytes })
    }

    /// A ciphertext: the same as before for a value that was there before.
    pub(super) fn seal(
        &self,
        kind: &str,
        bytes: &[u8],
        context: &str,
        nonces: &mut Nonces,
        entropy: &dyn Entropy,
    ) -> Result<String, EntropyError> {
        let nonce = match nonces.next(&print(kind, bytes, context)) {
            Some(nonce) => nonce,
            None => {
                let mut nonce = [0; NONCE_BYTES];
                entropy.fill(&mut nonce)?;
                nonce
            }
        };
        let mut data = Zeroizing::new(bytes.to_vec());
        let tag =
            self.cipher.encrypt_in_place_detached(GenericArray::from_slice(&nonce), context.as_bytes(), &mut data);
        // Fails for more than 64 GiB alone, and no file is that long.
        let tag = tag.map_err(|_| EntropyError { bytes: NONCE_BYTES })?;
        let [data, nonce, tag] = [&data[..], &nonce, &tag].map(|part| BASE64_STANDARD.encode(part));
        Ok(format!("{START}{data},iv:{nonce},tag:{tag},type:{kind}]"))
    }
}

fn print(kind: &str, bytes: &[u8], context: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [kind.as_bytes(), context.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(bytes);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use castle_seams::SystemEntropy;

    use super::*;

    #[test]
    fn a_value_opens_in_its_place_alone() {
        let key = DataKey::draw(&SystemEntropy).unwrap();
        let mut nonces = Nonces::default();
        let sealed = key.seal("str", b"hunter2", "a:b:", &mut nonces, &SystemEntropy).unwrap();
        assert!(is_ciphertext(&sealed));
        let plain = key.open(&sealed, "a:b:", &mut nonces).unwrap();
        assert_eq!((plain.kind.as_str(), plain.bytes.as_slice()), ("str", &b"hunter2"[..]));
        assert!(key.open(&sealed, "a:c:", &mut nonces).is_none());
        assert!(key.open(&sealed.replace("data:", "data:A"), "a:b:", &mut nonces).is_none());
        assert!(DataKey::draw(&SystemEntropy).unwrap().open(&sealed, "a:b:", &mut nonces).is_none());
        assert_eq!(
            key.seal("str", b"hunter2", "a:b:", &mut nonces, &SystemEntropy).unwrap(),
            sealed,
            "it keeps its ciphertext"
        );
        assert_ne!(key.seal("str", b"hunter3", "a:b:", &mut nonces, &SystemEntropy).unwrap(), sealed);
    }

    #[test]
    fn equal_values_keep_their_own_ciphertexts() {
        let key = DataKey::draw(&SystemEntropy).unwrap();
        let seal = |nonces: &mut Nonces| key.seal("str", b"same", "a:", nonces, &SystemEntropy).unwrap();
        let sealed: Vec<String> = (0..3).map(|_| seal(&mut Nonces::default())).collect();
        let mut nonces = Nonces::default();
        for text in &sealed {
            key.open(text, "a:", &mut nonces).unwrap();
        }
        let again: Vec<String> = (0..4).map(|_| seal(&mut nonces)).collect();
        assert_eq!(again[..3], sealed, "in their order");
        assert_eq!(again[3], sealed[2], "one more hides the same as the last");
    }

    #[test]
    fn what_is_no_ciphertext_does_not_open() {
        let key = DataKey::new(&[7; 32]).unwrap();
        for text in ["", "x", "ENC[AES256_GCM,data:", "ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]"] {
            assert!(key.open(text, ":", &mut Nonces::default()).is_none(), "{text}");
        }
        assert!(DataKey::new(&[7; 31]).is_none());
    }
}
