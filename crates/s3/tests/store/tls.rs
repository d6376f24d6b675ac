//! TLS: whom the store trusts, and when.

use std::sync::Arc;

use castle_engine::{Store, StoreErrorKind};
use castle_s3::{ConfigError, S3Config, S3Store};
use castle_testbed::in_virtual_time;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::server::{Refusing, Reply, Server, answer, config, credentials};

/// An authority, and a server with a certificate of it for `name` that ends with the year before `end`.
fn authority(name: &str, end: i32) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();

    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = date_time_ymd(end, 1, 1);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (issuer.pem(), TlsAcceptor::from(Arc::new(server)))
}

fn secure(ca_pem: Option<String>) -> S3Config {
    S3Config { endpoint: "https://s3.example".to_owned(), ca_pem, ..config() }
}

/// What a store that trusts this gets from a server that has that.
fn get(ca_pem: Option<String>, tls: TlsAcceptor) -> Result<Vec<u8>, (StoreErrorKind, String)> {
    in_virtual_time(async |clock| {
        let server = Server::with_tls(clock, Some(tls), |_| answer(200, &[("ETag", "\"1\"")], b"sealed"));
        match server.store_with(&secure(ca_pem)).get("a").await {
            Ok(found) => Ok(found.unwrap().bytes),
            Err(error) => Err((error.kind, error.evidence)),
        }
    })
}

#[test]
fn an_authority_of_ones_own_is_trusted_when_named() {
    let (pem, tls) = authority("s3.example", 2030);
    assert_eq!(get(Some(pem), tls), Ok(b"sealed".to_vec()));
}

#[test]
fn what_cannot_be_trusted_is_refused_before_anything_is_sent() {
    let (_, tls) = authority("s3.example", 2030);
    let (kind, told) = get(None, tls).unwrap_err();
    assert_eq!(kind, StoreErrorKind::Refused);
    assert!(told.contains("UnknownIssuer") && told.contains("ca_pem"), "{told}");

    let (pem, tls) = authority("other.example", 2030);
    assert_eq!(get(Some(pem), tls).unwrap_err().0, StoreErrorKind::Refused);
}

/// Goal: a certificate is judged by the injected clock, which says 2026 in every run.
#[test]
fn a_certificate_is_judged_by_the_clock_of_the_castle() {
    let (pem, tls) = authority("s3.example", 2026);
    let (kind, told) = get(Some(pem), tls).unwrap_err();
    assert_eq!(kind, StoreErrorKind::Refused);
    assert!(told.contains("has not been valid for"), "{told}");
}

#[test]
fn a_server_without_tls_gets_no_request() {
    in_virtual_time(async |clock| {
        let server = Server::new(clock, |_| Reply::Bytes(Vec::new()));
        let store = server.store_with(&secure(None));
        // It waits for the end of a request that never comes.
        assert_eq!(store.get("a").await.unwrap_err().kind, StoreErrorKind::Unavailable);
        assert!(server.asked.lock().unwrap().is_empty());
    });
}

#[test]
fn certificates_that_are_none_are_told_at_once() {
    in_virtual_time(async |clock| {
        for pem in [
            "",
            "planted",
            "-----BEGIN CERTIFICATE-----\nplanted\n-----END CERTIFICATE-----\n",
            "-----BEGIN SOMETHING-----\nAAAA\n-----END SOMETHING-----\n",
        ] {
            let config = secure(Some(pem.to_owned()));
            let error = S3Store::new(&config, credentials(), Arc::new(Refusing), Arc::new(*clock)).unwrap_err();
            assert!(matches!(error, ConfigError::Certificate(_)), "{error}");
            assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
        }
    });
}
