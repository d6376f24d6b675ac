//! Who is believed, and who is welcome: real handshakes over pipes, judged by the clock of the test.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_engine::Fault;
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, Target};
use castle_secrets::Secret;
use castle_talos::client::{
    ApplyMode, Contact, Credentials, ErrorClass, Fingerprint, Identity, Presence, Refusal, Trust,
};
use castle_testbed::in_virtual_time;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ED25519, PublicKeyData, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;
use tonic::Code;

use crate::node::Fate;
use crate::serving::{Door, Site, target};

/// A day of the years in which the clock of the tests stands, 21 September 2026.
type Day = (i32, u8, u8);
const LONG_AGO: Day = (2020, 1, 1);
const FAR_OFF: Day = (2036, 1, 1);

/// An authority as every castle has one: of the same name as all others.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Issued {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

fn named(organization: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, organization);
    name
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = named("talos");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn issue(&self, names: &[&str], begin: Day, end: Day, usage: ExtendedKeyUsagePurpose) -> Issued {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = named("os:admin");
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { pem: certificate.pem(), certificate: certificate.der().clone(), key }
    }

    pub(crate) fn server(&self, name: &str) -> Issued {
        self.issue(&[name], LONG_AGO, FAR_OFF, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// What castle is let in by, with the key as Talos labels it.
    pub(crate) fn credentials(&self) -> Credentials {
        let admin = self.issue(&[], LONG_AGO, FAR_OFF, ExtendedKeyUsagePurpose::ClientAuth);
        let key = admin.key.serialize_pem().replace("PRIVATE KEY", "ED25519 PRIVATE KEY");
        let identity = Identity::from_pem(&admin.pem, &Secret::from(key)).unwrap();
        Credentials { authority: self.0.pem(), identity }
    }
}

/// A server with this certificate that lets in whom the authority vouches for, or everybody.
pub(crate) fn acceptor(server: &Issued, lets_in: Option<&Authority>) -> TlsAcceptor {
    of_versions(server, lets_in, rustls::DEFAULT_VERSIONS)
}

fn of_versions(
    server: &Issued,
    lets_in: Option<&Authority>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> TlsAcceptor {
    judging(server, lets_in, versions, (2026, 9, 21))
}

/// A server to which it is always the same day.
#[derive(Debug)]
struct Stopped(UnixTime);

impl TimeProvider for Stopped {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

fn judging(
    server: &Issued,
    lets_in: Option<&Authority>,
    versions: &[&'static rustls::SupportedProtocolVersion],
    (year, month, day): Day,
) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let since = date_time_ymd(year, month, day).unix_timestamp().unsigned_abs();
    let time = Arc::new(Stopped(UnixTime::since_unix_epoch(std::time::Duration::from_secs(since))));
    let builder = ServerConfig::builder_with_details(provider.clone(), time).with_protocol_versions(versions).unwrap();
    let builder = match lets_in {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let judge = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(judge.build().unwrap())
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
    let mut config = builder.with_single_cert(vec![server.certificate.clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn contact(site: &Site, credentials: &Credentials, fingerprint: Option<Fingerprint>) -> Contact {
    let (dial, clock): (Arc<dyn Dial>, Arc<dyn Clock>) = (Arc::new(site.clone()), Arc::new(site.clock));
    Contact::new("cp-1", &target(), credentials, fingerprint, &dial, &clock).unwrap()
}

/// Who is found where this TLS is spoken.
fn probe(credentials: &Credentials, fingerprint: Option<Fingerprint>, tls: TlsAcceptor) -> Presence {
    in_virtual_time(async |clock| {
        let site = Site { tls: Some(tls), ..Site::new(clock) };
        contact(&site, credentials, fingerprint).probe().await
    })
}

fn refused(presence: Presence) -> Refusal {
    match presence {
        Presence::Unreachable(refusal) | Presence::Stranger(refusal) => refusal,
        found => panic!("{found:?}"),
    }
}

/// Goal: a node of the castle and the castle know each other, in both versions of TLS, and nothing is asked of anybody else.
#[test]
fn a_node_of_the_castle_runs() {
    let authority = Authority::new();
    let server = authority.server("10.0.0.11");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let tls = of_versions(&server, Some(&authority), &[version]);
        let found = probe(&authority.credentials(), None, tls);
        assert!(matches!(found, Presence::Running(version) if version.tag == "v1.13.9"));
    }
}

#[test]
fn a_node_without_a_configuration_is_in_maintenance() {
    let (castle, throwaway) = (Authority::new(), Authority::new());
    let server = throwaway.server("maintenance-service.talos.dev");
    let found = probe(&castle.credentials(), None, acceptor(&server, None));
    assert!(matches!(found, Presence::Maintenance(_)), "{found:?}");

    let shown = STANDARD.encode(Sha256::digest(server.key.subject_public_key_info()));
    let fingerprint = Fingerprint::parse(&shown).unwrap();
    assert_eq!(fingerprint.to_string(), shown);
    let found = probe(&castle.credentials(), Some(fingerprint), acceptor(&server, None));
    assert!(matches!(found, Presence::Maintenance(_)), "{found:?}");

    let other = throwaway.server("maintenance-service.talos.dev");
    let found = probe(&castle.credentials(), Some(fingerprint), acceptor(&other, None));
    let Presence::Stranger(refusal) = found else { panic!("{found:?}") };
    let shown = STANDARD.encode(Sha256::digest(other.key.subject_public_key_info()));
    assert!(refusal.sentence.contains(&shown), "{refusal}");
}

/// Goal: what a node in maintenance mode refuses is for later, and it takes a configuration.
#[test]
fn a_node_in_maintenance_takes_a_configuration_and_little_else() {
    in_virtual_time(async |clock| {
        let tls = acceptor(&Authority::new().server("maintenance-service.talos.dev"), None);
        let site = Site { tls: Some(tls), ..Site::new(clock) };
        site.fake.doom("Bootstrap", Fate::Status(Code::PermissionDenied, "not authorized".into()));
        let node = site.node(&Trust::Maintenance(None));
        let applied = node.apply_configuration(&Secret::from("a: 1\n".to_owned()), ApplyMode::Auto).await.unwrap();
        assert_eq!(applied.mode, Some(ApplyMode::NoReboot));
        assert_eq!(node.bootstrap().await.unwrap_err().class, ErrorClass::InMaintenance);
    });
}

/// Goal: the authorities of all castles have the same name, and still a node of another castle is a stranger.
#[test]
fn a_node_of_another_castle_is_a_stranger() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = theirs.server("10.0.0.11");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let found = probe(&ours.credentials(), None, of_versions(&server, Some(&theirs), &[version]));
        let Presence::Stranger(refusal) = found else { panic!("{found:?}") };
        assert_eq!(refusal.class, ErrorClass::Stranger);
        assert!(refusal.sentence.contains("not of this castle"), "{refusal}");
    }
    in_virtual_time(async |clock| {
        let site = Site { tls: Some(acceptor(&server, Some(&theirs))), ..Site::new(clock) };
        let node = contact(&site, &ours.credentials(), None);
        let refusal = node.running().bootstrap().await.unwrap_err();
        assert_eq!(refusal.class, ErrorClass::Stranger);
        let fault = Fault::from(refusal);
        assert!(fault.guarded && fault.next.contains("10.0.0.11"), "{fault:?}");
        assert!(site.fake.asked().is_empty());
    });
}

/// Goal: a refusal that comes after the handshake is still told apart from a lost answer.
#[test]
fn castle_is_told_when_it_is_not_welcome() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = ours.server("10.0.0.11");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        in_virtual_time(async |clock| {
            let tls = of_versions(&server, Some(&theirs), &[version]);
            let site = Site { tls: Some(tls), ..Site::new(clock) };
            let contact = contact(&site, &ours.credentials(), None);
            let refusal = contact.running().bootstrap().await.unwrap_err();
            assert_eq!(refusal.class, ErrorClass::Unwelcome, "{refusal}");
            assert!(Fault::from(refusal).is_final());
            assert_eq!(refused(contact.probe().await).class, ErrorClass::Unwelcome);
            assert!(site.fake.asked().is_empty());
        });
    }
}

/// Goal: a node that takes its configuration while castle finds out who it is, is no stranger.
#[test]
fn a_node_that_leaves_maintenance_between_two_questions_is_known() {
    /// The first who dials meets the node as it was.
    struct Leaving {
        before: Site,
        after: Site,
    }
    impl Dial for Leaving {
        fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
            if self.before.connections() == 0 { self.before.dial(target) } else { self.after.dial(target) }
        }
    }
    let (ours, itself) = (Authority::new(), Authority::new());
    in_virtual_time(async |clock| {
        let site = |tls| Site { tls: Some(tls), ..Site::new(clock) };
        let before = site(acceptor(&itself.server("10.0.0.11"), None));
        let after = site(acceptor(&ours.server("10.0.0.11"), Some(&ours)));
        let (dial, clock): (Arc<dyn Dial>, Arc<dyn Clock>) = (Arc::new(Leaving { before, after }), Arc::new(*clock));
        let contact = Contact::new("cp-1", &target(), &ours.credentials(), None, &dial, &clock).unwrap();
        let found = contact.probe().await;
        assert!(matches!(found, Presence::Running(_)), "{found:?}");
    });
}

/// The days on which a certificate is valid.
type Days = (Day, Day);
const ALWAYS: Days = (LONG_AGO, FAR_OFF);

/// What is said on 21 September where castle's certificate and the node's are valid on these days, and to the node it is another day.
fn untimely(own: Days, shown: Days, there: Day) -> Refusal {
    let authority = Authority::new();
    let issued = authority.issue(&[], own.0, own.1, ExtendedKeyUsagePurpose::ClientAuth);
    let identity = Identity::from_pem(&issued.pem, &Secret::from(issued.key.serialize_pem())).unwrap();
    let credentials = Credentials { identity, ..authority.credentials() };
    let server = authority.issue(&["10.0.0.11"], shown.0, shown.1, ExtendedKeyUsagePurpose::ServerAuth);
    // Talos speaks nothing older, and only then is its certificate known before its verdict.
    let tls = judging(&server, Some(&authority), &[&rustls::version::TLS13], there);
    let refusal = refused(probe(&credentials, None, tls));
    assert_eq!(refusal.class, ErrorClass::Untimely, "{refusal}");
    refusal
}

fn holds(refusal: &Refusal, expected: &[&str]) {
    for words in expected {
        assert!(refusal.sentence.contains(words), "{words}: {refusal}");
    }
    let next = Fault::from(refusal.clone()).next;
    assert!(next.contains("date -u") && next.contains("timedatectl"), "{next}");
}

/// Goal: two clocks that differ are named as that: by how much, and whose it may be.
#[test]
fn clocks_that_differ_are_named() {
    let early = untimely(ALWAYS, ((2026, 9, 22), FAR_OFF), (2026, 9, 22));
    let from = "its certificate is valid from 2026-09-22 00:00:00 UTC on, and here it is 2026-09-21 ";
    holds(
        &early,
        &[from, "its clock is ahead of this machine's by at least 9 h 46 min, or this machine's is behind by as much"],
    );
    let late = untimely(ALWAYS, (LONG_AGO, (2026, 9, 12)), (2026, 9, 11));
    let until = "its certificate was valid until 2026-09-12 00:00:00 UTC, and here it is 2026-09-21 ";
    let behind = "its clock is behind this machine's by at least 9 days, or this machine's is ahead by as much";
    holds(&late, &[until, behind]);
}

/// Goal: where the node refuses castle's certificate by its date, the dates of its own tell which way the clocks differ, and by how much.
#[test]
fn a_refusal_by_date_tells_which_way_the_clocks_differ() {
    let own = ((2026, 9, 1), (2026, 9, 25));
    let ahead = untimely(own, ((2026, 9, 20), FAR_OFF), (2026, 9, 26));
    let over = "to the node castle's certificate, which is valid until 2026-09-25 00:00:00 UTC, has expired";
    holds(
        &ahead,
        &[over, "its clock is ahead of this machine's by at least 3 days, or this machine's is behind by as much"],
    );

    let behind = untimely(((2026, 9, 18), FAR_OFF), ((2026, 9, 9), (2026, 9, 30)), (2026, 9, 10));
    let early = "to the node castle's certificate, which is valid from 2026-09-18 00:00:00 UTC on, is not valid yet";
    let range = "its clock is behind this machine's by at least 3 days and at most 13 days, or this machine's is ahead by as much";
    holds(&behind, &[early, range]);

    let either = untimely(((2026, 9, 18), (2026, 9, 25)), ALWAYS, (2026, 9, 10));
    holds(&either, &["its clock is behind this machine's by at least 3 days, or ahead of it by at least 3 days"]);
}

/// Goal: a certificate that is not valid here either is no sign of a clock there.
#[test]
fn a_refusal_by_date_that_is_true_here_is_told_as_that() {
    let over = untimely((LONG_AGO, (2021, 1, 1)), ALWAYS, (2026, 9, 21));
    holds(&over, &["castle's certificate was valid until 2021-01-01 00:00:00 UTC, and here it is 2026-09-21 "]);
    let early = untimely(((2035, 1, 1), FAR_OFF), ALWAYS, (2026, 9, 21));
    holds(
        &early,
        &[
            "castle's certificate is valid from 2035-01-01 00:00:00 UTC on",
            "this machine's clock is behind what it was",
        ],
    );
}

#[test]
fn certificates_are_judged_by_the_clock_and_by_the_address() {
    let authority = Authority::new();
    for (names, begin, end, class) in [
        ("10.0.0.11", (2026, 9, 22), FAR_OFF, ErrorClass::Untimely),
        ("10.0.0.11", LONG_AGO, (2026, 9, 21), ErrorClass::Untimely),
        ("10.0.0.12", LONG_AGO, FAR_OFF, ErrorClass::Misnamed),
        ("cp-1", LONG_AGO, FAR_OFF, ErrorClass::Misnamed),
    ] {
        let server = authority.issue(&[names], begin, end, ExtendedKeyUsagePurpose::ServerAuth);
        let found = probe(&authority.credentials(), None, acceptor(&server, Some(&authority)));
        assert!(matches!(found, Presence::Unreachable(_)), "{found:?}");
        assert_eq!(refused(found).class, class);
    }
    let today = authority.issue(&["10.0.0.11"], (2026, 9, 21), (2026, 9, 22), ExtendedKeyUsagePurpose::ServerAuth);
    let found = probe(&authority.credentials(), None, acceptor(&today, Some(&authority)));
    assert!(matches!(found, Presence::Running(_)), "{found:?}");
}

/// Goal: a server that waits to be spoken to is spoken to, a little later.
#[test]
fn a_server_without_a_first_word_is_spoken_to() {
    let authority = Authority::new();
    in_virtual_time(async |clock| {
        let tls = acceptor(&authority.server("10.0.0.11"), Some(&authority));
        let site = Site { tls: Some(tls), ..Site::new(clock) };
        *site.door.lock().unwrap() = Door::Shy;
        let contact = contact(&site, &authority.credentials(), None);
        assert!(matches!(contact.probe().await, Presence::Running(_)));
        assert_eq!(clock.monotonic(), std::time::Duration::from_secs(1));
    });
}

#[test]
fn what_speaks_no_tls_is_not_spoken_with() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let contact = contact(&site, &Authority::new().credentials(), None);
        assert_eq!(refused(contact.probe().await).class, ErrorClass::Unreachable);
        assert!(site.fake.asked().is_empty());
    });
}

