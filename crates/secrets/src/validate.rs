//! Whether a secret is what it should be, told before anything is done with it.
//!
//! Each kind has its shape. Errors name the field of castle.yaml and where its value came from, never anything of the value.
//! Text is taken as it is: only what is known to be base64 loses spaces, tabs and line ends, because YAML folds lines into
//! spaces, and of a token at most one newline at its end is overlooked.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use castle_engine::{Class, Fault, Gate, Verdict};
use castle_seams::{BoxFuture, Clock};
use thiserror::Error;

use crate::Secret;

mod kubeconfig;
mod pem;
mod tokens;
mod x509;

/// What a secret should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An API token of Proxmox: `USER@REALM!NAME=UUID`.
    ProxmoxToken,
    /// The client id of an identity of Infisical.
    InfisicalClientId,
    /// The client secret of an identity of Infisical.
    InfisicalClientSecret,
    /// A token of GitHub.
    GitHubToken,
    /// A private key for SSH, without a passphrase.
    SshKey,
    /// One or more identities of age.
    AgeIdentity,
    /// The certificate of an authority.
    CertificateAuthority,
    /// A certificate of anybody.
    Certificate,
    /// A private key.
    PrivateKey,
    /// A kubeconfig that opens a cluster by itself.
    Kubeconfig,
    /// Text on one line: a password, a token of an unknown kind.
    Line,
}

/// Where a secret belongs, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The field of castle.yaml: `platform.proxmox.token`.
    pub field: String,
    /// What the field refers to: `sops:secrets.enc.yaml#proxmox.token`.
    pub source: String,
}

impl Origin {
    /// The secret of this field, from this source.
    #[must_use]
    pub fn new(field: &str, source: &str) -> Self {
        Self { field: field.to_owned(), source: source.to_owned() }
    }
}

/// A secret is not what it should be. Holds nothing of it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} ({}): {why}", origin.field, origin.source)]
pub struct Invalid {
    /// Which one.
    pub origin: Origin,
    /// What is wrong with it.
    pub why: String,
}

/// Why something is not what it should be, as the rest of a sentence.
type Why = String;

/// What Talos shows in the place of a secret.
const LEFT_OUT: &str = "******";

/// Whether there is no secret at all where one should be.
#[must_use]
pub fn is_absent(secret: &Secret) -> bool {
    matches!(secret.expose().trim(), "" | LEFT_OUT)
}

/// Checks one secret.
///
/// # Errors
///
/// [`Invalid`] if it is not of its kind, or not valid at this time.
pub fn check(kind: Kind, secret: &Secret, origin: &Origin, now: SystemTime) -> Result<(), Invalid> {
    let text = secret.expose();
    let verdict = match kind {
        _ if text.trim().is_empty() => Err("it is empty".to_owned()),
        _ if text.trim() == LEFT_OUT => Err("it is the mark of a secret that was left out, not the secret".to_owned()),
        Kind::ProxmoxToken => tokens::proxmox(text),
        Kind::InfisicalClientId => tokens::client_id(text),
        Kind::InfisicalClientSecret => tokens::client_secret(text),
        Kind::GitHubToken => tokens::github(text),
        Kind::SshKey => tokens::ssh(text),
        Kind::AgeIdentity => tokens::age(text),
        Kind::Line => tokens::line(text).map(|_| ()),
        Kind::Certificate => x509::Certificate::read(text).and_then(|read| read.check_dates(now)),
        Kind::CertificateAuthority => x509::Certificate::read(text).and_then(|read| read.check_authority(now)),
        Kind::PrivateKey => x509::public_half(text).map(|_| ()),
        Kind::Kubeconfig => kubeconfig::check(text, now),
    };
    verdict.map_err(|why| Invalid { origin: origin.clone(), why })
}

/// Checks that a key belongs to a certificate, and both by themselves.
///
/// # Errors
///
/// [`Invalid`] of the certificate or of the key, whichever is wrong; of the key if they are only no pair.
pub fn check_pair(
    certificate: (&Secret, &Origin),
    key: (&Secret, &Origin),
    is_authority: bool,
    now: SystemTime,
) -> Result<(), Invalid> {
    let kind = if is_authority { Kind::CertificateAuthority } else { Kind::Certificate };
    check(kind, certificate.0, certificate.1, now)?;
    check(Kind::PrivateKey, key.0, key.1, now)?;
    let is_pair = x509::is_pair(certificate.0.expose(), key.0.expose());
    let why = || format!("it is not the key of the certificate in {}", certificate.1.field);
    if is_pair { Ok(()) } else { Err(Invalid { origin: key.1.clone(), why: why() }) }
}

/// Something to be checked before a castle is raised.
#[derive(Clone, Debug)]
pub enum Check {
    /// One secret by its kind.
    One(Kind, Secret, Origin),
    /// A certificate and its key; whether the certificate is an authority's.
    Pair {
        /// The certificate.
        certificate: (Secret, Origin),
        /// The key.
        key: (Secret, Origin),
        /// Whether it must be an authority.
        is_authority: bool,
    },
}

impl Check {
    fn verdict(&self, now: SystemTime) -> Result<(), Invalid> {
        match self {
            Self::One(kind, secret, origin) => check(*kind, secret, origin, now),
            Self::Pair { certificate: (certificate, at), key: (key, key_at), is_authority } => {
                check_pair((certificate, at), (key, key_at), *is_authority, now)
            }
        }
    }
}

/// All that is wrong, in the order of the checks.
#[must_use]
pub fn check_all(checks: &[Check], now: SystemTime) -> Vec<Invalid> {
    checks.iter().filter_map(|check| check.verdict(now).err()).collect()
}

/// Opens if every secret is what it should be. Waiting never helps, so it fails at once, with all that is wrong.
pub struct SecretsValid {
    /// What is checked.
    pub checks: Vec<Check>,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
}

impl Gate for SecretsValid {
    type Needs = ();
    type Output = ();

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            let wrong = check_all(&self.checks, self.clock.wall());
            if wrong.is_empty() {
                return Ok(Verdict::Open(()));
            }
            let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            Err(Fault::new(Class::Final, "the secrets of this castle", told.join("; "))
                .next("correct what is named where it comes from: castle check, then run the same again"))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(10)
    }
}

#[cfg(test)]
mod tests;
