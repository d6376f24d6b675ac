//! Whether a webhook's server is who it should be, and in which words an API server says that it is not.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;

use crate::kubernetes::kube::stamp;

/// Whom a configuration trusts, and by which name it calls.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// The `caBundle`, as it stands in the configuration.
    pub(crate) bundle: String,
    /// The name that the certificate has to be for.
    pub(crate) name: String,
    /// What the calendar says.
    pub(crate) now: SystemTime,
}

impl Trust {
    /// Judges what a server shows.
    pub(crate) fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let told = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
        let stranger = || told("certificate signed by unknown authority");
        let [own, between @ ..] = chain else { return Err(stranger()) };
        let mut roots = RootCertStore::empty();
        let bundle = STANDARD.decode(&self.bundle).unwrap_or_default();
        for authority in CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok) {
            // An authority that cannot be read vouches for nobody.
            let _ = roots.add(authority);
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let Ok(verifier) = verifier.build() else { return Err(stranger()) };
        let Ok(name) = ServerName::try_from(self.name.as_str()) else { return Err(stranger()) };
        let since = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let verified = verifier.verify_server_cert(own, between, &name, &[], UnixTime::since_unix_epoch(since));
        let Err(error) = verified else { return Ok(()) };
        let (not_before, not_after) = times(own);
        Err(match error {
            rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
                let text = format!("current time {} is after {}", stamp(since), stamp(not_after));
                told(&format!("certificate has expired or is not yet valid: {text}"))
            }
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => {
                let text = format!("current time {} is before {}", stamp(since), stamp(not_before));
                told(&format!("certificate has expired or is not yet valid: {text}"))
            }
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => told(&other_names(own, &self.name)),
            rustls::Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            ) => told("certificate specifies an incompatible key usage"),
            _ => stranger(),
        })
    }
}

fn times(certificate: &CertificateDer<'_>) -> (Duration, Duration) {
    let since = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    x509_parser::parse_x509_certificate(certificate).map_or((Duration::ZERO, Duration::ZERO), |(_, parsed)| {
        let validity = parsed.validity();
        (since(validity.not_before.timestamp()), since(validity.not_after.timestamp()))
    })
}

/// What is told of a certificate that is for somebody else.
fn other_names(certificate: &CertificateDer<'_>, wanted: &str) -> String {
    let parsed = x509_parser::parse_x509_certificate(certificate).ok();
    let extension =
        parsed.as_ref().and_then(|(_, parsed)| parsed.subject_alternative_name().ok().flatten().map(|it| it.value));
    let names = extension.map(|it| it.general_names.as_slice()).unwrap_or_default();
    let is_address = wanted.parse::<std::net::IpAddr>().is_ok();
    let mut told: Vec<String> = Vec::new();
    for name in names {
        match name {
            GeneralName::DNSName(name) if !is_address => told.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) if is_address => told.extend(address(bytes)),
            _ => {}
        }
    }
    let mut text = String::new();
    if told.is_empty() && is_address {
        let _ = write!(text, "cannot validate certificate for {wanted} because it doesn't contain any IP SANs");
    } else if told.is_empty() {
        let _ = write!(text, "certificate is not valid for any names, but wanted to match {wanted}");
    } else {
        let _ = write!(text, "certificate is valid for {}, not {wanted}", told.join(", "));
    }
    text
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    let sixteen = || <[u8; 16]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
    four.or_else(|_| sixteen()).ok()
}

/// Judges within a handshake as [`Trust`] does, and keeps the words.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) trust: Trust,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain: Vec<CertificateDer<'_>> = std::iter::once(own).chain(between).cloned().collect();
        self.trust.judge(&chain).map(|()| ServerCertVerified::assertion()).map_err(rustls::Error::General)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &default_provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &default_provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
