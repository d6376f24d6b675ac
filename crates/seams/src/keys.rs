//! Private keys: minting them, and holding them without showing them.

use std::fmt;
use std::num::NonZero;
use std::thread::available_parallelism;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use thiserror::Error;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::BoxFuture;

/// The door to new private keys.
///
/// Apart from [`Entropy`](crate::Entropy) because a key cannot be derived from bytes handed in (the library draws its
/// own) and because RSA takes about a second: whoever runs in virtual time hands out keys minted beforehand.
pub trait KeyMint: Send + Sync {
    /// Mints a new key.
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>>;
}

/// The kinds of keys a castle is made of.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum KeyKind {
    /// Ed25519.
    Ed25519,
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ed25519 => "Ed25519",
            Self::EcdsaP256 => "ECDSA P-256",
            Self::Rsa4096 => "RSA-4096",
        })
    }
}

/// A private key as PKCS#8 (version 1) DER, wiped from memory when dropped.
///
/// It has no `Display`, `Clone` or comparison, and its `Debug` shows the kind alone: the value leaves only through
/// [`PrivateKey::pkcs8_der`], which is easy to search for.
pub struct PrivateKey {
    kind: KeyKind,
    pkcs8_der: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Takes over a key that exists already. The bytes are not checked.
    #[must_use]
    pub fn from_pkcs8_der(kind: KeyKind, pkcs8_der: Zeroizing<Vec<u8>>) -> Self {
        Self { kind, pkcs8_der }
    }

    /// The kind of the key.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The secret itself. Copies are the caller's to wipe.
    #[must_use]
    pub fn pkcs8_der(&self) -> &[u8] {
        &self.pkcs8_der
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum MintError {
    /// The generator failed. It does not say why.
    #[error("cannot mint an {kind} key: the generator failed")]
    Failed {
        /// The kind that was asked for.
        kind: KeyKind,
    },
}

/// So many threads look for an RSA key at the same time, at most.
const SEARCHERS: usize = 4;

/// Mints with the system's randomness, on tokio's pool for blocking work.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemKeyMint;

impl KeyMint for SystemKeyMint {
    fn mint(&self, kind: KeyKind) -> BoxFuture<'_, Result<PrivateKey, MintError>> {
        Box::pin(async move {
            let (found, mut first) = mpsc::channel(SEARCHERS);
            let searchers = match kind {
                KeyKind::Rsa4096 => available_parallelism().map_or(1, NonZero::get).min(SEARCHERS),
                KeyKind::Ed25519 | KeyKind::EcdsaP256 => 1,
            };
            // Never on the runtime's own threads: an RSA key would hold up every connection and timer for a second. How long one
            // takes to be found is chance: the first of several comes much sooner than one does on average.
            for _ in 0..searchers {
                let found = found.clone();
                // Nobody takes what comes too late: it is wiped.
                tokio::task::spawn_blocking(move || found.try_send(generate(kind)));
            }
            drop(found);
            match first.recv().await {
                Some(Ok(pkcs8_der)) => Ok(PrivateKey { kind, pkcs8_der }),
                Some(Err(Unspecified)) | None => Err(MintError::Failed { kind }),
            }
        })
    }
}

/// The library's own buffers are wiped when dropped, so what is returned is the only copy. Version 1 of PKCS#8
/// throughout, also for Ed25519 where the library prefers version 2: OpenSSL does not read that one.
fn generate(kind: KeyKind) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let copy = |der: &[u8]| Zeroizing::new(der.to_vec());
    Ok(match kind {
        KeyKind::Ed25519 => copy(Ed25519KeyPair::generate()?.to_pkcs8v1()?.as_ref()),
        KeyKind::EcdsaP256 => copy(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?.to_pkcs8v1()?.as_ref()),
        KeyKind::Rsa4096 => {
            let der: Pkcs8V1Der<'_> = RsaKeyPair::generate(KeySize::Rsa4096)?.as_der()?;
            copy(der.as_ref())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn mint(kind: KeyKind) -> PrivateKey {
        let key = SystemKeyMint.mint(kind).await.unwrap();
        assert_eq!(key.kind(), kind);
        key
    }

    #[tokio::test]
    async fn ed25519_keys_load_back_and_differ() {
        let (one, two) = (mint(KeyKind::Ed25519).await, mint(KeyKind::Ed25519).await);
        Ed25519KeyPair::from_pkcs8(one.pkcs8_der()).unwrap();
        assert_ne!(one.pkcs8_der(), two.pkcs8_der());
        // SEQUENCE (46 bytes) { INTEGER 0, …: version 1, which every reader knows.
        assert_eq!(one.pkcs8_der()[..5], [0x30, 46, 2, 1, 0]);
    }

    #[tokio::test]
    async fn ecdsa_keys_load_back_and_differ() {
        let (one, two) = (mint(KeyKind::EcdsaP256).await, mint(KeyKind::EcdsaP256).await);
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, one.pkcs8_der()).unwrap();
        assert_ne!(one.pkcs8_der(), two.pkcs8_der());
    }

    #[tokio::test]
    async fn rsa_keys_load_back_with_4096_bits() {
        let key = mint(KeyKind::Rsa4096).await;
        assert_eq!(RsaKeyPair::from_pkcs8(key.pkcs8_der()).unwrap().public_modulus_len() * 8, 4096);
    }

    #[test]
    fn debug_never_shows_the_value() {
        let key = PrivateKey::from_pkcs8_der(KeyKind::Ed25519, Zeroizing::new(b"canary".to_vec()));
        assert_eq!(format!("{key:?}"), "PrivateKey { kind: Ed25519, .. }");
        assert_eq!(key.pkcs8_der(), b"canary");
    }

    #[test]
    fn errors_name_the_kind() {
        let error = MintError::Failed { kind: KeyKind::Rsa4096 };
        assert_eq!(error.to_string(), "cannot mint an RSA-4096 key: the generator failed");
    }
}
