//! Keys and certificates, as Talos makes them.
//!
//! The authorities of a cluster and the certificates of its administrator are written byte for byte as Talos' own generator
//! writes them: names without what it leaves out, its key usages, its order. What varies (serials, key ids, time, keys) comes
//! through the [`Doors`].

mod calendar;
mod certificate;
mod der;
mod key;
mod pem;

use std::fmt;
use std::time::Duration;

use castle_seams::{Clock, Entropy, EntropyError, KeyKind, KeyMint, MintError};
use castle_secrets::Secret;
use thiserror::Error;

pub use calendar::Moment;
pub use certificate::CertificateError;
pub use key::{KeyError, to_pem, to_pkcs8};
pub use pem::PemError;

use certificate::{Certificate, Draft, KeyUsage};
use key::SigningKey;

/// How long an authority is valid.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(87_600);
/// How long Talos lets the certificates of administrators be valid.
pub const YEAR: Duration = Duration::from_hours(8_760);
/// How far the clock of an API server may be behind.
const CLOCK_SKEW: Duration = Duration::from_secs(10);
/// How far the clock of a node may be behind for the Talos API: one that was just started may not know the time yet.
pub(crate) const NODE_CLOCK_SKEW: Duration = Duration::from_hours(1);

/// The doors that making keys and certificates goes through.
#[derive(Clone, Copy)]
pub struct Doors<'d> {
    /// Where keys come from.
    pub mint: &'d dyn KeyMint,
    /// Where serial numbers, key ids, tokens and secrets come from.
    pub entropy: &'d dyn Entropy,
    /// What time it is.
    pub clock: &'d dyn Clock,
}

impl fmt::Debug for Doors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doors")
    }
}

impl Doors<'_> {
    pub(super) fn draw<const N: usize>(&self) -> Result<[u8; N], EntropyError> {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn now(&self) -> Moment {
        Moment::of(self.clock.wall())
    }
}

/// A certificate and its private key, each as PEM.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: Secret,
}

/// The authorities of a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Authority {
    /// Of the Talos API.
    Talos,
    /// Of etcd.
    Etcd,
    /// Of Kubernetes.
    Kubernetes,
    /// Of Kubernetes' aggregation layer.
    Aggregator,
}

/// Why there is no key or certificate.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum PkiError {
    /// There was no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// There was no key.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The key of the authority cannot be used.
    #[error("the key of the authority {0}")]
    AuthorityKey(KeyError),
    /// The certificate of the authority cannot be used.
    #[error("the certificate of the authority {0}")]
    AuthorityCertificate(CertificateError),
    /// A new key cannot be used.
    #[error("the new key {0}")]
    NewKey(#[from] KeyError),
    /// The library could not sign.
    #[error("cannot sign a certificate: the library refused")]
    Signing,
    /// The certificate would be valid for no time, or beyond the calendar.
    #[error("a certificate cannot be valid for that long")]
    Lifetime,
}

/// Makes a new authority. Whatever is random beside its key is drawn before the key is minted.
///
/// # Errors
/// If a door fails.
pub async fn new_authority(authority: Authority, doors: Doors<'_>) -> Result<Credential, PkiError> {
    let (kind, organization) = match authority {
        Authority::Talos => (KeyKind::Ed25519, Some("talos")),
        Authority::Etcd => (KeyKind::EcdsaP256, Some("etcd")),
        Authority::Kubernetes => (KeyKind::EcdsaP256, Some("kubernetes")),
        Authority::Aggregator => (KeyKind::EcdsaP256, None),
    };
    let (serial, key_id) = (doors.draw()?, doors.draw::<20>()?);
    let not_before = doors.now();
    let key = to_pem(&doors.mint.mint(kind).await?)?;
    let signing = SigningKey::from_pem(key.expose())?;
    let name = certificate::name(organization, None);
    let draft = Draft {
        serial,
        issuer: &name,
        subject: &name,
        not_before,
        not_after: not_before.after(AUTHORITY_LIFETIME).ok_or(PkiError::Lifetime)?,
        public: &signing.public().map_err(|_| PkiError::Signing)?,
        extensions: vec![
            certificate::key_usage(KeyUsage::SignatureAndCertificates),
            certificate::for_servers_and_clients(),
            certificate::is_authority(),
            certificate::subject_key_id(&key_id),
        ],
    };
    Ok(Credential { certificate: draft.sign(&signing).map_err(|_| PkiError::Signing)?, key })
}