#[test]
fn what_cannot_be_trusted_is_told_at_once_and_not_repeated() {
    let authority = Authority::new();
    let admin = authority.server("x");
    let key = |text: String| Secret::from(text);
    let wrong = [
        Identity::from_pem("planted", &key(admin.key.serialize_pem())).unwrap_err(),
        Identity::from_pem(&admin.pem, &key("planted".into())).unwrap_err(),
        Identity::from_pem(
            &admin.pem,
            &key("-----BEGIN ED25519 PRIVATE KEY-----\nAAAA\n-----END ED25519 PRIVATE KEY-----\n".into()),
        )
        .unwrap_err(),
        Identity::from_pem(&admin.pem, &key(authority.server("x").key.serialize_pem())).unwrap_err(),
        Fingerprint::parse("planted").unwrap_err(),
        Fingerprint::parse("").unwrap_err(),
    ];
    for error in &wrong {
        assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
    }
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let (dial, clock): (Arc<dyn Dial>, Arc<dyn Clock>) = (Arc::new(site.clone()), Arc::new(*clock));
        let credentials = Credentials { authority: "planted".into(), ..authority.credentials() };
        assert!(!format!("{credentials:?}").contains("KEY"));
        let error = Contact::new("cp-1", &target(), &credentials, None, &dial, &clock).unwrap_err();
        assert!(!error.to_string().contains("planted"), "{error}");
        for host in ["", "a b", "-"] {
            let target = Target::new(host, 50000);
            assert!(Contact::new("cp-1", &target, &authority.credentials(), None, &dial, &clock).is_err(), "{host}");
        }
        for host in ["fe80::1%eth0", "2001:db8::1", "cp-1.example"] {
            let target = Target::new(host, 50000);
            Contact::new("cp-1", &target, &authority.credentials(), None, &dial, &clock).unwrap();
        }
    });
}
