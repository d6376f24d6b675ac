//! Real sockets and real TLS.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Blueprint, Datacenter, Latencies, ScaledClock, Stage};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{ByteStream, Clock, Dial, SystemClock, Target, TcpDial};
use castle_talos_api::cluster::HealthCheckRequest;
use castle_talos_api::cluster::cluster_service_client::ClusterServiceClient;
use castle_talos_api::machine::machine_service_client::MachineServiceClient;
use castle_talos_api::machine::{
    ApplyConfigurationRequest, BootstrapRequest, EtcdMemberListRequest, apply_configuration_request::Mode,
};
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::DnType;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};

use crate::castle::{Authority, Castle, Wanted};
use crate::site::IMAGE;

const ORIGIN: &str = "http://node";

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

/// How a client of a node shows itself, and whom it trusts.
fn config(castle: Option<&Castle>, identity: Option<(Vec<u8>, Vec<u8>)>) -> ClientConfig {
    trusting(castle.map(|castle| &castle.os), identity, "h2")
}

fn trusting(authority: Option<&Authority>, identity: Option<(Vec<u8>, Vec<u8>)>, protocol: &str) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match authority {
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Blind)),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = authority.pem();
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
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
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
    Ok(MachineServiceClient::with_origin(line(address, config).await?, ORIGIN.parse().unwrap()))
}

async fn line(address: &str, config: ClientConfig) -> Result<Line, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let stream = secured(address, 50_000, config).await?;
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    Ok(Line(sender))
}

async fn secured(address: &str, port: u16, config: ClientConfig) -> Result<TlsStream<Box<dyn ByteStream>>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let dial = TcpDial { timeout: Duration::from_secs(5) };
    let stream = dial.dial(&Target::new(address, port)).await.map_err(|error| failed(&error))?;
    let name = ServerName::try_from(address.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| failed(&error))
}

/// What the Kubernetes API of a control plane answers to the end.
async fn got(address: &str, castle: &Castle, path: &str) -> Result<(u16, Bytes), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let admin = castle.kubernetes.identity("system:masters", |params| {
        params.distinguished_name.push(DnType::CommonName, "admin");
    });
    let stream = secured(address, 6_443, trusting(Some(&castle.kubernetes), Some(admin), "http/1.1")).await?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", address).body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| failed(&error))?;
    Ok((status, body.to_bytes()))
}

/// A connection as soon as somebody answers.
async fn reached(address: &str, config: &dyn Fn() -> ClientConfig) -> MachineServiceClient<Line> {
    for _ in 0..10_000 {
        if let Ok(client) = connect(address, config()).await {
            return client;
        }
        tokio::task::yield_now().await;
    }
    panic!("nobody answers at {address}");
}

/// Makes the control plane of a castle of a node in maintenance.
async fn configure(maintenance: &mut MachineServiceClient<Line>, castle: &Castle, address: &str) {
    let wanted = Wanted { vip: None, endpoint: format!("https://{address}:6443"), ..Wanted::default() };
    let data = castle.config(true, &wanted).into_bytes();
    let request = ApplyConfigurationRequest { data, mode: Mode::Auto.into(), ..ApplyConfigurationRequest::default() };
    maintenance.apply_configuration(request).await.unwrap();
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

    let mut maintenance = reached(address, &|| config(None, None)).await;
    let unknown = version(address, config(Some(&castle), None)).await.unwrap_err();
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");

    configure(&mut maintenance, &castle, address).await;
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

/// Goal: a watch lasts as long as whoever watches asked for, by his own clock. Method: a cluster of one node that lives a thousand times as fast, and a
/// watch of a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_lasts_as_long_as_whoever_watches_asked() {
    let own = SystemClock::new();
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(own), 1_000.0));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, castle) = ("127.99.41.3", Castle::new(40));
    raise(&datacenter, &clock, address).await;
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Maintenance))).await;
    configure(&mut reached(address, &|| config(None, None)).await, &castle, address).await;
    let admin = || config(Some(&castle), Some(castle.os.identity("os:admin", |_| {})));
    let mut machine = reached(address, &admin).await;
    let mut rounds = 0;
    while machine.bootstrap(BootstrapRequest::default()).await.is_err() {
        rounds += 1;
        assert!(rounds < 10_000, "it is not bootstrapped");
        tokio::task::yield_now().await;
    }
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Running))).await;

    let path = "/api/v1/namespaces?watch=true&timeoutSeconds=1";
    for _ in 0..10_000 {
        let began = own.monotonic();
        // Until the API listens, nobody answers.
        if let Ok((status, told)) = got(address, &castle, path).await {
            let took = own.monotonic() - began;
            assert_eq!(status, 200, "{told:?}");
            assert!(took >= Duration::from_secs(1), "over after {took:?}: {told:?}");
            return serving.stop();
        }
        tokio::task::yield_now().await;
    }
    panic!("no API answers at {address}");
}

/// Goal: how long somebody waits for an answer is told by his own clock, however fast the datacenter lives.
/// Method: a datacenter a thousand times as fast, in it a control plane without etcd; what waits for etcd is asked for a second.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_second_is_refused_after_a_second_of_his_own() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let own = SystemClock::new();
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(own), 1_000.0));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, castle) = ("127.99.41.2", Castle::new(40));
    raise(&datacenter, &clock, address).await;
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Maintenance))).await;
    configure(&mut reached(address, &|| config(None, None)).await, &castle, address).await;
    let admin = || config(Some(&castle), Some(castle.os.identity("os:admin", |_| {})));
    let mut machine = reached(address, &admin).await;

    let mut request = tonic::Request::new(EtcdMemberListRequest::default());
    request.set_timeout(PATIENCE);
    let began = own.monotonic();
    let refused = machine.etcd_member_list(request).await.unwrap_err();
    let took = own.monotonic() - began;
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    assert!(took >= PATIENCE, "refused after {took:?}");

    let line = line(address, admin()).await.unwrap();
    let wait_timeout = Some(castle_talos_api::Duration { seconds: 1, nanos: 0 });
    let request = HealthCheckRequest { wait_timeout, ..HealthCheckRequest::default() };
    let began = own.monotonic();
    let told = ClusterServiceClient::with_origin(line, ORIGIN.parse().unwrap()).health_check(request).await.unwrap();
    let told: Vec<_> = told.into_inner().collect().await;
    let took = own.monotonic() - began;
    let last = told.last().unwrap().as_ref().unwrap_err();
    assert_eq!(last.code(), Code::DeadlineExceeded, "{last}");
    assert!(took >= PATIENCE, "given up after {took:?}");
    serving.stop();
}
