//! Who calls, by the certificate that was presented.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::ParsedExtension;

/// The header that tells the certificate where there is no TLS: base64 of its DER. Where there is TLS, the session fills it.
pub const CERTIFICATE_HEADER: &str = "castle-client-certificate";

/// Why a certificate is not accepted, as TLS tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// There is none.
    Missing,
    /// Nobody known has signed it.
    Unknown,
    /// Its time is over, or has not come.
    Expired,
    /// It is for something else.
    Usage,
}

impl Distrust {
    /// The alert of TLS.
    pub(crate) fn alert(self) -> &'static str {
        match self {
            Self::Missing => "tls: certificate required",
            Self::Unknown => "tls: unknown certificate authority",
            Self::Expired => "tls: expired certificate",
            Self::Usage => "tls: bad certificate",
        }
    }
}

/// Whom a certificate names: organizations, and the common name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) organizations: Vec<String>,
    pub(crate) common_name: String,
}

/// Judges a client's certificate: signed by one of these, in its time, and for clients.
pub(crate) fn judge(
    certificate: Option<&CertificateDer<'_>>,
    authorities: &[CertificateDer<'static>],
    now: SystemTime,
) -> Result<Named, Distrust> {
    let certificate = certificate.ok_or(Distrust::Missing)?;
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        // An authority that cannot be read vouches for nobody.
        let _ = roots.add(authority.clone());
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|_| Distrust::Unknown)?;
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let verified = verifier.verify_client_cert(certificate, &[], UnixTime::since_unix_epoch(since));
    verified.map_err(|error| match error {
        rustls::Error::InvalidCertificate(
            rustls::CertificateError::Expired
            | rustls::CertificateError::ExpiredContext { .. }
            | rustls::CertificateError::NotValidYet
            | rustls::CertificateError::NotValidYetContext { .. },
        ) => Distrust::Expired,
        rustls::Error::InvalidCertificate(
            rustls::CertificateError::InvalidPurpose | rustls::CertificateError::InvalidPurposeContext { .. },
        ) => Distrust::Usage,
        _ => Distrust::Unknown,
    })?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| Distrust::Usage)?;
    if !is_for_clients_alone(&parsed) {
        return Err(Distrust::Usage);
    }
    let texts = |values: Vec<Result<&str, _>>| {
        values.into_iter().filter_map(Result::ok).map(Into::into).collect::<Vec<String>>()
    };
    let organizations =
        texts(parsed.subject().iter_organization().map(x509_parser::prelude::AttributeTypeAndValue::as_str).collect());
    let common_name =
        texts(parsed.subject().iter_common_name().map(x509_parser::prelude::AttributeTypeAndValue::as_str).collect());
    Ok(Named { organizations, common_name: common_name.into_iter().next().unwrap_or_default() })
}

/// Whether the extended usage is clients and nothing else.
fn is_for_clients_alone(certificate: &x509_parser::certificate::X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::ExtendedKeyUsage(usage) => {
            let others = usage.any
                || usage.server_auth
                || usage.code_signing
                || usage.email_protection
                || usage.time_stamping
                || usage.ocsp_signing
                || !usage.other.is_empty();
            usage.client_auth && !others
        }
        _ => false,
    })
}