/// Makes a client certificate for an administrator of the Talos API.
///
/// # Errors
/// If the authority cannot be used, the lifetime cannot be had, or a door fails.
pub async fn new_talos_admin(talos: &Credential, lifetime: Duration, doors: Doors<'_>) -> Result<Credential, PkiError> {
    let subject = certificate::name(Some("os:admin"), None);
    if lifetime.is_zero() {
        return Err(PkiError::Lifetime);
    }
    let not_before = doors.now().before(NODE_CLOCK_SKEW);
    let lifetime = lifetime.saturating_add(NODE_CLOCK_SKEW);
    new_client(talos, KeyKind::Ed25519, &subject, KeyUsage::Signature, (not_before, lifetime), doors).await
}

/// Makes a client certificate for an administrator of Kubernetes.
///
/// # Errors
/// If the authority cannot be used, the lifetime cannot be had, or a door fails.
pub async fn new_kubernetes_admin(
    kubernetes: &Credential,
    lifetime: Duration,
    doors: Doors<'_>,
) -> Result<Credential, PkiError> {
    let subject = certificate::name(Some("system:masters"), Some("admin"));
    let usage = KeyUsage::SignatureAndEncipherment;
    let not_before = doors.now().before(CLOCK_SKEW);
    let lifetime = lifetime.saturating_add(CLOCK_SKEW);
    new_client(kubernetes, KeyKind::EcdsaP256, &subject, usage, (not_before, lifetime), doors).await
}

async fn new_client(
    authority: &Credential,
    kind: KeyKind,
    subject: &[u8],
    usage: KeyUsage,
    (not_before, lifetime): (Moment, Duration),
    doors: Doors<'_>,
) -> Result<Credential, PkiError> {
    let serial = doors.draw()?;
    let issuer = Certificate::from_pem(&authority.certificate).map_err(PkiError::AuthorityCertificate)?;
    let signing = SigningKey::from_pem(authority.key.expose()).map_err(PkiError::AuthorityKey)?;
    let not_after = not_before.after(lifetime).filter(|end| *end > not_before).ok_or(PkiError::Lifetime)?;
    let key = to_pem(&doors.mint.mint(kind).await?)?;
    let mut extensions = vec![certificate::key_usage(usage), certificate::for_clients()];
    extensions.extend(issuer.subject_key_id.as_deref().map(certificate::authority_key_id));
    let draft = Draft {
        serial,
        issuer: &issuer.subject,
        subject,
        not_before,
        not_after,
        public: &SigningKey::from_pem(key.expose())?.public().map_err(|_| PkiError::Signing)?,
        extensions,
    };
    Ok(Credential { certificate: draft.sign(&signing).map_err(|_| PkiError::Signing)?, key })
}

/// What is wrong with a certificate, its key, or the two together.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Flaw {
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(CertificateError),
    /// The key cannot be read.
    #[error(transparent)]
    Key(KeyError),
    /// The key is another's.
    #[error("does not belong to the certificate")]
    Mismatch,
    /// The certificate may not issue others.
    #[error("is not the certificate of an authority")]
    NoAuthority,
    /// The certificate is too old.
    #[error("expired on {0}")]
    Expired(Moment),
    /// The certificate is too new.
    #[error("is not valid before {0}")]
    NotYetValid(Moment),
}

impl Flaw {
    /// Whether it is the key that is wrong, rather than the certificate.
    #[must_use]
    pub fn is_of_key(self) -> bool {
        matches!(self, Self::Key(_) | Self::Mismatch)
    }
}

/// Everything that is wrong with what should be the certificate and the key of an authority. Either may be absent; then only the
/// other is looked at.
#[must_use]
pub fn flaws(certificate: Option<&str>, key: Option<&Secret>, now: Moment) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let certificate = certificate
        .and_then(|text| Certificate::from_pem(text).map_err(|error| flaws.push(Flaw::Certificate(error))).ok());
    let key =
        key.and_then(|text| SigningKey::from_pem(text.expose()).map_err(|error| flaws.push(Flaw::Key(error))).ok());
    let Some(certificate) = certificate else { return flaws };
    if key.is_some_and(|key| key.public().ok().as_ref() != Some(&certificate.public)) {
        flaws.push(Flaw::Mismatch);
    }
    if !certificate.is_authority {
        flaws.push(Flaw::NoAuthority);
    }
    if certificate.not_after < now {
        flaws.push(Flaw::Expired(certificate.not_after));
    }
    if certificate.not_before > now {
        flaws.push(Flaw::NotYetValid(certificate.not_before));
    }
    flaws
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

impl Validity {
    /// That of a certificate in DER; nothing if it cannot be read.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let Certificate { not_before, not_after, .. } = Certificate::from_der(der)?;
        Some(Self { from: not_before, until: not_after })
    }
}

/// Whether a text is a private key that can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check_key(text: &Secret) -> Result<(), KeyError> {
    SigningKey::from_pem(text.expose()).map(|_| ())
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
