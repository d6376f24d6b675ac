//! Asking a webhook that is somewhere: over an injected connection, within its time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::{BoxFuture, ByteStream, Dial, DialError, DialErrorKind, Target, TcpDial, deadline};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::trust::{Trust, Verifier};
use crate::datacenter::Datacenter;

/// The most bytes of an answer.
const ANSWER_LIMIT: usize = 3 << 20;
/// How long an address is looked for that nobody has.
const NOBODY: Duration = Duration::from_secs(3);

/// Something that a webhook is to be asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// As messages name it: `https://gate.default.svc:443/gate?timeout=10s`.
    pub(crate) url: String,
    pub(crate) way: Way,
    pub(crate) review: Value,
    pub(crate) patience: Duration,
}

/// How it is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    /// Over a connection, to a host that shows a certificate by this authority (a `caBundle`).
    Dial { host: String, port: u16, bundle: String },
    /// There is nobody at this address.
    Nowhere(String),
    /// It was asked, and says nothing.
    Silence,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// It was not reached; why, as Go says it.
    Unreached(String),
    /// It answered.
    Said { status: u16, body: Vec<u8> },
}

pub(crate) const DEADLINE: &str = "context deadline exceeded";

pub(crate) fn refused(address: &str) -> Told {
    Told::Unreached(format!("dial tcp {address}: connect: connection refused"))
}

pub(crate) fn no_route(address: &str) -> Told {
    Told::Unreached(format!("dial tcp {address}: connect: no route to host"))
}

impl Question {
    /// What is told without asking anybody, where there is no time to do so.
    pub(crate) fn at_once(&self) -> Told {
        match &self.way {
            Way::Dial { host, port, .. } => refused(&format!("{host}:{port}")),
            Way::Nowhere(address) => no_route(address),
            Way::Silence => Told::Unreached(DEADLINE.to_owned()),
        }
    }

    /// Asks it.
    pub(crate) async fn put(&self, datacenter: &Datacenter) -> Told {
        let clock = &*datacenter.shared.clock;
        let told = async {
            match &self.way {
                Way::Silence => std::future::pending().await,
                Way::Nowhere(address) => {
                    let factor = datacenter.world().latencies.factor.max(0.0);
                    clock.sleep(NOBODY.mul_f64(factor)).await;
                    no_route(address)
                }
                Way::Dial { host, port, bundle } => self.dial(datacenter, host, *port, bundle).await,
            }
        };
        deadline(clock, self.patience, told).await.unwrap_or_else(|_| Told::Unreached(DEADLINE.to_owned()))
    }

    async fn dial(&self, datacenter: &Datacenter, host: &str, port: u16, bundle: &str) -> Told {
        let target = Target::new(host, port);
        let stream = match datacenter.outside().dial(&target).await {
            Ok(stream) => stream,
            Err(error) => return undialled(&error),
        };
        let trust = Trust { bundle: bundle.to_owned(), name: target.host.clone(), now: datacenter.calendar() };
        match self.converse(stream, trust).await {
            Ok((status, body)) => Told::Said { status, body },
            Err(why) => Told::Unreached(why),
        }
    }

    async fn converse(&self, stream: Box<dyn ByteStream>, trust: Trust) -> Result<(u16, Vec<u8>), String> {
        let name = ServerName::try_from(trust.name.clone()).map_err(|error| error.to_string())?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { trust }));
        let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        let stream = connector.connect(name, stream).await.map_err(|error| unshaken(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends when the answer is there, or the sender is dropped.
        tokio::spawn(connection);
        let (_, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let (host, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let request = Request::post(path)
            .header(HOST, host)
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(self.review.to_string())))
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|_| "EOF".to_owned())?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        let body = body.map_err(|_| "unexpected EOF".to_owned())?.to_bytes();
        Ok((status, body.to_vec()))
    }
}

fn undialled(error: &DialError) -> Told {
    let target = error.target.to_string();
    match error.kind {
        DialErrorKind::Refused => refused(&target),
        DialErrorKind::Unreachable => no_route(&target),
        DialErrorKind::TimedOut => Told::Unreached(format!("dial tcp {target}: i/o timeout")),
        DialErrorKind::Unresolved => {
            Told::Unreached(format!("dial tcp: lookup {} on 127.0.0.53:53: no such host", error.target.host))
        }
        DialErrorKind::Other => Told::Unreached(format!("dial tcp {target}: {}", error.source)),
    }
}

/// What is told of a handshake that failed: our own words where the certificate was to blame.
fn unshaken(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::General(why)) => why.clone(),
        Some(other) => format!("remote error: tls: {other}"),
        None => "EOF".to_owned(),
    }
}

/// The way to servers on this machine, and nowhere else.
pub(crate) struct Loopback;

impl Dial for Loopback {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let is_here = target.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
            if !is_here {
                let error = std::io::ErrorKind::HostUnreachable.into();
                let kind = DialErrorKind::Unreachable;
                return Err(DialError { target: target.clone(), kind, tried: Vec::new(), source: error });
            }
            TcpDial { timeout: Duration::from_secs(30) }.dial(target).await
        })
    }
}
