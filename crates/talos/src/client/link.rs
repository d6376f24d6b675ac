//! The connection to one node: dialled when it is first needed, and again after it has failed.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, Target, deadline};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, OtherError};
use tokio::io::{AsyncReadExt, join, split};
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tonic::codegen::{InterceptedService, Service};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use super::clocks::{self, Lead, Untimely};
use super::refusal::{ErrorClass, Trouble};
use super::trust::{self, Trust, TrustError};
use crate::model::pki::{Moment, Validity};

/// How long the node may take for its first word. A server of gRPC speaks first; should one not, it is spoken to anyway.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// What calls are made over.
pub(super) type Line = InterceptedService<Channel, Introduction>;

/// What castle says about itself in every call, where there is no TLS to say it.
#[derive(Clone, Debug, Default)]
pub(super) struct Introduction(Option<MetadataValue<Ascii>>);

/// Under this name a node in memory is told the certificate, as base64.
const CERTIFICATE: &str = "castle-client-certificate";

impl Introduction {
    fn of(trust: &Trust) -> Self {
        let Trust::Plain(Some(identity)) = trust else { return Self::default() };
        Self(STANDARD.encode(identity.certificate()).parse().ok())
    }
}

impl Interceptor for Introduction {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(certificate) = &self.0 {
            request.metadata_mut().insert(CERTIFICATE, certificate.clone());
        }
        Ok(request)
    }
}

/// One connection at a time.
pub(super) struct Link {
    introduction: Introduction,
    endpoint: Endpoint,
    connector: Connector,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    channel: Option<Line>,
    /// Counts the connections, so that only the one that failed is given up.
    number: u64,
}

/// A connection that calls are made over.
pub(super) struct Lent {
    pub(super) channel: Line,
    /// Whether it has been used before, and so may have died in the meantime.
    pub(super) is_used: bool,
    number: u64,
}

impl Link {
    pub(super) fn new(
        target: &Target,
        trust: &Trust,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TrustError> {
        let tls = trust::connector(trust, clock.clone())?;
        let nameless = || TrustError::new(format!("`{target}` is no address that a node can have"));
        // A zone says through which interface of this machine: it is part of no certificate and of no request.
        let host = target.host.split('%').next().unwrap_or_default();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| nameless())?;
        let uri = |scheme: &str| {
            format!("{scheme}://{}", Target::new(host, target.port)).parse::<Uri>().map_err(|_| nameless())
        };
        // TLS is made here and not by tonic, which must not try; the node is told the truth all the same.
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from(uri("http")?).origin(uri(scheme)?);
        let tls = tls.map(|tls| (tls, name));
        let own = trust.identity().and_then(|identity| Validity::of(identity.certificate()));
        let connector = Connector(Arc::new(Way { target: target.clone(), tls, own, dial, clock }));
        Ok(Self { introduction: Introduction::of(trust), endpoint, connector, current: Mutex::default() })
    }

    /// The connection, made if there is none, or if only a `fresh` one will do.
    pub(super) async fn lend(&self, fresh: bool) -> Result<Lent, Unconnected> {
        let mut current = self.current.lock().await;
        if let Some(channel) = current.channel.clone().filter(|_| !fresh) {
            return Ok(Lent { channel, is_used: true, number: current.number });
        }
        let made = self.endpoint.connect_with_connector(self.connector.clone()).await;
        let channel = made.map_err(|error| Unconnected::find(&error).unwrap_or_else(|| Unconnected::of(&error)))?;
        current.number += 1;
        let channel = InterceptedService::new(channel, self.introduction.clone());
        current.channel = Some(channel.clone());
        Ok(Lent { channel, is_used: false, number: current.number })
    }

    /// What went wrong with a call. Without TLS a node can only say what TLS would have found out about the dates of certificates.
    pub(super) fn understood(&self, trouble: Trouble) -> Trouble {
        let way = &self.connector.0;
        if way.tls.is_some() {
            return trouble;
        }
        match clocks::told(&trouble.sentence, way.own, way.now()) {
            Some(Untimely { sentence, lead }) => Trouble { class: ErrorClass::Untimely, sentence, lead, ..trouble },
            None => trouble,
        }
    }

    /// Gives a connection up, unless it has been given up before.
    pub(super) async fn discard(&self, lent: &Lent) {
        let mut current = self.current.lock().await;
        if current.number == lent.number {
            current.channel = None;
        }
    }
}

