//! One request over one connection: dialled, signed, sent, answered. Bounded in time and size, and never repeated.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use castle_seams::{ByteStream, Clock, Dial, deadline};
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use self::endpoint::Endpoint;
use crate::model::{ConfigError, Credentials, S3Config};
use crate::sign::{Parts, Signed, Stamp, encode_query, sha256_hex, sign};

mod endpoint;
mod tls;

/// The time allowed for a request, from dialling to the last byte of the answer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// No record and no answer is larger.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Asks one bucket.
pub(crate) struct Client {
    pub endpoint: Endpoint,
    pub deadline: Duration,
    region: String,
    credentials: Credentials,
    tls: Option<TlsConnector>,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub method: Method,
    /// The path as it is sent.
    pub path: String,
    pub query: &'a [(&'a str, &'a str)],
    /// Headers besides those that every request has; names in lower case. All are signed.
    pub headers: &'a [(&'static str, &'a str)],
    pub body: &'a [u8],
}

/// What was answered, whatever the status.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The request's, so that it can be kept out of whatever is told.
    signature: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of the request was sent.
    NotSent(String),
    /// Nothing of the request was sent, nor will it be while the other end is as it is.
    Untrusted(String),
    /// Some of it was sent, perhaps all; no or no whole answer came.
    Lost(String),
    /// The answer is larger than anything that was asked for.
    TooLarge,
}

impl Client {
    /// The client of the bucket, with the default deadline.
    pub(crate) fn new(
        config: &S3Config,
        credentials: Credentials,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        credentials.check()?;
        let endpoint = Endpoint::new(config)?;
        let tls = match endpoint.is_secure {
            true => Some(tls::connector(config.ca_pem.as_deref(), clock.clone())?),
            false => None,
        };
        Ok(Self { endpoint, deadline: DEADLINE, region: config.region.clone(), credentials, tls, dial, clock })
    }

    /// Asks once.
    pub(crate) async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Failure> {
        let begun = self.clock.monotonic();
        // The two halves share one deadline: what was not even connected has certainly had no effect.
        let stream = deadline(&*self.clock, self.deadline, self.connect())
            .await
            .map_err(|elapsed| Failure::NotSent(format!("no connection to {}: {elapsed}", self.endpoint.target)))??;
        let (request, signature) = self.request(ask)?;
        let left = self.deadline.saturating_sub(self.clock.monotonic().saturating_sub(begun));
        let (status, headers, body) = deadline(&*self.clock, left, exchange(stream, request))
            .await
            .map_err(|_| Failure::Lost(format!("no whole answer within {:?}", self.deadline)))??;
        Ok(Answer { status, headers, body, signature })
    }

    /// The text as it may be told: without credentials, without the signature, on one line and not long.
    pub(crate) fn tellable(&self, answer: &Answer, text: &str) -> String {
        const LONGEST: usize = 200;
        let text = self.credentials.scrub(&text.replace(&answer.signature, "(redacted)"));
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>, Failure> {
        let target = &self.endpoint.target;
        let stream = self.dial.dial(target).await.map_err(|error| Failure::NotSent(error.to_string()))?;
        let Some(tls) = &self.tls else { return Ok(stream) };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| Failure::Untrusted(format!("{target} has a name for which there are no certificates")))?;
        match tls.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let told = format!("no TLS with {target}: {error}");
                let is_verdict = matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>());
                Err(if is_verdict { Failure::Untrusted(told) } else { Failure::NotSent(told) })
            }
        }
    }

    /// The signed request, and its signature.
    fn request(&self, ask: &Ask<'_>) -> Result<(Request<Full<Bytes>>, String), Failure> {
        let query = encode_query(ask.query);
        let parts = Parts {
            method: ask.method.as_str(),
            host: &self.endpoint.host,
            path: &ask.path,
            query: &query,
            headers: ask.headers,
            body_sha256: &sha256_hex(ask.body),
        };
        let stamp = Stamp::since_epoch(since_epoch(&*self.clock));
        let Signed { headers: added, signature } = sign(&parts, &self.credentials, &self.region, &stamp);
        let uri = if query.is_empty() { ask.path.clone() } else { format!("{}?{query}", ask.path) };
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(uri)
            .header("host", &self.endpoint.host)
            .header("user-agent", "castle")
            // A record that something in between has packed would not be the one its tag stands for.
            .header("accept-encoding", "identity")
            .header("connection", "close");
        if ask.method == Method::PUT {
            // Left to itself, hyper does not say it of an empty body, which object stores then refuse.
            request = request.header("content-length", ask.body.len());
        }
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        for (name, value) in added {
            let mut value = HeaderValue::from_str(&value).map_err(|error| Failure::NotSent(error.to_string()))?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(ask.body)));
        Ok((request.map_err(|error| Failure::NotSent(error.to_string()))?, signature))
    }
}

/// What the calendar says, as the time since 1970. A calendar before that is as good as none.
fn since_epoch(clock: &dyn Clock) -> Duration {
    clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Sends the request and reads the answer to its end.
async fn exchange(
    stream: Box<dyn ByteStream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
    let lost = |error: hyper::Error| Failure::Lost(causes(&error));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let conversation = pin!(async {
        let (head, body) = sender.send_request(request).await.map_err(lost)?.into_parts();
        if body.size_hint().lower() > MAX_BYTES as u64 {
            return Err(Failure::TooLarge);
        }
        let body =
            Limited::new(body, MAX_BYTES).collect().await.map_err(|error| match error.downcast::<hyper::Error>() {
                Ok(error) => lost(*error),
                Err(error) if error.is::<LengthLimitError>() => Failure::TooLarge,
                Err(error) => Failure::Lost(error.to_string()),
            })?;
        Ok((head.status, head.headers, body.to_bytes()))
    });
    match select(conversation, pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        // The connection is at its end; what it has brought is still to be taken.
        Either::Right((_, conversation)) => conversation.await,
    }
}

/// An error with what lies beneath it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}
