//! The handshake, held against the lines of the recordings that tell it: over real sockets and real TLS.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use castle_datacenter::{Blueprint, Datacenter, Latencies, ScaledClock, Stage};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, Dial, SystemClock, Target, TcpDial};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;
use x509_parser::der_parser::Oid;
use x509_parser::oid_registry::OID_SIG_ED25519;
use x509_parser::prelude::GeneralName;

use crate::castle::{Castle, Wanted};
use crate::differences::FIRST_BYTES;
use crate::site::IMAGE;
use crate::{AS_CONTROL_PLANE, IN_MAINTENANCE};

/// Trusts whoever answers.
#[derive(Debug)]
struct Blind;

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// What certificate is asked for: of how many authorities, and signed how.
type Wish = (usize, Vec<SignatureScheme>);

/// Notes what certificate is asked for, and shows the one that it has.
#[derive(Debug)]
struct Asked {
    shown: Option<Arc<CertifiedKey>>,
    heard: Arc<Mutex<Option<Wish>>>,
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, subjects: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.heard.lock().unwrap() = Some((subjects.len(), schemes.to_vec()));
        self.shown.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// What a handshake told.
struct Shaken {
    line: String,
    certificate: String,
    asked: Option<Wish>,
    /// The bytes that came first, or why none did.
    first: Result<Vec<u8>, String>,
}

async fn shake(
    address: &str,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<(Vec<u8>, Vec<u8>)>,
    with_alpn: bool,
) -> Result<Shaken, String> {
    let mut provider = default_provider();
    // The client that was recorded prefers this suite.
    let preferred = cipher_suite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != preferred.suite());
    let signing = provider.key_provider;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions).unwrap();
    let shown = identity.map(|(certificate, key)| {
        let key = signing.load_private_key(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key))).unwrap();
        Arc::new(CertifiedKey::new(vec![CertificateDer::from(certificate)], key))
    });
    let heard = Arc::new(Mutex::new(None));
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Blind))
        .with_client_cert_resolver(Arc::new(Asked { shown, heard: heard.clone() }));
    if with_alpn {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let dial = TcpDial { timeout: Duration::from_secs(5) };
    let stream = dial.dial(&Target::new(address, 50_000)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(address.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let session = stream.get_ref().1;
    let alpn = String::from_utf8_lossy(session.alpn_protocol().unwrap_or_default()).into_owned();
    let chain = session.peer_certificates().unwrap_or_default();
    let suite = session.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())).unwrap_or_default();
    let version = session.protocol_version().map(|version| format!("{:x}", u16::from(version))).unwrap_or_default();
    let certificate = describe(&chain[0]);
    let (count, suite) = (chain.len(), suite.replace("TLS13_", "TLS_"));
    let mut bytes = [0; 64];
    let first = stream.read(&mut bytes).await.map(|count| bytes[..count].to_vec()).map_err(|error| error.to_string());
    let asked = heard.lock().unwrap().clone();
    let line = format!(
        "tls: version {version} suite {suite} alpn {alpn:?} client-cert-asked={} chain={count}",
        asked.is_some()
    );
    Ok(Shaken { line, certificate, asked, first })
}

/// A certificate in the words of the recording.
fn describe(certificate: &CertificateDer<'_>) -> String {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
    let names = parsed.subject_alternative_name().unwrap().map(|it| it.value.general_names.clone()).unwrap_or_default();
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    for name in &names {
        match name {
            GeneralName::DNSName(name) => dns.push((*name).to_owned()),
            GeneralName::IPAddress([a, b, c, d]) => ips.push(format!("{a}.{b}.{c}.{d}")),
            GeneralName::IPAddress(bytes) => {
                let bytes: [u8; 16] = (*bytes).try_into().unwrap();
                ips.push(std::net::Ipv6Addr::from(bytes).to_string());
            }
            _ => {}
        }
    }
    ips.sort();
    let validity = parsed.validity();
    let life = validity.not_after.timestamp() - validity.not_before.timestamp();
    let usage =
        parsed.key_usage().unwrap().map(|it| it.value.to_string().replace("Digital Signature", "digitalSignature"));
    let extended = parsed.extended_key_usage().unwrap().map(|it| it.value.server_auth) == Some(true);
    let algorithm = |id: &Oid<'_>| if *id == OID_SIG_ED25519 { "Ed25519".to_owned() } else { id.to_id_string() };
    let key = UnparsedPublicKey::new(&ED25519, &parsed.public_key().subject_public_key.data);
    let is_own = key.verify(parsed.tbs_certificate.as_ref(), &parsed.signature_value.data).is_ok();
    format!(
        "tls:  subject={:?} issuer={:?} ca={} key={} sig={} life={}h{}m{}s dns=[{}] ips=[{}] usage={} ext=[{}] self={is_own}",
        parsed.subject().to_string(),
        parsed.issuer().to_string(),
        parsed.is_ca(),
        algorithm(&parsed.public_key().algorithm.algorithm),
        algorithm(&parsed.signature_algorithm.algorithm),
        life / 3_600,
        life / 60 % 60,
        life % 60,
        dns.join(" "),
        ips.join(" "),
        usage.unwrap_or_default(),
        if extended { "serverAuth" } else { "" },
    )
}

