//! Whom to believe at a node's address, and who castle is there.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_seams::Clock;
use castle_secrets::Secret;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio_rustls::TlsConnector;
use zeroize::{Zeroize, Zeroizing};

/// The label that Talos writes over Ed25519 keys, and the one that everybody else does: what lies beneath is the same.
const TALOS_LABEL: &str = "ED25519 PRIVATE KEY";
const USUAL_LABEL: &str = "PRIVATE KEY";

/// Who is believed to be the node.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Whoever this castle's authority vouches for, under the name or address that is asked; castle shows who it is.
    Castle {
        /// The certificate of the authority for Talos' own API, as PEM.
        authority: String,
        /// Who castle is.
        identity: Identity,
    },
    /// Whoever answers, as it must be before a node has a configuration; or only whoever has this key.
    Maintenance(Option<Fingerprint>),
    /// Whoever answers first, and nobody else after that: who was found to be the node is the one that gets its configuration.
    FirstMet,
    /// Whoever answers, without TLS: for a node in memory, which is told who castle is, if it is to know.
    Plain(Option<Identity>),
}

impl Trust {
    /// Who castle says that it is, if it does.
    pub(super) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Castle { identity, .. } | Self::Plain(Some(identity)) => Some(identity),
            Self::Maintenance(_) | Self::FirstMet | Self::Plain(None) => None,
        }
    }
}

/// The SHA-256 of the public key of a node in maintenance mode, which it shows on its console.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Reads it as Talos shows it, in base64.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if it is none.
    pub fn parse(text: &str) -> Result<Self, TrustError> {
        let octets = STANDARD.decode(text).ok().and_then(|octets| <[u8; 32]>::try_from(octets).ok());
        octets.map(Self).ok_or_else(|| TrustError::new("a fingerprint of Talos is 32 octets in base64"))
    }

    /// That of the key in this certificate.
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self(Sha256::digest(key.as_ref()).into()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

/// Who castle is to its nodes: a certificate of their authority, and its key.
#[derive(Clone)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// Reads both from PEM. The key may wear the label that Talos gives it.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if one of them is none, or if they do not belong together.
    pub fn from_pem(certificate: &str, key: &Secret) -> Result<Self, TrustError> {
        let chain = certificates(certificate)?;
        let usual = Zeroizing::new(key.expose().replace(TALOS_LABEL, USUAL_LABEL));
        // What the parser says may quote what it read.
        let der = PrivateKeyDer::from_pem_slice(usual.as_bytes()).map_err(|_| TrustError::new("the key is no PEM"));
        let mut der = der?;
        let key = any_supported_type(&der);
        der.zeroize();
        let key = key.map_err(|_| TrustError::new("the key is of no kind that TLS knows"))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| TrustError::new("the key is not that of the certificate"))?;
        Ok(Self(Arc::new(certified)))
    }
}

impl Identity {
    /// The certificate alone, as DER.
    pub(super) fn certificate(&self) -> &[u8] {
        self.0.cert.first().map_or(&[], |certificate| certificate.as_ref())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// There is no way to speak with a node by what was given.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("no node can be judged by what is trusted: {why}")]
pub struct TrustError {
    /// What is wrong. Holds nothing of what was given.
    pub why: String,
}

impl TrustError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

/// What makes TLS of a connection; nothing where there is to be none.
pub(super) fn connector(trust: &Trust, clock: Arc<dyn Clock>) -> Result<Option<TlsConnector>, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider.clone(), Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError::new(error.to_string()))?;
    let mut config = match trust {
        Trust::Plain(_) => return Ok(None),
        Trust::Castle { authority, identity } => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authority)? {
                roots.add(certificate).map_err(|error| TrustError::new(format!("the authority: {error}")))?;
            }
            let shown = SingleCertAndKey::from(identity.0.clone());
            builder.with_root_certificates(roots).with_client_cert_resolver(Arc::new(shown))
        }
        // What is dangerous about it is judged in `Newborn`.
        Trust::Maintenance(_) | Trust::FirstMet => {
            let expected = match trust {
                Trust::Maintenance(Some(fingerprint)) => Expected::Met(OnceLock::from(*fingerprint)),
                Trust::Maintenance(None) => Expected::Anybody,
                _ => Expected::Met(OnceLock::new()),
            };
            let verifier = Newborn { expected, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    };
    // A server of gRPC hangs up on whoever does not say so.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    // People mistake the key's file for the certificate's: nothing of it is told.
    let all = all.map_err(|_| TrustError::new("the certificate is no PEM"))?;
    if all.is_empty() { Err(TrustError::new("there is no certificate")) } else { Ok(all) }
}

/// Certificates are judged by the clock of the castle and not by one of rustls's own.
struct ClockTime(Arc<dyn Clock>);

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        // A calendar before 1970 is as good as none.
        Some(UnixTime::since_unix_epoch(self.0.wall().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

/// Whose key is believed.
#[derive(Debug)]
enum Expected {
    Anybody,
    /// His, once he was met.
    Met(OnceLock<Fingerprint>),
}

/// Believes a node that nobody vouches for yet; only the one with the expected key if there is one.
///
/// Neither the name nor the dates of such a certificate mean anything: the node has made it itself, by a clock that may not be
/// set. That it holds the key is checked by the two methods about signatures, as for any other certificate.
#[derive(Debug)]
struct Newborn {
    expected: Expected,
    provider: Arc<CryptoProvider>,
}

/// Another node answers.
#[derive(Debug, Error)]
#[error("its key has the fingerprint {0}, which is not the expected one")]
struct OtherKey(Fingerprint);

impl ServerCertVerifier for Newborn {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Expected::Met(met) = &self.expected else { return Ok(ServerCertVerified::assertion()) };
        let shown = Fingerprint::of(end_entity)?;
        if shown == *met.get_or_init(|| shown) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(OtherKey(shown)))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
