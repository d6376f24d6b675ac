//! Private keys as Talos keeps them: PEM under labels of its own.

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA512, RsaKeyPair,
};
use castle_seams::{KeyKind, PrivateKey};
use castle_secrets::Secret;
use thiserror::Error;
use zeroize::Zeroizing;

use super::der::{Reader, tag};
use super::pem::{self, PemError};

/// PKCS#8 inside. Nobody but Talos uses this label.
const ED25519: &str = "ED25519 PRIVATE KEY";
/// SEC1 inside.
const EC: &str = "EC PRIVATE KEY";
/// PKCS#1 inside.
const RSA: &str = "RSA PRIVATE KEY";
/// PKCS#8 inside, of any kind.
const ANY: &str = "PRIVATE KEY";

/// Why a text is not a key that can be used.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum KeyError {
    /// It is not one PEM block.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The PEM block is something else.
    #[error("is not a private key")]
    Label,
    /// The key is damaged, or of a kind that is not used.
    #[error("is not an Ed25519, ECDSA P-256 or RSA key that can be read")]
    Content,
}

/// A private key that can sign.
pub(super) enum SigningKey {
    Ed25519(Ed25519KeyPair),
    EcdsaP256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// Reads a key under any of the labels that Talos reads.
    pub(super) fn from_pem(text: &str) -> Result<Self, KeyError> {
        let (label, content) = pem::decode(text)?;
        let key = match label {
            ED25519 => Ed25519KeyPair::from_pkcs8(&content).map(Self::Ed25519),
            EC => EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &content).map(Self::EcdsaP256),
            RSA => RsaKeyPair::from_der(&content).map(Self::Rsa),
            ANY => Ed25519KeyPair::from_pkcs8(&content)
                .map(Self::Ed25519)
                .or_else(|_| EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &content).map(Self::EcdsaP256))
                .or_else(|_| RsaKeyPair::from_pkcs8(&content).map(Self::Rsa)),
            _ => return Err(KeyError::Label),
        };
        key.map_err(|_| KeyError::Content)
    }

    /// What a certificate says about the key's public half.
    pub(super) fn public(&self) -> Result<Vec<u8>, Unspecified> {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Ed25519(pair) => pair.public_key().as_der()?,
            Self::EcdsaP256(pair) => pair.public_key().as_der()?,
            Self::Rsa(pair) => pair.public_key().as_der()?,
        };
        Ok(der.as_ref().to_vec())
    }

    /// What a certificate says about the signatures of this key.
    pub(super) fn algorithm(&self) -> &'static [u8] {
        match self {
            Self::Ed25519(_) => &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70],
            Self::EcdsaP256(_) => &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
            Self::Rsa(_) => &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13, 5, 0],
        }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        // The library draws its own randomness and does not use what it is handed.
        let unused = SystemRandom::new();
        match self {
            Self::Ed25519(pair) => Ok(pair.try_sign(message)?.as_ref().to_vec()),
            Self::EcdsaP256(pair) => Ok(pair.sign(&unused, message)?.as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA512, &unused, message, &mut signature)?;
                Ok(signature)
            }
        }
    }

    fn pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        let copy = |der: &[u8]| Zeroizing::new(der.to_vec());
        Ok(match self {
            Self::Ed25519(pair) => copy(pair.to_pkcs8v1()?.as_ref()),
            Self::EcdsaP256(pair) => copy(pair.to_pkcs8v1()?.as_ref()),
            Self::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der()?;
                copy(der.as_ref())
            }
        })
    }
}

/// A minted key as Talos keeps keys of its kind.
///
/// # Errors
/// If the mint gave something that is not a key of that kind.
pub fn to_pem(key: &PrivateKey) -> Result<Secret, KeyError> {
    let pkcs8 = key.pkcs8_der();
    let text = match key.kind() {
        KeyKind::Ed25519 => {
            Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|_| KeyError::Content)?;
            pem::encode(ED25519, pkcs8)
        }
        KeyKind::EcdsaP256 => {
            let pair =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).map_err(|_| KeyError::Content)?;
            let sec1: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().map_err(|_| KeyError::Content)?;
            pem::encode(EC, sec1.as_ref())
        }
        KeyKind::Rsa4096 => {
            RsaKeyPair::from_pkcs8(pkcs8).map_err(|_| KeyError::Content)?;
            pem::encode(RSA, inside_pkcs8(pkcs8).ok_or(KeyError::Content)?)
        }
    };
    Ok(text.into())
}

/// A key of Talos as PKCS#8 (version 1), which every library reads.
///
/// # Errors
/// If the text is not a key that can be used.
pub fn to_pkcs8(text: &Secret) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    SigningKey::from_pem(text.expose())?.pkcs8().map_err(|_| KeyError::Content)
}

/// The key inside of its PKCS#8 envelope: for RSA, that is PKCS#1.
fn inside_pkcs8(pkcs8: &[u8]) -> Option<&[u8]> {
    let mut fields = Reader::new(Reader::new(pkcs8).expect(tag::SEQUENCE)?.content);
    fields.expect(tag::INTEGER)?;
    fields.expect(tag::SEQUENCE)?;
    Some(fields.expect(tag::OCTETS)?.content)
}
