//! Real sockets and real TLS.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Blueprint, Datacenter, Latencies, ScaledClock, Stage};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, Dial, SystemClock, Target, TcpDial};
use castle_talos_api::machine::machine_service_client::MachineServiceClient;
use castle_talos_api::machine::{ApplyConfigurationRequest, apply_configuration_request::Mode};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::codegen::http::{Request, Response};

use crate::castle::{Castle, Wanted};
use crate::site::IMAGE;

/// Trusts whoever answers, as one does with a node in maintenance.
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

/// How a client shows itself, and whom it trusts.
fn config(castle: Option<&Castle>, identity: Option<(Vec<u8>, Vec<u8>)>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match castle {
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Blind)),
        Some(castle) => {
            let mut roots = RootCertStore::empty();
            let pem = castle.os.pem();
            let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
            roots.add(CertificateDer::from(STANDARD.decode(der).unwrap())).unwrap();
            builder.with_root_certificates(roots)
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
            builder.with_client_auth_cert(vec![CertificateDer::from(certificate)], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A connection to a node, as gRPC wants it.
#[derive(Clone)]
struct Line(SendRequest<tonic::body::Body>);

impl tonic::codegen::Service<Request<tonic::body::Body>> for Line {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Status>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let mut sender = self.0.clone();
        Box::pin(
            async move { sender.send_request(request).await.map_err(|error| Status::unavailable(error.to_string())) },
        )
    }
}

async fn connect(address: &str, config: ClientConfig) -> Result<MachineServiceClient<Line>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let dial = TcpDial { timeout: std::time::Duration::from_secs(5) };
    let stream = dial.dial(&Target::new(address, 50_000)).await.map_err(|error| failed(&error))?;
    let name = ServerName::try_from(address.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| failed(&error))?;
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    Ok(MachineServiceClient::with_origin(Line(sender), "http://node".parse().unwrap()))
}

async fn version(address: &str, config: ClientConfig) -> Result<String, String> {
    let mut client = connect(address, config).await?;
    let answer = client.version(()).await.map_err(|error| error.to_string())?.into_inner();
    Ok(answer.messages[0].version.clone().unwrap().tag)
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
        "vmid=421&name=one&memory=2048&scsi0=local-lvm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ftalos.qcow2&\
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

/// Goal: a node listens where its address is one of this machine, first without asking who calls, then only for its castle.
/// Method: one node with a loopback address of its own, from maintenance to the certificate of its configuration.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_loopback_address_speaks_real_tls() {
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(SystemClock::new()), 1_000.0));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, castle) = ("127.99.41.1", Castle::new(40));
    raise(&datacenter, &clock, address).await;
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Maintenance))).await;

    let mut maintenance = connect(address, config(None, None)).await;
    for _ in 0..10_000 {
        if maintenance.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        maintenance = connect(address, config(None, None)).await;
    }
    let mut maintenance = maintenance.unwrap();
    let unknown = version(address, config(Some(&castle), None)).await.unwrap_err();
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");

    let wanted = Wanted { vip: None, endpoint: format!("https://{address}:6443"), ..Wanted::default() };
    let data = castle.config(true, &wanted).into_bytes();
    let request = ApplyConfigurationRequest { data, mode: Mode::Auto.into(), ..ApplyConfigurationRequest::default() };
    maintenance.apply_configuration(request).await.unwrap();
    let admin = || castle.os.identity("os:admin", |_| {});
    let mut answered = version(address, config(Some(&castle), Some(admin()))).await;
    for _ in 0..10_000 {
        if answered.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        answered = version(address, config(Some(&castle), Some(admin()))).await;
    }
    assert_eq!(answered.unwrap(), "v1.13.9");
    assert!(version(address, config(Some(&castle), None)).await.is_err(), "a certificate is asked for");
    let stranger = Castle::new(90).os.identity("os:admin", |_| {});
    assert!(version(address, config(Some(&castle), Some(stranger))).await.is_err(), "and not any");

    datacenter.switch(421, false);
    let mut rounds = 0;
    while version(address, config(Some(&castle), Some(admin()))).await.is_ok() {
        rounds += 1;
        assert!(rounds < 10_000, "it goes on listening");
    }
    serving.stop();
}
