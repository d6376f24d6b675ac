//! Whom to believe, at the time that the clock says.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use castle_seams::{Clock, spoken};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// Which certificates are believed where TLS is spoken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trust {
    /// Those of the public authorities.
    PublicRoots,
    /// Those of the public authorities, and those of the authorities in this PEM.
    Authorities(String),
    /// Those of the authorities in this PEM, and no others.
    Only(String),
    /// The one whose DER has this SHA-256, and no other. Neither its name nor who signed it nor its dates matter: whoever
    /// wrote down the fingerprint has seen the certificate itself.
    Fingerprint([u8; 32]),
    /// None is shown: whoever is dialled is in this very process, and TLS is not spoken even where the address says so.
    Plain,
}

impl Trust {
    /// Believes the certificate with this fingerprint, written as everybody writes fingerprints: `AA:BB:…`, 32 pairs.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if it is none.
    pub fn fingerprint(text: &str) -> Result<Self, TrustError> {
        let octets: Option<Vec<u8>> = text.split(':').map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
        let fingerprint = octets.and_then(|octets| <[u8; 32]>::try_from(octets).ok());
        let wrong =
            || TrustError { why: "a fingerprint is 32 pairs of hexadecimal digits with `:` between".to_owned() };
        fingerprint.map(Self::Fingerprint).ok_or_else(wrong)
    }
}

/// Who castle is to a server that asks: a certificate, those that lead to its authority, and its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads both from PEM; the key in PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if one of them is none. Holds nothing of what was given.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Self, TrustError> {
        let wrong = |why: &str| TrustError { why: why.to_owned() };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
        let chain = chain.map_err(|_| wrong("the client's certificate is no PEM"))?;
        if chain.is_empty() {
            return Err(wrong("there is no client's certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| wrong("the client's key is no PEM"))?;
        Ok(Self { chain, key })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// There is no way to judge certificates by what was given.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("no certificate can be judged by what is trusted: {why}")]
pub struct TrustError {
    /// What is wrong. Holds nothing of what was given.
    pub why: String,
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

/// What makes TLS of a connection.
pub(crate) fn connector(
    trust: &Trust,
    identity: Option<&Identity>,
    clock: Arc<dyn Clock>,
) -> Result<TlsConnector, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider.clone(), Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError { why: error.to_string() })?;
    let builder = match trust {
        Trust::PublicRoots => builder.with_root_certificates(public_roots()),
        Trust::Authorities(pem) => builder.with_root_certificates(with_those_in(public_roots(), pem)?),
        Trust::Only(pem) => builder.with_root_certificates(with_those_in(RootCertStore::empty(), pem)?),
        // Where there is no TLS nobody is asked; were there, nobody would be believed.
        Trust::Plain => builder.with_root_certificates(RootCertStore::empty()),
        // What is dangerous about it is judged in `Pinned`.
        Trust::Fingerprint(expected) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { expected: *expected, provider }))
        }
    };
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { chain, key }) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| TrustError { why: format!("the client's certificate and key: {error}") })?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn public_roots() -> RootCertStore {
    RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned())
}

/// These authorities, and those in the PEM.
fn with_those_in(mut roots: RootCertStore, pem: &str) -> Result<RootCertStore, TrustError> {
    let wrong = |why: &dyn fmt::Display| TrustError { why: why.to_string() };
    let mut added = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        // What the parser says may quote what it read, and people mistake the key's file for the certificate's.
        let certificate = certificate.map_err(|_| wrong(&"it is no PEM"))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
        added += 1;
    }
    if added == 0 { Err(wrong(&"there is no certificate in it")) } else { Ok(roots) }
}

/// Believes one certificate.
///
/// That the certificate is the expected one is half of the proof: anyone can send a copy of it. The other half is the
/// signature over this very handshake, which only the holder of the certificate's key can make; rustls asks for it
/// through the two methods about signatures, and they check it as they would for any other certificate.
#[derive(Debug)]
struct Pinned {
    expected: [u8; 32],
    provider: Arc<CryptoProvider>,
}

/// The other end has another certificate.
#[derive(Debug, Error)]
#[error("its certificate has the fingerprint {}, which is not the expected one", shown(.0))]
struct OtherCertificate([u8; 32]);

/// As everybody writes fingerprints: `AA:BB:…`.
fn shown(fingerprint: &[u8; 32]) -> String {
    let octets: Vec<String> = fingerprint.iter().map(|octet| format!("{octet:02X}")).collect();
    octets.join(":")
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let fingerprint: [u8; 32] = Sha256::digest(end_entity).into();
        if fingerprint == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(OtherCertificate(fingerprint)))).into())
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

fn apart(earlier: UnixTime, later: UnixTime) -> String {
    spoken(Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs())))
}

/// What is told of an error: our own judgement without the wrapping that rustls gives it.
pub(crate) fn told(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => format!(
            "its certificate begins to be valid in {} by this machine's clock, which is behind, or the clock it was issued by is ahead (date -u on both)",
            apart(*time, *not_before)
        ),
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => format!(
            "its certificate has not been valid for {} by this machine's clock: it has to be renewed, or this clock is ahead (date -u on both)",
            apart(*not_after, *time)
        ),
        // Said of one that is not valid yet as well.
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "it refuses castle's certificate for its dates: it has expired, or the clocks differ (date -u on both)"
                .to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_that_fails_by_a_date_is_told_as_a_matter_of_clocks() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let bad = |error: CertificateError| told(&rustls::Error::InvalidCertificate(error));
        let early = bad(CertificateError::NotValidYetContext { time: at(1_000), not_before: at(1_000 + 3 * 3600) });
        assert!(early.contains("begins to be valid in 3 h by this machine's clock, which is behind"), "{early}");
        let late = bad(CertificateError::ExpiredContext { time: at(10_000), not_after: at(9_100) });
        assert!(late.contains("has not been valid for 15 min by this machine's clock"), "{late}");
        let refused = told(&rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        assert!(refused.contains("the clocks differ"), "{refused}");
    }
}
