//! Requests to one endpoint: each sent once, bounded in time and size.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::{ByteStream, Clock, Dial, deadline, spoken};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Method, Request};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;
use crate::link::{Idle, Link, Stream};
use crate::message::{Answer, Ask, Failure};
use crate::tls::{self, Identity, Trust, TrustError};

/// The time allowed for a request unless told otherwise, from dialling to the last byte of the answer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The bytes that the body of an answer may have unless told otherwise.
pub const LIMIT: usize = 64 << 20;

/// How long a connection may be idle and still be used. Proxmox closes its own after five seconds: what is closed here
/// first is never closed there at the moment of sending.
pub const IDLE_TIME: Duration = Duration::from_secs(4);

/// How many idle connections are kept.
pub const IDLE_CONNECTIONS: usize = 4;

/// Asks one endpoint. Many may ask at once; each has a connection of its own while it does.
pub struct Client {
    endpoint: Endpoint,
    trust: Trust,
    deadline: Duration,
    limit: usize,
    tls: Option<TlsConnector>,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
    /// Nothing if each request has a connection of its own.
    idle: Option<Idle>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("deadline", &self.deadline)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The client of this endpoint. Asks nothing yet. Where the endpoint is without TLS, nothing is trusted and nothing
    /// is checked.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if no certificate can be judged by what is trusted, or if there is a fingerprint but no TLS: who
    /// wrote it down expects that it is looked at.
    pub fn new(
        endpoint: Endpoint,
        trust: &Trust,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TrustError> {
        let tls = match (endpoint.is_secure, trust) {
            (_, Trust::Plain) => None,
            (true, trust) => Some(tls::connector(trust, None, clock.clone())?),
            (false, Trust::Fingerprint(_)) => {
                return Err(TrustError {
                    why: "http:// has no certificate for the fingerprint: write https://".into(),
                });
            }
            (false, _) => None,
        };
        let idle = Some(Idle::new(IDLE_TIME, IDLE_CONNECTIONS));
        Ok(Self { endpoint, trust: trust.clone(), deadline: DEADLINE, limit: LIMIT, tls, dial, clock, idle })
    }

    /// Shows who castle is to a server that asks. Where the endpoint is without TLS, nobody asks.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if certificate and key do not belong together.
    pub fn with_identity(self, identity: &Identity) -> Result<Self, TrustError> {
        let tls = match &self.tls {
            Some(_) => Some(tls::connector(&self.trust, Some(identity), self.clock.clone())?),
            None => None,
        };
        Ok(Self { tls, ..self })
    }

    /// Allows each request this time, from dialling to the last byte of the answer, and not [`DEADLINE`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Allows the body of an answer so many bytes, and not [`LIMIT`].
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Keeps so many idle connections, and not [`IDLE_CONNECTIONS`]: for who asks many things at once.
    #[must_use]
    pub fn with_idle_connections(self, most: usize) -> Self {
        Self { idle: Some(Idle::new(IDLE_TIME, most)), ..self }
    }

    /// Uses no connection twice, and says so (`Connection: close`).
    #[must_use]
    pub fn without_reuse(self) -> Self {
        Self { idle: None, ..self }
    }

    /// Where it asks.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks once. A connection that turns out to be closed before anything was sent over it is replaced by another; what
    /// may have been sent is never sent again.
    ///
    /// # Errors
    ///
    /// [`Failure`] if there is no answer. An answer is one whatever its status.
    pub async fn ask(&self, ask: &Ask) -> Result<Answer, Failure> {
        let begun = self.clock.monotonic();
        let request = self.request(ask)?;
        if !ask.fresh {
            while let Some(link) = self.idle.as_ref().and_then(|idle| idle.take(self.clock.monotonic())) {
                match self.exchange(link, request.clone(), begun).await {
                    Err(Failure::NotSent(_)) => {}
                    answered => return answered,
                }
            }
        }
        self.exchange(Link::new(self.connected(begun).await?).await?, request, begun).await
    }

    /// Asks once, over a connection of its own, and gives the answer as it comes. The deadline is for its head alone.
    ///
    /// # Errors
    ///
    /// [`Failure`] if no answer begins.
    pub async fn open(&self, ask: &Ask) -> Result<Stream, Failure> {
        let begun = self.clock.monotonic();
        let request = self.request(ask)?;
        let link = Link::new(self.connected(begun).await?).await?;
        deadline(&*self.clock, self.left(begun), link.open(request))
            .await
            .map_err(|_| Failure::Lost(format!("no answer within {}", spoken(self.deadline))))?
    }

    /// What is left of the time for a request that was begun then.
    fn left(&self, begun: Duration) -> Duration {
        self.deadline.saturating_sub(self.clock.monotonic().saturating_sub(begun))
    }

    async fn exchange(&self, link: Link, request: Request<Full<Bytes>>, begun: Duration) -> Result<Answer, Failure> {
        let (answer, link) = deadline(&*self.clock, self.left(begun), link.exchange(request, self.limit))
            .await
            .map_err(|_| Failure::Lost(format!("no whole answer within {}", spoken(self.deadline))))??;
        if let (Some(idle), Some(link)) = (&self.idle, link) {
            idle.keep(link, self.clock.monotonic());
        }
        Ok(answer)
    }

    /// A new connection. It shares the deadline of the exchange: what was not even connected has certainly had no effect.
    async fn connected(&self, begun: Duration) -> Result<Box<dyn ByteStream>, Failure> {
        deadline(&*self.clock, self.left(begun), self.connect()).await.map_err(|_| {
            Failure::NotSent(format!(
                "no connection to {}: no result within {}",
                self.endpoint.target,
                spoken(self.deadline)
            ))
        })?
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>, Failure> {
        let target = &self.endpoint.target;
        let stream = self.dial.dial(target).await.map_err(|error| Failure::NotSent(error.to_string()))?;
        let Some(tls) = &self.tls else { return Ok(stream) };
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| Failure::Untrusted(format!("{target} has a name for which there are no certificates")))?;
        match tls.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(verdict) => Failure::Untrusted(format!("no TLS with {target}: {}", tls::told(verdict))),
                None => Failure::NotSent(format!("no TLS with {target}: {error}")),
            }),
        }
    }

    /// The request with all its headers.
    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Failure> {
        let unfit = |what: &str| Failure::NotSent(format!("the request cannot be sent: its {what}"));
        let host = HeaderValue::from_str(&self.endpoint.host).map_err(|_| unfit("host is no header"))?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static("castle"));
        // Nothing here could unpack what something in between has packed.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(ask.headers.clone());

        headers.insert(HOST, host);
        headers.remove(CONNECTION);
        if self.idle.is_none() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
        if [Method::PUT, Method::POST, Method::PATCH].contains(&ask.method) {
            // Left to itself, hyper does not say it of an empty body, which some servers then refuse.
            headers.insert(CONTENT_LENGTH, HeaderValue::from(ask.body.len()));
        }
        let path = self.endpoint.path(&ask.path_and_query);
        let request = Request::builder().method(&ask.method).uri(path).body(Full::new(ask.body.clone()));
        let mut request = request.map_err(|_| unfit("path or query is not encoded"))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}