/// There is no connection, so nothing has been asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{sentence}")]
pub(super) struct Unconnected {
    pub(super) class: ErrorClass,
    pub(super) sentence: String,
    /// How far the node's clock is ahead, where that is why and it is known.
    pub(super) lead: Option<Lead>,
}

impl Unconnected {
    /// The one in a chain of causes.
    pub(super) fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found.clone());
            }
            cause = error.source();
        }
        None
    }

    fn of(error: &dyn Error) -> Self {
        Self { class: ErrorClass::Unreachable, sentence: causes(error), lead: None }
    }

    /// What ended a connection before anything was asked over it, after the node has `shown` its certificate or before.
    fn by(way: &Way, error: &io::Error, shown: Option<Validity>) -> Self {
        let (class, Untimely { sentence, lead }) =
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                // Said of one that is not valid yet as well.
                Some(rustls::Error::AlertReceived(AlertDescription::CertificateExpired)) => {
                    (ErrorClass::Untimely, clocks::refused(way.own, shown, way.now()))
                }
                Some(verdict) => judge(verdict),
                None => (ErrorClass::Unreachable, Untimely { sentence: error.to_string(), lead: None }),
            };
        Self { class, sentence: format!("no TLS with {}: {sentence}", way.target), lead }
    }
}

/// What a failure of TLS means.
fn judge(error: &rustls::Error) -> (ErrorClass, Untimely) {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    let class = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::NotValidYet | Bad::NotValidYetContext { .. } | Bad::Expired | Bad::ExpiredContext { .. } => {
                ErrorClass::Untimely
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => ErrorClass::Misnamed,
            // All castles' authorities bear the same name, so the signature is what tells a stranger as often as the issuer.
            _ => ErrorClass::Stranger,
        },
        rustls::Error::AlertReceived(
            Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate,
        ) => ErrorClass::Unwelcome,
        _ => ErrorClass::Unreachable,
    };
    let sentence = match error {
        rustls::Error::InvalidCertificate(Bad::Other(OtherError(why))) => why.to_string(),
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "its certificate is not of this castle's authority: it was issued by another".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::BadSignature) => {
            "its certificate is not of this castle's authority: another has signed it".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYetContext { time, not_before }) => {
            return (class, clocks::early(moment(*not_before), moment(*time)));
        }
        rustls::Error::InvalidCertificate(Bad::ExpiredContext { time, not_after }) => {
            return (class, clocks::late(moment(*not_after), moment(*time)));
        }
        error => error.to_string(),
    };
    (class, Untimely { sentence, lead: None })
}

fn moment(time: UnixTime) -> Moment {
    Moment::of(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

/// An error with what lies beneath it.
pub(super) fn causes(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// How a node is reached.
struct Way {
    target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// When castle's own certificate is valid, if it shows one.
    own: Option<Validity>,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
}

impl Way {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, Unconnected> {
        let stream = self.dial.dial(&self.target).await.map_err(|error| Unconnected::of(&error))?;
        let Some((tls, name)) = &self.tls else { return Ok(stream) };
        let connected = tls.connect(name.clone(), stream).await;
        let stream = connected.map_err(|error| Unconnected::by(self, &error, None))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| Validity::of(chain.first()?));
        self.hear_first(stream).await.map_err(|error| Unconnected::by(self, &error, shown))
    }

    fn now(&self) -> Moment {
        Moment::of(self.clock.wall())
    }

    /// Waits for the node's first word.
    ///
    /// Under TLS 1.3 the handshake is over for a client before the server has judged its certificate: a refusal is what is read
    /// first. Whoever writes before may lose it, and would not know whether anything was done.
    async fn hear_first(&self, stream: impl ByteStream + 'static) -> io::Result<Box<dyn ByteStream>> {
        let (mut reader, writer) = split(stream);
        let mut first = vec![0; 256];
        match deadline(&*self.clock, FIRST_WORD, reader.read(&mut first)).await {
            Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Ok(length)) => {
                first.truncate(length);
                Ok(Box::new(join(io::Cursor::new(first).chain(reader), writer)))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(Box::new(join(reader, writer))),
        }
    }
}

/// What tonic dials with.
#[derive(Clone)]
struct Connector(Arc<Way>);

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn ByteStream>>;
    type Error = Unconnected;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let way = self.0.clone();
        Box::pin(async move { way.connect().await.map(TokioIo::new) })
    }
}
