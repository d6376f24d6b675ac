//! Certificates and keys.

use std::time::{Duration, SystemTime};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Why, pem};

/// What is known of a certificate.
pub(super) struct Certificate {
    public: Vec<u8>,
    is_authority: bool,
    begins: i64,
    ends: i64,
}

impl Certificate {
    /// Reads PEM, base64 of PEM, or base64 of DER.
    pub(super) fn read(text: &str) -> Result<Self, Why> {
        let der = match pem::unwrapped(text)? {
            Ok(block) if block.label == "CERTIFICATE" => block.content,
            Ok(block) if block.label.ends_with("PRIVATE KEY") => {
                return Err("it is a key, not a certificate".to_owned());
            }
            Ok(_) => return Err("its PEM block is something else than a certificate".to_owned()),
            Err(bytes) => bytes,
        };
        let (rest, certificate) = X509Certificate::from_der(&der).map_err(|_| "it is no certificate")?;
        if !rest.is_empty() {
            return Err("something follows the certificate".to_owned());
        }
        Ok(Self {
            public: certificate.public_key().subject_public_key.data.to_vec(),
            is_authority: certificate.is_ca(),
            begins: certificate.validity().not_before.timestamp(),
            ends: certificate.validity().not_after.timestamp(),
        })
    }

    pub(super) fn check_dates(&self, now: SystemTime) -> Result<(), Why> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let days = |seconds: i64| seconds / 86_400;
        if now > self.ends {
            return Err(format!("it expired {} days ago", days(now - self.ends)));
        }
        if now < self.begins {
            return Err(format!("it is not valid yet, for {} more days: is the clock right?", days(self.begins - now)));
        }
        Ok(())
    }

    pub(super) fn check_authority(&self, now: SystemTime) -> Result<(), Why> {
        if !self.is_authority {
            return Err("it is a certificate, but not that of an authority".to_owned());
        }
        self.check_dates(now)
    }
}

/// The public half of a private key, as certificates hold it. Labels say little: Talos has one of its own for Ed25519, with
/// PKCS#8 inside.
pub(super) fn public_half(text: &str) -> Result<Vec<u8>, Why> {
    let der = match pem::unwrapped(text)? {
        Ok(block) if block.label == "CERTIFICATE" => return Err("it is a certificate, not a key".to_owned()),
        Ok(block) if block.label.starts_with("ENCRYPTED") => return Err("it has a passphrase".to_owned()),
        Ok(block) if block.label == "OPENSSH PRIVATE KEY" => return Err("it is a key for SSH".to_owned()),
        Ok(block) if block.label.ends_with("PRIVATE KEY") => block.content,
        Ok(_) => return Err("its PEM block is something else than a private key".to_owned()),
        Err(bytes) => bytes,
    };
    let ed25519 =
        || Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok().map(|pair| pair.public_key().as_ref().to_vec());
    let ecdsa = || {
        [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING].into_iter().find_map(|kind| {
            let pair = EcdsaKeyPair::from_pkcs8(kind, &der).or_else(|_| EcdsaKeyPair::from_private_key_der(kind, &der));
            pair.ok().map(|pair| pair.public_key().as_ref().to_vec())
        })
    };
    let rsa = || {
        let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der));
        pair.ok().map(|pair| pair.public_key().as_ref().to_vec())
    };
    let public = ed25519().or_else(ecdsa).or_else(rsa);
    public.ok_or_else(|| "it is no Ed25519, ECDSA or RSA key that can be read".to_owned())
}

/// Whether a key is that of a certificate.
pub(super) fn is_pair(certificate: &str, key: &str) -> bool {
    match (Certificate::read(certificate), public_half(key)) {
        (Ok(certificate), Ok(public)) => certificate.public == public,
        _ => false,
    }
}
