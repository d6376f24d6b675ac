//! Whom the client believes, and when.

use std::sync::Arc;

use castle_http::{Client, Endpoint, Failure, Identity, Trust};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::server::{OK, Server, get};

/// An authority, and a certificate of it.
struct Issued {
    authority: String,
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

/// A certificate for `name` that ends with the year before `end`.
fn issue(name: &str, end: i32) -> Issued {
    issue_for(name, (2020, 1, 1), (end, 1, 1))
}

/// A certificate for `name` that is valid from the one day to the other.
fn issue_for(name: &str, begin: (i32, u8, u8), end: (i32, u8, u8)) -> Issued {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
    params.not_after = date_time_ymd(end.0, end.1, end.2);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Issued { authority: issuer.pem(), pem: certificate.pem(), certificate: certificate.der().clone(), key }
}

impl Issued {
    fn fingerprint(&self) -> Trust {
        Trust::Fingerprint(Sha256::digest(&self.certificate).into())
    }

    /// A server with this certificate, and with that key: another than the certificate's if it is an impostor.
    fn acceptor(&self, key: &KeyPair, version: &'static rustls::SupportedProtocolVersion) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = provider.key_provider.load_private_key(key).unwrap();
        let certified = CertifiedKey::new(vec![self.certificate.clone()], key);
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        TlsAcceptor::from(Arc::new(config))
    }
}

/// What a client that trusts this gets at that address from a server with this TLS. A refusal comes before any request.
fn ask(address: &str, trust: &Trust, tls: TlsAcceptor) -> Result<String, Failure> {
    in_virtual_time(async |clock| {
        let (server, client) = Server { tls: Some(tls), ..Server::saying(clock, OK) }.open(address, trust);
        // Twice, so that it is also seen that a connection with TLS is used again.
        let answers = [client.ask(&get()).await, client.ask(&get()).await];
        let expected: &[usize] = if answers[0].is_ok() { &[1, 1] } else { &[] };
        assert_eq!(server.used(), expected);
        let [first, second] =
            answers.map(|answer| answer.map(|answer| String::from_utf8(answer.body.to_vec()).unwrap()));
        assert_eq!(first, second);
        first
    })
}

fn check(issued: &Issued, trust: &Trust) -> Result<String, Failure> {
    let both = [&rustls::version::TLS12, &rustls::version::TLS13]
        .map(|version| ask("https://h.example:8006", trust, issued.acceptor(&issued.key, version)));
    assert_eq!(both[0], both[1]);
    both[0].clone()
}

fn refused(result: Result<String, Failure>, with: &str) {
    match result {
        Err(Failure::Untrusted(told)) => assert!(told.contains(with), "{told}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_authority_is_believed_when_named() {
    let issued = issue("h.example", 2030);
    assert_eq!(check(&issued, &Trust::Authorities(issued.authority.clone())), Ok("whole".to_owned()));
    refused(check(&issued, &Trust::PublicRoots), "UnknownIssuer");
    refused(check(&issued, &Trust::Authorities(issue("h.example", 2030).authority)), "no TLS with h.example:8006: ");
    let other = issue("other.example", 2030);
    refused(check(&other, &Trust::Authorities(other.authority.clone())), "other.example");
}

#[test]
fn only_the_authority_that_is_named_is_believed() {
    let issued = issue("h.example", 2030);
    assert_eq!(check(&issued, &Trust::Only(issued.authority.clone())), Ok("whole".to_owned()));
    refused(check(&issued, &Trust::Only(issue("h.example", 2030).authority)), "no TLS with h.example:8006: ");
}

/// A server that lets in only whom this authority vouches for.
fn asking(server: &Issued, authority: &str) -> TlsAcceptor {
    use rustls::pki_types::pem::PemObject;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let judge = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(judge.build().unwrap())
        .with_single_cert(vec![server.certificate.clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[test]
fn a_client_shows_who_it_is_where_it_is_asked() {
    let (server, client) = (issue("h.example", 2030), issue("client", 2030));
    let identity = Identity::from_pem(&client.pem, &client.key.serialize_pem()).unwrap();
    let ask_as = |identity: Option<&Identity>, authority: &str| {
        in_virtual_time(async |clock| {
            let tls = asking(&server, authority);
            let trust = Trust::Only(server.authority.clone());
            let (_server, asker) =
                Server { tls: Some(tls), ..Server::saying(clock, OK) }.open("https://h.example:8006", &trust);
            let asker = match identity {
                Some(identity) => asker.with_identity(identity).unwrap(),
                None => asker,
            };
            asker.ask(&get()).await.map(|answer| answer.status.as_u16())
        })
    };
    assert_eq!(ask_as(Some(&identity), &client.authority), Ok(200));
    assert!(ask_as(None, &client.authority).is_err(), "nobody is let in without a certificate");
    assert!(ask_as(Some(&identity), &server.authority).is_err(), "nor with one of somebody else");
    assert!(!format!("{identity:?}").contains("KEY"));
    assert!(Identity::from_pem("", &client.key.serialize_pem()).is_err());
    assert!(Identity::from_pem(&client.pem, "no key").is_err());
    let other = Identity::from_pem(&client.pem, &server.key.serialize_pem()).unwrap();
    in_virtual_time(async |clock| {
        let (_server, asker) = Server::saying(clock, OK).open("https://h.example:8006", &Trust::PublicRoots);
        assert!(asker.with_identity(&other).is_err(), "a key of another certificate");
    });
}

/// Goal: a certificate is judged by the injected clock, which says 21 September 2026 in every run.
#[test]
fn a_certificate_is_judged_by_the_clock_of_the_castle() {
    let judge = |begin, end| {
        let issued = issue_for("h.example", begin, end);
        check(&issued, &Trust::Authorities(issued.authority.clone()))
    };
    assert_eq!(judge((2026, 9, 21), (2026, 9, 22)), Ok("whole".to_owned()));
    refused(judge((2026, 9, 1), (2026, 9, 21)), "has not been valid for");
    refused(judge((2026, 9, 22), (2030, 1, 1)), "begins to be valid in");
}

#[test]
fn an_address_has_certificates_too() {
    let issued = issue("2001:db8::1", 2030);
    let tls = issued.acceptor(&issued.key, &rustls::version::TLS13);
    let trust = Trust::Authorities(issued.authority.clone());
    assert_eq!(ask("https://[2001:db8::1]:8006", &trust, tls), Ok("whole".to_owned()));
}

#[test]
fn the_certificate_of_the_fingerprint_is_believed_whatever_else_it_is() {
    for issued in [issue("h.example", 2030), issue("other.example", 2030), issue("h.example", 2026)] {
        assert_eq!(check(&issued, &issued.fingerprint()), Ok("whole".to_owned()));
    }
}

#[test]
fn any_other_certificate_is_refused_and_its_fingerprint_told() {
    let issued = issue("h.example", 2030);
    let octets: Vec<String> = Sha256::digest(&issued.certificate).iter().map(|octet| format!("{octet:02X}")).collect();
    refused(check(&issued, &issue("h.example", 2030).fingerprint()), &octets.join(":"));
}

/// Goal: who has a copy of the certificate but not its key is not believed.
#[test]
fn a_copy_of_the_certificate_is_not_enough() {
    let issued = issue("h.example", 2030);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let tls = issued.acceptor(&KeyPair::generate().unwrap(), version);
        refused(ask("https://h.example", &issued.fingerprint(), tls), "BadSignature");
    }
}

#[test]
fn what_is_no_tls_gets_no_request() {
    in_virtual_time(async |clock| {
        let (server, client) = Server { greets: b"220 hello\r\n", ..Server::saying(clock, OK) }
            .open("https://h.example", &Trust::PublicRoots);
        refused(client.ask(&get()).await.map(|_| String::new()), "no TLS with h.example:443");
        assert!(server.used().is_empty());
        assert_eq!(clock.monotonic(), std::time::Duration::ZERO);
    });
}

#[test]
fn what_cannot_be_trusted_is_told_at_once_and_not_repeated() {
    in_virtual_time(async |clock| {
        let new = |address: &str, trust: &Trust| {
            let (server, _) = Server::saying(clock, OK).plain();
            let dial = Arc::new(crate::server::Pipe(server));
            Client::new(Endpoint::parse(address).unwrap(), trust, dial, Arc::new(*clock))
        };
        for pem in [
            "",
            "planted",
            "-----BEGIN CERTIFICATE-----\nplanted\n-----END CERTIFICATE-----\n",
            "-----BEGIN SOMETHING-----\nAAAA\n-----END SOMETHING-----\n",
        ] {
            let error = new("https://h.example", &Trust::Authorities(pem.to_owned())).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
        }
        let error = new("http://h.example", &Trust::Fingerprint([0; 32])).unwrap_err();
        assert!(error.why.contains("https://"), "{error}");
    });
}