/// A line of the recording, with its address and its name replaced by ours.
fn expected(line: &str, address: &str, own: &str, name: &str) -> String {
    let line = line.replace("10.77.0.11", address).replace(name, own);
    let (head, rest) = line.split_once(" ips=[").unwrap();
    let (ips, tail) = rest.split_once(']').unwrap();
    let mut ips: Vec<&str> = ips.split(' ').collect();
    ips.sort_unstable();
    format!("{head} ips=[{}]{tail}", ips.join(" "))
}

/// The lines of a recording that tell of TLS, each of which is to be taken.
struct Lines<'a> {
    left: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    fn of(recording: &'a str) -> Self {
        Self { left: recording.lines().filter(|line| line.starts_with("tls:")).collect() }
    }

    fn take(&mut self, start: &str) -> &'a str {
        let at = self.left.iter().position(|line| line.starts_with(start)).unwrap();
        self.left.remove(at)
    }
}

/// Who speaks TLS 1.2 alone is told so, in the words of either library.
async fn hold_older(address: &str, lines: &mut Lines<'_>) {
    assert_eq!(
        lines.take("tls: version 303"),
        "tls: version 303 only: err=remote error: tls: protocol version not supported"
    );
    let refused = shake(address, &[&TLS12], None, true).await.err().unwrap();
    assert!(refused.ends_with("received fatal alert: ProtocolVersion"), "{refused}");
    // And who speaks 1.3 alone, as all others here do, is not.
    assert_eq!(lines.take("tls: version 304 only"), "tls: version 304 only: err=<nil>");
}

/// Who names no protocol is served HTTP/2 at once: its settings, and how much may be sent.
async fn hold_unnamed(address: &str, identity: Option<(Vec<u8>, Vec<u8>)>, lines: &mut Lines<'_>) {
    const HEAD: usize = 9;
    const SETTING: usize = 6;
    const INITIAL_WINDOW: u16 = 4;
    const MAX_FRAME: u16 = 5;
    let first = shake(address, &[&TLS13], identity, false).await.unwrap().first.unwrap();
    let (head, settings) = first.split_at(HEAD);
    assert_eq!((head[3], usize::from(head[2])), (4, settings.len()), "one frame of settings: {first:?}");
    let read = |setting: &[u8]| {
        let number = u16::from_be_bytes([setting[0], setting[1]]);
        (number, u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
    };
    let mut settings: Vec<_> = settings.chunks(SETTING).map(read).collect();
    let told = settings.len();
    settings.retain(|(number, _)| *number != FIRST_BYTES.ours);
    assert_eq!(settings.len() + 1, told, "take it from the list: {}", FIRST_BYTES.why);
    settings.sort_unstable();
    assert_eq!(settings, [(INITIAL_WINDOW, 65_535 * 32), (MAX_FRAME, 16_384)]);
    let bytes = HEAD + SETTING * settings.len() + FIRST_BYTES.theirs;
    assert_eq!(lines.take("tls: no alpn"), format!("tls: no alpn: read {bytes} <nil>"));
}

/// A guest with this address, made through the hypervisor's interface.
async fn raise(datacenter: &Datacenter, clock: &Arc<dyn Clock>, address: &str) {
    let endpoint = Endpoint::parse("http://pve:8006/api2/json").unwrap();
    let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), clock.clone()).unwrap();
    let post = async |path: &str, form: String| {
        let mut ask = Ask::new(Method::POST, path);
        let token =
            format!("PVEAPIToken={}={}", castle_datacenter::EMBEDDED_TOKEN_ID, castle_datacenter::EMBEDDED_TOKEN);
        ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&token).unwrap());
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        ask.body = form.into();
        let answer = client.ask(&ask).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let upid = body["data"].as_str().unwrap_or_else(|| panic!("{path}: {body}")).to_owned();
        until(|| datacenter.look().tasks.iter().any(|task| task.upid == upid && task.exit.as_deref() == Some("OK")))
            .await;
    };
    let url = IMAGE.replace(':', "%3A").replace('/', "%2F");
    post("/nodes/pve/storage/local/download-url", format!("content=import&filename=talos.qcow2&url={url}")).await;
    let config = format!(
        "vmid=431&name=n1&memory=2048&scsi0=local-lvm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ftalos.qcow2&\
         ide2=local-lvm%3Acloudinit&net0=virtio%2Cbridge%3Dvmbr0&ipconfig0=ip%3D{address}%2F8&start=1"
    );
    post("/nodes/pve/qemu", config).await;
}

