//! TLS by the public authorities and those the operator names, at the time that the clock says.

use std::fmt;
use std::sync::Arc;

use castle_seams::Clock;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio_rustls::TlsConnector;

use super::since_epoch;
use crate::model::ConfigError;

/// Certificates are judged by the clock of the castle and not by one of rustls's own.
struct ClockTime(Arc<dyn Clock>);

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(since_epoch(&*self.0)))
    }
}

/// What makes TLS of a connection.
pub(crate) fn connector(ca_pem: Option<&str>, clock: Arc<dyn Clock>) -> Result<TlsConnector, ConfigError> {
    let wrong = |why: &dyn fmt::Display| ConfigError::Certificate(why.to_string());
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(pem) = ca_pem {
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            // What the parser says may quote what it read, and people mistake the key's file for the certificate's.
            let certificate = certificate.map_err(|_| wrong(&"it is no PEM"))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
            added += 1;
        }
        if added == 0 {
            return Err(wrong(&"there is no certificate in it"));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