/// Lets others work until something holds.
async fn until(mut holds: impl FnMut() -> bool) {
    let mut rounds = 0;
    while !holds() {
        rounds += 1;
        assert!(rounds < 1_000_000, "it does not come");
        tokio::task::yield_now().await;
    }
}

/// Tries until it goes well.
async fn shaken(
    address: &str,
    identity: &dyn Fn() -> Option<(Vec<u8>, Vec<u8>)>,
    is_enough: fn(&Shaken) -> bool,
) -> Shaken {
    for _ in 0..10_000 {
        if let Ok(shaken) = shake(address, &[&TLS13], identity(), true).await
            && is_enough(&shaken)
        {
            return shaken;
        }
        tokio::task::yield_now().await;
    }
    panic!("nobody answers at {address}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handshake_is_as_recorded() {
    let (mut before, mut after) = (Lines::of(IN_MAINTENANCE), Lines::of(AS_CONTROL_PLANE));
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(SystemClock::new()), 1_000.0));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, castle) = ("127.99.42.1", Castle::new(40));
    raise(&datacenter, &clock, address).await;
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Maintenance))).await;

    let nobody = || None;
    let maintenance = shaken(address, &nobody, |_| true).await;
    assert_eq!(maintenance.line, before.take("tls: version 304 suite"));
    assert_eq!(maintenance.certificate, expected(before.take("tls:  subject"), address, "n1", "n1"));
    hold_older(address, &mut before).await;
    hold_unnamed(address, None, &mut before).await;
    assert!(before.left.is_empty(), "{:?}", before.left);

    let wanted = Wanted { vip: None, endpoint: format!("https://{address}:6443"), ..Wanted::default() };
    datacenter.configure_node(431, &castle.config(true, &wanted)).unwrap();
    let admin = || Some(castle.os.identity("os:admin", |_| {}));
    let configured = shaken(address, &admin, |shaken| shaken.asked.is_some() && shaken.first.is_ok()).await;
    assert_eq!(configured.line, after.take("tls: version 304 suite"));
    assert_eq!(configured.certificate, expected(after.take("tls:  subject"), address, "n1", "real-cp-1"));
    let (subjects, schemes) = configured.asked.unwrap();
    let recorded = after.take("tls: client certificate requested");
    assert!(recorded.contains(&format!("acceptable CAs: {subjects},")), "{subjects}");
    let words = |scheme: &SignatureScheme| match *scheme {
        SignatureScheme::RSA_PSS_SHA256 => "PSSWithSHA256",
        SignatureScheme::RSA_PSS_SHA384 => "PSSWithSHA384",
        SignatureScheme::RSA_PSS_SHA512 => "PSSWithSHA512",
        SignatureScheme::ECDSA_NISTP256_SHA256 => "ECDSAWithP256AndSHA256",
        SignatureScheme::ECDSA_NISTP384_SHA384 => "ECDSAWithP384AndSHA384",
        SignatureScheme::ECDSA_NISTP521_SHA512 => "ECDSAWithP521AndSHA512",
        SignatureScheme::ED25519 => "Ed25519",
        _ => "another",
    };
    let schemes: Vec<&str> = schemes.iter().map(words).collect();
    assert!(recorded.ends_with(&format!("schemes [{}]", schemes.join(" "))), "{schemes:?}");
    hold_older(address, &mut after).await;
    hold_unnamed(address, admin(), &mut after).await;
    assert!(after.left.is_empty(), "{:?}", after.left);

    // Who shows none, and who shows one whose time has not come: both are told so with the first answer.
    let none = shake(address, &[&TLS13], None, true).await.unwrap().first.unwrap_err();
    assert!(none.to_lowercase().contains("certificaterequired"), "{none}");
    let ahead = castle.os.identity("os:admin", |params| {
        params.not_before = (datacenter_time() + Duration::from_secs(3_600)).into();
    });
    let early = shake(address, &[&TLS13], Some(ahead), true).await.unwrap().first.unwrap_err();
    assert!(early.to_lowercase().contains("certificateexpired"), "{early}");
    serving.stop();
}

/// What time it is for certificates.
fn datacenter_time() -> std::time::SystemTime {
    SystemClock::new().wall()
}
